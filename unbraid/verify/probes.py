"""Questions whose right replies are known, whatever words the model chooses.

A probe asks once, or a few times, and returns a `Trial`: the exchanges, their faults, and whether they tell anything. A
model that was free to call and did not tells nothing of calls.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import comb
from typing import Any

from .checks import Fault, call_fault, check_exchange, check_together, markers
from .dialects import DIALECTS, VerifyDialect
from .exchange import ObservedCall, ObservedReply, ProbeRequest, VerifyExchange, json_of
from .refusals import fitted
from .server import VerifiedServer

WEATHER: Mapping[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME: Mapping[str, Any] = {
    "name": "get_time",
    "description": "The time in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ECHO: Mapping[str, Any] = {
    "name": "write_note",
    "description": "Keep a text, letter by letter",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
BOOKING: Mapping[str, Any] = {
    "name": "book",
    "description": "Book a table",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "where": {"enum": ["inside", "outside"]},
            "guests": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
            "at": {
                "type": "object",
                "properties": {"hour": {"type": "integer"}, "minute": {"type": "integer"}},
                "required": ["hour", "minute"],
                "additionalProperties": False,
            },
        },
        "required": ["where", "guests", "at"],
        "additionalProperties": False,
    },
}
NOTES = (
    "Grüße, 東京 🌦",
    'She said "no" \\ and left.',
    "line one\nline two",
    "the tag </tool_call> ends a call",
    "<think>not a thought</think>",
    '{"a": [1, 2]}',
    "0042",
)
"""Texts that a parser must hand on letter by letter."""

ASK_WEATHER = "What is the weather in Paris? Use the tool."
ASK_BOOKING = "Book a table outside for Ann and Bob at half past seven in the evening."
LONG_NAME = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a probe."""

    exchanges: tuple[VerifyExchange, ...]
    faults: tuple[tuple[Fault, VerifyExchange], ...]
    tells: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """One question.

    needed: how many trials must tell something before it stops.
    most: how often it asks at most.
    dialects: the APIs that have what it asks about.
    """

    name: str
    shows: str
    run: Callable[[VerifiedServer, int], Trial]
    needed: int = 2
    most: int = 4
    dialects: tuple[str, ...] = tuple(DIALECTS)


def _trial(exchanges: Iterable[VerifyExchange], more: Iterable[tuple[Fault, VerifyExchange]], tells: bool) -> Trial:
    exchanges = tuple(exchanges)
    always = ((fault, exchange) for exchange in exchanges for fault in check_exchange(exchange))
    refused = (
        (Fault("protocol", f"a good request is answered with {each.reply.status}: {each.reply.error[:300]}"), each)
        for each in exchanges
        if 400 <= each.reply.status < 500
    )
    alike = (tuple(same) for _, same in groupby(exchanges, key=lambda each: each.request))
    together = (pair for same in alike for pair in check_together(same))
    tells = tells and all(each.reply.status == 200 for each in exchanges)
    return Trial(exchanges, (*always, *together, *refused, *more), tells)


def _both(endpoint: VerifiedServer, request: ProbeRequest) -> tuple[VerifyExchange, VerifyExchange]:
    return endpoint.ask(request, stream=False), endpoint.ask(request, stream=True)


def _answer(endpoint: VerifiedServer, turn: int) -> Trial:
    text = ("Name three colours.", "Greet me in Japanese and in Arabic, and add three emoji.")[turn % 2]
    pair = _both(endpoint, ProbeRequest(text=text))
    empty = (
        (Fault("protocol", "the reply is empty"), each)
        for each in pair
        if each.reply.status == 200 and each.reply.ending != "other"
        if not (each.reply.content or each.reply.reasoning or each.reply.error)
    )
    return _trial(pair, empty, True)


def _shape(reply: ObservedReply) -> tuple[object, ...]:
    """What a reply is, without its words."""
    return bool(reply.content.strip()), bool(reply.reasoning.strip()), [call.name for call in reply.calls], reply.ending


def _words(reply: ObservedReply) -> tuple[object, ...]:
    calls = [(call.name, _loose(call.arguments)) for call in reply.calls]
    return reply.content.strip(), reply.reasoning.strip(), calls, reply.ending


def _loose(arguments: str) -> Any:
    try:
        return json_of(arguments)
    except ValueError:
        return arguments


STREAMED = (
    ProbeRequest(text="List the days of the week, one a line.", max_tokens=96, raw={"temperature": 0}),
    ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), choice="required", raw={"temperature": 0}),
    ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), raw={"temperature": 0}),
    ProbeRequest(text="Which is larger, 9.11 or 9.9? Think first.", raw={"temperature": 0}),
)
ALIKE, MOST_PAIRS = 4, 32
"""How often a request is asked both ways where all replies are alike, and at most where they differ."""


def _stream(endpoint: VerifiedServer, turn: int) -> Trial:
    """Whole and streamed in turn, at temperature 0. Where replies differ, more are asked, until streams differ from
    whole replies more than it could be by accident."""
    request, pairs = STREAMED[turn % len(STREAMED)], list[tuple[VerifyExchange, VerifyExchange]]()
    whole, streamed, differing = list[str](), list[str](), list[VerifyExchange]()
    while len(pairs) < MOST_PAIRS:
        pairs.append(_both(endpoint, request))
        replies = [each[0].reply for each in pairs]
        look = _words if len({repr(_words(each)) for each in replies}) == 1 else _shape
        whole, streamed = ([repr(look(pair[way].reply)) for pair in pairs] for way in (0, 1))
        usual = Counter(whole).most_common(1)[0][0]
        differing = [pair[1] for pair, text in zip(pairs, streamed, strict=True) if text != usual]
        strays = sum(text != usual for text in whole)
        enough = ALIKE if not differing else 2 * ALIKE
        if len(pairs) >= enough and len(differing) <= strays:
            return _trial((each for pair in pairs for each in pair), (), True)
        if _by_accident(len(pairs), strays, len(differing)) < 0.02:
            usual_reply = next(reply for reply, text in zip(replies, whole, strict=True) if text == usual)
            detail = f"{len(differing)} of {len(pairs)} streams differ from the whole reply: {_words(usual_reply)!r}"
            detail += f"; streamed: {_words(differing[0].reply)!r}"
            faults = [(Fault("stream_differs", detail), differing[0])]
            return _trial((each for pair in pairs for each in pair), faults, True)
    return _trial((each for pair in pairs for each in pair), (), False)


def _by_accident(count: int, strays: int, differing: int) -> float:
    """How likely it is that so many of the odd replies are streamed, if as many of both are odd (Fisher's test)."""
    odd = strays + differing
    ways = (comb(count, each) * comb(count, odd - each) for each in range(differing, min(odd, count) + 1))
    return sum(ways) / comb(2 * count, odd)


def _required(endpoint: VerifiedServer, turn: int) -> Trial:
    return _choice(endpoint, "required", turn)


def _named(endpoint: VerifiedServer, turn: int) -> Trial:
    return _choice(endpoint, "get_time", turn)


def _choice(endpoint: VerifiedServer, choice: str, turn: int) -> Trial:
    text = (ASK_WEATHER, "Tell me a joke.")[turn % 2]
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME), choice=choice))
    return _trial(pair, (), True)


def _none(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), choice="none", max_tokens=128))
    return _trial(pair, (), True)


def _auto(endpoint: VerifiedServer, turn: int) -> Trial:
    request = ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME))
    pair = _both(endpoint, request)
    bare = () if turn else (endpoint.ask(replace(request, tools=(), max_tokens=16), stream=False),)
    unseen = [(fault, pair[0]) for each in bare for fault in _unseen(pair[0].reply, each.reply)]
    return _trial((*pair, *bare), unseen, any(each.reply.calls for each in pair))


def _unseen(reply: ObservedReply, bare: ObservedReply) -> Iterator[Fault]:
    """Tools that make the prompt no longer than it is without them."""
    if reply.usage and bare.usage and reply.usage.prompt <= bare.usage.prompt:
        counts = f"{reply.usage.prompt} tokens with two tools, {bare.usage.prompt} without"
        yield Fault(
            "tools_unseen", f"the prompt has {counts}: the template has no place for them, or the server drops them"
        )


def _parallel(endpoint: VerifiedServer, turn: int) -> Trial:
    text = "Call get_weather for Paris and, in the same reply, get_weather for Rome."
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME)))
    return _trial(pair, (), any(len(each.reply.calls) > 1 for each in pair))


def _single(endpoint: VerifiedServer, turn: int) -> Trial:
    text = "Call get_weather for Paris and, in the same reply, get_weather for Rome."
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME), choice="required", parallel=False))
    if "parallel_tool_calls" in endpoint.refused:
        return _trial(pair, (), False)
    more = (
        (Fault("parallel_ignored", f"{len(each.reply.calls)} calls came"), each)
        for each in pair
        if len(each.reply.calls) > 1
    )
    return _trial(pair, more, any(each.reply.calls for each in pair))


def _strict(endpoint: VerifiedServer, turn: int) -> Trial:
    choice = ("required", "auto")[turn % 2]
    pair = _both(endpoint, ProbeRequest(text=ASK_BOOKING, tools=(BOOKING,), choice=choice))
    return _trial(pair, (), any(each.reply.calls for each in pair))


def _schema(endpoint: VerifiedServer, turn: int) -> Trial:
    """An answer that is read as if it were the arguments of a call."""
    request = ProbeRequest(text=f"{ASK_BOOKING} Answer in JSON.", schema=BOOKING["parameters"])
    pair = _both(endpoint, request)
    ended = [each for each in pair if each.reply.status == 200 and each.reply.ending == "stop"]
    answers = ((ObservedCall("", BOOKING["name"], each.reply.content), each) for each in ended)
    more = ((call_fault(answer, (BOOKING,)), each) for answer, each in answers)
    return _trial(pair, ((Fault("strict_ignored", fault.detail), each) for fault, each in more if fault), bool(ended))


def _values(endpoint: VerifiedServer, turn: int) -> Trial:
    note = NOTES[turn % len(NOTES)]
    text = f"Call write_note with exactly this text, between the lines:\n---\n{note}\n---"
    pair = _both(endpoint, ProbeRequest(text=text, tools=(ECHO,), choice="required"))
    more = [(fault, each) for each in pair for fault in _changed(each.reply, note)]
    return _trial(pair, more, bool(more) or any(_note(each.reply) == note for each in pair))


def _note(reply: ObservedReply) -> str | None:
    arguments = _loose(reply.calls[0].arguments) if reply.calls else None
    value = arguments.get("text") if isinstance(arguments, dict) else None
    return value if isinstance(value, str) else None


def _changed(reply: ObservedReply, note: str) -> Iterator[Fault]:
    """What parsers do to a text. Other words are the model's."""
    value = _note(reply)
    if value is None or value.strip() == note or reply.ending == "length":
        return
    # At a quote a model may have ended the string itself, as one that does not escape it: nobody's fault but its own.
    rest = note.removeprefix(value.strip())
    cut = value.strip() and rest != note and not rest[:1].isalnum() and rest.lstrip()[:1] != '"'
    longer = value.startswith(note) and any(marker in value[len(note) :] for marker in markers())
    if cut or longer or _even(note) in {_even(text) for text in _undone(value)} or _even(value) in _spoiled(note):
        yield Fault("value_changed", f"asked for {note!r}, got {value!r}")


def _even(text: str) -> str:
    return " ".join(text.split())


def _undone(value: str) -> Iterator[str]:
    """A text without the escapes that it should not have, and in the right encoding."""
    yield html.unescape(value)
    yield value.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
    for text in (value, f'"{value}"'):
        unescaped = _loose(text)
        if isinstance(unescaped, str):
            yield unescaped
    for encoding in ("latin-1", "cp1252"):
        try:
            yield value.encode(encoding).decode("utf-8")
        except UnicodeError:
            continue


def _spoiled(note: str) -> set[str]:
    """What is left of a text whose markup, or whose letters beyond ASCII, were taken away."""
    tags = re.compile(r"</?\w+>")
    texts = {tags.sub("", note), re.sub(r"<(\w+)>.*</\1>", "", note), tags.split(note)[-1]}
    texts |= {note.encode("ascii", way).decode() for way in ("ignore", "replace")}
    return {_even(text) for text in texts if text != note}


def _cut_call(endpoint: VerifiedServer, turn: int) -> Trial:
    """A call that is cut off after a few tokens."""
    request = ProbeRequest(
        text=f"Call get_weather for the city of {LONG_NAME}.",
        tools=(WEATHER,),
        choice=("auto", "required")[turn % 2],
        max_tokens=(16, 20, 12, 24)[turn % 4],
    )
    pair = _both(endpoint, request)
    more = (*_closed_early(pair), *_miscounted(pair))
    return _trial(pair, more, bool(more) or any(each.reply.ending == "length" for each in pair))


def _closed_early(pair: Iterable[VerifyExchange]) -> Iterator[tuple[Fault, VerifyExchange]]:
    """Calls that were cut off inside the name of the city, and closed as if that were all of it."""
    for each in pair:
        arguments = _loose(each.reply.calls[-1].arguments) if each.reply.calls else None
        city = arguments.get("city") if isinstance(arguments, dict) else None
        cut = isinstance(city, str) and 5 <= len(city) < len(LONG_NAME) and LONG_NAME.startswith(city)
        if cut and each.reply.ending != "length":
            yield Fault("cut_but_complete", f"{city!r} of {LONG_NAME!r}, ended by {each.reply.ending!r}"), each


def _length(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text="Count from 1 to 500, in words, without a break.", max_tokens=16))
    ended = (
        (Fault("length_ignored", f"16 tokens were all that it may write, and it ended by {each.reply.ending!r}"), each)
        for each in pair
        if each.reply.status == 200 and each.reply.ending != "length" and _goes_on(each.reply)
    )
    return _trial(pair, (*ended, *_miscounted(pair)), True)


def _goes_on(reply: ObservedReply) -> bool:
    """Whether a reply is too long for 16 tokens, or has them all and ends within a sentence."""
    at_the_limit = reply.usage is not None and reply.usage.completion >= 16
    return len(reply.content) > 200 or (at_the_limit and reply.content.rstrip()[-1:].isalnum())


def _miscounted(pair: Iterable[VerifyExchange]) -> Iterator[tuple[Fault, VerifyExchange]]:
    """Replies that have more tokens than were allowed, or end for their number with another number."""
    for each in pair:
        usage, most = each.reply.usage, max(each.request.max_tokens or 0, 16)
        if usage is None:
            continue
        if usage.completion > most:
            yield Fault("length_ignored", f"{usage.completion} tokens came, and {most} were allowed"), each
        elif each.reply.ending == "length" and usage.completion < (each.request.max_tokens or 0):
            yield Fault("usage_wrong", f"ended after {most} tokens, and {usage.completion} are counted"), each


def _stop(endpoint: VerifiedServer, turn: int) -> Trial:
    """A letter that every English sentence has; and a line end with digits, which are several tokens."""
    text, stop, most = (
        ("Describe the sea in three sentences.", "e", 200),
        ("List the numbers from 1 to 20, one a line.", "4\n5", 200),
    )[turn % 2]
    pair = _both(endpoint, ProbeRequest(text=text, stop=(stop,), max_tokens=most))
    if endpoint.refused.keys() & {"stop", "stop_sequences"}:
        return _trial(pair, (), False)
    more = (
        (Fault("stop_ignored", f"{stop!r} ends the answer, which is {each.reply.content[-80:]!r}"), each)
        for each in pair
        if stop in each.reply.content or each.reply.content.endswith("\n4")
    )
    return _trial(pair, more, any(each.reply.ending == "stop" for each in pair))


def _reasoning(endpoint: VerifiedServer, turn: int) -> Trial:
    """Reasoning apart from the answer; accepted back; and without an answer where it is cut off."""
    request = ProbeRequest(text="Which is larger, 9.11 or 9.9? Think first.")
    pair = _both(endpoint, request)
    if not all(each.reply.reasoning for each in pair):
        return _trial(pair, (), False)
    history = (*pair[turn % 2].reply.native, {"role": "user", "content": "And which is smaller?"})
    again = endpoint.ask(replace(request, history=history), stream=False)
    short = _both(endpoint, replace(request, max_tokens=16))
    at_length = all(len(each.reply.reasoning) > 100 for each in pair)
    mixed = (
        (Fault("reasoning_mixed", f"cut off in the reasoning, and the answer is {each.reply.content[:80]!r}"), each)
        for each in short
        if at_length and each.reply.ending == "length" and each.reply.content.strip() and not each.reply.reasoning
    )
    return _sent_back(_trial((*pair, *short), mixed, True), again)


def _sent_back(trial: Trial, again: VerifyExchange) -> Trial:
    """The trial with what the server says to its own reply."""
    if again.reply.status == 200 and not again.reply.error:
        more = _trial((again,), (), True)
    else:
        detail = f"{again.reply.status}: {again.reply.error[:300]}"
        more = Trial((again,), ((Fault("history_refused", detail), again),))
    return Trial((*trial.exchanges, *more.exchanges), (*trial.faults, *more.faults), trial.tells)


def _round(endpoint: VerifiedServer, turn: int) -> Trial:
    """A reply with calls goes back as it came, with results."""
    request = ProbeRequest(text=ASK_WEATHER, tools=(WEATHER,), choice="required")
    first = endpoint.ask(request, stream=bool(turn % 2))
    if first.reply.status != 200 or not first.reply.calls:
        return _trial((first,), (), False)
    results = endpoint.dialect.results(first.reply.calls, '{"sky": "clear", "degrees": 21}')
    again = replace(request, choice="auto", history=(*first.reply.native, *results))
    second = endpoint.ask(again, stream=bool(turn % 2))
    return _sent_back(_trial((first,), (), True), second)


BAD_REQUESTS: Mapping[str, Any] = {
    "a body that is no JSON": "{",
    "a model that is not there": {"model": "no-such-model-0"},
    "no messages": {"messages": None, "input": None},
    "a temperature that is a word": {"temperature": "warm"},
    "tools that are a number": {"tools": 5},
}
"""Bad requests: a body, or fields over those of a good one. None: without that field."""


def _errors(endpoint: VerifiedServer, turn: int) -> Trial:
    """Bad requests get an error of the documented shape, streamed or not."""
    request, exchanges, faults = ProbeRequest(text="Hello", max_tokens=16), [], []
    for name, bad in BAD_REQUESTS.items():
        body = fitted(endpoint.dialect.body(request, endpoint.model, stream=bool(turn % 2)), endpoint.refused)
        sent = bad if isinstance(bad, str) else {key: value for key, value in (body | bad).items() if value is not None}
        status, raw = endpoint.send("POST", endpoint.dialect.path, sent)
        exchange = VerifyExchange(
            request=request,
            body=sent if isinstance(sent, dict) else {"body": sent},
            streamed=bool(turn % 2),
            raw=raw,
            reply=ObservedReply(status=status, error=raw),
        )
        exchanges.append(exchange)
        if status >= 500 or status == 0:
            faults.append((Fault("server_error", f"{name}: {status}: {raw[:200]}"), exchange))
        elif status < 400 or not _is_documented(raw, endpoint.dialect):
            faults.append((Fault("error_undocumented", f"{name}: {status}: {raw[:200]}"), exchange))
    return Trial(tuple(exchanges), tuple(faults))


def _is_documented(raw: str, dialect: VerifyDialect) -> bool:
    reply = _loose(raw)
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict) or not all(error.get(key) for key in ("message", "type")):
        return False
    return dialect is not DIALECTS["messages"] or reply.get("type") == "error"


PROBES = (
    Probe("answer", "a plain answer, whole and streamed", _answer),
    Probe("stream", "a streamed reply says what a whole one says", _stream, needed=4, most=4),
    Probe("auto", "a call that the model chooses to make", _auto),
    Probe("required", "`tool_choice: required`", _required),
    Probe("named", "a tool that the request names", _named),
    Probe("none", "`tool_choice: none`", _none),
    Probe("parallel", "several calls in one reply", _parallel, needed=1),
    Probe("single", "`parallel_tool_calls: false`", _single, needed=1),
    Probe("strict", "arguments that follow a strict schema", _strict),
    Probe("schema", "an answer that follows a strict schema", _schema),
    Probe("values", "unicode, escapes and markup in arguments", _values, needed=len(NOTES), most=len(NOTES)),
    Probe("cut call", "`max_tokens` inside a call", _cut_call, needed=2),
    Probe("length", "`max_tokens` in an answer", _length),
    Probe("stop", "a stop sequence", _stop, dialects=("chat", "messages")),
    Probe("reasoning", "reasoning apart from the answer, sent back, and cut off", _reasoning, needed=1, most=2),
    Probe("round", "a reply sent back with results", _round),
    Probe("errors", "errors as documented", _errors),
)
"""All probes, in the order in which they run."""
