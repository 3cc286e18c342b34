"""The fields of the requests, and what they mean: a `ChatTask`.

`thinking` turns the reasoning on or off where the model's template has a switch for it. Where a request does not say,
the template decides, and what a model reasons is in the reply either way. `max_tokens` must be given in this dialect,
so clients give a large number to say "enough". It is an upper limit alone: a reply also ends with the context.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import Keys, Place
from ..api.bodies import OPENAI_FIELDS, UndeclaredFields
from ..api.fields import Count, MessageList, Object, SamplingFields, ToolList, template_kwargs
from ..errors import ApiError
from ..generation.task import ChatTask, ClientPlaces
from ..storage.seal import Seal
from .history import History, function_tools, tool_choice

UNDECLARED = UndeclaredFields(
    {
        *("metadata", "service_tier", "inference_geo", "speed", "diagnostics", "betas", "cache_control"),
        *("user_profile_id", "workspace_id", "fallbacks", "fallback_credit_token", "context_management"),
    },
    OPENAI_FIELDS.other_than("`output_config`")
    | {
        "n": "send several requests",
        "thinking_token_budget": "give `thinking` with `budget_tokens`",
        "reasoning": "give `thinking`",
        "reasoning_effort": "give `output_config` with an `effort`",
        "instructions": "give `system`",
        "max_completion_tokens": "give `max_tokens`",
        "parallel_tool_calls": "give `tool_choice` with `disable_parallel_tool_use`",
        "return_token_ids": "use /v1/chat/completions",
        "logprobs": "use /v1/chat/completions",
        "logit_bias": "use /v1/chat/completions",
        "stop_token_ids": "use /v1/chat/completions",
        "mcp_servers": "connect to them in your program, and give their tools as `tools`",
        "container": "there are no containers and skills here; leave it out",
        "thread": "nothing is kept between requests; give all `messages`",
        "compaction": "ask for a summary in a message",
        "response_format": "give `output_config` with a `format`",
        "stop": "give `stop_sequences`",
    },
)
_SWITCHES = ("enable_thinking", "thinking")
"""The variables by which templates turn reasoning on and off."""
_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}


class PromptFields(SamplingFields, kw_only=True):
    """What the prompt is made of: the body of `POST /v1/messages/count_tokens`. How tokens are chosen makes no
    difference there; of those fields, some are not Anthropic's."""

    PLANNED = ("messages", "system", "tools", "tool_choice", "output_config", "output_format", "chat_template_kwargs")
    messages: MessageList
    system: str | list[Object] | None = None
    tools: ToolList | None = None
    tool_choice: Object | None = None
    thinking: Object | None = None
    output_config: Object | None = None
    output_format: Object | None = None
    chat_template_kwargs: Object | None = None


class MessagesRequest(PromptFields, kw_only=True):
    """The body of `POST /v1/messages`."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: list[str] | None = None

    def stop_texts(self) -> tuple[str, ...]:
        stop = tuple(self.stop_sequences or ())
        if "" in stop:
            raise ApiError(400, "stop_sequences: an empty text is everywhere; leave it out", param="stop_sequences")
        return stop


def task_of(seal: Seal, client: str, request: MessagesRequest) -> ChatTask:
    """What is asked for."""
    return replace(
        prompt_task(seal, client, request),
        sampling=request.chosen_sampling(),
        max_tokens=request.max_tokens,
        clip=True,
        stop=request.stop_texts(),
    )


def prompt_task(seal: Seal, client: str, request: PromptFields) -> ChatTask:
    """The part of it that the prompt is made of."""
    history = History(seal, client)
    history.read(request.system, request.messages)
    choice, parallel = tool_choice(request.tool_choice)
    return ChatTask(
        messages=history.messages,
        tools=[*function_tools(request.tools or ()), *history.tools],
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=_response_format(request),
        continue_final_message=history.ends_in_answer,
        template_kwargs=_template_kwargs(request, history),
        thinking_budget=_thinking(request)[1],
        places=_places(request, history),
    )


def _places(request: PromptFields, history: History) -> ClientPlaces:
    """Where the parts of a task stand in the request."""
    tools: list[Keys] = [*(("tools", at) for at, _ in enumerate(request.tools or ())), *history.tool_places]
    format = _format_place(request)
    places: dict[Keys, Keys] = {
        ("prompt",): ("messages",),
        ("response_format",): format.path,
        ("response_format", "json_schema"): format.path,
        ("thinking_budget",): ("thinking", "budget_tokens"),
        **({} if request.tools or not tools else {("tools",): tools[0]}),
        **history.places,
    }
    for at, place in enumerate(tools):
        places["tools", at, "function"] = places["tools", at] = place
        places["tools", at, "function", "parameters"] = (*place, "input_schema")
    return places


def omits_thinking(request: PromptFields) -> bool:
    """Whether the text of the reasoning is to stay out of the reply. It still goes back and forth, sealed."""
    return (request.thinking or {}).get("display") == "omitted"


def _template_kwargs(request: PromptFields, history: History) -> Object:
    effort = history.effort or (request.output_config or {}).get("effort")
    if not isinstance(effort, str | None):
        raise ApiError(400, "output_config.effort must be a word, such as high", param="output_config.effort")
    thinks = _thinking(request)[0]
    switches = {} if thinks is None else dict.fromkeys(_SWITCHES, thinks)
    return template_kwargs(effort, {**switches, **(request.chat_template_kwargs or {})})


def _thinking(request: PromptFields) -> tuple[bool | None, int | None]:
    """Whether the model is to reason, and how many tokens at most. None where the request does not say."""
    thinking = request.thinking
    if thinking is None:
        return None, None
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if not isinstance(kind, str) or kind not in _THINKING:
        message = f"thinking.type must be one of {', '.join(_THINKING)}, not {kind!r}"
        raise ApiError(400, message, param="thinking.type")
    if budget is not None and (type(budget) is not int or budget < 0):
        raise ApiError(400, "thinking.budget_tokens must be a number of tokens", param="thinking.budget_tokens")
    return _THINKING[kind], budget if _THINKING[kind] else 0


def _response_format(request: PromptFields) -> Object | None:
    format = (request.output_config or {}).get("format") or request.output_format
    if format is None:
        return None
    match format:
        case {"type": "json_schema", "schema": dict(schema)}:
            return {"type": "json_schema", "json_schema": {"name": "output", "strict": True, "schema": schema}}
    name = _format_place(request)
    raise ApiError(400, f"{name} must have a type of json_schema, and a schema", param=name)


def _format_place(request: PromptFields) -> Place:
    return Place("output_config", "format") if (request.output_config or {}).get("format") else Place("output_format")
