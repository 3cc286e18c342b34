"""A server and its own description of itself (`/openapi.json`).

Schemathesis makes requests of the description, and what the server answers must be as described.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st

from unbraid.engines.replay import script
from unbraid.server.storage.store import Store

from .real_tokenizers import encode
from .scripted_server import HELLO, Scripted

_CHECKED = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
_CHECKED += ["response_headers_conformance"]
OUTPUT = '<think>\nHm.\n</think>\n\nYes.<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "tools": None, "response_format": None, "tool_choice": None},
    "/v1/completions": {"prompt": "Once", "response_format": None},
    "/v1/messages": {"messages": HELLO, "max_tokens": 20, "tools": None, "tool_choice": None, "output_config": None},
    "/v1/messages/count_tokens": {"messages": HELLO, "tools": None},
    "/v1/responses": {
        "input": "Hello!",
        "instructions": None,
        "previous_response_id": None,
        "tools": None,
        "text": None,
    },
    "/v1/parse": {"text": OUTPUT, "ids": None, "prompt": None, "format": "hermes", "tools": None},
    "/v1/tokenize": {"messages": HELLO, "prompt": None, "tools": None},
}
"""What a description cannot say: without these, nearly every request is refused for its messages."""


class DescribedApi:
    """The server, with a script for its engine. It has stored one response, `stored`."""

    def __init__(self) -> None:
        import schemathesis  # takes seconds: not when tests are collected
        from schemathesis.checks import CHECKS, load_all_checks

        load_all_checks()
        self._checks = [CHECKS.get_one(name) for name in _CHECKED]
        self._kinds = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
        self.scripted = Scripted()
        ids = encode(self.scripted.tokenizer, OUTPUT)
        self.scripted.choose = lambda _: script(ids, chunks=3)
        self._folder = tempfile.TemporaryDirectory()
        self.scripted.service.store = Store(Path(self._folder.name) / "responses.sqlite", 30)
        self.scripted.server.start()
        self.url = self.scripted.server.url
        self.schema: Any = schemathesis.openapi.from_url(f"{self.url}/openapi.json")
        self.operations = {f"{one.method.upper()} {one.path}": one for one in self._described()}
        reply = httpx.post(f"{self.url}/v1/responses", json={"input": "Hello!"}, timeout=60)
        self.stored = reply.json()["id"]

    def _described(self) -> list[Any]:
        return [result.ok() for result in self.schema.get_all_operations()]

    def close(self) -> None:
        self.scripted.server.stop()
        self._folder.cleanup()

    def cases(self, operation: str) -> st.SearchStrategy[Any]:
        """Requests as the description has them, and others."""
        positive, negative = (self.operations[operation].as_strategy(generation_mode=kind) for kind in self._kinds)
        return st.booleans().flatmap(lambda good: positive if good else negative)

    def check(self, case: Any, mended: bool) -> None:
        """Send a request. `mended`: with what it needs so as not to be refused at once."""
        if mended:
            if isinstance(case.body, dict):
                case.body = {**case.body, **GOOD.get(case.path, {})}
            if "id" in (case.path_parameters or {}) and case.method != "DELETE":
                case.path_parameters = {**case.path_parameters, "id": self.stored}
        case.call_and_validate(checks=self._checks, timeout=60)
