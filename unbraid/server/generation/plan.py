"""Plans: a chat request in no dialect (`ChatTask`) turned into what the engine is asked for (`Plan`).

All that a request means is decided here, once: the prompt, the sampling, the constraint, and how the output is parsed.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from ...constraints import Constraint, NotContinued, Unenforced
from ...core.compiler.compiler import compile_format
from ...core.compiler.prompt_end import read_end
from ...core.grammar import Format
from ...core.tools import Tools
from ...engines import Generation, PromptTooLong, Sampling
from ...errors import InvalidTools, OverBudget, Place, UnbraidError
from ...parsing import Parser, UnknownTools
from ...templates import BegunCall, Prompt, fitting
from ..audio_input import audio_of
from ..errors import ApiError
from ..model import Model, Served
from ..service import Service
from .begun_calls import ContinuedParser
from .choice import Choice
from .continuation import extended
from .enforcing import enforced, left_free, naming_the_part, rest_of
from .task import ChatTask, ClientPlaces
from .thinking import RawPrompt, ThinkingBudget
from .updates import Usage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speaking:
    """Whether a reply is spoken: what was asked, what the model can do, and the lines of the log that say so.

    A request asks for speech with `tts_output`, or in the older way with the marker at the beginning of a message that
    the model continues. A model that cannot speak answers in text, with a warning in the log, unless the request
    insists.

    Users of Step-Audio 2 look for two of these lines to see whether speech is on, so their words are fixed:
    `TTS output enabled: appended <tts_start> token` and `[TTS] is_tts_output: True, from_request: True`. `from_request`
    says that `tts_output` asked for it. For requests without speech there is no line.
    """

    asked: bool
    """`tts_output` asked for it."""
    spoken: bool
    """The prompt makes the model speak."""
    marker: str = ""
    """What was appended to the prompt for that."""
    problem: str = ""
    """Why the model cannot speak, where it was asked to."""

    @classmethod
    def of(cls, from_request: bool, prompt: Prompt) -> Speaking:
        if not (from_request or prompt.spoken or prompt.silence):
            return SILENT
        return cls(from_request, prompt.spoken, prompt.speech_marker, prompt.silence)

    def log(self) -> None:
        if self.marker:
            _log.info("TTS output enabled: appended %s token", self.marker)
        if self.problem:
            _log.warning("the reply is not spoken: %s", self.problem)
        if self.asked or self.spoken or self.problem:
            _log.info("[TTS] is_tts_output: %s, from_request: %s", self.spoken, self.asked)


SILENT = Speaking(asked=False, spoken=False)

T = TypeVar("T")
_COLDEST = 1e-4
"""The lowest temperature. To divide by less would leave nothing of the numbers."""
_SHARE_OF_REPLY = 4
"""A conversation that loses its oldest turns leaves this part of the context to the reply, a quarter."""


class Plan(Struct, frozen=True):
    """A chat task, ready for the engine. Making one takes a while: do it in a thread."""

    task: ChatTask
    generations: tuple[Generation, ...]
    """One for each choice."""
    format: Format
    tools: Tools
    unenforced: tuple[Unenforced, ...] = ()
    """What the request asks of the output and the engine does not enforce: `enforcing.unenforced_header` tells it."""
    speaking: Speaking = SILENT
    begun: BegunCall | None = None
    """The call that the model goes on with, at the end of the prompt."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What goes to another process: all but the messages, which may be many, and which the prompt has now."""
        places = {path: place for path, place in self.task.places.items() if path[0] not in ("messages", "tools")}
        places |= {(name,): self.task.place(name) for name in ("messages", "tools")}
        task = msgspec.structs.replace(self.task, messages=(), documents=None, so_far=None, places=places)
        return Plan, (task, self.generations, self.format, self.tools, self.unenforced, self.speaking, self.begun)

    def choices(
        self, service: Service, served: Served, usage: Usage, arrived: float, *, keep_message: bool
    ) -> list[Choice]:
        """All choices, ready to run. Without `keep_message`, only their updates say what they are."""
        service.log_unenforced(self.unenforced)
        self.speaking.log()
        return [
            Choice(
                served,
                service.metrics,
                generation,
                self.parser(served.model, index, keep_message),
                index,
                usage,
                arrived,
                None if served.vocoder is None else served.vocoder.voice(),
                self._places,
                self._budget(service, served.model),
                self.task.needs_ids,
                partial(self.parser, served.model, index, False),
                partial(_work, service, served.model),
            )
            for index, generation in enumerate(self.generations)
        ]

    def _places(self) -> ClientPlaces:
        """What the client calls the fields of a generation."""
        constrained = self.task.place("response_format" if self.task.response_format else "tools")
        return {("constraint",): constrained, ("audio",): self.task.place("messages"), **self.task.places}

    def _budget(self, service: Service, model: Model) -> ThinkingBudget | None:
        """The budget of the reasoning; None if there is no limit or the model does not reason."""
        task, reasoning = self.task, self.format.reasoning
        if task.thinking_budget is None or reasoning is None:
            return None

        async def constrain(prompt: RawPrompt) -> Constraint | None:
            planned = await service.planned(
                _constraint, model, self.format, task, checked_tools(task.tools), prompt, reasoned=True
            )
            return planned[0]

        encode = None if model.encoder is None else model.encode_output
        return ThinkingBudget(task.thinking_budget, reasoning.close, encode, constrain)

    def _unknown_tools(self, model: Model) -> UnknownTools:
        """What a call to an unknown tool becomes. If the request forbids calls, the call is dropped: no client expects
        one."""
        if self.task.tool_choice == "none":
            return "drop"
        if self.begun is not None and self.begun.named:
            return "emit"
        return model.unknown_tools if self.tools else "text"

    def parser(self, model: Model, index: int, keep_message: bool) -> Parser:
        prompt, make = self.generations[index].prompt, cast("Callable[..., Parser]", Parser)
        if self.begun is not None:
            prompt = before_call(prompt, self.begun)
            make = partial(ContinuedParser, self.begun)
        return make(
            self.format,
            tools=self.tools,
            unknown_tools=self._unknown_tools(model),
            tokenizer=model.vocabulary,
            prompt=prompt,
            separate_reasoning=self.task.separate_reasoning,
            calls_in_reasoning=self.task.calls_in_reasoning,
            keep_message=keep_message,
            count_tokens=model.encoder is not None,
        )


async def _work(service: Service, model: Model, work: Callable[..., T], *args: Any) -> T:
    """Run work about a model within the time that a request may take. Also raises `OverBudget` if the workers are
    overloaded: the engine then does without the result."""
    try:
        return await service.planned(_call, model, work, args)
    except ApiError as error:
        raise OverBudget(str(error)) from error


def _call(model: Model, work: Callable[..., T], args: tuple[Any, ...]) -> T:
    """`work(*args)`. The planner reads from `model` whether a worker process can do it."""
    return work(*args)


def plan_chat(model: Model, task: ChatTask) -> Plan:
    """Raises what is wrong with the task, in the words of its dialect."""
    try:
        return _plan(model, task)
    except UnbraidError as error:
        with task.in_its_words(), naming_the_part(task.tools):
            raise error


class _Outline(Struct, frozen=True):
    """What messages have no part in. It is kept with a task, for those that differ in nothing but messages."""

    of: tuple[Any, ...]
    """What it was made of, besides the task."""
    tools: Tools
    tools_key: str
    called: Tools
    """Those that may be called."""
    free: bool
    """Whether the request itself asks for no constraint."""
    sampling: Sampling
    stop_tokens: tuple[int, ...]
    silent: Format


def _outline(model: Model, task: ChatTask) -> _Outline:
    of = (model, model.format, model.encoder, model.sampling)
    kept: _Outline | None = task.kept.get("outline")
    if kept is not None and all(map(operator.is_, kept.of, of)):
        return kept
    tools, choice = checked_tools(task.tools), task.tool_choice or "auto"
    strict = task.parallel_tool_calls is False or any(map(tools.strict, tools))
    outline = task.kept["outline"] = _Outline(
        of,
        tools,
        _tools_key(task),
        tools if task.tool_choice != "none" else Tools([]),
        not _answers_json(task) and (choice == "none" or (choice == "auto" and not (tools and strict))),
        sampling(model, task.sampling, task.logit_bias),
        (*model.end_tokens, *task.stop_tokens),
        model.format.silent(),
    )
    return outline


def _plan(model: Model, task: ChatTask) -> Plan:
    model.check_count(task.choices, "n")
    model.check_ids(task.needs_ids)
    outline = _outline(model, task)
    tools = outline.tools
    prompt, speaking, begun = _prompt(model, task, outline.tools_key)
    # Where no marker says that the model speaks, the request does.
    format = model.format if task.speak and speaking.spoken else outline.silent
    constraint: Constraint | None = None
    unenforced: tuple[Unenforced, ...] = ()
    if not outline.free or (tools and (model.constrain_auto or format.tools is None)):
        constraint, unenforced = _constraint(model, format, task, tools, prompt, begun=begun)
    generation = Generation(
        prompt=prompt,
        sampling=outline.sampling,
        max_tokens=_clipped(model, task, prompt) if task.clip else task.max_tokens,
        stop=task.stop,
        stop_tokens=outline.stop_tokens,
        constraint=constraint,
        logprobs=task.logprobs,
        audio=audio_of(task.messages),
    )
    return Plan(task, repeated(generation, task.choices), format, outline.called, unenforced, speaking, begun)


def checked_tools(definitions: Sequence[Mapping[str, Any]]) -> Tools:
    """The tools of a request. A conversation has the same ones in each of its requests, so those of the last ones are
    kept."""
    encoded = msgspec.json.encode(definitions)
    return _checked(encoded) if len(encoded) <= _MOST_KEPT else Tools(definitions)


_MOST_KEPT = 64_000
"""Tools of more bytes are checked each time."""


@lru_cache(32)
def _checked(definitions: bytes) -> Tools:
    return Tools(msgspec.json.decode(definitions))


def prompt_of(model: Model, task: ChatTask) -> RawPrompt:
    """The prompt of a task whose tools have been checked: ids, where the tokenizer is known."""
    with task.in_its_words():
        return _prompt(model, task, _tools_key(task))[0]


def begun_of(model: Model, task: ChatTask) -> BegunCall | None:
    """The call that the prompt of a task ends inside of."""
    with task.in_its_words():
        return _prompt(model, task, _tools_key(task))[2]


def _tools_key(task: ChatTask) -> str:
    return msgspec.json.encode(task.tools).decode() if task.tools else ""


def _prompt(model: Model, task: ChatTask, tools_key: str) -> tuple[RawPrompt, Speaking, BegunCall | None]:
    if task.so_far is not None:
        return extended(model, task, task.so_far), SILENT, None
    builder, context = model.chat_builder(), model.context

    def build(messages: Sequence[Mapping[str, Any]]) -> Prompt:
        return builder.build(
            messages,
            tools=[] if task.tool_choice == "none" else task.tools,
            documents=task.documents,
            add_generation_prompt=task.add_generation_prompt,
            continue_final_message=task.continue_final_message,
            tts_output=task.speak,
            allow_silence=not task.must_speak,
            template_kwargs=task.template_kwargs,
            check_tools=False,
            tools_key=tools_key,
        )

    if not task.drop_oldest or context is None:
        prompt = build(task.messages)
    else:
        reply = min(task.max_tokens or context, context // _SHARE_OF_REPLY)
        prompt = fitting(build, task.messages, context - reply)
    raw = prompt.text if prompt.ids is None else prompt.ids
    if task.thinking_budget == 0 and prompt.begun_call is None:
        raw = _without_thinking(model, raw)
    return raw, Speaking.of(task.speak, prompt), prompt.begun_call


def _clipped(model: Model, task: ChatTask, prompt: str | tuple[int, ...]) -> int | None:
    """`max_tokens`, or as many as the context has room for, if that is less."""
    context, wanted = model.context, task.max_tokens
    if context is None or wanted is None:
        return wanted
    if isinstance(prompt, str):  # only the engine can count it
        return wanted if wanted < context else None
    if len(prompt) >= context:
        raise PromptTooLong(f"the prompt is too long: {len(prompt)} tokens > {context - 1} maximum")
    return min(wanted, context - len(prompt))


def repeated(generation: Generation, count: int) -> tuple[Generation, ...]:
    """The same generation for each choice. With a seed, each gets one of its own."""
    seed = generation.sampling.seed
    if count == 1 or seed is None:
        return (generation,) * count
    seeds = [(seed + at + 2**63) % 2**64 - 2**63 for at in range(count)]
    return tuple(replace(generation, sampling=replace(generation.sampling, seed=each)) for each in seeds)


def sampling(model: Model, values: Mapping[str, Any], logit_bias: Mapping[int, float]) -> Sampling:
    """How tokens are chosen: as the request says, or else the server's settings."""
    chosen: dict[str, Any] = {**model.sampling, **values}
    if chosen.get("temperature", 1.0) < _COLDEST:
        chosen["temperature"] = 0.0
    if chosen.get("top_k", 0) < 0:  # vLLM's way to say all
        chosen["top_k"] = 0
    return Sampling(**chosen, logit_bias=logit_bias)


def _constraint(
    model: Model,
    format: Format,
    task: ChatTask,
    tools: Tools,
    prompt: RawPrompt,
    *,
    reasoned: bool = False,
    begun: BegunCall | None = None,
) -> tuple[Constraint | None, tuple[Unenforced, ...]]:
    """What constrains the output, and what of it is not enforced. None where the request asks for nothing: an
    unconstrained model is faster.

    reasoned: the prompt ends with the reasoning, and no more of it is wanted.
    begun: the call that the prompt ends inside of.
    """
    choice = task.tool_choice or "auto"
    if tools and choice != "none" and format.tools is None:
        raise InvalidTools(
            Place("tools"),
            f": the model writes {format.name!r}, which has no tool calls; leave them out, or start the server with "
            "--tool-call-parser",
        )
    answers_json = _answers_json(task)
    if not answers_json and choice in ("auto", "none"):
        wanted = model.constrain_auto or task.parallel_tool_calls is False or any(map(tools.strict, tools))
        if not tools or choice == "none" or not wanted:
            return None, ()
        if model.unconstrained:
            return None, left_free(model, tools)
    if answers_json and task.continue_final_message and not reasoned and not _opens(model, prompt):
        raise UnbraidError(
            Place("response_format"),
            ": JSON cannot be enforced in the middle of an answer; leave the beginning of the answer out",
        )
    constraint, unenforced = enforced(
        model,
        format,
        tools=task.tools,
        tool_choice=task.tool_choice,
        parallel_tool_calls=_parallel(model, task),
        # A grammar that is lazy says nothing of the reasoning.
        reasoning=False if reasoned and (answers_json or choice != "auto") else None,
        response_format=task.response_format,
        prompt=prompt if begun is None else before_call(prompt, begun),
    )
    if begun is None:
        return constraint, unenforced
    try:
        return rest_of(model, constraint, begun.text if isinstance(prompt, str) else begun.ids), unenforced
    except NotContinued as error:
        raise UnbraidError(
            Place("response_format" if answers_json else "tools" if choice == "auto" else "tool_choice"),
            f" cannot be enforced in the middle of this call: {error}; leave it out, or the call that was cut off",
        ) from error


def _answers_json(task: ChatTask) -> bool:
    return task.response_format is not None and task.response_format.get("type", "text") != "text"


def _parallel(model: Model, task: ChatTask) -> bool | None:
    """Whether the model may write several calls: as the request says. If it says nothing, a model whose template shows
    no tools writes one: it has not learnt when to stop, and would repeat the call to the end of its context."""
    choice = task.parallel_tool_calls
    untaught = model.builder is not None and not model.builder.capabilities(tools=True).tools
    return False if choice is None and task.tools and untaught else choice


def before_call(prompt: RawPrompt, begun: BegunCall) -> RawPrompt:
    """A prompt without the turn that broke off inside a call."""
    return prompt[: -len(begun.text if isinstance(prompt, str) else begun.ids)]


def _without_thinking(model: Model, prompt: RawPrompt) -> RawPrompt:
    """The prompt, with the reasoning closed that it leaves open."""
    reasoning = model.format.reasoning
    open = read_end(compile_format(model.format, model.vocabulary), prompt).strands
    if reasoning is None or open[-1:] != ["reasoning"]:
        return prompt
    return prompt + reasoning.close if isinstance(prompt, str) else (*prompt, *model.encode_output(reasoning.close))


def _opens(model: Model, prompt: RawPrompt) -> bool:
    """Whether the prompt leaves a section of the output open, such as the reasoning."""
    return bool(read_end(compile_format(model.format, model.vocabulary), prompt).strands)
