"""The playground on the server: the page, its files, and its views.

The page and its files are public, as a browser asks for them before anybody can give it a key. The views need the key
that all of the API needs, and run within the budget of a request. `/` is the page for browsers, and says the version to
all others.

The page may load nothing but its own files, and no page may show it in a frame: see `_HEADERS`.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

from ..api.bodies import read_json_body
from ..api.health import version
from ..errors import ApiError
from ..http import json_response, while_connected
from ..service import Service
from .views import about, answer, documents

_MOST_BODY = 4_000_000
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {
    ".js": "text/javascript",
    ".html": "text/html",
    ".css": "text/css",
    ".json": "application/json",
    ".md": "text/markdown",
}


async def home(service: Service, request: Request) -> Response:
    """The page for browsers, the version for all others."""
    if "text/html" not in request.headers.get("accept", ""):
        response = await version(service, request)
    else:
        response = _file(request, "index.html")
    response.headers["Vary"] = "Accept"
    return response


async def file(service: Service, request: Request) -> Response:
    """A file of the page."""
    return _file(request, request.path_params["path"])


async def config(service: Service, request: Request) -> Response:
    """The page's first question: is there a server, of which version, and does it want a key?"""
    facts = {"server": True, "key": bool(service.api_keys), "recorded": "recorded_cases.json" in _files(), **about()}
    return json_response(facts, headers={"Cache-Control": "no-store"})


async def models(service: Service, request: Request) -> Response:
    """The models, as the page shows them."""
    shown = [
        {
            "name": served.names[0],
            "format": served.model.format.name,
            "chats": served.model.builder is not None,
            "tokens": served.model.vocabulary is not None,
            "speaks": service.speaker is not None
            or (served.vocoder is not None and served.model.format.speech is not None),
        }
        for served in service.models
    ]
    return json_response({"models": shown, "listeners": _listeners(service)})


def _listeners(service: Service) -> list[dict[str, object]]:
    """The model that transcribes, if there is one, and whether it can say when words are spoken."""
    if service.transcriber is None:
        return []
    from ...speech.listening import supports_word_times

    return [{"name": service.listener_names[0], "words": supports_word_times(service.transcriber.listener)}]


async def view(service: Service, request: Request) -> Response:
    """One of the views."""
    body = await read_json_body(request, min(service.max_body, _MOST_BODY))
    work = service.planned(answer, service.models_by_name(), request.path_params["view"], body)
    return Response(await while_connected(request.receive, work), media_type="application/json")


Handler = Callable[[Service, Request], Awaitable[Response]]
ROUTES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("/", "GET", home, True),
    ("/playground/config.json", "GET", config, True),
    ("/playground/models.json", "GET", models, False),
    ("/playground/views/{view}", "POST", view, False),
    ("/playground/{path:path}", "GET", file, True),
)
"""Path, method, handler, and whether it needs no API key."""


def _file(request: Request, path: str) -> Response:
    file = _files().get(path)
    if file is None:
        raise ApiError(404, f"the playground has no file {path[:128]!r}")
    data, tag = file
    # Asked for each time, and sent if it has changed: a new version is a new page.
    headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    suffix = path[path.rfind(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(path)[0]
    return Response(data, media_type=kind, headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """All files of the page by their paths, each with its entity tag. No other can be asked for."""
    pages: dict[str, tuple[bytes, str]] = {}

    def read(folder: Traversable, prefix: str) -> None:
        for one in folder.iterdir():
            if one.is_dir():
                read(one, f"{prefix}{one.name}/")
            else:
                keep(one, prefix)

    def keep(one: Traversable, prefix: str) -> None:
        data = one.read_bytes()
        pages[prefix + one.name] = data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'

    read(files(__package__).joinpath("page"), "")
    for one in documents():
        keep(one, "docs/")
    return pages
