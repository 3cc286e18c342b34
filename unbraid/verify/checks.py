"""What must hold for any reply, whoever asked: the checks of a probe, and of recorded traffic.

>>> from .exchange import CountedTokens
>>> reply = ObservedReply(content="Hi</think>", ending="stop", usage=CountedTokens(5, 3, 8))
>>> [fault.kind for fault in check_reply(reply, ProbeRequest(text="Hello"))]
['markup_leaked']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from ..formats import all_formats
from .exchange import (
    ObservedCall,
    ObservedReply,
    ProbeRequest,
    VerifyExchange,
    arguments_of,
    json_of,
)

KINDS: Mapping[str, str] = {
    "invalid_json": "the arguments of a call are not JSON",
    "unknown_name": "a call names a tool that was not offered",
    "schema_mismatch": "the arguments of a call do not follow the tool's schema",
    "strict_ignored": "a schema with `strict: true` was not followed",
    "cut_but_complete": "a call was cut off, and the reply says that it is complete",
    "markup_leaked": "markup of the model's format stands in what a client shows",
    "character_broken": "a character came as U+FFFD or as half of a pair",
    "stream_differs": "a streamed reply says something else than a whole one",
    "tools_unseen": "the tools of a request are not in the prompt: the model does not know them",
    "choice_ignored": "`tool_choice` was not followed",
    "parallel_ignored": "`parallel_tool_calls: false`, and several calls came",
    "value_changed": "an argument is not what was asked for, letter by letter",
    "reasoning_mixed": "reasoning stands in the answer, or the answer in the reasoning",
    "reply_differs": "the reply is not what the model wrote",
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

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_BROKEN = re.compile(r"[\ufffd\ud800-\udfff]")
_WORDS = re.compile(r"</?(?:answer|arguments|code|escape|name|param|response|sep|tools?)>")
"""Markers of some format that other texts have: HTML's, and placeholders."""
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
    tags = {tag for text in texts for tag in _MARKUP.findall(text)}
    return frozenset(marker for marker in tags if not _WORDS.fullmatch(marker))


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


def leaked(text: str, question: str = "") -> list[str]:
    """The markers in a text that a client shows. What is quoted as code is none, nor what the request spells itself, as
    the beginning or the end."""
    tags, spelled = dict.fromkeys(_MARKUP.findall(_CODE.sub("", text))), _begun(question)
    return [marker for marker in tags if marker in markers() and _begun(marker) not in spelled]


def _begun(text: str) -> str:
    """A text whose tags that end are tags that begin."""
    return text.replace("</", "<").replace("[/", "[")


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
    if wrong is None:
        return None
    return Fault("strict_ignored" if tool.get("strict") else "schema_mismatch", f"{call.name}: {wrong.message}")


def check_reply(
    reply: ObservedReply, request: ProbeRequest, *, counted: bool = True, question: str = ""
) -> Iterator[Fault]:
    """What is wrong with a reply, by itself and by its request.

    counted: the reply has to count its tokens.
    question: all texts of the request.
    """
    if (reply.status in (0, 200) and reply.error) or reply.status >= 500:
        yield Fault("server_error", reply.error[:500])
    if reply.status != 200 or reply.error:
        return
    yield from (Fault("protocol", fault) for fault in dict.fromkeys(reply.faults))
    yield from _check_ending(reply, request)
    yield from _check_calls(reply, request)
    # A call that is cut off may be text: then its markup is all that there is of it.
    if reply.ending != "length":
        yield from _check_texts(reply, question)
    if counted or reply.usage is not None:
        yield from _check_usage(reply)


def _check_ending(reply: ObservedReply, request: ProbeRequest) -> Iterator[Fault]:
    named = request.choice not in ("auto", "none", "required")
    if reply.ending == "":
        yield Fault("protocol", "the reply does not say why it ended")
    elif reply.ending == "tool_calls" and not reply.calls:
        yield Fault("protocol", "the reply ended for calls, and has none")
    elif reply.ending == "stop" and reply.calls and not named:  # OpenAI ends a call that the request named by `stop`
        yield Fault("protocol", "the reply has calls, and did not end for them")


def _check_calls(reply: ObservedReply, request: ProbeRequest) -> Iterator[Fault]:
    names = [call.id for call in reply.calls]
    if "" in names or len(set(names)) != len(names):
        yield Fault("protocol", f"the ids of the calls are missing or not unique: {names}")
    used, most = reply.usage and reply.usage.completion, request.max_tokens
    at_the_limit = bool(used and most and used >= most)
    for at, call in enumerate(reply.calls, 1):
        fault = call_fault(call, request.tools)
        is_last = at == len(reply.calls)
        if fault is None or (is_last and reply.ending == "length" and fault.kind != "unknown_name"):
            continue
        is_cut = fault.kind == "invalid_json" and _breaks_off(call.arguments)
        if is_last and reply.ending in ("tool_calls", "stop") and (is_cut or at_the_limit):
            yield Fault("cut_but_complete", fault.detail)
        else:
            yield fault


def _breaks_off(arguments: str) -> bool:
    """Whether arguments that are not JSON break off, which is not the same as being wrong."""
    try:
        json_of(arguments)
    except json.JSONDecodeError as error:
        return error.pos >= len(arguments.rstrip()) or "Unterminated" in error.msg
    except ValueError:  # they nest too deep to say
        return False
    return False


def _check_texts(reply: ObservedReply, question: str) -> Iterator[Fault]:
    texts = [("content", reply.content), ("reasoning", reply.reasoning)]
    texts += [(f"arguments of {call.name}", call.arguments) for call in reply.calls]
    for place, text in texts:
        for marker in leaked(text, question):
            yield Fault("markup_leaked", f"{marker} in the {place}: {_around(text, marker)!r}")
        broken = _BROKEN.search(text)
        if broken is not None and broken[0] not in question:
            yield Fault("character_broken", f"in the {place}: {_around(text, broken[0])!r}")
    content, reasoning = reply.content.strip(), reply.reasoning.strip()
    if len(reasoning) > 40 and reasoning in content:
        yield Fault("reasoning_mixed", f"the answer repeats the reasoning: {content[:80]!r}")
    if reasoning and reply.ending == "stop" and not content and not reply.calls:
        yield Fault("reasoning_mixed", f"there is reasoning, and no answer: {reasoning[-80:]!r}")


def _check_usage(reply: ObservedReply) -> Iterator[Fault]:
    usage = reply.usage
    if usage is None:
        yield Fault("usage_wrong", "the reply counts no tokens")
        return
    if usage.total is not None and usage.total != usage.prompt + usage.completion:
        yield Fault("usage_wrong", f"{usage.prompt} + {usage.completion} is not {usage.total}")
    if usage.prompt <= 0 or (usage.completion <= 0 and (reply.content or reply.calls or reply.reasoning)):
        yield Fault("usage_wrong", f"{usage.prompt} tokens of prompt and {usage.completion} of reply")
    for part, whole, name in (
        (usage.cached, usage.prompt, "of the prompt are from the cache"),
        (usage.reasoning, usage.completion, "of the reply are reasoning"),
    ):
        if part > whole:
            yield Fault("usage_wrong", f"{part} of {whole} tokens {name}")
    for name, ids, count in (
        ("prompt", reply.prompt_ids, usage.prompt),
        ("reply", reply.token_ids, usage.completion),
    ):
        if ids is not None and len(ids) != count:
            yield Fault("usage_wrong", f"the {name} has {len(ids)} ids, and {count} are counted")


def _around(text: str, marker: str) -> str:
    at = text.index(marker)
    return text[max(at - 40, 0) : at + len(marker) + 40]


def check_exchange(exchange: VerifyExchange) -> Iterator[Fault]:
    """What is wrong with an exchange of which only request and reply are known."""
    question = json.dumps(exchange.body, ensure_ascii=False, default=str)
    yield from check_reply(exchange.reply, exchange.request, counted=exchange.counted, question=question)
    yield from _check_choice(exchange.reply, exchange.request)


def _check_choice(reply: ObservedReply, request: ProbeRequest) -> Iterator[Fault]:
    choice, names = request.choice, [call.name for call in reply.calls]
    if choice == "auto" or reply.status != 200 or reply.error or (reply.ending in ("length", "other") and not names):
        return
    followed = not names if choice == "none" else names and (choice == "required" or set(names) == {choice})
    if not followed:
        yield Fault("choice_ignored", f"`tool_choice` is {choice}; the reply calls {names or 'nothing'}")


def check_together(exchanges: Sequence[VerifyExchange]) -> Iterator[tuple[Fault, VerifyExchange]]:
    """What only several replies to the same request show."""
    good = [each for each in exchanges if each.reply.status == 200 and not each.reply.error]
    for each, other in pairwise(good):
        if each.reply.id and each.reply.id == other.reply.id:
            yield Fault("protocol", f"two replies have the id {each.reply.id!r}"), other
        used, other_used = each.reply.usage, other.reply.usage
        if used and other_used and used.prompt != other_used.prompt:
            yield Fault("usage_wrong", f"one prompt counts {used.prompt} tokens, then {other_used.prompt}"), other
