"""What must hold for any reply, whoever asked: the checks of a probe, and of recorded traffic.

>>> from .exchange import ObservedReply, json_of
>>> [fault.kind for fault in check_reply(ObservedReply(content="Hi</think>", ending="stop"), ())]
['markup_leaked']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from ..formats import all_formats
from .exchange import ObservedCall, ObservedReply, VerifyExchange, arguments_of, json_of

KINDS: Mapping[str, str] = {
    "invalid_json": "the arguments of a call are not JSON",
    "unknown_name": "a call names a tool that was not offered",
    "schema_mismatch": "the arguments of a call do not follow the tool's schema",
    "cut_but_complete": "a call was cut off, and the reply says that it is complete",
    "markup_leaked": "markup of the model's format stands in what a client shows",
    "stream_differs": "a streamed reply says something else than a whole one",
    "choice_ignored": "`tool_choice` was not followed",
    "parallel_ignored": "`parallel_tool_calls: false`, and several calls came",
    "value_changed": "an argument is not what was asked for, letter by letter",
    "reasoning_mixed": "reasoning stands in the answer, or the answer in the reasoning",
    "history_refused": "the server refuses its own reply when it is sent back with results",
    "stop_ignored": "a stop sequence stands in the answer, or did not end it",
    "length_ignored": "`max_tokens` was passed, or its end is not called `length`",
    "usage_wrong": "the counted tokens are missing or do not add up",
    "protocol": "the reply breaks the rules of its API",
    "error_undocumented": "a bad request gets no error of the documented shape",
    "server_error": "the server failed",
    "prompt_differs": "the prompt is not what the model's template says",
}
"""Every kind of fault, and what it means."""

_MARKUP = re.compile(r"</?[a-zA-Z_][^<>\s]{2,60}>|<\|[^<>\s]{2,60}\|>|<｜[^<>]{2,60}｜>|\[/?[A-Z_]{4,}\]")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a reply."""

    kind: str
    detail: str


@cache
def markers() -> frozenset[str]:
    """The markup of every format, as far as no prose has it."""
    texts = (text for format in all_formats() for text in _texts(format))
    return frozenset(marker for text in texts for marker in _MARKUP.findall(text))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in ("name", "aliases", "description"):
                yield from _texts(getattr(value, field.name))
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _texts(each)


def leaked(text: str) -> list[str]:
    """The markers in a text that a client shows."""
    return [marker for marker in dict.fromkeys(_MARKUP.findall(text)) if marker in markers()]


def call_fault(call: ObservedCall, tools: Sequence[Mapping[str, Any]]) -> Fault | None:
    """What is wrong with a call: the first of JSON, name and schema."""
    from jsonschema import Draft202012Validator

    try:
        arguments = json_of(call.arguments)
    except ValueError as error:
        return Fault("invalid_json", f"{call.name}: {error}: {call.arguments[:200]!r}")
    tool = next((tool for tool in tools if tool["name"] == call.name), None)
    if tool is None:
        offered = ", ".join(each["name"] for each in tools)
        return Fault("unknown_name", f"{call.name!r} was not offered ({offered})")
    wrong = next(Draft202012Validator(dict(arguments_of(tool))).iter_errors(arguments), None)
    return None if wrong is None else Fault("schema_mismatch", f"{call.name}: {wrong.message}")


def check_reply(reply: ObservedReply, tools: Sequence[Mapping[str, Any]], *, counted: bool = True) -> Iterator[Fault]:
    """What is wrong with a reply, by itself and by the tools that were offered. counted: it has to count its tokens."""
    if (reply.status in (0, 200) and reply.error) or reply.status >= 500:
        yield Fault("server_error", reply.error[:500])
    if reply.status != 200 or reply.error:
        return
    yield from (Fault("protocol", fault) for fault in dict.fromkeys(reply.faults))
    yield from _check_calls(reply, tools)
    # A call that is cut off may be text: then its markup is all that there is of it.
    shown = () if reply.ending == "length" else (("content", reply.content), ("reasoning", reply.reasoning))
    for place, text in shown:
        for marker in leaked(text):
            yield Fault("markup_leaked", f"{marker} in the {place}: {_around(text, marker)!r}")
    if counted or reply.usage is not None:
        yield from _check_usage(reply)


def _check_calls(reply: ObservedReply, tools: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    names = [call.id for call in reply.calls]
    if "" in names or len(set(names)) != len(names):
        yield Fault("protocol", f"the ids of the calls are missing or not unique: {names}")
    for call in reply.calls:
        fault = call_fault(call, tools)
        if fault is None:
            continue
        if fault.kind == "invalid_json" and reply.ending == "tool_calls" and _is_cut(call.arguments):
            yield Fault("cut_but_complete", fault.detail)
        elif fault.kind != "invalid_json" or reply.ending != "length":
            yield fault
    if reply.calls and reply.ending == "":
        yield Fault("protocol", "the reply does not say why it ended")


def _is_cut(arguments: str) -> bool:
    """Whether arguments that are not JSON break off, which is not the same as being wrong."""
    try:
        json_of(arguments)
    except json.JSONDecodeError as error:
        return error.pos >= len(arguments.rstrip()) or "Unterminated" in error.msg
    except ValueError:  # they nest too deep to say
        return False
    return False


def _check_usage(reply: ObservedReply) -> Iterator[Fault]:
    usage = reply.usage
    if usage is None:
        yield Fault("usage_wrong", "the reply counts no tokens")
        return
    if usage.total is not None and usage.total != usage.prompt + usage.completion:
        yield Fault("usage_wrong", f"{usage.prompt} + {usage.completion} is not {usage.total}")
    if usage.prompt <= 0 or (usage.completion <= 0 and (reply.content or reply.calls or reply.reasoning)):
        yield Fault("usage_wrong", f"{usage.prompt} tokens of prompt and {usage.completion} of reply")


def _around(text: str, marker: str) -> str:
    at = text.index(marker)
    return text[max(at - 40, 0) : at + len(marker) + 40]


def check_exchange(exchange: VerifyExchange) -> Iterator[Fault]:
    """What is wrong with an exchange of which only request and reply are known."""
    yield from check_reply(exchange.reply, exchange.request.tools, counted=exchange.counted)
    if exchange.reply.calls and exchange.request.choice == "none":
        yield Fault("choice_ignored", "a call came, and `tool_choice` is none")
