"""What right servers do that few others do: each of it is allowed, and none of it is a fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .faults import ALL, CHAT, events
from .faulty import Answer, Change, Planted

RESPONSES, MESSAGES = ("responses",), ("messages",)


def framed(frame: Callable[[str, str], str], *, before: str = "", after: str = "") -> Change:
    """The events of a stream, each written by `frame` of its name and its JSON."""

    def plant(answer: Answer) -> None:
        if answer.events is None:
            return
        said = [(event.get("type", ""), json.dumps(event, ensure_ascii=False)) for event in answer.events]
        said += [("", "[DONE]")] * (answer.api == "chat")
        answer.raw = before + "".join(frame(name, data) for name, data in said) + after

    return plant


def named(name: str, end: str = "\n") -> str:
    return f"event: {name}{end}" if name else ""


def over_lines(name: str, data: str) -> str:
    """An event whose JSON has a line for each of its values."""
    lines = [data] if data == "[DONE]" else json.dumps(json.loads(data), indent=1).splitlines()
    return named(name) + "".join(f"data: {line}\n" for line in lines) + "\n"


def blank_lines_first(answer: Answer) -> None:
    """What DeepSeek sends while a whole reply is being made."""
    if answer.events is None and answer.status == 200:
        answer.raw = "\n\n\n" + json.dumps(answer.json, indent=2)


def messages(change: Callable[[Any], None]) -> Change:
    """Change each message and each delta of chat."""

    def plant(answer: Answer) -> None:
        for payload in [answer.json] if answer.events is None else answer.events:
            for choice in payload.get("choices") or ():
                change(choice.get("message") or choice.get("delta") or {})

    return plant


def payloads(change: Callable[[Any], None]) -> Change:
    """Change each whole reply and each event."""

    def plant(answer: Answer) -> None:
        for payload in [answer.json] if answer.events is None else answer.events:
            if answer.status == 200:
                change(payload)

    return plant


def only_reasoning(said: Any) -> None:
    """The younger name alone, with OpenRouter's details beside it."""
    text = said.pop("reasoning_content", None)
    if text:
        said |= {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


def only_reasoning_content(said: Any) -> None:
    said.pop("reasoning", None)


def all_fields(said: Any) -> None:
    """The fields that a message may have, null where they have nothing to say."""
    said |= {key: said.get(key) for key in ("content", "refusal", "audio", "function_call", "tool_calls")}
    said["annotations"] = []


def empty_fields(said: Any) -> None:
    """An empty text for no text, and an empty list for no calls."""
    said |= {"content": said.get("content") or "", "tool_calls": said.get("tool_calls") or []}


def few_fields(said: Any) -> None:
    """Without what has nothing to say."""
    for key in [key for key, value in said.items() if value in (None, "", [])]:
        del said[key]


def role_once(found: list[Any]) -> list[Any]:
    """The role in a delta of its own, and in no other."""
    for event in found:
        for choice in event.get("choices") or ():
            choice["delta"].pop("role", None)
    first = {**found[0], "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    return [first, *found]


def role_always(found: list[Any]) -> list[Any]:
    for event in found:
        for choice in event.get("choices") or ():
            choice["delta"]["role"] = "assistant"
    return found


def counted_always(found: list[Any]) -> list[Any]:
    """What was counted so far in each chunk, as by vLLM's `continuous_usage_stats`."""
    last = next(event["usage"] for event in reversed(found) if event.get("usage"))
    early = {**last, "completion_tokens": 1, "total_tokens": last["prompt_tokens"] + 1}
    return [{**event, "usage": event.get("usage") or early} for event in found]


def counted_at_the_end(found: list[Any]) -> list[Any]:
    """What was counted in the chunk that has the finish reason."""
    last = next(event["usage"] for event in reversed(found) if event.get("usage"))
    kept = [event for event in found if event.get("choices")]
    kept[-1]["usage"] = last
    return kept


def bare_usage(payload: Any) -> None:
    """Only what was counted, and null for the rest."""
    usage = payload.get("usage") or {}
    for key in usage:
        if key.endswith("_details"):
            usage[key] = None


def extras(payload: Any) -> None:
    """Fields that no API documents."""
    payload |= {"provider": "Somebody", "x_vendor": {"id": "req_1"}, "system_fingerprint": None}
    for choice in payload.get("choices") or ():
        choice |= {"content_filter_results": {}, "logprobs": None, "matched_stop": 2, "native_finish_reason": "STOP"}


def azure(found: list[Any]) -> list[Any]:
    """A chunk without id and choices, which says what was filtered of the prompt."""
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    return [first, *found]


def calls_of(event: Any) -> list[Any]:
    return [call for choice in event.get("choices") or () for call in choice["delta"].get("tool_calls") or ()]


def joined_calls(found: list[Any]) -> list[Any]:
    """All calls in one delta, whole."""
    calls: dict[int, Any] = {}
    for event in found:
        for call in calls_of(event):
            if call["index"] in calls:
                calls[call["index"]]["function"]["arguments"] += call["function"].get("arguments") or ""
            else:
                calls[call["index"]] = call
    kept, first = [], True
    for event in found:
        if calls_of(event):
            if first:
                event["choices"][0]["delta"]["tool_calls"] = [*calls.values()]
                kept.append(event)
            first = False
        else:
            kept.append(event)
    return kept


def repeated_heads(found: list[Any]) -> list[Any]:
    """The id of a call in each of its deltas, and the name as null."""
    ids: dict[int, str] = {}
    for event in found:
        for call in calls_of(event):
            call["id"] = ids.setdefault(call["index"], call.get("id"))
            call["type"] = "function"
            call["function"].setdefault("name", None)
            call["function"].setdefault("arguments", None)
    return found


def interleaved(found: list[Any]) -> list[Any]:
    """The deltas of calls in turn: one of each call, then the next of each."""
    deltas = [event for event in found if calls_of(event)]
    queues = [[event for event in deltas if calls_of(event)[0]["index"] == at] for at in range(len(deltas))]
    turns = (queue[turn] for turn in range(len(deltas)) for queue in queues if turn < len(queue))
    return [next(turns) if calls_of(event) else event for event in found]


def after_the_end(found: list[Any]) -> list[Any]:
    """An empty delta behind the finish reason."""
    last = {**found[-1], "usage": None, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]}
    return [*found[:-1], last, found[-1]]


def empty_ends(found: list[Any]) -> list[Any]:
    """An empty text where there is no finish reason yet."""
    for event in found:
        for choice in event.get("choices") or ():
            choice["finish_reason"] = choice.get("finish_reason") or ""
    return found


def other_ids(pattern: str) -> Change:
    """Ids of another shape, in each place where they stand."""

    def plant(answer: Answer) -> None:
        for at, slot in enumerate(answer.slots("id") if answer.status == 200 else ()):
            slot.put(pattern.format(at))

    return plant


REFUSED = "I am sorry, I cannot help with that."


def refuses_in_chat(answer: Answer) -> None:
    """The model refuses: OpenAI says that beside the content, which is null."""
    if answer.status != 200 or not answer.body.get("response_format"):
        return
    if answer.events is None:
        answer.json["choices"][0]["message"] |= {"content": None, "refusal": REFUSED}
        return
    for event in answer.events:
        for choice in event.get("choices") or ():
            if choice["delta"].pop("content", None):
                choice["delta"]["refusal"] = "No. "


def refuses_in_responses(answer: Answer) -> None:
    part = {"type": "refusal", "refusal": REFUSED}
    if answer.status != 200 or not answer.body.get("text"):
        return
    for event in answer.events or ():
        if event["type"].startswith("response.output_text"):
            event["type"] = event["type"].replace("output_text", "refusal")
        elif event["type"] == "response.output_item.done" and event["item"]["type"] == "message":
            event["item"]["content"] = [part]
    for response in [answer.json] if answer.events is None else [event.get("response") for event in answer.events]:
        for item in (response or {}).get("output") or ():
            if item["type"] == "message":
                item["content"] = [part]


def refuses_in_messages(answer: Answer) -> None:
    """The model refuses: what came until then is not the answer."""
    if answer.status == 200 and answer.body.get("output_config"):
        for slot in answer.slots("ending"):
            slot.put("refusal")
        answer.edit("content", lambda text: text[:5])


def filtered(answer: Answer) -> None:
    """A filter ended the answer."""
    response = answer.json if answer.events is None else answer.events[-1]["response"]
    if answer.status != 200 or response["status"] != "completed":
        return
    response |= {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    if answer.events is not None:
        answer.events[-1]["type"] = "response.incomplete"


def filtered_in_chat(answer: Answer) -> None:
    for slot in answer.slots("ending") if answer.status == 200 else ():
        if slot.text == "stop":
            slot.put("content_filter")


def done(answer: Answer) -> None:
    """The last event of chat where no API asks for it."""
    framed(lambda name, data: f"{named(name)}data: {data}\n\n", after="data: [DONE]\n\n")(answer)


def text_at_once(found: list[Any]) -> list[Any]:
    """The first words of a block where it begins."""
    kept: list[Any] = []
    for event in found:
        block = kept[-1].get("content_block") or {} if kept else {}
        if block.get("text") == "" and "text" in event.get("delta", {}):
            block["text"] = event["delta"]["text"]
        else:
            kept.append(event)
    return kept


def two_parts(answer: Answer) -> None:
    """Content in parts."""
    if answer.events is None and answer.status == 200:
        message = answer.json["choices"][0]["message"]
        text = message.get("content")
        if text:
            message["content"] = [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}]


def without_sums(payload: Any) -> None:
    if payload.get("usage"):
        payload["usage"].pop("total_tokens", None)


def other_items(found: list[Any]) -> list[Any]:
    """What is encrypted is so anew each time; and an item may say more when it is done."""
    for at, event in enumerate(found):
        item = event.get("item") or {}
        items = [item] if event["type"].endswith("item.done") else (event.get("response") or {}).get("output") or ()
        for each in items:
            if each["type"] == "reasoning":
                each["encrypted_content"] = f"gAAAAA{at}"
        if event["type"].endswith("item.done"):
            item["internal_metadata"] = {"took": at}
    return found


def more_events(found: list[Any]) -> list[Any]:
    """Events that came to the API later, and a number for each."""
    kinds = [{"type": "response.queued"}, {"type": "keepalive"}, {"type": "response.vendor.progress", "percent": 5}]
    every = [found[0], *kinds, *found[1:]]
    return [{**event, "sequence_number": 10 + 2 * at} for at, event in enumerate(every)]


def unnumbered(found: list[Any]) -> list[Any]:
    return [
        {key: value for key, value in event.items() if key != "sequence_number"} | {"obfuscation": "xyz"}
        for event in found
    ]


def pings(found: list[Any]) -> list[Any]:
    """Anthropic sends pings anywhere, and says that kinds of events may be added."""
    other = [{"type": "ping"}, {"type": "vendor_progress", "percent": 5}]
    return [each for event in found for each in (event, *other)][: -len(other)]


def null_counts(found: list[Any]) -> list[Any]:
    """The last count says null for what the first one has said."""
    last = next(event for event in found if event["type"] == "message_delta")
    first = found[0]["message"]["usage"]
    first["input_tokens"] = last["usage"].get("input_tokens") or first["input_tokens"]
    nulls = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "server_tool_use")
    last["usage"] |= dict.fromkeys(nulls)
    return found


def inputs_at_once(found: list[Any]) -> list[Any]:
    """A call's input in one delta behind an empty one, or where its block begins."""
    texts: dict[int, str] = {}
    for event in found:
        if (event.get("delta") or {}).get("type") == "input_json_delta":
            texts[event["index"]] = texts.get(event["index"], "") + event["delta"]["partial_json"]
    kept = []
    for event in found:
        block, delta = event.get("content_block") or {}, event.get("delta") or {}
        if block.get("type") == "tool_use":
            try:
                block["input"] = json.loads(texts.get(event["index"], "{}"))
            except ValueError:  # it was cut off
                return found
        if delta.get("type") != "input_json_delta":
            kept.append(event)
    return kept


HIDDEN = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3"}


def hidden_thoughts(answer: Answer) -> None:
    """A block of reasoning that nobody may read."""
    if answer.events is None:
        if answer.status == 200:
            answer.json["content"].insert(0, HIDDEN)
        return
    for event in answer.events:
        if "index" in event:
            event["index"] += 1
    start = {"type": "content_block_start", "index": 0, "content_block": HIDDEN}
    answer.events[1:1] = [start, {"type": "content_block_stop", "index": 0}]


def without_hidden(body: dict[str, Any]) -> dict[str, Any]:
    """The request as the server behind takes it, which did not write what is hidden."""
    for message in body["messages"]:
        if isinstance(message["content"], list):
            message["content"] = [part for part in message["content"] if part != HIDDEN]
    return body


Row = tuple[str, tuple[str, ...], Planted]


def rows() -> Iterator[Row]:
    """Name, APIs, and what is done."""
    yield from ((name, ALL, Planted(change)) for name, change in _FRAMES.items())
    yield "blank lines before a whole reply", ALL, Planted(blank_lines_first)
    yield "fields that no API documents", ALL, Planted(payloads(extras))
    yield "no details of what was counted", ALL, Planted(payloads(bare_usage))
    for pattern in ("call-{}", "functions.get_weather:{}", "{}", "a1b2c3d4{}", "fc_{0}|call_{0}"):
        yield f"ids as {pattern}", ALL, Planted(other_ids(pattern))
    yield from ((name, CHAT, Planted(messages(change))) for name, change in _MESSAGES.items())
    yield from ((name, CHAT, Planted(events(change))) for name, change in _CHUNKS.items())
    yield "a refusal", CHAT, Planted(refuses_in_chat)
    yield "a refusal", RESPONSES, Planted(refuses_in_responses)
    yield "a refusal", MESSAGES, Planted(refuses_in_messages)
    yield "an answer that a filter ended", RESPONSES, Planted(filtered)
    yield "an answer that a filter ended", CHAT, Planted(filtered_in_chat)
    yield "no sum of what was counted", CHAT, Planted(payloads(without_sums))
    yield "content in parts", CHAT, Planted(two_parts)
    yield "[DONE] behind the events", RESPONSES, Planted(done)
    yield "words where a block begins", MESSAGES, Planted(events(text_at_once))
    yield "an item that says more when it is done", RESPONSES, Planted(events(other_items))
    yield "events that came later", RESPONSES, Planted(events(more_events))
    yield "events without numbers", RESPONSES, Planted(events(unnumbered))
    yield "pings anywhere", MESSAGES, Planted(events(pings))
    yield "null where the first event has counted", MESSAGES, Planted(events(null_counts))
    yield "a call's input at once", MESSAGES, Planted(events(inputs_at_once))
    yield "hidden reasoning", MESSAGES, Planted(hidden_thoughts, ask=without_hidden)


_FRAMES = {
    "lines that end by CR LF": framed(lambda name, data: f"{named(name, chr(13) + chr(10))}data: {data}\r\n\r\n"),
    "lines that end by CR": framed(lambda name, data: f"{named(name, chr(13))}data: {data}\r\r"),
    "data over several lines": framed(over_lines),
    "no space behind the colon": framed(lambda name, data: f"{named(name).replace(' ', '')}data:{data}\n\n"),
    "comments that keep a connection": framed(
        lambda name, data: f": keep-alive\n\n:\n{named(name)}: PROCESSING\ndata: {data}\n\n", before=":\n\n"
    ),
    "comments behind the end": framed(lambda name, data: f"{named(name)}data: {data}\n\n", after=": bye\n\n"),
    "ids and times of events": framed(
        lambda name, data: f"id: 7\nretry: 100\n{named(name)}data: {data}\nother: field\nfield\n\n"
    ),
    "a byte order mark": framed(lambda name, data: f"{named(name)}data: {data}\n\n", before="\ufeff"),
    "many empty lines": framed(lambda name, data: f"\n\n{named(name)}data: {data}\n\n\n\n"),
    "the name behind the data": framed(lambda name, data: f"data: {data}\n{named(name)}\n"),
}
"""Ways to write events that the specification of server-sent events has."""

_MESSAGES = {
    "reasoning under its younger name": only_reasoning,
    "reasoning under its older name": only_reasoning_content,
    "fields that are null": all_fields,
    "fields that are empty": empty_fields,
    "fields that are missing": few_fields,
}

_CHUNKS = {
    "the role once": role_once,
    "the role always": role_always,
    "tokens counted in each chunk": counted_always,
    "tokens counted where it ends": counted_at_the_end,
    "a first chunk without id": azure,
    "calls in one delta": joined_calls,
    "ids of calls in each delta": repeated_heads,
    "calls in turn": interleaved,
    "a delta behind the end": after_the_end,
    "an empty finish reason": empty_ends,
}
