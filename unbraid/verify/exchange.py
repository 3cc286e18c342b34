"""What is asked of a server and what came back, in no dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Ending = Literal["stop", "length", "tool_calls", "other", ""]
"""Why a reply ended, in the words of the chat API. Other: it was refused or filtered, so that it owes nothing more.
Empty: the server did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """One request, in no dialect.

    text: what the user says.
    system: the system message.
    tools: functions as the chat API has them inside `function`: name, description, parameters, strict.
    choice: "auto", "none", "required", or the name of a tool.
    max_tokens: None for as many as the server may write.
    schema: of an answer that has to be JSON.
    history: what follows the user's message, in the dialect's own words: replies as they came, and results.
    """

    text: str
    system: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    choice: str = "auto"
    parallel: bool | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    history: tuple[Any, ...] = ()
    raw: Mapping[str, Any] | None = None
    """Fields to send as they are, over all others."""


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call as the client sees it: `arguments` is the text that the server sent."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CountedTokens:
    """The tokens that the server counted."""

    prompt: int
    completion: int
    total: int | None
    cached: int = 0
    """How many of the prompt's came from a cache."""
    reasoning: int = 0
    """How many of the reply's are reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedReply:
    """What a client makes of a reply."""

    status: int = 200
    content: str = ""
    reasoning: str = ""
    calls: tuple[ObservedCall, ...] = ()
    ending: Ending = ""
    usage: CountedTokens | None = None
    faults: tuple[str, ...] = ()
    """Where the reply breaks the protocol of its dialect."""
    id: str = ""
    """The name of the reply."""
    native: tuple[Any, ...] = ()
    """The reply as a client sends it back."""
    error: str = ""
    """What the server said instead of a reply."""
    token_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyExchange:
    """One request and its reply, with every byte."""

    request: ProbeRequest
    body: Mapping[str, Any]
    streamed: bool
    raw: str = field(repr=False)
    reply: ObservedReply
    written: str | None = None
    """What the model wrote, where the server shows it."""
    before: str | None = None
    """The end of what it was given."""
    counted: bool = True
    """Whether the reply has to count its tokens."""


def json_of(text: str | bytes) -> Any:
    """The JSON of a text from elsewhere. What is none, or nests too deep, raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def arguments_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a tool's arguments."""
    schema: Mapping[str, Any] = tool.get("parameters") or {"type": "object"}
    return schema
