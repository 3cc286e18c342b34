"""The views: everything that the page asks about a text, by name. JSON in, JSON out.

The server answers them (`routes`), and in the static site a worker of the browser does (`page/worker.js`). Each view is
loaded when it is first asked for: in a browser, loading is most of what the first answer costs.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import SchemaWarning, UnbraidError
from .asked import Question

if TYPE_CHECKING:
    from ..model import Model

_VIEWS = {
    "formats": "samples.listed",
    "samples": "samples.samples",
    "detect": "samples.detected",
    "apart": "apart.taken_apart",
    "chunks": "chunks.written",
    "grammars": "constrain.grammars",
    "walk": "constrain.walked",
    "save": "saving.saved",
}
_OF_MODELS = {"cut": "tokens.cut", "spell": "tokens.spelled"}
"""Views that ask a served model, where there is one."""


def answer(models: Mapping[str, Model], name: str, body: bytes | str) -> str:
    """What a view says. Raises `UnbraidError`, with what to change, for a request that cannot be answered."""
    home = {**_VIEWS, **_OF_MODELS}.get(name)
    if home is None:
        raise UnbraidError(f"no view {name[:64]!r}: there are {', '.join([*_VIEWS, *_OF_MODELS])}")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UnbraidError("the body must be a JSON object")
    module, _, function = home.partition(".")
    view: Callable[..., dict[str, Any]] = getattr(import_module(f"{__package__}.{module}"), function)
    with warnings.catch_warnings(record=True, category=SchemaWarning) as told:
        warnings.simplefilter("always", SchemaWarning)
        found = view(Question(fields), models) if name in _OF_MODELS else view(Question(fields))
    if told:
        found["warnings"] = [str(each.message) for each in told]
    return json.dumps(found, ensure_ascii=True, separators=(",", ":"))


def answer_in_browser(name: str, body: str) -> str:
    """The same for a page without a server. What goes wrong is told as an object with `error`."""
    try:
        return answer({}, name, body)
    except UnbraidError as error:
        return json.dumps({"error": str(error)})
