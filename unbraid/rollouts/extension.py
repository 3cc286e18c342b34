"""Going on from a turn: whether the template would, what comes between, and the next prompt.

What comes after a turn is what the template writes after it in the whole conversation: from where the turn ends, with
every new message (`bridges`). Whether the template goes on from the turn as it stands is seen in the same rendering
(`proof`). In the place of the messages before the turn stand short ones that the template cannot tell from them
(`stand_ins`). So all this is worked out once for each kind of history, turn and new messages: a `Precedent`.

Ids alone do not tell what messages there were. They are enough where no history that the template could have rendered
into them makes a difference (`unknown_past`). `render` and `extend` return prompts that know their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ..caching import LruCache
from ..core.grammar import Format
from ..core.tools import Tools as CheckedTools
from ..templates.errors import InvalidMessages
from ..templates.recipes import Recipes
from ..templates.sandbox.budget import stopped_clock
from ..templates.switches import Switches
from ..templates.symbolic_text import Record, places
from .bridges import Bridge, Bridges, NoBridge
from .masking import Masker
from .past_words import Inspection, PastWords, Suspect
from .proof import PromptSetting, Proof, continued, order_of
from .shapes import NEXT, ONE_CALL, SYSTEM, TOOLS, USER, WORD, Shape, answered, result
from .stand_ins import Plain, ShortHistory, StandIn, StandIns, plain, said_otherwise
from .unknown_past import ADVICE, EVERYTHING, TALK, UnknownPast
from .values import MaskPart, Messages, PromptKeys, Rendering, Tools, TrainingMasks, Turn, ids_of, key_of

_PRECEDENTS = 1_000
_STAND_IN_TEXTS = (WORD, WORD.lower())
_OTHER_TEXTS = ("7777777", "QZ?\nqz\n\nqz. " + "A long qz " * 100 + "is said.")
"""What messages may say: a number; capitals, lines, much."""


@dataclass(frozen=True)
class Doubt:
    """What it matters that nobody knows the messages."""

    reason: str
    bridge: bool
    """Whether it is about what follows the turn, and not only about the past."""


_OTHER_TOOLS = Doubt(f"the prompt does not show these tools: {ADVICE}", bridge=False)


@dataclass
class Precedent:
    """What is known of going on from turns of one kind."""

    obstacle: str | None
    """Why the template would rewrite the past; None if it would not."""
    doubts: dict[int, Doubt | None] = field(default_factory=dict)
    """What it matters that nobody knows the messages, by the number of what they may have been (`unknown_past`)."""
    exact: bool = False
    """Whether no others can stand for the messages before: they are written again after the turn, or the builder
    rewrites the conversation."""
    recipes: Recipes = field(default_factory=Recipes)


@dataclass(frozen=True)
class Continuation:
    """From a turn to the next prompt, or why not."""

    obstacle: str | None
    """Why the template would rewrite the past."""
    refusal: str | None
    """Why there is no next prompt, whatever is done about the past."""
    said: dict[str, Any] = field(default_factory=dict)
    """The turn as a message."""
    following: tuple[int, ...] = ()
    bridge: Callable[[], Bridge] | None = None
    standing: ShortHistory | None = None
    """The conversation with the turn and the new messages."""
    inspection: Inspection | None = None
    """What was seen in the prompt, where it is ids alone."""


@dataclass(frozen=True)
class _Case:
    """Everything that the next prompt is made of."""

    history: Messages
    """Short messages, or the real ones."""
    turn: dict[str, Any]
    """The same of the turn, without what it continues."""
    order: tuple[str, ...]
    new: Messages
    stopped_at: str | None
    before: PromptSetting
    after: PromptSetting
    checked: CheckedTools | None
    told: bool
    """Whether the caller names the tools."""


@dataclass(frozen=True)
class ExtensionPlan:
    """What holds for turns and new messages of one kind, after prompts that are ids alone (`stand_ins.plain`)."""

    precedent: Precedent
    short: _Case
    past: PastWords


class Extension:
    """Goes on from the turns of one model.

    stop_texts: the tokens that end a turn, with their texts.
    """

    def __init__(
        self,
        bridges: Bridges,
        proof: Proof,
        masker: Masker,
        stop_texts: Mapping[int, str],
        switches: Switches,
        format: Format,
        prompts: PromptKeys,
    ) -> None:
        self._bridges = bridges
        self._prompts = prompts
        self._proof = proof
        self._masker = masker
        self._stop_texts = stop_texts
        self._stand_ins = StandIns(switches)
        self._turns = StandIns(switches.joined(Switches(tuple(_markers(format)))), parsed=True)
        """A turn is parsed again: what looks like markup in it has to stay, too."""
        self._unknown = UnknownPast(bridges, switches)
        self._precedents: LruCache[bytes, Precedent] = LruCache(_PRECEDENTS)
        self._plans: LruCache[bytes, ExtensionPlan] = LruCache(_PRECEDENTS)
        self._reading: dict[bool, bool] = {}
        """Whether the template reads more of texts than words (`_reads_more`), with tools and without."""

    def step(
        self,
        prompt: Rendering | Sequence[int],
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
        checked: CheckedTools | None,
    ) -> Continuation:
        """What comes after a turn. Raises `InvalidMessages`."""
        if isinstance(prompt, Rendering) or self._stand_ins.switches.compares:
            return self._worked_out(prompt, turn, new, tools, variables, checked)
        like = plain(turn, new, self._turns, self._stand_ins)
        if like is None:
            return self._worked_out(prompt, turn, new, tools, variables, checked)
        ids = tuple(prompt)
        key = key_of((like.kind, id(checked), variables))
        plan = self._plans.get(key)
        if plan is not None and plan.short.checked is checked:
            step = self._planned(plan, like, ids, turn, new, tools, variables)
            if step is not None:
                return step
        return self._worked_out(ids, turn, new, tools, variables, checked, key)

    def _planned(
        self,
        plan: ExtensionPlan,
        like: Plain,
        ids: tuple[int, ...],
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> Continuation | None:
        """The same by a plan, where it holds."""
        precedent, short = plan.precedent, plan.short
        suspects = plan.past.suspects(ids)
        if suspects is None:
            return None
        for suspect in suspects:
            if suspect.number not in precedent.doubts:
                precedent.doubts[suspect.number] = self._doubt(precedent, short, suspect)
            if precedent.doubts[suspect.number] is not None:
                return None
        text = precedent.recipes.text(like.inputs(self._bridges.builder.capabilities(bool(short.after.tools))))
        if text is None:
            return None

        def bridge() -> Bridge:
            step = self._worked_out(ids, turn, new, tools, variables, short.checked)
            assert step.bridge is not None
            return step.bridge()

        try:
            following = self._bridges.encoded(text, short.stopped_at)
        except NoBridge:
            return None
        return Continuation(precedent.obstacle, None, following=following, bridge=bridge)

    def _keep_plan(
        self, key: bytes, precedent: Precedent, short: _Case, inspection: Inspection, ids: Sequence[int]
    ) -> None:
        """Go this way again from turns of the same kind."""
        past = self._unknown.past_words(inspection.setting)
        if past is not None and not inspection.lacks_tools:
            past.shows_tools(self._unknown.head_with_tools(inspection.setting, ids))
            self._plans[key] = ExtensionPlan(precedent, short, past)

    def _worked_out(
        self,
        prompt: Rendering | Sequence[int],
        turn: Turn,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
        checked: CheckedTools | None,
        plan: bytes | None = None,
    ) -> Continuation:
        """What comes after a turn, the long way.

        plan: the key of a plan to keep.
        """
        said = answered(turn.to_openai(), new)
        messages = prompt.given if isinstance(prompt, Rendering) else None
        begun = messages[-1] if messages and isinstance(prompt, Rendering) and prompt.continues else None
        history = messages[:-1] if messages is not None and begun is not None else messages
        before, after = _settings(prompt, begun, said, tools, variables)
        standing = self._standing(prompt, history)
        whole = continued(begun, said)
        case = _Case(
            history if history is not None else self._nobodys_messages,
            said,
            order_of(turn.settled),
            new,
            None if turn.stop_id is None else self._stop_texts[turn.stop_id],
            before,
            after,
            checked,
            bool(tools),
        )
        shown = self._read(whole, new)
        own = self._turns.of(shown[0] if begun is None else self._read(said, ())[0], ())
        same = begun is None and not own.keeps  # who keeps less of it keeps nothing either
        followed = standing.followed_by(self._stand_ins, shown, own if same else None)
        in_short, key = self._in_short(case, standing, own, followed, unknown=history is None)
        precedent = None if key is None else self._precedents.get(key)
        if precedent is None:
            precedent = self._precedent(None if in_short is None else in_short(), unknown=history is None)
            if key is not None:
                self._precedents[key] = precedent
        obstacle = self._obstacle(case) if precedent.exact else precedent.obstacle
        if isinstance(prompt, Rendering) and prompt.departure:
            obstacle = prompt.departure
        refusal = inspection = None
        if history is None:
            inspection = self._inspected(case, ids_of(prompt) or ())
            doubts = self._doubts(precedent, case, in_short, inspection)
            refusal = next((doubt.reason for doubt in doubts if doubt.bridge), None)
            obstacle = obstacle or next((doubt.reason for doubt in doubts), None)
        if refusal is None:
            try:
                following, bridge = self._following(precedent, case, in_short, shown[1:])
                if plan is not None and inspection is not None and in_short is not None and not precedent.exact:
                    self._keep_plan(plan, precedent, in_short(), inspection, ids_of(prompt) or ())
                return Continuation(obstacle, None, whole, following, bridge, followed, inspection)
            except NoBridge as error:
                refusal = str(error)
        return Continuation(obstacle, refusal, whole, standing=followed)

    def _read(self, turn: Mapping[str, Any], new: Messages) -> list[dict[str, Any]]:
        """The turn and the new messages, checked and in one form. Raises `InvalidMessages`."""
        try:
            return self._bridges.builder.read([turn, *new])
        except InvalidMessages:
            self._bridges.builder.read(new)  # places are counted from the first of the new ones
            raise

    # What stands for what

    def _standing(self, prompt: Rendering | Sequence[int], history: Messages | None) -> ShortHistory:
        """The messages before the turn, in short."""
        if history is None or not isinstance(prompt, Rendering):
            return self._nobody
        if prompt.standing is None:
            prompt.standing = self._stand_ins.standing(self._bridges.builder.read(history) if history else [])
        standing: ShortHistory = prompt.standing
        return standing

    @cached_property
    def _nobody(self) -> ShortHistory:
        """What stands for messages that are not known."""
        histories: tuple[Messages, ...] = ([USER], [SYSTEM, USER])
        for history in histories:
            try:
                self._bridges.regions(history, TOOLS, {}, prompt=True)
            except NoBridge:
                continue
            return self._stand_ins.standing(self._bridges.builder.read(history))
        return self._stand_ins.standing(self._bridges.builder.read([USER]))

    @cached_property
    def _nobodys_messages(self) -> Messages:
        return self._nobody.messages()

    def _in_short(
        self,
        case: _Case,
        standing: ShortHistory,
        own: StandIn,
        followed: ShortHistory,
        *,
        unknown: bool,
    ) -> tuple[Callable[[], _Case] | None, bytes | None]:
        """A function that makes the case with stand-ins, and a key that cases share which the template cannot tell
        apart. None where there is nothing that could stand for its messages."""
        if not followed.stands or self._reads_more(case.after):
            return None, None
        kinds = [entry.kind for entry in followed.latest[1:]]
        before, after = case.before, case.after
        settings = (after.tools, after.variables, before.prompted, before.begun, unknown)
        earlier = (before.tools, before.variables) if before.tools is not after.tools else before.variables
        key = key_of((standing.key, own.kind, case.order, kinds, case.stopped_at, settings, earlier))

        def in_short() -> _Case:
            turn, _ = own.message(len(standing.entries), ())
            for call, real in zip(turn.get("tool_calls") or (), case.turn.get("tool_calls") or (), strict=True):
                call["id"] = real["id"]
            return replace(case, history=standing.messages(), turn=turn)

        return in_short, key

    def _reads_more(self, setting: PromptSetting) -> bool:
        """Whether the template asks for more of texts than for words in them: how long they are, or whether they are
        numbers. Then nothing stands for them."""
        tools = bool(setting.tools)
        if tools not in self._reading:
            texts = [WORD, *(text for text in _OTHER_TEXTS if not self._turns.switches.in_text(text))]
            bare = PromptSetting(setting.tools, setting.variables)
            with stopped_clock():
                self._reading[tools] = len({self._outcome(text, bare) for text in texts}) > 1
        return self._reading[tools]

    def _outcome(self, text: str, setting: PromptSetting) -> tuple[tuple[str | None, bool], ...]:
        """What follows turns in conversations in which everybody says this, and whether the template rewrites them."""
        history: Messages = EVERYTHING if setting.tools else TALK
        turns = [(Shape(reasoning=True), NEXT), *([(Shape(calls=ONE_CALL.calls), result())] if setting.tools else [])]
        outcome = []
        for shape, new in turns:
            messages = [*map(dict, history), shape.message()]
            *before, turn = messages if text == WORD else said_otherwise(messages, text)
            case = _Case(before, turn, shape.order, [new], None, setting, setting, None, told=False)
            following = self._text(case)
            # Where it is written again, nothing stands for it either (`Precedent.exact`).
            said = following and following.replace(text.strip(), WORD)
            outcome.append((said, following is None or self._obstacle(case) is None))
        return tuple(outcome)

    # What is known of cases of a kind

    def _precedent(self, short: _Case | None, *, unknown: bool) -> Precedent:
        """What is known from now on. A conversation that the builder rewrites is looked at as a whole: nothing stands
        for that."""
        if short is None:
            return Precedent(None, exact=True)
        try:
            always = self._bridges.regions([USER], short.after.tools, short.after.variables, prompt=True).notes
            before = EVERYTHING if short.after.tools else TALK
            cases = [short, *([replace(short, history=before)] if unknown else [])]
            rewritten = any(not set(self._between(each).regions.notes).issubset(always) for each in cases)
        except NoBridge:
            rewritten = True
        return Precedent(None, exact=True) if rewritten else Precedent(self._obstacle(short))

    def _obstacle(self, case: _Case) -> str | None:
        return self._proof.obstacle(
            case.history, case.turn, case.order, case.new, case.before, case.after, checked=case.checked
        )

    def _inspected(self, case: _Case, ids: Sequence[int]) -> Inspection:
        tools, variables = case.after.tools, case.after.variables
        return self._unknown.inspected(
            self._prompts.of(ids), ids, case.history, tools if case.told else None, variables
        )

    def _doubts(
        self,
        precedent: Precedent,
        case: _Case,
        in_short: Callable[[], _Case] | None,
        inspection: Inspection,
    ) -> list[Doubt]:
        """What it matters that ids are all that is known."""
        if precedent.exact:
            reads = self._reads_more(case.after)
            what = "what the template writes" if reads else "how the builder rewrites these messages for the template"
            reason = f"{what} depends on the texts of those before: {ADVICE}"
            return [Doubt(reason, bridge=True)]
        suspects = inspection.suspects
        for suspect in suspects:
            if suspect.number not in precedent.doubts:
                short = case if in_short is None else in_short()
                precedent.doubts[suspect.number] = self._doubt(precedent, short, suspect)
        doubts = [doubt for suspect in suspects if (doubt := precedent.doubts[suspect.number]) is not None]
        return [*doubts, _OTHER_TOOLS] if inspection.lacks_tools else doubts

    def _doubt(self, precedent: Precedent, case: _Case, suspect: Suspect) -> Doubt | None:
        other = replace(case, history=suspect.history)
        with stopped_clock():
            expected, text = self._text(case), self._text(other)
        differs = text is not None and text != expected
        obstacle = self._obstacle(other) if not differs and precedent.obstacle is None else None
        if not differs and obstacle is None:
            return None
        what = obstacle or "something else follows the turn"
        return Doubt(f"with {suspect.what} before, {what}: {ADVICE}", bridge=differs)

    def _text(self, case: _Case) -> str | None:
        try:
            return self._between(case).text
        except NoBridge:
            return None

    def _between(self, case: _Case, **more: Any) -> Bridge:
        turn = continued(case.before.begun, case.turn)
        tools, variables = case.after.tools, case.after.variables
        new = more.pop("new", case.new)
        return self._bridges.between(
            case.history, turn, new, stopped_at=case.stopped_at, tools=tools, variables=variables, **more
        )

    def _following(
        self,
        precedent: Precedent,
        case: _Case,
        in_short: Callable[[], _Case] | None,
        read: Sequence[dict[str, Any]],
    ) -> tuple[tuple[int, ...], Callable[[], Bridge]]:
        """The ids of the bridge after the turn, and a function that renders it. Raises `NoBridge` if there is none.

        read: the new messages in one form.
        """
        if in_short is None or precedent.exact:
            bridge = self._between(case)
            return self._bridges.encoded(bridge.text, case.stopped_at), lambda: bridge
        inputs = self._inputs(case, read)
        text = precedent.recipes.text(inputs)
        if text is not None:
            return self._bridges.encoded(text, case.stopped_at), lambda: self._between(in_short())
        short = in_short()
        bridge = self._between(short)
        if any(text in bridge.text for text in _STAND_IN_TEXTS):
            precedent.exact = True
            bridge = self._between(case)
        else:
            precedent.recipes.learn(
                short.new,
                inputs,
                partial(self._bridge_text, short),
                lambda new: self._inputs(case, self._read(case.turn, new)[1:]),
            )
        return self._bridges.encoded(bridge.text, case.stopped_at), lambda: bridge

    def _bridge_text(self, case: _Case, new: Messages, record: Record | None = None) -> str | None:
        try:
            return self._between(case, new=new, record=record).text
        except NoBridge:
            return None

    def _inputs(self, case: _Case, new: Sequence[dict[str, Any]]) -> list[str]:
        """What a recipe for such a case takes.

        new: messages in one form.
        """
        capabilities = self._bridges.builder.capabilities(bool(case.after.tools))
        calls = [{"id": capabilities.call_id(call["id"])} for call in case.turn.get("tool_calls") or ()]
        adapted = [{"tool_calls": calls}, *map(capabilities.adapt, new)]
        return [holder[name] for _, _, holder, name in places(adapted)]

    # The next prompt

    def extended(
        self,
        prompt: Rendering | Sequence[int],
        sampled: Sequence[int],
        turn: Turn,
        step: Continuation,
        new: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> Rendering:
        """The next prompt."""
        assert step.bridge is not None
        bridge, following = step.bridge, step.following
        before = ids_of(prompt) or ()
        messages_before = list(prompt.given) if isinstance(prompt, Rendering) and prompt.given is not None else None
        if messages_before is not None and isinstance(prompt, Rendering) and prompt.continues:
            messages_before.pop()
        number = 0 if messages_before is None else len(messages_before)

        def masks() -> TrainingMasks:
            count = len(sampled)
            own = TrainingMasks((number,) * count, (True,) * count, tuple(not each for each in turn.markup))
            return own.followed_by(self._masker.of_bridge(bridge(), following, number, new, variables))

        if isinstance(prompt, Rendering):
            parts = prompt.parts
        else:
            size = len(before)
            parts = (MaskPart(lambda: TrainingMasks.of_nobody(size)),)
        ids = (*before, *sampled, *following)
        if step.inspection is not None:
            self._unknown.goes_on(step.inspection, (*sampled, *following), self._prompts.of(ids))
        rendering = Rendering(
            ids,
            (*parts, MaskPart(masks, number if messages_before is not None else None)),
            messages=None if messages_before is None else [*messages_before, step.said, *new],
            tools=tools,
            variables=variables,
        )
        rendering.standing = None if messages_before is None else step.standing
        rendering.departure = step.obstacle
        return rendering


def _settings(
    prompt: Rendering | Sequence[int],
    begun: Mapping[str, Any] | None,
    said: Mapping[str, Any],
    tools: Tools | None,
    variables: Mapping[str, Any],
) -> tuple[PromptSetting, PromptSetting]:
    """What the prompt was rendered with, and what the next one is. Ids alone do not tell: then it is the same."""
    if not isinstance(prompt, Rendering):
        tools = tools or (TOOLS if said.get("tool_calls") else None)
        setting = PromptSetting(tools, variables)
        return setting, setting
    return PromptSetting(prompt.tools, prompt.variables, prompt.prompted, begun), PromptSetting(tools, variables)


def _markers(format: Format) -> list[str]:
    """What may be markup in a turn."""
    strands = (format.reasoning, format.tools, format.speech)
    texts = [text for strand in strands if strand is not None for text in (strand.open, strand.close)]
    return [text.strip() for text in dict.fromkeys([*texts, *format.ends]) if text.strip()]
