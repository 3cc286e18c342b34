"""What is proven of a template: that it goes on from a turn as it stands, or why not.

A template goes on if, with more messages after a turn, it still begins with the prompt that the model was given, and
writes the whole turn after it. Many do not: they leave out reasoning once the user has spoken again, or move the tools
to the last message. Then the ids that were sampled are no longer what the template would write, and a reason says
where: the line of the template that wrote the old text, and the line that now writes something else.

Each question is asked of short messages of the same shape, and the answer is kept by shape. So it does not matter who
asked first: what is proven of a template is the same in every process, on every machine and on every day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..caching import LruCache
from ..core.grammar import Format
from ..core.message import Message
from ..parsing import Parser
from ..templates.sandbox.budget import stopped_clock
from .bridges import Bridges, NoBridge, roles
from .regions import Regions, difference
from .shapes import EARLIER, NEXT, ONE_CALL, SYSTEM, TOOLS, USER, Shape, call, kind_of, result, shortened
from .values import Messages, Tools, key_of

_SHOWN = 24
_ANSWER = Shape()
_MOST_KEPT = 1_000
_UNKNOWN = "?"
_LONG_BEFORE = {"role": "user", "content": "Qz long before"}


class Proof:
    """What one template does with what was written."""

    def __init__(self, bridges: Bridges, format: Format, name: str, variables: Mapping[str, Any]) -> None:
        self._bridges = bridges
        self._format = format
        self._name = name
        self._variables = variables
        self._calls = format.tools is not None
        self._reasons: LruCache[tuple[bytes, bool, bool, bytes], str | None] = LruCache(_MOST_KEPT)

    # Whether it goes on

    @cached_property
    def cases(self) -> dict[str, str | None]:
        """What happens in rollouts, and for each case why the template does not go on; None if it does."""
        reasons: dict[str, str | None] = {}
        for shape, new, earlier in self._cases():
            tools = TOOLS if shape.calls or earlier or self._calls else None
            reason = self.obstacle(shape, new, earlier=earlier, tools=tools, variables=self._variables)
            reasons[_circumstances(shape, new, earlier)] = reason
        return reasons

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Where it does not go on; empty if it always does."""
        lines = [reason for reason in self.cases.values() if reason is not None]
        return tuple(lines if self.depends_on_history is None else [*lines, self.depends_on_history])

    def _cases(self) -> list[tuple[Shape, Messages, bool]]:
        """What happens in rollouts: the turn, what follows it, and whether there was reasoning before."""
        question = [NEXT]
        cases: list[tuple[Shape, Messages, bool]] = []
        for reasoning in self._ways:
            cases.append((Shape(reasoning=reasoning), question, False))
            if self._calls:
                one = Shape(content=False, reasoning=reasoning, calls=(call(),))
                two = Shape(content=False, reasoning=reasoning, calls=(call(0), call(1)))
                cases += [(one, [result()], False), (two, [result(0), result(1)], False)]
            if self._calls and reasoning:
                cases += [(one, [result()], True), (Shape(reasoning=True), question, True)]
        return cases

    @cached_property
    def _ways(self) -> tuple[bool, ...]:
        """Whether turns have reasoning. The prompt may have opened it, or closed it at once; and a template that writes
        no reasoning is for models that have none."""
        try:
            prompt = self._bridges.regions([USER], self._tools, self._variables, prompt=True).text
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
        self, shape: Shape, new: Messages, *, earlier: bool, tools: Tools | None, variables: Mapping[str, Any]
    ) -> str | None:
        """Why the template would rewrite what stands before `new`; None if it would not.

        earlier: whether the model has reasoned and called before, since the user last spoke.
        """
        key = kind_of(shape, new), earlier, bool(tools), key_of(variables)
        kept = self._reasons.get(key, _UNKNOWN)
        if kept != _UNKNOWN:
            return kept
        shape, new = shortened(shape, new)
        try:
            with stopped_clock():
                reason = self._find_obstacle(shape, new, earlier, tools, variables)
        except NoBridge as error:
            reason = f"{_circumstances(shape, new)}: {error}"
        return self._reasons.setdefault(key, reason)

    def _find_obstacle(
        self, shape: Shape, new: Messages, earlier: bool, tools: Tools | None, variables: Mapping[str, Any]
    ) -> str | None:
        history = EARLIER if earlier else (USER,)
        shown = TOOLS if tools else None
        before = self._bridges.regions(history, shown, variables, prompt=True)
        turn = shape.message()
        after = self._bridges.regions([*history, turn, *new], shown, variables, prompt=True)
        at = difference(before.text, after.text)
        if at < len(before.text):
            at = next((token.begin for token in before.tokens if token.begin < at < token.end), at)
            return f"{_circumstances(shape, new, earlier)}: {self._places(before, after, at)}"
        closing, until = after.end_of_turn(len(history))
        text = after.text[len(before.text) : until if closing is None else closing.begin]
        missing = _missing(shape, self._read(text, before.text))
        if missing:
            line = after.trace.line(len(before.text))
            return (
                f"{_circumstances(shape, new, earlier)}: the {missing} of the turn is not what it was: "
                f"{self._name}, line {line}, writes {_clip(text)}"
            )
        return None

    def _read(self, text: str, prompt: str) -> Message:
        parser = Parser(self._format, prompt=prompt)
        parser.feed(text)
        parser.finish(end_of_turn=True)
        return parser.message

    def _places(self, before: Regions, after: Regions, at: int) -> str:
        old, new = before.trace.line(at), after.trace.line(min(at, len(after.text) - 1))
        return (
            f"{self._name}, line {old}, wrote {_clip(before.text[at:])} in the prompt, and line {new} writes "
            f"{_clip(after.text[at:])} in its place"
        )

    # Whether a short conversation will do

    @cached_property
    def depends_on_history(self) -> str | None:
        """Why the bridge depends on what came long before the turn; None if it does not."""
        cases: list[tuple[Shape, Messages]] = [(_ANSWER, [NEXT])]
        if self._calls:
            cases.append((ONE_CALL, [result()]))
        histories: list[Messages] = [[USER], [_LONG_BEFORE, _ANSWER.message(), USER], [SYSTEM, USER]]
        for shape, new in cases:
            texts = {text for each in histories if (text := self._bridge(each, shape, new, self._tools)) is not None}
            if len(texts) > 1:
                return f"{_circumstances(shape, new)}: what {self._name} writes depends on the messages long before"
        return None

    @cached_property
    def depends_on_tools(self) -> bool:
        """Whether the bridge depends on which tools there are. (Some templates fail without any.)"""
        with_tools, untold = (self._bridge([USER], _ANSWER, [NEXT], tools) for tools in (TOOLS, None))
        return with_tools is not None and untold is not None and with_tools != untold

    @property
    def _tools(self) -> Tools | None:
        return TOOLS if self._calls else None

    def _bridge(self, history: Messages, shape: Shape, new: Messages, tools: Tools | None) -> str | None:
        try:
            with stopped_clock():
                return self._bridges.between(
                    history, shape.message(), new, stopped_at=None, tools=tools, variables=self._variables
                ).text
        except NoBridge:
            return None


def _missing(shape: Shape, message: Message) -> str:
    """What of a turn is not there, or is there and should not be."""
    if [name for _, name in shape.calls] != [each.name for each in message.tool_calls]:
        return "call"
    if shape.reasoning != bool(message.reasoning.strip()):
        return "reasoning"
    return "content" if (shape.content or not shape.calls) != bool(message.content.strip()) else ""


def _circumstances(shape: Shape, new: Messages, earlier: bool = False) -> str:
    names = {"user": "a message of the user", "tool": "a result"}
    following = " and ".join(dict.fromkeys(names.get(role, f"a {role} message") for role in roles(new)))
    since = ", with an earlier call since the user's last message" if earlier else ""
    return f"{following or 'nothing'} after {shape.in_words()}{since}"


def _clip(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
