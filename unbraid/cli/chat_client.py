"""The conversation of `unbraid chat`, over OpenAI's API.

`Chat` keeps the messages. `answer` streams the assistant's next message as events, which `view` can show, and adds it
to the messages when it ends. A message that was cut off (Ctrl-C, an error) is kept; its incomplete calls are left out,
since nobody could answer them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from .. import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart, UnbraidError
from ..engines.base import EngineFailed
from ..engines.http.address import Address
from ..engines.http.timeouts import PieceClock

_REASONING = ("reasoning_content", "reasoning")


class Chat:
    """A conversation with a model."""

    def __init__(self, url: str, api_key: str | None, settings: dict[str, Any]) -> None:
        """settings: the fields of each request besides the messages."""
        self.messages: list[dict[str, Any]] = []
        self.usage: dict[str, Any] | None = None
        """The token counts of the last answer."""
        self.raw: list[dict[str, Any]] = []
        """The chunks of the last answer."""
        self.model: str = settings["model"]
        self._url = url
        self._api_key = api_key
        self._settings = settings

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def result(self, call: dict[str, Any], text: str) -> None:
        """Answer a call."""
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    def open_calls(self) -> list[dict[str, Any]]:
        """The calls in the last message."""
        last = self.messages[-1] if self.messages else {}
        calls: list[dict[str, Any]] = last.get("tool_calls") or []
        return calls

    async def answer(self) -> AsyncGenerator[list[Event], None]:
        """The next message, as it comes."""
        self.raw, self.usage = [], None
        reply = _Reply()
        address = Address(self._url, api_key=self._api_key)
        body = {"stream_options": {"include_usage": True}, **self._settings, "messages": self.messages, "stream": True}
        clock = PieceClock(address.timeouts)
        try:
            async with aclosing(address.stream("/v1/chat/completions", body, clock)) as chunks:
                async for chunk in chunks:
                    if chunk is None:
                        break
                    clock.came = True
                    self.raw.append(chunk)
                    self.usage = chunk.get("usage") or self.usage
                    events = list(reply.read(chunk))
                    if events:
                        yield events
        finally:
            self.messages += reply.message()
            await address.close()


class _Reply:
    """A message, assembled from chunks."""

    def __init__(self) -> None:
        self._content = ""
        self._calls: dict[int, dict[str, Any]] = {}
        self._ended = False

    def read(self, chunk: dict[str, Any]) -> Iterator[Event]:
        if "error" in chunk:
            error = chunk["error"]
            raise EngineFailed(str(error.get("message", error)) if isinstance(error, dict) else str(error))
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or choice.get("message") or {}
            text = next((delta[name] for name in _REASONING if delta.get(name)), "")
            if text:
                yield Reasoning(text, 0, 0)
            if delta.get("content"):
                self._content += delta["content"]
                yield Content(delta["content"], 0, 0)
            for at, call in enumerate(delta.get("tool_calls") or ()):
                yield from self._call(call.get("index", at), call)
            if choice.get("finish_reason"):
                self._ended = choice["finish_reason"] != "length"
                yield from (ToolCallEnd(index, self._ended, "", 0, 0) for index in self._calls)

    def _call(self, index: int, call: dict[str, Any]) -> Iterator[Event]:
        function = call.get("function") or {}
        entry = self._calls.get(index)
        if entry is None:
            name, id = function.get("name") or "", call.get("id") or f"call_{index}"
            self._calls[index] = entry = {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield ToolCallStart(index, id, name, 0, 0)
        if function.get("arguments"):
            entry["function"]["arguments"] += function["arguments"]
            yield ToolCallArguments(index, function["arguments"], 0, 0)

    def message(self) -> list[dict[str, Any]]:
        """The message, unless it is empty."""
        calls = list(self._calls.values()) if self._ended else []
        if not self._content and not calls:
            return []
        return [{"role": "assistant", "content": self._content or None, **({"tool_calls": calls} if calls else {})}]


async def model_of(url: str, api_key: str | None) -> str:
    """The name of the first model that a server has."""
    address = Address(url, api_key=api_key)
    try:
        reply = await address.get("/v1/models")
    finally:
        await address.close()
    models = (reply or {}).get("data") or []
    if not models:
        raise UnbraidError(f"{address.url} has no model: is it a server of OpenAI's API?")
    return str(models[0]["id"])
