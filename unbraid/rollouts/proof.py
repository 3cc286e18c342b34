"""Whether a template goes on from a turn as it stands, or why not.

A template goes on if, with more messages after a turn, it still begins with the prompt that the model was given, and
then writes the turn: the same reasoning, words and calls, in the same order, with no end between them. Many do not:
they leave out reasoning once the user has spoken again, move the tools to the last message, or write the results of a
call before the words that came with it. Then the ids that were sampled are no longer what the template would write, and
a reason says where: the line of the template that wrote the old text, and the line that now writes something else.

Both texts are rendered by the template itself, so there is nothing else to prove. `cases` tries it with short
conversations of each kind, for those who want to know before they roll out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..core.grammar import Format
from ..core.message import Message, Speech, Text, ToolCall
from ..core.render import render
from ..core.tools import Tools as CheckedTools
from ..errors import UnbraidError
from ..parsing import Parser
from ..templates.sandbox.budget import stopped_clock
from ..templates.traced_text import REASONING_FIELDS
from .bridges import Bridges, NoBridge, roles
from .regions import Regions, difference
from .shapes import EARLIER, NEXT, ONE_CALL, TOOLS, USER, Shape, call, result, shape_of
from .values import Messages, Tools

_SHOWN = 24


@dataclass(frozen=True)
class PromptSetting:
    """What a prompt is rendered with, beside its messages."""

    tools: Tools | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    prompted: bool = True
    """Whether it ends with the generation prompt."""
    begun: Mapping[str, Any] | None = None
    """The message that the model continues, if it does."""


class Proof:
    """What one template does with what was written."""

    def __init__(self, bridges: Bridges, format: Format, name: str, variables: Mapping[str, Any]) -> None:
        self._bridges = bridges
        self._format = format
        self._name = name
        self._variables = variables
        self._calls = format.tools is not None

    # Whether it goes on

    @cached_property
    def cases(self) -> dict[str, str | None]:
        """What happens in rollouts, and for each case why the template does not go on; None if it does."""
        reasons: dict[str, str | None] = {}
        for shape, new, earlier in self._cases():
            setting = PromptSetting(TOOLS if shape.calls or earlier or self._calls else None, self._variables)
            history, turn = EARLIER if earlier else (USER,), shape.message()
            reasons[_circumstances(turn, new, earlier)] = self.obstacle(
                history, turn, shape.order, new, setting, setting, checked=None
            )
        return reasons

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Where it does not go on; empty if it always does."""
        return tuple(reason for reason in self.cases.values() if reason is not None)

    def _cases(self) -> list[tuple[Shape, Messages, bool]]:
        """What happens in rollouts: the turn, what follows it, and whether there was reasoning before."""
        question = [NEXT]
        cases: list[tuple[Shape, Messages, bool]] = []
        for reasoning in self._ways:
            cases.append((Shape(reasoning=reasoning), question, False))
            if self._calls:
                one = Shape(content=False, reasoning=reasoning, calls=(call(),))
                two = replace(one, calls=(call(0), call(1)))
                results = [result(0), result(1)]
                cases += [(one, [result()], False), (two, results, False)]
                cases += [(replace(one, content=True), [result()], False), (replace(two, content=True), results, False)]
            if self._calls and reasoning:
                cases += [(one, [result()], True), (Shape(reasoning=True), question, True)]
        return cases

    @cached_property
    def _ways(self) -> tuple[bool, ...]:
        """Whether turns have reasoning. The prompt may have opened it, or closed it at once; and a template that writes
        no reasoning is for models that have none."""
        tools = TOOLS if self._calls else None
        try:
            prompt = self._bridges.regions([USER], tools, self._variables, prompt=True).text
        except NoBridge:
            return (False,)
        if Parser(self._format, prompt=prompt).strand == "reasoning":
            return (True,)
        between = self._format.reasoning
        closed = between is not None and between.close.strip() and prompt.rstrip().endswith(between.close.strip())
        return (False, True) if self._writes_reasoning and not closed else (False,)

    @property
    def _writes_reasoning(self) -> bool:
        """Whether the template writes the reasoning of some turn: of an answer, or only of a call."""
        answer, call = Shape(reasoning=True), replace(ONE_CALL, reasoning=True)
        conversations: list[Messages] = [[USER, answer.message()]]
        if self._calls:
            conversations.append([USER, call.message(), result()])
        for messages in conversations:
            try:
                shown = self._bridges.short(messages, self._variables, prompt=False)
            except NoBridge:
                continue
            if any(origin.field == "reasoning" for _, _, origin in shown.trace.spans):
                return True
        return False

    def obstacle(
        self,
        history: Messages,
        turn: Mapping[str, Any],
        order: Sequence[str],
        new: Messages,
        before: PromptSetting,
        after: PromptSetting,
        *,
        checked: CheckedTools | None,
    ) -> str | None:
        """Why the template would rewrite what stands before `new`; None if it would not.

        turn: what the model wrote, without what it continued (`before.begun`).
        order: the order in which it wrote that.
        before, after: of the prompt that the model was given, and of the next one.
        checked: the tools that the turn was parsed with.
        """
        earlier = has_reasoned(history)
        try:
            with stopped_clock():
                reason = self._find_obstacle(history, turn, order, new, before, after, checked)
        except NoBridge as error:
            reason = str(error)
        return reason and f"{_circumstances(turn, new, earlier)}: {reason}"

    def _find_obstacle(
        self,
        history: Messages,
        turn: Mapping[str, Any],
        order: Sequence[str],
        new: Messages,
        before: PromptSetting,
        after: PromptSetting,
        checked: CheckedTools | None,
    ) -> str | None:
        shown = [*history, *([before.begun] if before.begun else ())]
        prompt = self._bridges.regions(
            shown, before.tools, before.variables, prompt=before.prompted, continued=before.begun is not None
        )
        whole = continued(before.begun, turn)
        bridge = self._bridges.between(
            history, whole, new, stopped_at=None, tools=after.tools, variables=after.variables
        )
        rendered = bridge.regions
        at = difference(prompt.text, rendered.text)
        if at < len(prompt.text):
            at = next((token.begin for token in prompt.tokens if token.begin < at < token.end), at)
            return self._places(prompt, rendered, at)
        text = rendered.text[len(prompt.text) : bridge.begin]
        said = self._read(prompt, rendered, bridge.begin, checked)
        differs = _differs(turn, order, said)
        if differs:
            line = rendered.trace.line(len(prompt.text))
            return f"the {differs} of the turn is not what it was: {self._name}, line {line}, writes {_clip(text)}"
        early = self._early_end(rendered, len(prompt.text), bridge.begin, said)
        if early is not None:
            line = rendered.trace.line(early)
            return f"{self._name}, line {line}, ends the turn before it is over: {_clip(rendered.text[early:])}"
        return None

    def _early_end(self, rendered: Regions, low: int, high: int, said: Message) -> int | None:
        """Where the template ends the turn in the middle of it, and the model's format does not."""
        closing = [end for end in self._format.ends if not any(end in text for text in self._format.ignored)]
        ends = [
            token
            for token in rendered.tokens
            if low <= token.begin and rendered.text[token.end : high].strip() and token.text in closing
        ]
        if not ends:
            return None
        try:
            own = render(self._format, said)
        except UnbraidError:  # the format has no way to say this
            return None
        texts = [token.text for token in ends]
        return next((token.begin for token in ends if texts.count(token.text) > own.count(token.text)), None)

    def _read(self, prompt: Regions, rendered: Regions, until: int, checked: CheckedTools | None) -> Message:
        """The turn as the template writes it, parsed as what was sampled was parsed."""
        encoder = self._bridges.builder.encoder
        assert encoder is not None
        parser = Parser(
            self._format,
            tokenizer=encoder.vocabulary,
            prompt=encoder.encode(prompt.marked_from(0)),
            tools=checked,
        )
        parser.feed_tokens(encoder.encode(rendered.marked_between(len(prompt.text), until)))
        parser.finish(end_of_turn=True)
        return parser.message.settled()

    def _places(self, before: Regions, after: Regions, at: int) -> str:
        old, new = before.trace.line(at), after.trace.line(min(at, len(after.text) - 1))
        return (
            f"{self._name}, line {old}, wrote {_clip(before.text[at:])} in the prompt, and line {new} writes "
            f"{_clip(after.text[at:])} in its place"
        )


def continued(begun: Mapping[str, Any] | None, turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message that was begun in the prompt, with what the model wrote after it."""
    if begun is None:
        return dict(turn)
    return {**turn, "content": f"{begun.get('content') or ''}{turn.get('content') or ''}"}


def has_reasoned(messages: Messages) -> bool:
    """Whether the model has reasoned and called since the user last spoke."""
    for message in reversed(messages):
        if message.get("role") == "user":
            return False
        if message.get("role") == "assistant" and any(message.get(name) for name in REASONING_FIELDS):
            return True
    return False


def order_of(message: Message) -> tuple[str, ...]:
    """In which order a turn says what it says: strands, and the names of its calls."""
    order: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            order.append(f"call {part.name}")
        elif isinstance(part, Text | Speech) and part.text.strip():
            strand = part.strand if isinstance(part, Text) else "content"
            order += [strand] if order[-1:] != [strand] else []
    return tuple(order)


def _differs(turn: Mapping[str, Any], order: Sequence[str], message: Message) -> str:
    """What of a turn is not what it was, or is there and should not be."""
    order_now = order_of(message)
    if [each for each in order if each.startswith("call ")] != [each for each in order_now if each.startswith("call ")]:
        return "call"
    reasoning = next((turn[name] for name in REASONING_FIELDS if turn.get(name)), "")
    if reasoning.strip() != message.reasoning.strip():
        return "reasoning"
    content = message.content + "".join(each.text for each in message.speech)
    if (turn.get("content") or "").strip() != content.strip():
        return "content"
    return "order" if tuple(order) != order_now else ""


def _circumstances(turn: Mapping[str, Any], new: Messages, earlier: bool = False) -> str:
    names = {"user": "a message of the user", "tool": "a result"}
    following = " and ".join(dict.fromkeys(names.get(role, f"a {role} message") for role in roles(new)))
    since = ", with an earlier call since the user's last message" if earlier else ""
    return f"{following or 'nothing'} after {shape_of(turn).in_words()}{since}"


def _clip(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
