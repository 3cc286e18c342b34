"""Plans: a chat request in no dialect (`ChatTask`) turned into what the engine is asked for (`Plan`).

Each dialect of `server.api` reads its own body into a `ChatTask`. All that a request means is decided here, once: the
prompt, the sampling, the constraint, and how the output is parsed. An error about the task names the field of the
client's request, which `ChatTask.names` gives where a dialect calls it otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...constraints import Constraint, Unenforced
from ...core.compiler.compiler import compile_format
from ...core.compiler.prompt_end import read_end
from ...core.grammar import Format
from ...core.tools import Tools
from ...engines import Generation, PromptTooLong, Sampling
from ...errors import InvalidTools, UnbraidError
from ...parsing import Parser
from ...templates import fitting
from ..audio_input import audio_of
from ..errors import ApiError
from ..service import Service
from .enforcing import enforced, left_free
from .thinking import Budget, RawPrompt
from .turn import Turn, Usage

SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "seed"),
)
"""The fields of `Sampling` that a request may set, by names that OpenAI and vLLM gave them."""
_COLDEST = 1e-4
"""The lowest temperature. To divide by less would leave nothing of the numbers."""
_SHARE_OF_REPLY = 4
"""A conversation that loses its oldest turns leaves this part of the context to the reply, a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTask:
    """What a client asks of a chat model, in no dialect."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    speak: bool = False
    """Whether the model is to speak, where it can."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    separate_reasoning: bool = True
    calls_in_reasoning: bool | None = None
    choices: int = 1
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The values of `SAMPLING` that the request sets."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    max_tokens: int | None = None
    thinking_budget: int | None = None
    """After so many tokens of reasoning, its end is forced. 0 for none; None for as many as the model likes."""
    clip: bool = False
    """Whether `max_tokens` is an upper limit alone: the output also ends where the context does. Without it, an engine
    refuses what may not fit."""
    needs_ids: str = ""
    """The field that asks for token ids, where one does."""
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    """How many alternatives to report for each token; None for nothing."""
    drop_oldest: bool = False
    """Whether a conversation that does not fit the context loses its oldest turns, and is not an error."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the dialect calls fields: those of a `Generation` (`prompt`, `max_tokens`), and of this task."""
    places: Sequence[str] = ()
    """What the dialect calls each of the messages (`input[3]`), where it is not `messages[3]`."""
    tool_places: Sequence[str] = ()
    """The same for the tools."""
    part_places: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """The same for parts of a content, by the numbers of message and part."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A chat task, ready for the engine. Making one takes a while: do it in a thread."""

    generations: tuple[Generation, ...]
    """One for each choice."""
    format: Format
    tools: Tools
    separate_reasoning: bool
    calls_in_reasoning: bool | None
    names: Mapping[str, str]
    """See `ChatTask.names`."""
    budget: Budget | None = None
    needs_ids: str = ""
    """See `ChatTask.needs_ids`."""
    unenforced: tuple[Unenforced, ...] = ()
    """What the request asks of the output and the engine does not enforce: `enforcing.unenforced_header` tells it."""

    def turns(self, service: Service, usage: Usage, arrived: float, *, keep_message: bool) -> list[Turn]:
        """All choices, ready to run. Without `keep_message`, only their updates say what they are."""
        return [
            self._turn(service, choice, usage, arrived, keep_message=keep_message)
            for choice in range(len(self.generations))
        ]

    def _turn(self, service: Service, choice: int, usage: Usage, arrived: float, *, keep_message: bool) -> Turn:
        return Turn(
            service,
            self.generations[choice],
            self.parser(service, choice, keep_message),
            choice,
            usage,
            arrived,
            None if service.vocoder is None else service.vocoder.voice(),
            self.names,
            self.budget,
            self.needs_ids,
            partial(self.parser, service, choice, False),
        )

    def parser(self, service: Service, choice: int, keep_message: bool) -> Parser:
        generation = self.generations[choice]
        return Parser(
            self.format,
            tools=self.tools,
            unknown_tools=service.unknown_tools,
            tokenizer=service.vocabulary,
            prompt=generation.prompt,
            separate_reasoning=self.separate_reasoning,
            calls_in_reasoning=self.calls_in_reasoning,
            keep_message=keep_message,
            count_tokens=True,
        )


def plan_chat(service: Service, task: ChatTask) -> Plan:
    """Raises what is wrong with the task, in the words of its dialect."""
    with _in_words_of(task):
        return _plan(service, task)


def _plan(service: Service, task: ChatTask) -> Plan:
    service.check_count(task.choices, "n")
    service.check_ids(task.needs_ids)
    tools = Tools(task.tools)
    given = prompt_of(service, task)
    # Where no marker says that the model speaks, the request does.
    format = service.format if task.speak else service.format.silent()
    made, unenforced = _constraint(service, format, task, tools, given)
    asked = Generation(
        prompt=given,
        sampling=sampling(service, task.sampling, task.logit_bias),
        max_tokens=_clipped(service, task, given) if task.clip else task.max_tokens,
        stop=task.stop,
        stop_tokens=(*service.end_tokens, *task.stop_tokens),
        constraint=made,
        logprobs=task.logprobs,
        audio=audio_of(task.messages),
    )
    called = tools if task.tool_choice != "none" else Tools([])
    return Plan(
        choices(asked, task.choices),
        format,
        called,
        task.separate_reasoning,
        task.calls_in_reasoning,
        {"constraint": "response_format" if task.response_format else "tools", "audio": "messages", **task.names},
        _budget(service, format, task, tools),
        task.needs_ids,
        unenforced,
    )


def prompt_of(service: Service, task: ChatTask) -> RawPrompt:
    """The prompt of a task whose tools have been checked: ids, where the tokenizer is known."""
    build = partial(
        service.chat_builder().build,
        tools=[] if task.tool_choice == "none" else task.tools,
        documents=task.documents,
        add_generation_prompt=task.add_generation_prompt,
        continue_final_message=task.continue_final_message,
        tts_output=task.speak,
        template_kwargs=task.template_kwargs,
        check_tools=False,
    )
    context = service.engine.context
    with _in_words_of(task):
        if not task.drop_oldest or context is None:
            prompt = build(task.messages)
        else:
            reply = min(task.max_tokens or context, context // _SHARE_OF_REPLY)
            prompt = fitting(build, task.messages, context - reply)
    given = prompt.text if prompt.ids is None else prompt.ids
    return _without_thinking(service, given) if task.thinking_budget == 0 else given


def _clipped(service: Service, task: ChatTask, prompt: str | tuple[int, ...]) -> int | None:
    """`max_tokens`, or as many as the context has room for, if that is less."""
    context, wanted = service.engine.context, task.max_tokens
    if context is None or wanted is None:
        return wanted
    if isinstance(prompt, str):  # only the engine can count it
        return wanted if wanted < context else None
    if len(prompt) >= context:
        raise PromptTooLong(f"the prompt is too long: {len(prompt)} tokens > {context - 1} maximum")
    return min(wanted, context - len(prompt))


@contextmanager
def _in_words_of(task: ChatTask) -> Iterator[None]:
    """Errors about fields, by the names that the task's dialect has for them."""

    def place(found: re.Match[str]) -> str:
        at = int(found[1])
        message = task.places[at] if at < len(task.places) else f"messages[{at}]"
        if found[2] is None:
            return message
        return task.part_places.get((at, int(found[2])), f"{message}.content[{found[2]}]")

    def tool_place(found: re.Match[str]) -> str:
        at = int(found[1])
        return task.tool_places[at] if at < len(task.tool_places) else found[0]

    try:
        yield
    except UnbraidError as error:
        message, field = str(error), error.field
        if task.places:
            message = _MESSAGE.sub(place, message)
            field = None if field is None else _MESSAGE.sub(place, field)
        if task.tool_places:
            message = _TOOL.sub(tool_place, message)
            field = None if field is None else _TOOL.sub(tool_place, field)
        for ours, theirs in task.names.items():
            if field is not None and re.match(rf"{ours}\b", field):
                field = theirs + field[len(ours) :]
                message = re.sub(rf"^{ours}\b", theirs, message)
                break
        error.args, error.field = (message,), field
        raise


_TOOL = re.compile(r"\btools\[(\d+)\]")
_MESSAGE = re.compile(r"messages\[(\d+)\](?:\.content\[(\d+)\])?")


def choices(asked: Generation, count: int) -> tuple[Generation, ...]:
    """The same generation for each choice. With a seed, each gets one of its own."""
    seed = asked.sampling.seed
    if count == 1 or seed is None:
        return (asked,) * count
    seeds = [(seed + at + 2**63) % 2**64 - 2**63 for at in range(count)]
    return tuple(replace(asked, sampling=replace(asked.sampling, seed=each)) for each in seeds)


def sampling(service: Service, given: Mapping[str, Any], logit_bias: Mapping[int, float]) -> Sampling:
    """How tokens are chosen: as the request says, or else the server's settings."""
    chosen: dict[str, Any] = {**service.sampling, **given}
    if chosen.get("temperature", 1.0) < _COLDEST:
        chosen["temperature"] = 0.0
    if chosen.get("top_k", 0) < 0:  # vLLM's way to say all
        chosen["top_k"] = 0
    return Sampling(**chosen, logit_bias=logit_bias)


def _constraint(
    service: Service, format: Format, task: ChatTask, tools: Tools, prompt: RawPrompt, *, reasoned: bool = False
) -> tuple[Constraint | None, tuple[Unenforced, ...]]:
    """What constrains the output, and what of it is not enforced. None where the request asks for nothing: an
    unconstrained model is faster.

    reasoned: the prompt ends with the reasoning, and no more of it is wanted.
    """
    choice = task.tool_choice or "auto"
    if tools and choice != "none" and format.tools is None:
        raise InvalidTools(
            f"tools: the model writes {format.name!r}, which has no tool calls; leave them out, or start the "
            "server with --tool-call-parser"
        )
    answers_json = (task.response_format or {}).get("type", "text") != "text"
    if not answers_json and choice in ("auto", "none"):
        wanted = service.constrain_auto or task.parallel_tool_calls is False or any(map(tools.strict, tools))
        if not tools or choice == "none" or not wanted:
            return None, ()
        if service.unconstrained:
            return None, left_free(service, tools)
    if answers_json and task.continue_final_message and not reasoned and not _opens(service, prompt):
        name = task.names.get("response_format", "response_format")
        raise ApiError(
            400,
            f"{name}: JSON cannot be enforced in the middle of an answer; leave the beginning of the answer out "
            "(continue_final_message)",
            param=name,
        )
    return enforced(
        service,
        format,
        tools=task.tools,
        tool_choice=task.tool_choice,
        parallel_tool_calls=task.parallel_tool_calls,
        # A grammar that is lazy says nothing of the reasoning.
        reasoning=False if reasoned and (answers_json or choice != "auto") else None,
        response_format=task.response_format,
        prompt=prompt,
    )


def _budget(service: Service, format: Format, task: ChatTask, tools: Tools) -> Budget | None:
    """What limits the reasoning, where something does and the model reasons."""
    if task.thinking_budget is None or format.reasoning is None:
        return None

    async def constrain(prompt: RawPrompt) -> Constraint | None:
        return (await service.planned(_constraint, service, format, task, tools, prompt, reasoned=True))[0]

    encode = None if service.encoder is None else service.written
    return Budget(task.thinking_budget, format.reasoning.close, encode, constrain)


def _without_thinking(service: Service, prompt: RawPrompt) -> RawPrompt:
    """The prompt, with the reasoning closed that it leaves open."""
    reasoning = service.format.reasoning
    open = read_end(compile_format(service.format, service.vocabulary), prompt).strands
    if reasoning is None or open[-1:] != ["reasoning"]:
        return prompt
    return prompt + reasoning.close if isinstance(prompt, str) else (*prompt, *service.written(reasoning.close))


def _opens(service: Service, prompt: RawPrompt) -> bool:
    """Whether the prompt ends where a section of the output begins."""
    return bool(read_end(compile_format(service.format, service.vocabulary), prompt).strands)
