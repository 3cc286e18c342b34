"""`unbraid chat`: talk to a model in the terminal, each strand in its own colour.

It is a client of OpenAI's API. With `--url` the server is any that speaks it. Otherwise one is started here, and ended
with the chat. What you type at the prompt is a message, or a command that begins with a slash (`_HELP`). The model's
calls are shown, and you answer them. A message that was cut off (Ctrl-C, an error) is kept in the conversation; its
incomplete calls are left out, since nobody could answer them.

`Chat` has the conversation, `_converse` and what follows it the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart, UnbraidError
from ..models import CATALOG, DEFAULT, offer
from .options import add_assignments, add_color, read_assignments, read_json
from .view import View

if TYPE_CHECKING:
    from ..engines.http.address import Address

SUMMARY = "talk to a model in the terminal"
EXAMPLES = """\
  unbraid chat
  unbraid chat "What is the capital of France?"
  unbraid chat --url http://localhost:8000 --model qwen3 --tools tools.json
  unbraid chat --system "Answer in one sentence." --set temperature=0
  unbraid chat --model path/to/model.gguf
"""
_HELP = """\
/help            this
/clear           forget the conversation
/system TEXT     say what the model is to be
/retry           have the last answer made again
/raw             the chunks of the last answer
/save FILE       write the conversation as JSON; --load reads it
/quit            end, as Ctrl-D does
Ctrl-C stops an answer. A line that ends with \\ goes on in the next one."""
_POLL = 0.1
_REASONING = ("reasoning_content", "reasoning")
"""The fields in which servers send reasoning."""


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument("message", nargs="?", metavar="MESSAGE", help="say this, print the answer, and end")
    server = command.add_argument_group("server")
    server.add_argument("--url", help="a server of OpenAI's API; default: one is started for this chat")
    server.add_argument(
        "--api-key", metavar="KEY", default=os.environ.get("OPENAI_API_KEY"), help="default: $OPENAI_API_KEY"
    )
    server.add_argument(
        "--model", help="with --url, its name there (default: the first); else what `unbraid serve --model` takes"
    )
    server.add_argument("--config", metavar="FILE", help="without --url: a TOML file with settings of `unbraid serve`")
    request = command.add_argument_group("request")
    request.add_argument("--system", metavar="TEXT", help="what the model is to be")
    request.add_argument("--tools", metavar="FILE", help="tools that the model may call, a JSON list; you answer calls")
    add_assignments(request, "fields", "a field of the request: temperature=0")
    request.add_argument("--load", metavar="FILE", help="go on from a conversation that /save wrote")
    output = command.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="with MESSAGE: print the answer as one JSON object")
    output.add_argument("--no-history", action="store_true", help="do not keep what you type for the next chat")
    add_color(output)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.url and arguments.config:
        raise UnbraidError("--config is for a server that is started here: leave it out, or --url")
    fields = read_assignments(arguments.fields)
    if arguments.tools is not None:
        fields["tools"] = read_json(arguments.tools)
    messages = [] if arguments.load is None else read_json(arguments.load)
    if not isinstance(messages, list):
        raise UnbraidError(f"{arguments.load} is no conversation: /save writes one, a JSON list of messages")
    if arguments.url is None and arguments.model is None and arguments.config is None:
        offered = offer(CATALOG[DEFAULT].size)
        if offered is not None:
            print(f"unbraid: {DEFAULT} is very small, and {offered}", file=sys.stderr)
    with contextlib.ExitStack() as open_now:
        url = arguments.url or open_now.enter_context(_server(arguments))
        named = arguments.model if arguments.url else None
        fields["model"] = named or asyncio.run(_model_of(url, arguments.api_key))
        chat = Chat(url, arguments.api_key, fields)
        chat.messages = messages
        if arguments.system is not None:
            _set_system(chat, arguments.system)
        if arguments.message is not None:
            return _one_message(chat, arguments.message, arguments)
        if not sys.stdin.isatty():
            return _one_message(chat, sys.stdin.read(), arguments)
        _converse(chat, arguments)
    return 0


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
        from ..engines.http.timeouts import PieceClock

        address = _address(self._url, self._api_key)
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
            raise UnbraidError(str(error.get("message", error)) if isinstance(error, dict) else str(error))
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


async def _model_of(url: str, api_key: str | None) -> str:
    """The name of the first model that a server has."""
    address = _address(url, api_key)
    try:
        reply = await address.get("/v1/models")
    finally:
        await address.close()
    models = (reply or {}).get("data") or []
    if not models:
        raise UnbraidError(f"{address.url} has no model: is it a server of OpenAI's API?")
    return str(models[0]["id"])


def _address(url: str, api_key: str | None) -> Address:
    try:
        from ..engines.http.address import Address
    except ImportError as error:
        raise UnbraidError(f"chatting needs httpx ({error}): pip install 'unbraid[server]'") from error
    return Address(url, api_key=api_key)


@contextmanager
def _server(arguments: argparse.Namespace) -> Iterator[str]:
    """The address of a server that is started here. It prints its own messages while it loads."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "unbraid", "serve", "--log-level", "warning", "--port", str(port)]
    for flag in ("model", "config"):
        if getattr(arguments, flag) is not None:
            command += [f"--{flag}", getattr(arguments, flag)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while not _ready(url):
            if process.poll() is not None:
                raise UnbraidError("the server ended before it was ready; it says why above")
            time.sleep(_POLL)
        yield url
    finally:
        process.terminate()
        process.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _one_message(chat: Chat, message: str, arguments: argparse.Namespace) -> int:
    chat.say(message)
    before = len(chat.messages)
    if arguments.json:
        asyncio.run(_show_answer(chat, None))
        answer = (chat.messages[before:] or [{"role": "assistant", "content": None}])[0]
        print(json.dumps({"message": answer, "usage": chat.usage}, ensure_ascii=False, indent=2))
    else:
        asyncio.run(_show_answer(chat, View(sys.stdout, sys.stderr, color=arguments.color)))
    return 0


async def _show_answer(chat: Chat, view: View | None) -> None:
    """Get the model's answer, and show it as it comes."""
    async with aclosing(chat.answer()) as batches:
        async for events in batches:
            if view is not None:
                view.show(events)
    if view is not None:
        view.finish()


# At the prompt


def _converse(chat: Chat, arguments: argparse.Namespace) -> None:
    history = None if arguments.no_history else _history()
    print(f"{chat.model}: /help says what you can do; Ctrl-D ends.")
    try:
        while (line := _ask("you> ")) is not None:
            if line.startswith("/"):
                if not _command(chat, line, arguments):
                    break
            elif line.strip():
                chat.say(line)
                _answer(chat, arguments)
    finally:
        if history is not None:
            _keep(history)


def _answer(chat: Chat, arguments: argparse.Namespace) -> None:
    """Show the model's answer. If it has calls, ask for their results, and show the next answer."""
    while True:
        view = View(sys.stdout, sys.stderr, color=arguments.color)
        try:
            asyncio.run(_show_answer(chat, view))
        except KeyboardInterrupt:
            view.finish()
            print("(stopped)")
            return
        except UnbraidError as error:
            view.finish()
            print(f"unbraid: {error}", file=sys.stderr)
            return
        calls = chat.open_calls()
        if not calls:
            return
        for call in calls:
            result = _ask(f"result of {call['function']['name']}> ")
            chat.result(call, result or "")


def _ask(prompt: str) -> str | None:
    """The typed text, or None at the end of the input."""
    lines: list[str] = []
    try:
        while True:
            line = input(prompt)
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
            prompt = "...> "
    except EOFError:
        print()
        return None


def _command(chat: Chat, line: str, arguments: argparse.Namespace) -> bool:
    """Run a command. False ends the chat."""
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    if name == "quit":
        return False
    if name == "clear":
        del chat.messages[:]
    elif name == "system" and rest:
        _set_system(chat, rest)
    elif name == "retry" and chat.messages:
        while chat.messages and chat.messages[-1]["role"] != "user":
            chat.messages.pop()
        _answer(chat, arguments)
    elif name == "raw":
        for chunk in chat.raw:
            print(json.dumps(chunk, ensure_ascii=False))
    elif name == "save" and rest:
        try:
            Path(rest).expanduser().write_text(json.dumps(chat.messages, ensure_ascii=False, indent=2))
        except OSError as error:
            print(f"unbraid: cannot write {rest}: {error.strerror or error}", file=sys.stderr)
    else:
        print(_HELP)
    return True


def _set_system(chat: Chat, text: str) -> None:
    kept = chat.messages[1:] if chat.messages and chat.messages[0]["role"] == "system" else chat.messages
    chat.messages = [{"role": "system", "content": text}, *kept]


def _history() -> Path | None:
    """Let the arrow keys recall lines of this chat and earlier ones. Returns the file of the history."""
    try:
        import readline
    except ImportError:  # not on Windows
        return None
    path = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "unbraid" / "chat_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    return path


def _keep(history: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(history)
