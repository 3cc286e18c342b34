"""A request and its reply in the words of chat, Responses and Messages.

>>> dialect = DIALECTS["chat"]
>>> dialect.body(ProbeRequest(text="Hello"), "m", stream=False)["messages"]
[{'role': 'user', 'content': 'Hello'}]
>>> dialect.whole({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}).content
'Hi'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .exchange import CountedTokens, Ending, ObservedCall, ObservedReply, ProbeRequest, json_of

ServerEvent = tuple[str, str]
"""One event of a stream: its name, which may be empty, and its data."""


class VerifyDialect(Protocol):
    """An API that is verified."""

    path: str

    def body(self, request: ProbeRequest, model: str, *, stream: bool) -> dict[str, Any]:
        """The request as JSON."""

    def whole(self, payload: Mapping[str, Any]) -> ObservedReply:
        """A reply that came in one piece."""

    def streamed(self, events: Iterable[ServerEvent]) -> ObservedReply:
        """A reply put together as a client does it."""

    def results(self, calls: Sequence[ObservedCall], text: str) -> tuple[Any, ...]:
        """The same result for each call, to be sent after the reply."""


def _text(value: object) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return ""


def _usage(payload: Mapping[str, Any], prompt: str, completion: str) -> CountedTokens | None:
    usage = payload.get("usage")
    if not isinstance(usage, Mapping) or not isinstance(usage.get(prompt), int):
        return None
    total = usage.get("total_tokens")
    # Messages counts what came from a cache apart.
    apart = sum(usage.get(f"cache_{way}_input_tokens") or 0 for way in ("read", "creation"))
    return CountedTokens(
        usage[prompt] + apart,
        int(usage.get(completion) or 0),
        total if isinstance(total, int) else None,
        cached=int((usage.get(f"{prompt}_details") or {}).get("cached_tokens") or 0),
        reasoning=int((usage.get(f"{completion}_details") or {}).get("reasoning_tokens") or 0),
    )


def _ending(word: object, endings: Mapping[str, Ending], faults: list[str]) -> Ending:
    """Why a reply ended; a word that the API does not have is a fault."""
    if word and str(word) not in endings:
        faults.append(f"the reply ended by {word!r}, which the API does not have")
    return endings.get(str(word), "other") if word else ""


def _arguments(value: object, faults: list[str]) -> str:
    """The arguments of a call, which are text in the APIs of OpenAI."""
    if value is None or isinstance(value, str):
        return value or ""
    faults.append(f"the arguments of a call are no string: {str(value)[:80]}")
    return json.dumps(value)


def _custom_call(id: object, said: Mapping[str, Any]) -> ObservedCall:
    """A call of a custom tool, whose input is free text, as if that were its one argument."""
    return ObservedCall(str(id or ""), said.get("name") or "", json.dumps({"input": said.get("input") or ""}))


def _ids(value: object) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) else None


def _data(events: Iterable[ServerEvent], faults: list[str]) -> Iterator[Mapping[str, Any]]:
    """The JSON of each event; what is none is a fault."""
    for _, data in events:
        try:
            payload = json_of(data)
        except ValueError:
            faults.append(f"an event is not JSON: {data[:80]!r}")
            continue
        if isinstance(payload, Mapping):
            yield payload
        else:
            faults.append(f"an event is no object: {data[:80]!r}")


def _type(data: str) -> str:
    try:
        return str(json_of(data)["type"])
    except (ValueError, LookupError, TypeError):
        return ""


class ChatDialect:
    """OpenAI's chat completions."""

    path = "/chat/completions"
    _ENDINGS: Mapping[str, Ending] = {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_calls",
        "function_call": "other",
        "content_filter": "other",
    }

    def body(self, request: ProbeRequest, model: str, *, stream: bool) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "model": model,
            "messages": [*system, {"role": "user", "content": request.text}, *request.history],
            "max_tokens": request.max_tokens,
        }
        if request.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
            words = request.choice in ("auto", "none", "required")
            body["tool_choice"] = (
                request.choice if words else {"type": "function", "function": {"name": request.choice}}
            )
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
        if request.stop:
            body["stop"] = list(request.stop)
        if request.schema is not None:
            format = {"name": "answer", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": format}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def whole(self, payload: Mapping[str, Any]) -> ObservedReply:
        choices = payload.get("choices") or [{}]
        message = choices[0].get("message") or {}
        faults = [] if payload.get("id") else ["the reply has no id"]
        calls = [self._call(call, faults) for call in message.get("tool_calls") or ()]
        ending = _ending(choices[0].get("finish_reason"), self._ENDINGS, faults)
        return ObservedReply(
            content=_text(message.get("content")),
            reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
            calls=tuple(calls),
            ending="other" if message.get("refusal") else ending,
            usage=_usage(payload, "prompt_tokens", "completion_tokens"),
            faults=tuple(faults),
            id=str(payload.get("id") or ""),
            native=(message,),
            token_ids=_ids(choices[0].get("token_ids")),
            prompt_ids=_ids(choices[0].get("prompt_token_ids") or payload.get("prompt_token_ids")),
        )

    def _call(self, call: Mapping[str, Any], faults: list[str]) -> ObservedCall:
        if call.get("type") == "custom":
            return _custom_call(call.get("id"), call.get("custom") or {})
        if call.get("type") != "function":
            faults.append(f"a call has the type {call.get('type')!r}, not 'function'")
        function = call.get("function") or {}
        arguments = _arguments(function.get("arguments"), faults)
        return ObservedCall(call.get("id") or "", function.get("name") or "", arguments)

    def streamed(self, events: Iterable[ServerEvent]) -> ObservedReply:
        events, faults = list(events), list[str]()
        if not events or events[-1][1] != "[DONE]":
            faults.append("the stream does not end with [DONE]")
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls: dict[int, dict[str, Any]] = {}
        endings: list[str] = []
        usage, ids, prompt, names = None, list[int](), None, dict[object, None]()
        for chunk in _data((event for event in events if event[1] != "[DONE]"), faults):
            if chunk.get("id"):  # Azure's first chunk, which tells of the prompt, has none
                names[chunk["id"]] = None
            if chunk.get("error"):
                return ObservedReply(error=json.dumps(chunk["error"]), faults=tuple(faults))
            usage = _usage(chunk, "prompt_tokens", "completion_tokens") or usage
            prompt = chunk.get("prompt_token_ids") or prompt
            for choice in chunk.get("choices") or ():
                if choice.get("index"):  # further choices are replies of their own
                    continue
                delta = choice.get("delta") or {}
                if endings and any(delta.get(key) for key in ("content", "tool_calls", "reasoning_content")):
                    faults.append("a delta comes after the finish reason")
                for key in ("content", "refusal", "reasoning_content", "reasoning"):
                    if delta.get(key):
                        message[key] = (message.get(key) or "") + delta[key]
                for part in delta.get("tool_calls") or ():
                    self._join(calls, part, faults)
                ids += choice.get("token_ids") or ()
                prompt = choice.get("prompt_token_ids") or prompt
                if choice.get("finish_reason"):
                    endings.append(choice["finish_reason"])
        if len(names) > 1:
            faults.append("the chunks of one stream have several ids")
        if len(endings) != 1:
            faults.append(f"the stream has {len(endings)} finish reasons")
        if calls:
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
        choice = {"message": message, "finish_reason": endings[-1] if endings else None, "prompt_token_ids": prompt}
        reply = self.whole({"id": next(iter(names), None), "choices": [choice]})
        return replace(reply, usage=usage, faults=(*faults, *reply.faults), token_ids=tuple(ids) or None)

    def _join(self, calls: dict[int, dict[str, Any]], part: Mapping[str, Any], faults: list[str]) -> None:
        kind, text = ("custom", "input") if part.get("custom") else ("function", "arguments")
        index, said = part.get("index"), part.get(kind) or {}
        if not isinstance(index, int):
            faults.append("a delta of a call has no index")
            index = max(calls, default=0)
        if index not in calls:
            if index != len(calls):
                faults.append(f"call {len(calls)} has the index {index}")
            if not part.get("id") or not said.get("name"):
                faults.append("the first delta of a call lacks its id or its name")
            calls[index] = {"id": "", "type": kind, kind: {"name": "", text: ""}}
        call = calls[index]
        if part.get("id") not in (None, "", call["id"] or part.get("id")):
            faults.append(f"the deltas of call {index} have several ids")
        call["id"] = call["id"] or part.get("id") or ""
        call[kind]["name"] += said.get("name") or ""
        call[kind][text] += _arguments(said.get(text), faults)

    def results(self, calls: Sequence[ObservedCall], text: str) -> tuple[Any, ...]:
        return tuple({"role": "tool", "tool_call_id": call.id, "content": text} for call in calls)


class ResponsesDialect:
    """OpenAI's Responses."""

    path = "/responses"
    _DELTAS = (
        "response.custom_tool_call_input.delta",
        "response.function_call_arguments.delta",
        "response.output_text.delta",
        "response.reasoning_text.delta",
    )
    _OF_ITEMS = (*_DELTAS, "response.output_item.added", "response.output_item.done")

    def body(self, request: ProbeRequest, model: str, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "input": [{"role": "user", "content": request.text}, *request.history],
            "max_output_tokens": max(request.max_tokens or 0, 16),
            "store": False,
        }
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [{"type": "function", **tool} for tool in request.tools]
            words = request.choice in ("auto", "none", "required")
            body["tool_choice"] = request.choice if words else {"type": "function", "name": request.choice}
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
        if request.schema is not None:
            format = {"type": "json_schema", "name": "answer", "strict": True, "schema": request.schema}
            body["text"] = {"format": format}
        return body | ({"stream": True} if stream else {})

    def whole(self, payload: Mapping[str, Any]) -> ObservedReply:
        content, reasoning, calls, refused = "", "", [], False
        faults = [] if payload.get("id") else ["the response has no id"]
        for item in payload.get("output") or ():
            match item.get("type"):
                case "message":
                    content += _text(item.get("content"))
                    refused = refused or any(part.get("type") == "refusal" for part in item.get("content") or ())
                case "reasoning":
                    reasoning += _text(item.get("content")) or _text(item.get("summary"))
                case "custom_tool_call":
                    calls.append(_custom_call(item.get("call_id"), item))
                case "function_call":
                    calls.append(
                        ObservedCall(
                            item.get("call_id") or "", item.get("name") or "", _arguments(item.get("arguments"), faults)
                        )
                    )
                    if item.get("status") == "incomplete" and payload.get("status") == "completed":
                        faults.append("a completed response has a call that is incomplete")
        if payload.get("status") == "failed":
            return ObservedReply(error=json.dumps(payload.get("error")), faults=tuple(faults))
        return ObservedReply(
            content=content,
            reasoning=reasoning,
            calls=tuple(calls),
            ending="other" if refused else self._ended(payload, calls),
            usage=_usage(payload, "input_tokens", "output_tokens"),
            faults=tuple(faults),
            id=str(payload.get("id") or ""),
            native=tuple(payload.get("output") or ()),
        )

    def _ended(self, payload: Mapping[str, Any], calls: Sequence[ObservedCall]) -> Ending:
        if payload.get("status") == "incomplete":
            reason = (payload.get("incomplete_details") or {}).get("reason")
            return "other" if reason == "content_filter" else "length"
        return "tool_calls" if calls else "stop" if payload.get("status") else ""

    def streamed(self, events: Iterable[ServerEvent]) -> ObservedReply:
        faults: list[str] = []
        final: Mapping[str, Any] | None = None
        number, added, done, deltas = -1, set[int](), dict[int, Any](), dict[int, str]()
        names: dict[object, int] = {}
        for event in _data((event for event in events if event[1] != "[DONE]"), faults):
            kind = str(event.get("type"))
            at = self._place(event, names, faults) if kind in self._OF_ITEMS else -1
            if event.get("sequence_number", number + 1) <= number:
                faults.append("the sequence numbers do not grow")
            number = event.get("sequence_number", number + 1)
            if kind == "response.output_item.added":
                added.add(at)
            elif kind == "response.output_item.done":
                done[at] = event.get("item") or {}
            elif kind in self._DELTAS:
                deltas[at] = deltas.get(at, "") + str(event.get("delta"))
            elif kind in ("response.completed", "response.incomplete", "response.failed"):
                final = event.get("response") or {}
            elif kind == "error":
                return ObservedReply(error=json.dumps(event), faults=tuple(faults))
        if final is None:
            return ObservedReply(faults=(*faults, "the stream has no final response"))
        output = list(final.get("output") or ())
        if added != set(range(len(output))) or any(
            _differ(output[at], item) for at, item in done.items() if at in added
        ):
            faults.append("the final response has other items than the stream")
        if any(at not in done and item.get("status") != "incomplete" for at, item in enumerate(output)):
            faults.append("an item is complete, and its end was never told")
        for at, item in enumerate(output):
            called = {"function_call": "arguments", "custom_tool_call": "input"}.get(item.get("type"))
            text = item.get(called) if called else _text(item.get("content"))
            if text != deltas.pop(at, text if item.get("type") == "reasoning" else ""):
                faults.append(f"the deltas of item {at} do not join to it")
        faults += (f"the deltas of item {at} belong to no item" for at in deltas)
        reply = self.whole(final)
        return replace(reply, faults=(*faults, *reply.faults))

    def _place(self, event: Mapping[str, Any], names: dict[object, int], faults: list[str]) -> int:
        """Which item an event is about: by the item's id, where the event does not say."""
        name = event.get("item_id") or (event.get("item") or {}).get("id")
        at = names.setdefault(name, len(names))
        index = event.get("output_index")
        if isinstance(index, int):
            return index
        faults.append("the events of items have no `output_index`")
        return at

    def results(self, calls: Sequence[ObservedCall], text: str) -> tuple[Any, ...]:
        return tuple({"type": "function_call_output", "call_id": call.id, "output": text} for call in calls)


def _differ(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two items are not the same, by what both say. What is encrypted may look different each time."""
    return any(item[key] != other[key] for key in (item.keys() & other.keys()) - {"encrypted_content"})


class MessagesDialect:
    """Anthropic's Messages."""

    path = "/messages"
    _ENDINGS: Mapping[str, Ending] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "tool_use": "tool_calls",
        "pause_turn": "other",
        "refusal": "other",
        "model_context_window_exceeded": "other",
    }

    def body(self, request: ProbeRequest, model: str, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_tokens,
            "messages": [{"role": "user", "content": request.text}, *request.history],
        }
        if request.system:
            body["system"] = request.system
        if request.tools:
            body["tools"] = [
                {key: tool[key] for key in ("name", "description", "strict") if key in tool}
                | {"input_schema": tool.get("parameters") or {"type": "object"}}
                for tool in request.tools
            ]
            kinds = {"auto": "auto", "none": "none", "required": "any"}
            choice: dict[str, Any] = {"type": kinds.get(request.choice, "tool")}
            if request.choice not in kinds:
                choice["name"] = request.choice
            if request.parallel is False and choice["type"] != "none":
                choice["disable_parallel_tool_use"] = True
            body["tool_choice"] = choice
        if request.stop:
            body["stop_sequences"] = list(request.stop)
        if request.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        return body | ({"stream": True} if stream else {})

    def whole(self, payload: Mapping[str, Any]) -> ObservedReply:
        blocks = payload.get("content") or []
        calls = [
            ObservedCall(block.get("id") or "", block.get("name") or "", json.dumps(block.get("input")))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        faults = [] if payload.get("id") else ["the message has no id"]
        ending = _ending(payload.get("stop_reason"), self._ENDINGS, faults)
        if (payload.get("stop_reason") == "stop_sequence") != bool(payload.get("stop_sequence")):
            faults.append("`stop_reason` and `stop_sequence` do not agree")
        return ObservedReply(
            content="".join(_text(block.get("text")) for block in blocks if block.get("type") == "text"),
            reasoning="".join(_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"),
            calls=tuple(calls),
            ending=ending,
            usage=_usage(payload, "input_tokens", "output_tokens"),
            faults=tuple(faults),
            id=str(payload.get("id") or ""),
            native=({"role": "assistant", "content": blocks},),
        )

    def streamed(self, events: Iterable[ServerEvent]) -> ObservedReply:
        faults: list[str] = []
        message: dict[str, Any] = {}
        blocks: list[dict[str, Any]] = []
        inputs: dict[int, str] = {}
        is_open, stopped = None, False
        events = list(events)
        for event in _data(events, faults):
            match event.get("type"):
                case "message_start":
                    message = dict(event.get("message") or {})
                case "content_block_start":
                    if is_open is not None or event.get("index") != len(blocks):
                        faults.append("a block begins before the last one ends, or with a wrong index")
                    is_open = len(blocks)
                    blocks.append(dict(event.get("content_block") or {}))
                case "content_block_delta":
                    if is_open is None or event.get("index") != is_open:
                        faults.append("a delta belongs to no open block")
                        continue
                    self._join(blocks[is_open], event.get("delta") or {}, inputs, is_open)
                case "content_block_stop":
                    is_open = None
                case "message_delta":
                    message |= {key: value for key, value in (event.get("delta") or {}).items() if value is not None}
                    counted = {key: value for key, value in (event.get("usage") or {}).items() if value is not None}
                    message["usage"] = {**(message.get("usage") or {}), **counted}
                case "message_stop":
                    stopped = True
                case "error":
                    return ObservedReply(error=json.dumps(event.get("error")), faults=tuple(faults))
        if not stopped:
            faults.append("the stream has no message_stop")
        if any(name != _type(data) for name, data in events):
            faults.append("an event has another name than its type")  # Anthropic's clients go by the name
        broken = {}
        for at, text in inputs.items():
            try:
                blocks[at]["input"] = json_of(text or "{}")
            except ValueError:
                broken[blocks[at].get("id")] = text
        reply = self.whole({**message, "content": blocks})
        calls = tuple(ObservedCall(call.id, call.name, broken.get(call.id, call.arguments)) for call in reply.calls)
        return replace(reply, calls=calls, faults=(*faults, *reply.faults))

    def _join(self, block: dict[str, Any], delta: Mapping[str, Any], inputs: dict[int, str], at: int) -> None:
        if delta.get("type") == "input_json_delta":
            inputs[at] = inputs.get(at, "") + (delta.get("partial_json") or "")
        for key in ("text", "thinking", "signature"):
            if isinstance(delta.get(key), str):
                block[key] = (block.get(key) or "") + delta[key]

    def results(self, calls: Sequence[ObservedCall], text: str) -> tuple[Any, ...]:
        blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in calls]
        return ({"role": "user", "content": blocks},)


DIALECTS: Mapping[str, VerifyDialect] = {
    "chat": ChatDialect(),
    "responses": ResponsesDialect(),
    "messages": MessagesDialect(),
}
"""The APIs that are verified, by name."""
