"""What is asked of every SDK and framework: the same five tasks, in the way that its users write them.

A client has a method for each task that it can do. The server plays a model that reasons, calls a tool and answers, so
all of them get the same to see, and the table in `docs/clients.md` says which of it each hands on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MODEL = "qwen"
GREETING = "Good morning!"
THOUGHT = "The user greets me. I greet back: 早上好。"
ANSWER = "Good morning to you, too! 👋"
QUESTION = "What is the weather in Paris?"
CITY = "Paris"
WONDER = "I cannot know the weather. A tool can."
RESULT = "21 degrees and clear"
REPORT = "It is 21 degrees and clear in Paris."
DESCRIBE = "Describe Paris."
DESCRIPTION: Mapping[str, Any] = {"city": "Paris", "sunny": True}

Route = Literal["/v1/chat/completions", "/v1/responses", "/v1/messages"]
CHAT: Route = "/v1/chat/completions"
RESPONSES: Route = "/v1/responses"
MESSAGES: Route = "/v1/messages"
TASKS = {
    "answer": "answer",
    "stream": "stream",
    "tools": "tools",
    "streamed_tools": "tools, streamed",
    "structured": "structured output",
}
"""The tasks, and what the table calls them."""


@dataclass(frozen=True)
class Reply:
    """An answer, as the client shows it."""

    text: str
    reasoning: str | None = None
    pieces: int = 1
    """How many pieces of text a streamed one came in."""


@dataclass(frozen=True)
class Loop:
    """What came of a question that takes a tool."""

    text: str
    cities: tuple[str, ...]
    """What the tool was called with."""


class Client:
    """A client, with one of the routes. `url` is that of the server, without `/v1`."""

    name: str
    package: str
    """The distribution, which has a version."""
    route: Route
    shows_reasoning = False
    """Whether one sees what the model reasoned."""
    returns_reasoning = False
    """Whether the model sees it again with the result of its call."""

    def __str__(self) -> str:
        return f"{self.name} {self.route}"

    def tasks(self) -> list[str]:
        """Those that it can do."""
        return [task for task in TASKS if getattr(type(self), task) is not getattr(Client, task)]

    def answer(self, url: str) -> Reply:
        """Answer `GREETING`."""
        raise NotImplementedError

    def stream(self, url: str) -> Reply:
        """The same, streamed."""
        raise NotImplementedError

    def question(self, task: str) -> str:
        """The question for a task with a tool: one of its own, so that its prompts can be found."""
        return f"{QUESTION} (for {self}, {task})"

    def tools(self, url: str) -> Loop:
        """Answer the question with a tool `get_weather(city)`, which says `RESULT`."""
        raise NotImplementedError

    def streamed_tools(self, url: str) -> Loop:
        """The same, streamed."""
        raise NotImplementedError

    def structured(self, url: str) -> Mapping[str, Any]:
        """`DESCRIBE`, as a value with a `city` and whether it is `sunny`."""
        raise NotImplementedError
