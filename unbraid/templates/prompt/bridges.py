"""PromptBridge: a conversation rewritten into one that the template says, so that no word of it is lost.

Templates refuse or drop what their authors did not think of: two calls in a message, text before a call, arguments that
are no JSON. No list of such faults would be complete, so none is kept. A conversation has a shape: its roles, and which
of its messages have text, reasoning, calls. `PromptBridge` renders the shape with a word of its own in each place and
looks: is every word there, once, in order? If not, it tries the next `Way` to say the same, and remembers for the shape
which one worked. So a conversation is either said whole, or refused with the message that cannot be said.

A step is an assistant's message with calls and all that belongs to it, up to the last result. Its way is chosen by a
short conversation of that step alone, so the same step is said in the same way as the conversation goes on, and an
engine finds the beginning of the prompt in its cache. Then the whole is looked at.

Reasoning is said if the template says it. Where the first message is the system's, the template may put it elsewhere.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ...caching import LruCache
from ...errors import Place
from ..capabilities import TemplateCapabilities
from ..errors import InvalidMessages, TemplateError, TemplateTooMuch
from ..template import CompiledTemplate
from ..traced_text import REASONING_FIELDS, reasoning_of
from .polyfills import ToolPolyfill, alternating, system_as_user, together, user_in_result

ChatMessage = dict[str, Any]
_MOST_SHAPES = 4096
_words = re.compile(r"qz[wrf]\d+x").findall


@dataclass(frozen=True, slots=True)
class Way:
    """How one step is said."""

    text: Literal["with calls", "apart", "as reasoning"] = "with calls"
    """Where the text goes that comes before calls: a message of its own, or the end of the reasoning."""
    calls: Literal["together", "in a row", "in turn"] = "together"
    """Several calls: in one message; in one each; in one each, with its result after it."""
    wrapped: bool = False
    """Arguments that are no object are the value of one."""
    in_words: Literal["nothing", "calls", "calls and results"] = "nothing"
    """Calls are written into the content, as the model writes them, and results are turns of the user."""


AS_IT_IS = Way()
CALLS_IN_WORDS = Way(in_words="calls")
IN_WORDS = Way(in_words="calls and results")


@dataclass(frozen=True, slots=True)
class Order:
    """How the messages are put in a row, beyond what the capabilities say."""

    strict: bool = False
    """Only the first message is the system's, and roles alternate."""
    system: bool = True
    """There are messages of the system."""
    opened: bool = False
    """The user speaks first, be it an empty turn."""


_ORDERS = (Order(), Order(strict=True), Order(True, opened=True), Order(True, False), Order(True, False, True))


@dataclass(frozen=True, slots=True)
class Crossing:
    """How a whole conversation is said: the way of each step, by the number of its first message."""

    ways: Mapping[int, Way]
    order: Order

    @property
    def notes(self) -> list[str]:
        """What was changed, in words."""
        changed = {way for way in self.ways.values() if way != AS_IT_IS}
        notes = []
        if any(way.in_words != "nothing" for way in changed):
            notes.append("the template does not show tool calls: they are written into the content")
        if IN_WORDS in changed:
            notes.append("the template does not show tool results: they are turns of the user")
        if any(way.text == "apart" for way in changed):
            notes.append("the template does not say text beside calls: it stands apart from them")
        if any(way.text == "as reasoning" for way in changed):
            notes.append("the template does not say text beside calls: it stands at the end of the reasoning")
        if any(way.calls == "in a row" for way in changed):
            notes.append("the template does not say several calls at once: each has a message of its own")
        if any(way.calls == "in turn" for way in changed):
            notes.append("the template does not say several calls at once: each has its result after it")
        if any(way.wrapped for way in changed):
            notes.append("the template takes only objects as arguments: others are the value of one")
        return notes


class PromptBridge:
    """Rewrites conversations for one template."""

    def __init__(self, compiled: CompiledTemplate, supported: TemplateCapabilities, polyfill: ToolPolyfill) -> None:
        self._compiled, self._supported, self._polyfill = compiled, supported, polyfill
        self._ways: LruCache[object, Way] = LruCache(_MOST_SHAPES)
        self._crossings: LruCache[object, Crossing] = LruCache(_MOST_SHAPES)

    def cross(
        self, messages: Sequence[ChatMessage], variables: Mapping[str, Any], continued: bool
    ) -> tuple[list[ChatMessage], list[str]]:
        """The messages as the template says them, and notes on what was changed. `variables`: those of the rendering.
        Raises `InvalidMessages` for what the template cannot say in any way."""
        if not self._speaks:
            return list(messages), []
        shape, words = _shape_of(messages)
        probe = _Probe(self._compiled, self._supported, variables, continued)
        key = (words.key, probe.key)
        crossing = self._crossings.get(key)
        if crossing is None:
            crossing = self._searched(shape, words, probe)
            if crossing is None:
                raise self._refusal(shape, words, probe)
            self._crossings[key] = crossing
        sayable = self._said(messages, crossing)
        ordered, notes = self._in_order(sayable, crossing.order), crossing.notes
        if [message["role"] for message in ordered] != [message["role"] for message in sayable]:
            notes.append("the template does not take messages in this order: some are joined, or text of the user")
        return ordered, notes

    @cached_property
    def _speaks(self) -> bool:
        """Whether it says what one user says. A template that does not is left alone."""
        probe = _Probe(self._compiled, self._supported, {"add_generation_prompt": True}, False)
        return not probe.unsaid([{"role": "user", "content": "qzw0x"}], _Words())

    def _searched(self, shape: list[ChatMessage], words: _Words, probe: _Probe) -> Crossing | None:
        """The first crossing that says all."""
        steps = list(_steps(shape))
        ways = {step.start: self._way(shape, words, step, probe) for step in steps}
        in_words = dict.fromkeys(ways, IN_WORDS)
        unsaid: list[str] = []
        for order in _ORDERS:
            for some in (ways, None, in_words) if ways else (ways,):
                if some is None:  # the steps of which something is lacking
                    lost = {words.message_of[word] for word in unsaid}
                    some = ways | {step.start: IN_WORDS for step in steps if lost.intersection(step)}
                crossing = Crossing(some, order)
                unsaid = probe.unsaid(self._in_order(self._said(shape, crossing), order), words)
                if not unsaid:
                    return crossing
        return None

    def _refusal(self, shape: list[ChatMessage], words: _Words, probe: _Probe) -> InvalidMessages:
        """The first message that cannot be said, and what the template says to it."""
        why = f": {probe.error}" if probe.error else ""
        alone = replace(probe, continued=False)
        begins = (at for at in range(len(shape) - 1) if self._searched(shape[: at + 1], words, alone) is None)
        at = next(begins, len(shape) - 1)
        return InvalidMessages(Place("messages", at), f" cannot be said by the model's chat template{why}")

    def _way(self, shape: list[ChatMessage], words: _Words, step: range, probe: _Probe) -> Way:
        """How a step is said, found with a conversation that has no other."""
        own = shape[step.start : step.stop]
        rest = shape[step.stop :]
        answered = any(each["role"] == "assistant" and not each.get("tool_calls") for each in rest)
        key = (tuple(words.keys[step.start : step.stop]), answered, probe.key)
        way = self._ways.get(key)
        if way is None:
            after = (
                [{"role": "assistant", "content": "qzw0x"}, {"role": "user", "content": "qzw1x"}] if answered else []
            )
            way = self._ways[key] = self._first_way(own, after, words, replace(probe, continued=False))
        return way

    def _first_way(self, own: list[ChatMessage], after: list[ChatMessage], words: _Words, probe: _Probe) -> Way:
        question = {"role": "user", "content": "qzw2x"}

        def can_say(way: Way, reasoning: bool) -> bool:
            step = [question, *self._in_way(own, way), *after]
            return not probe.unsaid(self._in_order(step, Order()), words, reasoning)

        supported = self._supported
        ways = list(_ways_to_say(own)) if supported.tools and supported.tool_calls else []
        ways += [CALLS_IN_WORDS, IN_WORDS] if supported.tools and supported.tool_results else [IN_WORDS]
        if any(map(reasoning_of, own)):
            silent = [{**each, "content": ""} if each.get("tool_calls") else each for each in own]
            if probe.says_reasoning(self._in_order([question, *silent, *after], Order())):
                reasoned = next((way for way in ways if can_say(way, True)), None)
                if reasoned is not None:
                    return reasoned
        return next((way for way in ways if can_say(way, False)), IN_WORDS)

    def _said(self, messages: Sequence[ChatMessage], crossing: Crossing) -> list[ChatMessage]:
        """The messages, with each step in its way."""
        adapted: list[ChatMessage] = []
        at = 0
        for step in _steps(messages):
            adapted += messages[at : step.start]
            adapted += self._in_way(messages[step.start : step.stop], crossing.ways[step.start])
            at = step.stop
        return [*adapted, *messages[at:]]

    def _in_way(self, step: Sequence[ChatMessage], way: Way) -> list[ChatMessage]:
        if way.in_words != "nothing":
            called = self._polyfill.with_calls(list(step))
            return called if way == CALLS_IN_WORDS else self._polyfill.with_results(called)
        messages = [part for message in step for part in _text_in_way(message, way)]
        if way.wrapped:
            messages = [_with_objects(message) for message in messages]
        if way.calls != "together":
            messages = [part for message in messages for part in _single_calls(message)]
        return _in_turn(messages) if way.calls == "in turn" else messages

    def _in_order(self, messages: list[ChatMessage], order: Order) -> list[ChatMessage]:
        """The messages in an order that the template shows all of."""
        supported = self._supported
        strict = order.strict
        system = supported.system_role and order.system
        if strict or not (system and supported.later_system):
            messages = system_as_user(messages, keep_first=system)
        if not supported.user_after_result:
            messages = user_in_result(messages)
        if not supported.system_before_result and messages[-1]["role"] == "tool":
            messages = system_as_user(messages, keep_first=False)
        if strict or not supported.repeated_roles:
            messages = alternating(messages)
        if order.opened:
            first = next((at for at, each in enumerate(messages) if each["role"] not in _SYSTEM), len(messages))
            if first < len(messages) and messages[first]["role"] != "user":
                messages = [*messages[:first], {"role": "user", "content": ""}, *messages[first:]]
        return messages


_SYSTEM = ("system", "developer")
_ANSWERED = [{"role": "assistant", "content": "qzw0x"}, {"role": "user", "content": "qzw1x"}]


# Steps, and the ways to say them


def _steps(messages: Sequence[ChatMessage]) -> Iterator[range]:
    """The steps of a conversation: runs of assistant's messages that begin with calls, with the results after them."""
    at = 0
    while at < len(messages):
        message = messages[at]
        if not message.get("tool_calls") and message["role"] != "tool":
            at += 1
            continue
        end = at
        while end < len(messages) and messages[end]["role"] == "assistant":
            end += 1
        while end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        yield range(at, end)
        at = end


def _ways_to_say(step: Sequence[ChatMessage]) -> Iterator[Way]:
    """The ways, those first that change less."""
    has_text = any(message.get("tool_calls") and message["content"] for message in step)
    has_reasoning = any(message.get("tool_calls") and reasoning_of(message) for message in step)
    calls = [call for message in step for call in message.get("tool_calls", ())]
    texts: tuple[Any, ...] = ("with calls", "apart", "as reasoning")[: 1 + has_text + (has_text and has_reasoning)]
    # A text that comes after calls comes before their results.
    talks = any(message["role"] == "assistant" and not message.get("tool_calls") for message in step)
    some: tuple[Any, ...] = ("together", "in a row", "in turn")[: 1 if len(calls) == 1 else 2 if talks else 3]
    kinds = set(map(_kind, calls))
    odd = bool(kinds - {"object", "empty"})
    for wrapped in (True,) if "other" in kinds else (False, True)[: 1 + odd]:
        for text in texts:
            for several in some:
                yield Way(text, several, wrapped)


def _text_in_way(message: ChatMessage, way: Way) -> list[ChatMessage]:
    if way.text == "with calls" or not message.get("tool_calls") or not message["content"]:
        return [message]
    bare = {key: value for key, value in message.items() if key not in REASONING_FIELDS}
    if way.text == "apart":
        text = {key: value for key, value in message.items() if key != "tool_calls"}
        return [text, {**bare, "content": ""}]
    return [{**bare, "content": "", "reasoning_content": together(reasoning_of(message), message["content"])}]


def _single_calls(message: ChatMessage) -> list[ChatMessage]:
    """A message for each call. The first has what else there is."""
    calls = message.get("tool_calls", ())
    if len(calls) < 2:
        return [message]
    bare = {key: value for key, value in message.items() if key not in REASONING_FIELDS}
    others = [{**bare, "content": "", "tool_calls": [call]} for call in calls[1:]]
    return [{**message, "tool_calls": calls[:1]}, *others]


def _in_turn(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Each result right after its call."""
    results = [message for message in messages if message["role"] == "tool"]
    in_turn: list[ChatMessage] = []
    for message in messages:
        if message["role"] == "tool":
            continue
        in_turn.append(message)
        ids = {call["id"] for call in message.get("tool_calls", ())}
        in_turn += [result for result in results if result.get("tool_call_id") in ids]
        results = [result for result in results if result.get("tool_call_id") not in ids]
    return [*in_turn, *results]


def _with_objects(message: ChatMessage) -> ChatMessage:
    calls = message.get("tool_calls")
    return message if not calls else {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    if _kind(call) in ("object", "empty"):
        return call
    arguments = json.dumps({"arguments": call["function"]["arguments"]}, ensure_ascii=False)
    return {**call, "function": {**call["function"], "arguments": arguments}}


# Looking


@dataclass(slots=True)
class _Probe:
    """Renders shapes, and looks for their words."""

    compiled: CompiledTemplate
    supported: TemplateCapabilities
    variables: Mapping[str, Any]
    continued: bool
    error: str = ""
    """What the template said to the last shape, where it refused it."""

    def __post_init__(self) -> None:
        tools = self.supported.shown_tools([_TOOL] if self.variables.get("tools") else None)
        self.variables = {**self.variables, **tools, "documents": None}

    @property
    def key(self) -> object:
        """Everything besides the messages that the rendering depends on."""
        return self.continued, repr(sorted((name, repr(value)) for name, value in self.variables.items()))

    def unsaid(self, messages: Sequence[ChatMessage], words: _Words, reasoning: bool = False) -> list[str]:
        """The words that are not said once and in order; all of them where the template refuses the messages."""
        parts = list(map(_parts, messages))
        text = self._rendered(messages)
        if text is None:
            return [word for part in parts for word in part if word[2] == "w"]
        kinds = "wr" if reasoning else "w"
        spelled = _words(text)
        free = set(parts[0]) if messages[0]["role"] in _SYSTEM else set()
        expected = [word for part in parts for word in part if word[2] in kinds and word not in free]
        shown = [word for word in spelled if word[2] in kinds and word not in free]
        if expected != shown or any(spelled.count(word) != 1 for word in free):
            return _misplaced(expected, shown) + [word for word in free if spelled.count(word) != 1]
        named = [word for part in parts for word in part if word[2] != "r"]
        return _misnamed(named, [word for word in spelled if word[2] != "r"], words)

    def says_reasoning(self, messages: Sequence[ChatMessage]) -> bool:
        words = _words(self._rendered(messages) or "")
        return all(word in words for message in messages for word in _parts(message) if word[2] == "r")

    def _rendered(self, messages: Sequence[ChatMessage]) -> str | None:
        self.error = ""
        try:
            adapted = [self.supported.adapt(message) for message in messages]
            return self.compiled.render(adapted, self.variables, self.continued)
        except TemplateTooMuch:
            raise
        except (TemplateError, InvalidMessages) as error:
            self.error = str(error)
            return None


_TOOL = {
    "type": "function",
    "function": {
        "name": "qztool",
        "description": "Says the time.",
        "parameters": {"type": "object", "properties": {"qzkey": {"type": "string"}}, "required": ["qzkey"]},
    },
}


def _parts(message: ChatMessage) -> list[str]:
    """The words of a message, in order."""
    calls = [f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls", ())]
    return _words(" ".join([reasoning_of(message), message["content"], *calls]))


def _misplaced(expected: Sequence[str], shown: Sequence[str]) -> list[str]:
    """The words that are missing, or there twice, or before one that they come after; the first that is, at least."""
    wrong = [word for word in expected if shown.count(word) != 1]
    if wrong:
        return wrong
    return [want for want, word in zip(expected, shown, strict=False) if want != word][:1] or list(shown[:1])


def _misnamed(expected: Sequence[str], spelled: Sequence[str], words: _Words) -> list[str]:
    """The calls whose names are not said beside their arguments, and the results that bear the name of another call."""
    places = {word: at for at, word in enumerate(spelled) if word[2] == "w"}
    wrong: list[str] = []
    names_first = True
    begin = 0
    for at, word in enumerate(expected):
        if word[2] == "w":
            begin = places[word] + 1
            continue
        after = expected[at + 1 : at + 2]
        own = after[0] if after and words.name_of.get(after[0]) == word else None
        rest = range(at + 1 if own is None else at + 2, len(expected))
        end = next((places[expected[other]] for other in rest if expected[other][2] == "w"), len(spelled))
        if word not in spelled[begin:end]:
            wrong.append(word)
        names_first = names_first and word in spelled[begin : end if own is None else places[own]]
    if names_first:
        for at, word in enumerate(expected):
            if word not in words.name_of:
                continue
            header = [*(Counter(_names_before(spelled, places[word])) - Counter(_names_before(expected, at)))]
            if header and header[-1] != words.name_of[word]:
                wrong.append(word)
    return wrong


def _names_before(words: Sequence[str], at: int) -> list[str]:
    """The names between a word and the one before it."""
    begin = at
    while begin and words[begin - 1][2] == "f":
        begin -= 1
    return list(words[begin:at])


# Shapes


class _Words:
    """The words of a shape."""

    def __init__(self) -> None:
        self.message_of: dict[str, int] = {}
        """The message that a word stands for."""
        self.name_of: dict[str, str] = {}
        """The name of the function whose arguments or result a word stands for."""
        self.keys: list[tuple[object, ...]] = []
        """What each message is like."""
        self._count = 9

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(self.keys)

    def new(self, kind: str, message: int, name: str = "") -> str:
        self._count += 1
        word = f"qz{kind}{self._count}x"
        self.message_of[word] = message
        if name:
            self.name_of[word] = name
        return word


def _shape_of(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], _Words]:
    """The conversation, with a word in the place of each text. What else a message carries is left out."""
    words = _Words()
    shape: list[ChatMessage] = []
    calls: dict[str, tuple[str, str, int]] = {}
    """By id: its id and its name in the shape, and its number."""
    count = 0
    for at, message in enumerate(messages):
        role, has_text, has_reasoning = message["role"], bool(message["content"].strip()), bool(reasoning_of(message))
        one: ChatMessage = {"role": role, "content": ""}
        key: tuple[object, ...] = (role, has_text, has_reasoning)
        if has_reasoning:
            one["reasoning_content"] = words.new("r", at)
        if role == "tool":
            id, name, number = calls.get(message.get("tool_call_id", ""), ("callqz", "qzf0x", 0))
            one |= {"tool_call_id": id, "name": name}
            one["content"] = words.new("w", at, name if number else "") if has_text else ""
            key = (*key, number and count - number)
        elif has_text:
            one["content"] = words.new("w", at)
        if message.get("tool_calls"):
            kinds = tuple(map(_kind, message["tool_calls"]))
            key = (*key, *kinds)
            one["tool_calls"] = []
            for call, kind in zip(message["tool_calls"], kinds, strict=True):
                name = words.new("f", at)
                count += 1
                id = f"callqz{count:018}"
                calls[call["id"]] = id, name, count
                function = {"name": name, "arguments": _ARGUMENTS[kind].replace("*", words.new("w", at, name))}
                one["tool_calls"].append({"id": id, "type": "function", "function": function})
        shape.append(one)
        words.keys.append(key)
    return shape, words


def _kind(call: dict[str, Any]) -> str:
    arguments = call["function"]["arguments"]
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return "text"
    if isinstance(value, dict):
        return "object" if value else "empty"
    return "list" if isinstance(value, list) else "string" if isinstance(value, str) else "other"


_ARGUMENTS = {
    "object": '{"qzkey": "*"}',
    "empty": "{}",
    "list": '["*"]',
    "string": '"*"',
    "other": "null",
    "text": '{"qzkey": "*',
}
