"""Which file of a model is meant: among quantisations, and among the shards of one model.

Repositories and packages hold several quantisations (`Q4_K_M`, `Q8_0`), and large models come as shards
(`…-00001-of-00003.gguf`). llama.cpp is given the first shard and finds the others beside it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from .errors import ModelError

_PREFERRED = "q4_k_m"  # the quantisation that most people take
_MOST_LISTED = 12
_shard = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def files_below(folder: Path, ending: str = ".gguf") -> list[str]:
    """The paths of all files in a folder and its subfolders, relative to it, that end so."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name.lower().endswith(ending))
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def pick_file(names: list[str], choice: str | None, where: str) -> str:
    """The one of `names` that is meant.

    choice: the end of its path or, failing that, a part of its name. None takes the only file, or the usual
        quantisation. Of a model in shards, the first shard counts.
    where: what the names were found in, for error messages.
    """
    names = [name for name in names if is_first(name)]
    if choice is None:
        if len(names) > 1:
            names = [name for name in names if _PREFERRED in name.lower()] or names
    else:
        ends = [name for name in names if PurePosixPath("/" + name).match(choice.strip("/"))]
        parts = [name for name in names if choice.lower() in PurePosixPath(name).name.lower()]
        if not ends and not parts:
            raise ModelError(f"{where} has no file {choice}; it has {_listed(names)}")
        names = ends or parts
    if not names:
        raise ModelError(f"{where} has no .gguf file: name another model, or one that was converted to GGUF")
    if len(names) > 1:
        raise ModelError(f"{where} has several files that match: name one of them, as in SPEC:FILE: {_listed(names)}")
    return names[0]


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return (", ".join(names[:_MOST_LISTED]) or "none") + (f" and {more} more" if more > 0 else "")


def is_first(name: str) -> bool:
    """Whether it is a whole model, or the first shard of one."""
    match = _shard.search(name)
    return match is None or int(match[1]) == 1


def is_shard(name: str) -> bool:
    return _shard.search(name) is not None


def shards_of(chosen: str, names: list[str]) -> list[str]:
    """All files of a sharded model, given one of them; empty if it is not sharded."""
    match = _shard.search(chosen)
    if match is None:
        return []
    stem = chosen[: match.start()]
    return [name for name in names if name.startswith(stem) and (other := _shard.search(name)) and other[2] == match[2]]
