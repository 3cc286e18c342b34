"""The views: everything that the page asks about a text, by name. JSON in, JSON out.

The server answers them (`routes`), and in the static site a worker of the browser does (`page/worker.js`). A view is
imported when it is first asked for. In a browser, imports are most of what the first answer costs, and `snapshot.mjs`
may import nothing that is compiled.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import SchemaWarning, UnbraidError
from ...version import __version__
from .question import Question

if TYPE_CHECKING:
    from ..model import Model

NAMES = (
    *("formats", "samples", "reference", "detect", "guess", "save", "export"),
    *("apart", "chunks", "grammars", "walk", "cut", "spell"),
)
_OF_MODELS = ("cut", "spell")
"""Views that ask a served model, if there is one."""


def answer(models: Mapping[str, Model], name: str, body: bytes | str) -> str:
    """The reply of a view. Raises `UnbraidError`, with what to change, for a request that cannot be answered."""
    if name not in NAMES:
        raise UnbraidError(f"no view {name[:64]!r}: there are {', '.join(NAMES)}")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UnbraidError("the body must be a JSON object")
    view = _view(name)
    with warnings.catch_warnings(record=True, category=SchemaWarning) as caught:
        warnings.simplefilter("always", SchemaWarning)
        reply = view(Question(fields), models) if name in _OF_MODELS else view(Question(fields))
    if caught:
        reply["warnings"] = [str(each.message) for each in caught]
    return json.dumps(reply, ensure_ascii=True, separators=(",", ":"))


def about() -> dict[str, Any]:
    """The version, and where the documentation is, if the package says so."""
    try:
        urls = metadata("unbraid").get_all("Project-URL") or []
    except PackageNotFoundError:  # in a checkout that is not installed
        urls = []
    addresses = dict(url.split(", ", 1) for url in urls)
    return {"version": __version__, "documentation": addresses.get("Documentation")}


def documents() -> list[Path]:
    """The documentation's files, where this is a checkout. A wheel has them in `page/docs`."""
    folder = Path(__file__).parents[3]
    if not (folder / "mkdocs.yml").is_file():
        return []
    return [path for path in (folder / "docs").iterdir() if path.suffix in (".md", ".png")]


def _view(name: str) -> Callable[..., dict[str, Any]]:
    """One of `NAMES`, imported now."""
    if name == "apart":
        from .apart import taken_apart

        return taken_apart
    if name == "chunks":
        from .chunks import as_chunks

        return as_chunks
    if name in ("grammars", "walk"):
        from .constrain import grammars, walked

        return grammars if name == "grammars" else walked
    if name in ("cut", "spell"):
        from .tokens import cut, spelled

        return cut if name == "cut" else spelled
    from .samples import detected, exported, guessed, listed, reference, samples, saved

    views = {"formats": listed, "samples": samples, "reference": reference, "detect": detected, "guess": guessed}
    return {**views, "save": saved, "export": exported}[name]


def answer_in_browser(name: str, body: str) -> str:
    """The same for a page without a server. An error is an object with `error`."""
    try:
        return answer({}, name, body)
    except UnbraidError as error:
        return json.dumps({"error": str(error)})
