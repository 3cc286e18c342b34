"""The body of `POST /v1/responses`, and what it means: a `ChatTask`, and the fields that the reply repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from ...errors import Keys, Place
from ..api.bodies import OPENAI_FIELDS, UndeclaredFields
from ..api.fields import Budget, Count, MessageList, Object, SamplingFields, ToolList, Top, budget_of, template_kwargs
from ..errors import ApiError
from ..generation.task import ChatTask
from ..model import Model
from ..storage.seal import Seal
from ..storage.store import StoredResponse
from .items import ItemReader
from .tools import ShownTools
from .writer import EchoedFields

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
_EFFORTS = ("none", "low", "medium", "high", "xhigh")
_OF_OTHER_TOOLS = (
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
)
"""What `include` may name and is never there: parts of items that only tools of the vendor's make."""


UNDECLARED = UndeclaredFields(
    without_effect=OPENAI_FIELDS.without_effect | {"client_metadata", "prompt_cache_options"},
    instead=OPENAI_FIELDS.other_than("`text.format`")
    | {
        "n": "send several requests",
        "thinking_token_budget": "give `reasoning.max_tokens`",
        "reasoning_effort": "give `reasoning.effort`",
        "thinking": "give `reasoning`",
        "system": "give `instructions`",
        "logprobs": f"give `include` with {LOGPROBS}",
        "return_token_ids": "use /v1/chat/completions",
        "logit_bias": "use /v1/chat/completions",
        "stop_token_ids": "use /v1/chat/completions",
        "stop_sequences": "leave it out: the Responses API has no stop texts",
        "conversation": "give `previous_response_id`",
        "prompt": "give `input` and `instructions`",
        "messages": "give `input`",
        "response_format": "give `text.format`",
        "max_tokens": "give `max_output_tokens`",
        "max_completion_tokens": "give `max_output_tokens`",
        "stop": "leave it out: the Responses API has no stop texts",
        "moderation": "leave it out: nothing is moderated here",
        "context_management": 'give `truncation: "auto"`',
    },
)


class ReasoningOptions(Struct):
    effort: str | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: str | None = None
    max_tokens: Budget | None = None
    context: str | None = None
    mode: str | None = None


class TextOptions(Struct):
    format: Object | None = None
    verbosity: str | None = None


class ResponsesStreamOptions(Struct):
    include_obfuscation: bool | None = None


class ResponsesRequest(SamplingFields, kw_only=True):
    """The body of `POST /v1/responses`. `null` means that a field is not given."""

    input: str | MessageList | None = None
    instructions: str | list[Object] | None = None
    previous_response_id: str | None = None
    tools: ToolList | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Count | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Count | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    top_logprobs: Top | None = None
    chat_template_kwargs: Object | None = None
    user: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


@dataclass(frozen=True, slots=True)
class FullRequest:
    """A request with the conversation that it goes on from."""

    request: ResponsesRequest
    client: str
    input: list[Object]
    """The items of the request itself, each with an id."""
    before: Sequence[StoredResponse]
    """The responses before it, the oldest first."""
    store: bool
    tools: ShownTools

    @property
    def summarized(self) -> bool:
        """Whether the client wants to see a summary of the reasoning."""
        reasoning = self.request.reasoning
        return reasoning is not None and (reasoning.summary or reasoning.generate_summary or "none") != "none"

    def includes(self, what: str) -> bool:
        return what in (self.request.include or ())

    def echo(self, model: Model) -> EchoedFields:
        """The fields of the request that the reply repeats."""
        request = self.request
        chosen = {**model.sampling, **request.chosen_sampling()}
        reasoning = request.reasoning or ReasoningOptions()
        options = request.text or TextOptions()
        text: Object = {"format": options.format or {"type": "text"}}
        if options.verbosity is not None:
            text["verbosity"] = options.verbosity
        return {
            "background": bool(request.background),
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": request.max_tool_calls,
            "metadata": request.metadata or {},
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "prompt_cache_key": request.prompt_cache_key,
            "reasoning": {"effort": told_effort(reasoning.effort), "summary": reasoning.summary},
            "safety_identifier": request.safety_identifier,
            "service_tier": "default",
            "store": self.store,
            "temperature": chosen.get("temperature", 1.0),
            "presence_penalty": chosen.get("presence_penalty", 0.0),
            "frequency_penalty": chosen.get("frequency_penalty", 0.0),
            "text": text,
            "tool_choice": request.tool_choice or "auto",
            "tools": [_echoed(tool) for tool in request.tools or ()],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": chosen.get("top_p", 1.0),
            "truncation": request.truncation or "disabled",
            "user": request.user,
        }


def _echoed(tool: Object) -> Object:
    """A tool as replies show it: fields that are not given are there all the same."""
    if tool.get("type", "function") != "function":
        return tool
    return {"type": "function", "description": None, "parameters": None, "strict": None, **tool}


def told_effort(effort: str | None) -> str | None:
    """An effort as a reply may tell it: the specification has no `minimal`, which OpenAI's clients send, and no words
    of a template's own."""
    return "low" if effort == "minimal" else effort if effort in _EFFORTS else None


def check_include(include: Sequence[str]) -> None:
    names = (ENCRYPTED, LOGPROBS, *_OF_OTHER_TOOLS)
    for at, each in enumerate(include):
        if each not in names:
            message = f"include[{at}]: {each!r:.80} is not known; there are {ENCRYPTED} and {LOGPROBS}"
            raise ApiError(400, message, param=f"include[{at}]")


def given_tools(request: ResponsesRequest, before: Sequence[StoredResponse]) -> list[tuple[object, Place]]:
    """The tools of the request and their places, those that stand among the items of the conversation too."""
    tools: list[tuple[object, Place]] = [(tool, Place("tools", at)) for at, tool in enumerate(request.tools or ())]
    own = enumerate(request.input if isinstance(request.input, list) else ())
    items = [(item, Place("previous_response_id")) for stored in before for item in stored.input]
    for item, place in [*items, *((item, Place("input", at)) for at, item in own)]:
        if item.get("type") == "additional_tools":
            more, where = item.get("tools"), place / "tools"
            if not isinstance(more, list):
                raise ApiError(400, f"{where} must be a list of tools", param=where)
            tools += [(tool, where / number) for number, tool in enumerate(more)]
    return tools


def check_ids(items: Sequence[Object]) -> None:
    for at, item in enumerate(items):
        if not isinstance(item.get("id"), str | None):
            message = f"input[{at}].id must be a string, not {type(item['id']).__name__}"
            raise ApiError(400, message, param=f"input[{at}].id")


def chat_task(seal: Seal, full: FullRequest) -> ChatTask:
    """What a request means."""
    request = full.request
    reader = ItemReader(full.tools, lambda sealed: seal.open(sealed, full.client))
    items: list[Object] = []
    places: list[Place] = []
    if isinstance(request.instructions, str):
        items.append({"role": "system", "content": request.instructions})
        places.append(Place("instructions"))
    elif request.instructions is not None:
        items += request.instructions
        places += [Place("instructions", at) for at in range(len(request.instructions))]
    for stored in full.before:
        earlier = [*stored.input, *stored.response["output"]]
        items += earlier
        places += [Place("previous_response_id", text=f"previous_response_id ({stored.response['id']})")] * len(earlier)
    items += full.input
    whole = isinstance(request.input, str)
    places += [Place("input")] if whole else [Place("input", at) for at in range(len(full.input))]
    conversation = reader.read(items, places)
    reasoning = request.reasoning or ReasoningOptions()
    return ChatTask(
        messages=conversation.messages,
        continue_final_message=conversation.continued,
        tools=full.tools.definitions(),
        tool_choice=full.tools.choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_response_format(request.text),
        template_kwargs=template_kwargs(reasoning.effort, request.chat_template_kwargs),
        thinking_budget=budget_of(reasoning.max_tokens),
        sampling=request.chosen_sampling(),
        max_tokens=request.max_output_tokens,
        clip=True,
        drop_oldest=request.truncation == "auto",
        logprobs=(request.top_logprobs or 0) if full.includes(LOGPROBS) else None,
        places={
            ("prompt",): _whole_input(request),
            ("messages",): _whole_input(request),
            ("max_tokens",): ("max_output_tokens",),
            ("response_format", "json_schema"): ("text", "format"),
            ("response_format",): ("text", "format"),
            ("thinking_budget",): ("reasoning", "max_tokens"),
            **full.tools.client_places(),
            **conversation.places,
        },
    )


def _whole_input(request: ResponsesRequest) -> Keys:
    """The field that all of the conversation is told by."""
    names = ("input", "previous_response_id", "instructions")
    return (next((name for name in names if getattr(request, name) is not None), "input"),)


def _response_format(text: TextOptions | None) -> Object | None:
    """`text.format`, for `ChatTask`."""
    format = None if text is None else text.format
    if format is None or format.get("type") != "json_schema":
        return format
    return {"type": "json_schema", "json_schema": {key: value for key, value in format.items() if key != "type"}}
