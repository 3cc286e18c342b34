"""The faults that are planted: what parsers and servers are known for, and the probe that has to show each."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from .faulty import Answer, Change, Planted

ALL = ("chat", "responses", "messages")
CHAT = ("chat",)


def edits(
    kinds: str, change: Callable[[str], object], when: Callable[[Answer], object] = lambda answer: True
) -> Change:
    def plant(answer: Answer) -> None:
        if when(answer) and answer.status == 200:
            answer.edit(kinds, change)

    return plant


def is_streamed(answer: Answer) -> bool:
    return answer.streamed


def has_tools(count: int) -> Callable[[Answer], bool]:
    return lambda answer: len(answer.body.get("tools") or ()) >= count


def in_value(change: Callable[[str], str]) -> Callable[[str], str]:
    """Change the text of a note."""

    def edit(arguments: str) -> str:
        value = json.loads(arguments)
        return json.dumps({key: change(text) if key == "text" else text for key, text in value.items()})

    return edit


def events(change: Callable[[list[Any]], list[Any]]) -> Change:
    def plant(answer: Answer) -> None:
        if answer.events is not None:
            answer.events = change(answer.events)

    return plant


def says(status: int, raw: str, when: Callable[[Answer], object]) -> Change:
    def plant(answer: Answer) -> None:
        if when(answer):
            answer.status, answer.raw = status, raw

    return plant


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda body: {key: value for key, value in body.items() if key not in names}


def other_choice(body: dict[str, Any]) -> dict[str, Any]:
    return {
        **body,
        "tool_choice": "auto" if "input" in body or ("max_tokens" in body and _chat(body)) else {"type": "auto"},
    }


def _chat(body: dict[str, Any]) -> bool:
    return not any("input_schema" in tool for tool in body.get("tools") or ())


def uncalled(body: dict[str, Any]) -> dict[str, Any]:
    forced = body.get("tool_choice") not in (None, "auto", {"type": "auto"})
    return without("tools", "tool_choice")(body) if forced else body


def refuses_reasoning(body: dict[str, Any]) -> Any:
    history = json.dumps(body.get("messages") or body.get("input"))
    told = any(word in history for word in ('"reasoning_content": "B', '"type": "reasoning"', '"type": "thinking"'))
    return (400, '{"type": "error", "error": {"message": "unknown field", "type": "bad"}}') if told else body


def refuses_results(body: dict[str, Any]) -> Any:
    history = json.dumps(body.get("messages") or body.get("input"))
    told = any(word in history for word in ('"role": "tool"', "function_call_output", "tool_result"))
    return (400, '{"type": "error", "error": {"message": "no tool role", "type": "bad"}}') if told else body


def cut_short(answer: Answer) -> bool:
    most = answer.body.get("max_tokens") or answer.body.get("max_output_tokens") or 512
    return most < 64 and answer.status == 200


def closed(arguments: str) -> str:
    """Arguments that were cut off, closed as if they were whole."""
    return arguments if arguments.endswith("}") else arguments + '"}' if '": "' in arguments else "{}"


def ends(word: dict[str, str], when: Callable[[Answer], object]) -> Change:
    def plant(answer: Answer) -> None:
        if when(answer) and answer.status == 200:
            for slot in answer.slots("ending"):
                slot.put(word[answer.api])

    return plant


def both(*changes: Change) -> Change:
    def plant(answer: Answer) -> None:
        for change in changes:
            change(answer)

    return plant


COMPLETE = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
STOPPED = {"chat": "stop", "responses": "completed", "messages": "end_turn"}


def counts(**numbers: int) -> Callable[[Any], Any]:
    return lambda usage: {**usage, **{key: value for key, value in numbers.items() if key in usage}}


def usage(change: Callable[[Any], Any], when: Callable[[Answer], object] = lambda answer: True) -> Change:
    def plant(answer: Answer) -> None:
        if when(answer) and answer.status == 200:
            for slot in answer.slots("usage"):
                for holder, key in (*slot.pieces, *slot.copies):
                    holder[key] = change(holder[key])

    return plant


def drop_last_call(answer: Answer) -> None:
    if answer.api == "chat" and answer.events is None and answer.status == 200:
        calls = answer.json["choices"][0]["message"].get("tool_calls")
        if calls and len(calls) > 1:
            calls.pop()


def to_content(answer: Answer) -> None:
    """Reasoning in the answer, as without a reasoning parser that knows the prompt."""
    for payload in [answer.json] if answer.events is None else answer.events:
        for choice in payload.get("choices") or ():
            said = choice.get("message") or choice.get("delta") or {}
            reasoning = [said.pop(name, None) for name in ("reasoning_content", "reasoning")]
            if any(reasoning):
                said["content"] = (reasoning[0] or reasoning[1]) + (said.get("content") or "")


def to_reasoning(answer: Answer) -> None:
    for payload in [answer.json] if answer.events is None else answer.events:
        for choice in payload.get("choices") or ():
            said = choice.get("message") or choice.get("delta") or {}
            if said.get("content"):
                said["reasoning_content"] = (said.get("reasoning_content") or "") + said.pop("content")


def new_ids(found: list[Any]) -> list[Any]:
    """A new id of the call in each delta."""
    for at, event in enumerate(found):
        for choice in event.get("choices") or ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                call["id"] = f"call_{at}"
    return found


def index_one(found: list[Any]) -> list[Any]:
    for event in found:
        for choice in event.get("choices") or ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                call["index"] += 1
    return found


def objects(answer: Answer) -> None:
    """Arguments as an object, as Ollama's own API has them."""
    for slot in answer.slots("arguments") if answer.events is None and answer.api == "chat" and answer.json else ():
        holder, key = slot.pieces[0]
        holder[key] = json.loads(slot.text)


def unplaced(found: list[Any]) -> list[Any]:
    """Without the place of the item that an event is about, as llama.cpp's server streams Responses."""
    return [{key: value for key, value in event.items() if key != "output_index"} for event in found]


def twice(found: list[Any]) -> list[Any]:
    return [each for event in found for each in [event] * (1 + (event["type"].endswith("delta")))]


def is_bad(answer: Answer) -> bool:
    return answer.status in (400, 404, 422)


def unnamed(answer: Answer) -> None:
    if answer.events is not None:
        answer.raw = "".join(f"data: {json.dumps(event)}\n\n" for event in answer.events)


def no_done(answer: Answer) -> None:
    unnamed(answer)


def torn(answer: Answer) -> None:
    if answer.events is None and answer.status == 200:
        answer.raw = json.dumps(answer.json)[:-10]


def no_json_event(answer: Answer) -> None:
    if answer.events is not None:
        lines = [f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in answer.events]
        answer.raw = lines[0] + "data: {broken\n\n" + "".join(lines[1:]) + "data: [DONE]\n\n"


def escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


def beyond_ascii(text: str) -> bool:
    return not text.isascii()


def refuses(error: str, *names: str) -> Planted:
    """A server that does not take these fields. error: what it says, with `{name}` for the first that it sees."""

    def ask(body: dict[str, Any]) -> Any:
        name = next((name for name in names if name in body), None)
        return body if name is None else (400, error.replace("{name}", name))

    return Planted(ask=ask)


OPENAI = """{"error": {"message": "Unsupported parameter: '{name}' is not supported with this model.",
"type": "invalid_request_error", "param": "{name}", "code": "unsupported_parameter"}}"""
AZURE = """{"error": {"message": "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
"type": "invalid_request_error", "param": null}}"""
PYDANTIC = """{"detail": [{"type": "extra_forbidden", "loc": ["body", "{name}"],
"msg": "Extra inputs are not permitted", "input": 1}]}"""
ANTHROPIC = """{"type": "error", "error": {"type": "invalid_request_error", "message": "`{name}` is not supported"}}"""
LIMIT = """{"error": {"message": "This model has 300 tokens, and max_tokens is {name}.", "type": "BadRequestError",
"param": "max_tokens"}}"""

REFUSALS: tuple[tuple[str, str, Planted, dict[str, str], tuple[str, ...]], ...] = (
    (
        "max_tokens, as OpenAI says it",
        "chat",
        refuses(OPENAI, "max_tokens"),
        {"max_tokens": "sent as max_completion_tokens"},
        (),
    ),
    (
        "max_tokens, as Azure says it",
        "chat",
        refuses(AZURE, "max_tokens"),
        {"max_tokens": "sent as max_completion_tokens"},
        (),
    ),
    (
        "several fields, one by one",
        "chat",
        refuses(OPENAI, "temperature", "seed", "stop", "max_tokens", "parallel_tool_calls"),
        {
            "max_tokens": "sent as max_completion_tokens",
            **dict.fromkeys(("temperature", "seed", "stop", "parallel_tool_calls"), "left out"),
        },
        ("single", "stop"),
    ),
    ("fields as pydantic says it", "chat", refuses(PYDANTIC, "stream_options"), {"stream_options": "left out"}, ()),
    (
        "fields of Responses",
        "responses",
        refuses(OPENAI, "temperature", "store"),
        {"temperature": "left out", "store": "left out"},
        (),
    ),
    (
        "fields of Messages",
        "messages",
        refuses(ANTHROPIC, "temperature", "stop_sequences"),
        {"temperature": "left out", "stop_sequences": "left out"},
        ("stop",),
    ),
)
"""Name, API, the server, what it does not take and what becomes of that, and the probes that then cannot tell."""


Row = tuple[str, tuple[str, ...], str, str, Planted]


def rows() -> Iterator[Row]:
    """Name, APIs, the kind that it is, the probe that shows it, and what is done."""
    yield (
        "markup before the answer",
        ALL,
        "markup_leaked",
        "answer",
        Planted(edits("content", lambda text: f"</think>{text}")),
    )
    yield (
        "markup after letters beyond ascii",
        ALL,
        "markup_leaked",
        "answer",
        Planted(edits("content", lambda text: text + "<|im_end|>" if beyond_ascii(text) else text)),
    )
    yield (
        "markup in a value after letters beyond ascii",
        ALL,
        "value_changed",
        "values",
        Planted(edits("arguments", in_value(lambda text: text + "\n</tool_call>" if beyond_ascii(text) else text))),
    )
    yield (
        "markup in the reasoning",
        ALL,
        "markup_leaked",
        "reasoning",
        Planted(edits("reasoning", lambda text: f"<think>{text}")),
    )
    yield (
        "a value that ends at markup",
        ALL,
        "value_changed",
        "values",
        Planted(edits("arguments", in_value(lambda text: text.partition("</")[0]))),
    )
    yield (
        "markup taken out of a value",
        ALL,
        "value_changed",
        "values",
        Planted(edits("arguments", in_value(lambda text: re.sub(r"</?\w+>", "", text)))),
    )
    yield "a value escaped twice", ALL, "value_changed", "values", Planted(edits("arguments", in_value(escaped)))
    yield "a value as in HTML", ALL, "value_changed", "values", Planted(edits("arguments", in_value(html.escape)))
    yield (
        "a value in the wrong encoding",
        ALL,
        "value_changed",
        "values",
        Planted(edits("arguments", in_value(lambda text: text.encode().decode("latin-1")))),
    )
    yield (
        "a value without letters beyond ascii",
        ALL,
        "value_changed",
        "values",
        Planted(edits("arguments", in_value(lambda text: text.encode("ascii", "ignore").decode()))),
    )
    yield (
        "a value that becomes a number",
        ALL,
        "schema_mismatch",
        "values",
        Planted(edits("arguments", lambda text: text.replace('"0042"', "42"))),
    )
    yield (
        "broken characters in streams",
        ALL,
        "character_broken",
        "answer",
        Planted(edits("content", lambda text: re.sub(r"[^\x00-\xff]", "\ufffd", text), is_streamed)),
    )
    yield (
        "arguments encoded twice",
        ("chat", "responses"),
        "schema_mismatch",
        "required",
        Planted(edits("arguments", json.dumps)),
    )
    yield (
        "arguments with single quotes",
        ("chat", "responses"),
        "invalid_json",
        "required",
        Planted(edits("arguments", lambda text: text.replace('"', "'"))),
    )
    yield "arguments as an object", CHAT, "protocol", "required", Planted(objects)
    yield (
        "arguments lost in streams with several tools",
        ALL,
        "schema_mismatch",
        "required",
        Planted(edits("arguments", lambda text: "{}", lambda answer: is_streamed(answer) and has_tools(2)(answer))),
    )
    yield "a wrong name", ALL, "unknown_name", "auto", Planted(edits("name", lambda name: f"functions.{name}"))
    yield (
        "a name twice in streams",
        ALL,
        "unknown_name",
        "auto",
        Planted(edits("name", lambda name: name + name, is_streamed)),
    )
    yield (
        "a strict schema broken",
        ALL,
        "strict_ignored",
        "strict",
        Planted(edits("arguments", lambda text: text.replace('"minute"', '"minutes"'))),
    )
    yield (
        "a strict answer broken",
        ALL,
        "strict_ignored",
        "schema",
        Planted(edits("content", lambda text: text.replace('"minute"', '"minutes"'))),
    )
    yield (
        "a strict answer in a fence",
        ALL,
        "strict_ignored",
        "schema",
        Planted(edits("content", lambda text: f"```json\n{text}\n```")),
    )
    yield "no ids", ALL, "protocol", "required", Planted(edits("id", lambda call: ""))
    yield "one id for all calls", ALL, "protocol", "parallel", Planted(edits("id", lambda call: "call_0"))
    yield "several ids for a call", CHAT, "protocol", "required", Planted(events(new_ids))
    yield "an index that is not the first", CHAT, "protocol", "required", Planted(events(index_one))
    yield (
        "calls that end by stop",
        ("chat", "messages"),
        "protocol",
        "required",
        Planted(ends(STOPPED, lambda answer: answer.slots("name"))),
    )
    yield (
        "an end for calls without any",
        ("chat", "messages"),
        "protocol",
        "answer",
        Planted(ends(COMPLETE, lambda answer: not answer.slots("name"))),
    )
    yield (
        "an end that no API has",
        ("chat", "messages"),
        "protocol",
        "answer",
        Planted(ends(dict.fromkeys(ALL, "eos"), lambda answer: True)),
    )
    yield (
        "no end in streams",
        ("chat", "messages"),
        "protocol",
        "answer",
        Planted(edits("ending", lambda word: None, is_streamed)),
    )
    yield (
        "a cut call that is called complete",
        ALL,
        "cut_but_complete",
        "cut call",
        Planted(both(ends(COMPLETE, lambda answer: cut_short(answer) and answer.slots("name")))),
    )
    yield (
        "a cut call that is closed and called complete",
        ALL,
        "cut_but_complete",
        "cut call",
        Planted(
            both(
                ends(COMPLETE, lambda answer: cut_short(answer) and answer.slots("name")),
                edits("arguments", closed, cut_short),
            )
        ),
    )
    yield (
        "a cut answer that is called complete",
        ("chat", "messages"),
        "length_ignored",
        "length",
        Planted(ends(STOPPED, cut_short)),
    )
    yield "a wrong sum", ("chat", "responses"), "usage_wrong", "answer", Planted(usage(counts(total_tokens=1)))
    yield (
        "no tokens in streams",
        ("chat", "responses"),
        "usage_wrong",
        "answer",
        Planted(usage(lambda found: None, is_streamed)),
    )
    yield (
        "one token in streams",
        ALL,
        "usage_wrong",
        "length",
        Planted(
            usage(
                lambda found: {
                    **found,
                    **{
                        key: 1
                        if key != "total_tokens"
                        else found.get("prompt_tokens", found.get("input_tokens", 0)) + 1
                        for key in found
                        if key in ("completion_tokens", "output_tokens", "total_tokens")
                    },
                },
                is_streamed,
            )
        ),
    )
    yield (
        "another prompt in streams",
        ("chat", "responses"),
        "usage_wrong",
        "answer",
        Planted(
            usage(
                lambda found: {
                    key: value + 7 if key in ("prompt_tokens", "input_tokens", "total_tokens") else value
                    for key, value in found.items()
                },
                is_streamed,
            )
        ),
    )
    yield (
        "more reasoning than reply",
        ("chat", "responses"),
        "usage_wrong",
        "answer",
        Planted(
            usage(
                lambda found: {
                    **found,
                    "completion_tokens_details": {"reasoning_tokens": 9999},
                    "output_tokens_details": {"reasoning_tokens": 9999},
                }
            )
        ),
    )
    yield (
        "tools left out of the prompt",
        ALL,
        "tools_unseen",
        "auto",
        Planted(ask=without("tools", "tool_choice")),
    )
    yield "required is not followed", ALL, "choice_ignored", "required", Planted(ask=uncalled)
    yield "a named tool is not followed", ALL, "choice_ignored", "named", Planted(ask=other_choice)
    yield "none is not followed", ALL, "choice_ignored", "none", Planted(ask=other_choice)
    yield (
        "several calls where one was asked",
        CHAT,
        "parallel_ignored",
        "single",
        Planted(ask=without("parallel_tool_calls")),
    )
    yield (
        "stop is not followed",
        ("chat", "messages"),
        "stop_ignored",
        "stop",
        Planted(ask=without("stop", "stop_sequences")),
    )
    yield (
        "the stop text is shown",
        ("chat", "messages"),
        "stop_ignored",
        "stop",
        Planted(
            edits(
                "content",
                lambda text: text + "e",
                lambda answer: answer.body.get("stop") == ["e"] or answer.body.get("stop_sequences") == ["e"],
            )
        ),
    )
    yield (
        "a part of the stop text is shown",
        ("chat", "messages"),
        "stop_ignored",
        "stop",
        Planted(
            edits(
                "content",
                lambda text: text + "4",
                lambda answer: (
                    "4\n5"
                    in json.dumps(
                        answer.body.get("stop") or answer.body.get("stop_sequences") or "", ensure_ascii=False
                    ).replace("\\n", "\n")
                ),
            )
        ),
    )
    yield "max_tokens is not followed", CHAT, "length_ignored", "length", Planted(ask=without("max_tokens"))
    yield (
        "reasoning in the answer",
        CHAT,
        "reasoning_mixed",
        "reasoning",
        Planted(lambda answer: to_content(answer) if cut_short(answer) else None),
    )
    yield "the answer in the reasoning", CHAT, "reasoning_mixed", "reasoning", Planted(to_reasoning)
    yield (
        "reasoning in the answer of streams",
        CHAT,
        "stream_differs",
        "stream",
        Planted(lambda answer: to_content(answer) if answer.streamed else None),
    )
    yield "reasoning is not accepted back", ALL, "history_refused", "reasoning", Planted(ask=refuses_reasoning)
    yield "results are not accepted", ALL, "history_refused", "round", Planted(ask=refuses_results)
    yield (
        "errors in HTML",
        ALL,
        "error_undocumented",
        "errors",
        Planted(says(400, "<html><h1>Bad Request</h1></html>", is_bad)),
    )
    yield "errors as text in JSON", ALL, "error_undocumented", "errors", Planted(says(400, '{"error": "bad"}', is_bad))
    yield "bad requests are answered", ALL, "error_undocumented", "errors", Planted(says(200, "{}", is_bad))
    yield "bad requests break it", ALL, "server_error", "errors", Planted(says(500, "Internal Server Error", is_bad))
    yield (
        "a gateway in HTML now and then",
        ALL,
        "server_error",
        "values",
        Planted(says(502, "<html>502 Bad Gateway</html>", lambda answer: True), share=0.3),
    )
    yield (
        "it hangs up now and then",
        ALL,
        "server_error",
        "values",
        Planted(says(0, "", lambda answer: True), share=0.3),
    )
    yield "JSON that breaks off", ALL, "protocol", "answer", Planted(torn)
    yield "an event that is no JSON", ALL, "protocol", "answer", Planted(no_json_event)
    yield "no [DONE]", CHAT, "protocol", "answer", Planted(no_done)
    yield "events without names", ("messages",), "protocol", "answer", Planted(unnamed)
    yield "no last event", ("responses", "messages"), "protocol", "answer", Planted(events(lambda found: found[:-1]))
    yield "nothing is said", ALL, "protocol", "answer", Planted(edits("content reasoning", lambda text: ""))
    yield (
        "the end of answers lost in streams",
        ALL,
        "stream_differs",
        "stream",
        Planted(edits("content", lambda text: text[:-4], is_streamed)),
    )
    yield (
        "the end of answers lost now and then",
        ALL,
        "stream_differs",
        "stream",
        Planted(edits("content", lambda text: text[:-4], is_streamed), share=0.3),
    )
    yield (
        "arguments lost now and then",
        ALL,
        "schema_mismatch",
        "values",
        Planted(edits("arguments", lambda text: "{}"), share=0.3),
    )
    yield "events without the place of their item", ("responses",), "protocol", "answer", Planted(events(unplaced))
    yield "deltas that come twice", ("responses",), "protocol", "answer", Planted(events(twice))
    yield "deltas that come twice", ("messages",), "stream_differs", "stream", Planted(events(twice))
