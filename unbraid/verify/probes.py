"""Questions whose right replies are known, whatever words the model chooses.

A probe asks once, or a few times, and returns a `Trial`: the exchanges, their faults, and whether they tell anything. A
model that was free to call and did not tells nothing of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .checks import Fault, check_exchange
from .dialects import DIALECTS
from .exchange import ObservedReply, ProbeRequest, VerifyExchange, json_of
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
)
"""Texts that a parser must hand on letter by letter."""

ASK_WEATHER = "What is the weather in Paris? Use the tool."


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
    return Trial(exchanges, (*always, *refused, *more), tells and all(each.reply.status == 200 for each in exchanges))


def _both(endpoint: VerifiedServer, request: ProbeRequest) -> tuple[VerifyExchange, VerifyExchange]:
    return endpoint.ask(request, stream=False), endpoint.ask(request, stream=True)


def _answer(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text="Name three colours.", max_tokens=256))
    empty = (
        (Fault("protocol", "the reply is empty"), each)
        for each in pair
        if each.reply.status == 200 and not (each.reply.content or each.reply.reasoning or each.reply.error)
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


def _stream(endpoint: VerifiedServer, turn: int) -> Trial:
    """Twice whole and twice streamed, at temperature 0. Where each way agrees with itself, both must say the same."""
    request = (
        ProbeRequest(text="List the days of the week, one a line.", max_tokens=96, raw={"temperature": 0}),
        ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), choice="required", raw={"temperature": 0}),
        ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), raw={"temperature": 0}),
    )[turn % 3]
    whole = [endpoint.ask(request, stream=False) for _ in range(2)]
    streamed = [endpoint.ask(request, stream=True) for _ in range(2)]
    for look in (_words, _shape):
        first, second = ([look(each.reply) for each in way] for way in (whole, streamed))
        if first[0] == first[1] and second[0] == second[1]:
            break
    else:
        return _trial((*whole, *streamed), (), False)
    if first[0] == second[0]:
        return _trial((*whole, *streamed), (), True)
    detail = f"whole: {_words(whole[0].reply)!r}; streamed: {_words(streamed[0].reply)!r}"
    return _trial((*whole, *streamed), [(Fault("stream_differs", detail), streamed[0])], True)


def _required(endpoint: VerifiedServer, turn: int) -> Trial:
    return _choice(endpoint, "required", turn)


def _named(endpoint: VerifiedServer, turn: int) -> Trial:
    return _choice(endpoint, "get_time", turn)


def _choice(endpoint: VerifiedServer, choice: str, turn: int) -> Trial:
    text = (ASK_WEATHER, "Tell me a joke.")[turn % 2]
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME), choice=choice))
    return _trial(pair, _unlike(pair, choice), True)


def _unlike(pair: Iterable[VerifyExchange], choice: str) -> Iterator[tuple[Fault, VerifyExchange]]:
    for each in pair:
        if each.reply.status != 200 or each.reply.ending == "length":
            continue
        names = [call.name for call in each.reply.calls]
        if not names or (choice != "required" and set(names) != {choice}):
            yield Fault("choice_ignored", f"`tool_choice` is {choice}; the reply calls {names or 'nothing'}"), each


def _none(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME), choice="none", max_tokens=128))
    return _trial(pair, (), True)


def _auto(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text=ASK_WEATHER, tools=(WEATHER, TIME)))
    return _trial(pair, (), any(each.reply.calls for each in pair))


def _parallel(endpoint: VerifiedServer, turn: int) -> Trial:
    text = "Call get_weather for Paris and, in the same reply, get_weather for Rome."
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME)))
    return _trial(pair, (), any(len(each.reply.calls) > 1 for each in pair))


def _single(endpoint: VerifiedServer, turn: int) -> Trial:
    text = "Call get_weather for Paris and, in the same reply, get_weather for Rome."
    pair = _both(endpoint, ProbeRequest(text=text, tools=(WEATHER, TIME), choice="required", parallel=False))
    more = (
        (Fault("parallel_ignored", f"{len(each.reply.calls)} calls came"), each)
        for each in pair
        if len(each.reply.calls) > 1
    )
    return _trial(pair, more, any(each.reply.calls for each in pair))


def _strict(endpoint: VerifiedServer, turn: int) -> Trial:
    text = "Book a table outside for Ann and Bob at half past seven in the evening."
    pair = _both(endpoint, ProbeRequest(text=text, tools=(BOOKING,), choice="required"))
    return _trial(pair, (), any(each.reply.calls for each in pair))


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
    """What a parser does to a text: it cuts it off, or escapes it once too often. Other words are the model's."""
    value = _note(reply)
    if value is None or value.strip() == note or reply.ending == "length":
        return
    escaped = value.replace("\\n", "\n").replace('\\"', '"').replace("&lt;", "<").replace("&gt;", ">")
    cut = value.strip() and note.startswith(value.strip()) and not note[len(value.strip())].isalnum()
    if cut or escaped == note or value.encode("ascii", "replace") == note.encode("ascii", "replace"):
        yield Fault("value_changed", f"asked for {note!r}, got {value!r}")


def _cut_call(endpoint: VerifiedServer, turn: int) -> Trial:
    """A call that is cut off after a few tokens."""
    request = ProbeRequest(
        text="Call get_weather for the city of Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch.",
        tools=(WEATHER,),
        choice=("auto", "required")[turn % 2],
        max_tokens=(16, 20, 12, 24)[turn % 4],
    )
    pair = _both(endpoint, request)
    return _trial(pair, _too_long(pair), any(each.reply.ending == "length" for each in pair))


def _length(endpoint: VerifiedServer, turn: int) -> Trial:
    pair = _both(endpoint, ProbeRequest(text="Count from 1 to 500, in words, without a break.", max_tokens=16))
    ended = (
        (Fault("length_ignored", f"16 tokens were all that it may write, and it ended by {each.reply.ending!r}"), each)
        for each in pair
        if each.reply.status == 200 and each.reply.ending != "length" and len(each.reply.content) > 200
    )
    return _trial(pair, (*ended, *_too_long(pair)), True)


def _too_long(pair: Iterable[VerifyExchange]) -> Iterator[tuple[Fault, VerifyExchange]]:
    for each in pair:
        usage, most = each.reply.usage, max(each.request.max_tokens or 0, 16)
        if usage is not None and usage.completion > most:
            yield Fault("length_ignored", f"{usage.completion} tokens came, and {most} were allowed"), each


def _stop(endpoint: VerifiedServer, turn: int) -> Trial:
    """A letter that every English sentence has."""
    pair = _both(endpoint, ProbeRequest(text="Describe the sea in three sentences.", stop=("e",), max_tokens=200))
    more = (
        (Fault("stop_ignored", f"stopped at 'e', ended by {each.reply.ending!r}: {each.reply.content[-80:]!r}"), each)
        for each in pair
        if each.reply.status == 200 and ("e" in each.reply.content or each.reply.ending not in ("stop", "length"))
    )
    return _trial(pair, more, True)


def _reasoning(endpoint: VerifiedServer, turn: int) -> Trial:
    """Reasoning that is cut off leaves no answer."""
    text = "Which is larger, 9.11 or 9.9? Think first."
    whole = endpoint.ask(ProbeRequest(text=text), stream=False)
    if not whole.reply.reasoning:
        return _trial((whole,), (), False)
    pair = _both(endpoint, ProbeRequest(text=text, max_tokens=16))
    more = (
        (Fault("reasoning_mixed", f"cut off in the reasoning, and the answer is {each.reply.content[:80]!r}"), each)
        for each in pair
        if each.reply.ending == "length" and each.reply.content.strip()
    )
    return _trial((whole, *pair), more, True)


def _round(endpoint: VerifiedServer, turn: int) -> Trial:
    """A reply with calls goes back as it came, with results."""
    request = ProbeRequest(text=ASK_WEATHER, tools=(WEATHER,), choice="required")
    first = endpoint.ask(request, stream=bool(turn % 2))
    if first.reply.status != 200 or not first.reply.calls:
        return _trial((first,), (), False)
    results = endpoint.dialect.results(first.reply.calls, '{"sky": "clear", "degrees": 21}')
    again = replace(request, choice="auto", history=(*first.reply.native, *results))
    second = endpoint.ask(again, stream=bool(turn % 2))
    if second.reply.status == 200 and not second.reply.error:
        return _trial((first, second), (), True)
    detail = f"{second.reply.status}: {second.reply.error[:300]}"
    trial = _trial((first,), [(Fault("history_refused", detail), second)], True)
    return replace(trial, exchanges=(first, second))


BAD_REQUESTS: Mapping[str, Any] = {
    "a body that is no JSON": "{",
    "a model that is not there": {"model": "no-such-model-0"},
    "no messages": {"messages": None, "input": None},
    "a temperature that is a word": {"temperature": "warm"},
    "tools that are a number": {"tools": 5},
}
"""Bad requests: a body, or fields over those of a good one. None: without that field."""


def _errors(endpoint: VerifiedServer, turn: int) -> Trial:
    """Bad requests get an error of the documented shape."""
    request, exchanges, faults = ProbeRequest(text="Hello", max_tokens=16), [], []
    for name, bad in BAD_REQUESTS.items():
        body = endpoint.dialect.body(request, endpoint.model, stream=False)
        sent = bad if isinstance(bad, str) else {key: value for key, value in (body | bad).items() if value is not None}
        status, raw = endpoint.send("POST", endpoint.dialect.path, sent)
        exchange = VerifyExchange(
            request=request,
            body=sent if isinstance(sent, dict) else {"body": sent},
            streamed=False,
            raw=raw,
            reply=ObservedReply(status=status, error=raw),
        )
        exchanges.append(exchange)
        if status >= 500:
            faults.append((Fault("server_error", f"{name}: {status}: {raw[:200]}"), exchange))
        elif status < 400 or not _is_documented(raw):
            faults.append((Fault("error_undocumented", f"{name}: {status}: {raw[:200]}"), exchange))
    return Trial(tuple(exchanges), tuple(faults))


def _is_documented(raw: str) -> bool:
    error = _loose(raw)
    error = error.get("error") if isinstance(error, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str) and bool(error["message"])


PROBES = (
    Probe("answer", "a plain answer, whole and streamed", _answer),
    Probe("stream", "a streamed reply says what a whole one says", _stream, needed=3, most=3),
    Probe("auto", "a call that the model chooses to make", _auto),
    Probe("required", "`tool_choice: required`", _required),
    Probe("named", "a tool that the request names", _named),
    Probe("none", "`tool_choice: none`", _none, needed=1),
    Probe("parallel", "several calls in one reply", _parallel, needed=1),
    Probe("single", "`parallel_tool_calls: false`", _single, needed=1),
    Probe("strict", "arguments that follow a strict schema", _strict),
    Probe("values", "unicode, escapes and markup in arguments", _values, needed=len(NOTES), most=len(NOTES)),
    Probe("cut call", "`max_tokens` inside a call", _cut_call, needed=2),
    Probe("length", "`max_tokens` in an answer", _length, needed=1),
    Probe("stop", "a stop sequence", _stop, needed=1, dialects=("chat", "messages")),
    Probe("reasoning", "reasoning apart from the answer, and cut off", _reasoning, needed=1, most=2),
    Probe("round", "a reply sent back with results", _round),
    Probe("errors", "errors as documented", _errors, needed=1),
)
"""All probes, in the order in which they run."""
