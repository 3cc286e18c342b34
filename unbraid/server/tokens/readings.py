"""How the reply to a chat request is to be read.

A gateway sends the request along with every chunk of the reply. A `Reading` is what it means for the parser, found once
for the same bytes, with a digest that tells whether a state belongs to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeVar, cast

import msgspec

from ...caching import LruCache
from ...core.grammar import Format
from ...core.limits import Limits
from ...core.tools import Tools
from ...parsing import Parser
from ...templates import BegunCall
from ...version import __version__
from ..api.bodies import invalid
from ..api.chat import task_of
from ..errors import ApiError
from ..generation.begun_calls import ContinuedParser
from ..generation.plan import begun_of
from ..generation.task import client_words
from ..limits import check_limits
from ..model import Model
from .render import read_chat
from .wire import ReadingFields, TextFields, field_bytes

LIMITS = Limits(arguments=64, held=64 * 1024)
"""Tighter than a parser's own: what it holds back and remembers goes to the client and back with each chunk."""
Fields = TypeVar("Fields", bound=msgspec.Struct)
_KEPT = 256
_MOST = 256_000
"""Requests of more bytes are read anew for each chunk."""


@dataclass(eq=False)
class Reading:
    """What a parser for the replies to one request is made of."""

    model: Model
    format: Format
    tools: Tools
    digest: bytes
    """Of the model and all that follows from the request: a state that was saved with another one is of no use."""
    separate_reasoning: bool = True
    calls_in_reasoning: bool | None = None
    include_reasoning: bool = True
    token_ids: bool = False
    """Whether replies are to have the token ids."""
    named: bool = False
    """Whether the request names the tool to call. The finish reason is the engine's then."""
    forced: bool = False
    """Whether the request asks for a call. The content is never null then."""
    custom: frozenset[str] = frozenset()
    """The tools whose input is free text."""
    begun: BegunCall | None = None
    """The call that the model goes on with, at the end of the prompt."""

    def goes_on(self, prompt: Sequence[int] | None) -> BegunCall | None:
        """The call that a prompt ends inside of."""
        begun = self.begun
        return begun if begun is not None and tuple((prompt or ())[-len(begun.ids) :]) == begun.ids else None

    def parser(self, prompt: Sequence[int] | None, seed: int, *, keep_message: bool = False) -> Parser:
        begun = self.goes_on(prompt)
        make = cast(Callable[..., Parser], Parser)
        if begun is not None and prompt is not None:
            prompt = prompt[: -len(begun.ids)]
            make = partial(ContinuedParser, begun) if keep_message else make
        named = begun is not None and begun.named
        return make(
            self.format,
            tools=self.tools,
            unknown_tools="emit" if named else self.model.unknown_tools if self.tools else "text",
            tokenizer=self.model.vocabulary,
            prompt=prompt,
            separate_reasoning=self.separate_reasoning,
            calls_in_reasoning=self.calls_in_reasoning,
            keep_message=keep_message,
            limits=LIMITS,
            seed=seed,
        )


class Readings:
    """The readings of a model's requests, by what these say."""

    def __init__(self, model: Model) -> None:
        if model.vocabulary is None:
            raise ApiError(400, "only the engine knows the model's tokens: start the server with --tokenizer")
        self._model = model
        self._chats: LruCache[bytes, Reading] = LruCache(_KEPT)
        self._text = lru_cache(2)(self._read_text)

    def chat(self, request: bytes) -> Reading:
        """The reading of a `chat_request`."""
        reading = self._chats.get(request)
        if reading is None:
            reading = self._read_chat(request)
            if len(request) <= _MOST:
                self._chats[request] = reading
        return reading

    def has_read(self, request: bytes) -> bool:
        return request in self._chats

    def text(self, request: bytes) -> Reading:
        """The reading of a `completion_request`: all is text but what ends the output."""
        return self._text(_decoded(request, TextFields).skip_special_tokens is not False)

    def _read_chat(self, request: bytes) -> Reading:
        fields, model = _decoded(request, ReadingFields), self._model
        with client_words({("tools",): ("chat_request", "tools")}):
            check_limits(tools=fields.tools)
            tools = Tools(fields.tools or ()) if fields.tool_choice != "none" else Tools([])
        format = model.format if fields.tts_output else model.format.silent()
        options = [fields.tools, fields.tool_choice == "none", fields.separate_reasoning, fields.calls_in_reasoning]
        return Reading(
            model,
            format,
            tools,
            _digest(format, options),
            separate_reasoning=fields.separate_reasoning is not False,
            calls_in_reasoning=fields.calls_in_reasoning,
            include_reasoning=fields.include_reasoning is not False,
            token_ids=bool(fields.return_token_ids),
            named=isinstance(fields.tool_choice, dict),
            forced=isinstance(fields.tool_choice, dict) or fields.tool_choice == "required",
            custom=frozenset(name for name in tools if tools.custom(name) is not None),
            begun=_begun(model, request) if fields.continue_final_message and field_bytes(fields.messages) else None,
        )

    def _read_text(self, without_ends: bool) -> Reading:
        format = Format("plain", ends=self._model.format.ends if without_ends else ())
        return Reading(self._model, format, Tools([]), _digest(format, without_ends))


def _decoded(request: bytes, kind: type[Fields]) -> Fields:
    try:
        return msgspec.json.decode(request, type=kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error


def _begun(model: Model, request: bytes) -> BegunCall | None:
    with client_words({("messages",): ("chat_request", "messages")}):
        return begun_of(model, task_of(read_chat(request)))


def _digest(format: Format, options: object) -> bytes:
    text = json.dumps([__version__, format.name, options], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
