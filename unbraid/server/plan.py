"""What is to be done for a request: the prompt, what the engine is asked for, and what is parsed out of its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..constraints import Constraint, constraint
from ..core.grammar import Format
from ..core.machine.compiler import compile_format
from ..core.machine.prompt_end import read_end
from ..core.tools import Tools
from ..engines import Generation, Sampling
from ..errors import InvalidTools
from ..parsing import Parser
from .api.bodies import ChatRequest, Generated
from .audio_input import audio_of
from .errors import ApiError
from .service import Service

_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "seed"),
)


_COLDEST = 1e-4


@dataclass(frozen=True, slots=True)
class Plan:
    """One chat request, made ready. It takes a while to make: not for the event loop."""

    generations: tuple[Generation, ...]
    """One for each choice."""
    format: Format
    tools: Tools
    separate_reasoning: bool

    def parser(self, service: Service, choice: int, keep_message: bool) -> Parser:
        generation = self.generations[choice]
        return Parser(
            self.format,
            tools=self.tools,
            unknown_tools=service.unknown_tools,
            tokenizer=service.vocabulary,
            prompt=generation.prompt,
            separate_reasoning=self.separate_reasoning,
            keep_message=keep_message,
        )


def plan_chat(service: Service, request: ChatRequest) -> Plan:
    """Raises what is wrong with the request."""
    if request.modalities is not None and "audio" in request.modalities and not request.tts_output:
        raise ApiError(400, "modalities: audio is asked for by `tts_output: true` here", param="modalities")
    service.check_count(request.n or 1, "n")
    tools = Tools(request.tools or [])
    shown = [] if request.tool_choice == "none" else request.tools
    prompt = service.chat_builder().build(
        request.messages,
        tools=shown,
        documents=request.documents,
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
        tts_output=bool(request.tts_output),
        template_kwargs=_template_kwargs(request),
    )
    given = prompt.text if prompt.ids is None else prompt.ids
    asked = Generation(
        prompt=given,
        sampling=sampling(service, request),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=stop_texts(request),
        stop_tokens=(*service.end_tokens, *(request.stop_token_ids or ())),
        constraint=_constraint(service, request, tools, given),
        logprobs=_logprobs(request),
        audio=audio_of(request.messages),
    )
    separate = request.separate_reasoning is not False and request.include_reasoning is not False
    called = tools if request.tool_choice != "none" else Tools([])
    return Plan(choices(asked, request.n or 1), service.format, called, separate)


def choices(asked: Generation, count: int) -> tuple[Generation, ...]:
    """The same, once for each choice; with a seed, each has one of its own."""
    seed = asked.sampling.seed
    if count == 1 or seed is None:
        return (asked,) * count
    seeds = [(seed + at + 2**63) % 2**64 - 2**63 for at in range(count)]
    return tuple(replace(asked, sampling=replace(asked.sampling, seed=each)) for each in seeds)


def sampling(service: Service, request: Generated) -> Sampling:
    chosen: dict[str, Any] = dict(service.sampling)
    chosen |= {name: value for name in _SAMPLING if (value := getattr(request, name)) is not None}
    if chosen.get("temperature", 1.0) < _COLDEST:  # divided by, it would leave nothing of the numbers
        chosen["temperature"] = 0.0
    if chosen.get("top_k", 0) < 0:  # vLLM's way to say all
        chosen["top_k"] = 0
    return Sampling(**chosen, logit_bias=_biases(request))


def stop_texts(request: Generated) -> tuple[str, ...]:
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if "" in stop:
        raise ApiError(400, "stop: an empty text is everywhere; leave it out", param="stop")
    return tuple(stop)


def _biases(request: Generated) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    except ValueError as error:
        raise ApiError(400, f"logit_bias: its keys are token ids ({error})", param="logit_bias") from error


def _logprobs(request: ChatRequest) -> int | None:
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(400, "top_logprobs needs `logprobs: true`", param="top_logprobs")
    return (request.top_logprobs or 0) if request.logprobs else None


def _template_kwargs(request: ChatRequest) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if request.reasoning_effort is not None:
        given["reasoning_effort"] = request.reasoning_effort
        if request.reasoning_effort == "none":  # templates with a switch and no degrees
            given["enable_thinking"] = False
    return {**given, **(request.chat_template_kwargs or {})}


def _constraint(
    service: Service, request: ChatRequest, tools: Tools, prompt: str | tuple[int, ...]
) -> Constraint | None:
    """What the output is held to. None where nothing was asked for: then the model is free, and faster."""
    choice = request.tool_choice or "auto"
    if tools and choice != "none" and service.format.tools is None:
        raise InvalidTools(
            f"tools: the model writes {service.format.name!r}, which has no tool calls; leave them out, or start the "
            "server with --tool-call-parser"
        )
    answers_json = (request.response_format or {}).get("type", "text") != "text"
    if not answers_json and choice in ("auto", "none"):
        wanted = service.constrain_auto or request.parallel_tool_calls is False or any(map(tools.strict, tools))
        if not tools or choice == "none" or not wanted:
            return None
    if answers_json and request.continue_final_message and not _opens(service, prompt):
        raise ApiError(
            400,
            "response_format: JSON cannot be enforced in the middle of an answer; leave continue_final_message out",
            param="response_format",
        )
    made = constraint(
        service.format,
        tools=request.tools or [],
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning=None,
        response_format=request.response_format,
        vocabulary=service.vocabulary,
        prompt=prompt,
    )
    service.log_unenforced(made)
    return made


def _opens(service: Service, prompt: str | tuple[int, ...]) -> bool:
    """Whether the prompt ends where a strand begins."""
    return bool(read_end(compile_format(service.format, service.vocabulary), prompt).strands)
