"""A running server whose engine plays scripts, with the tokens and the template of Qwen3."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import tokenizers

from unbraid.engines import Generation
from unbraid.engines.replay import ReplayEngine, Script, script
from unbraid.templates import from_source
from unbraid.tokens import vocabulary

from . import patient_http
from .real_tokenizers import encode, qwen3_config, qwen3_huggingface
from .running_server import RunningServer, folded, service_of

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello!"}]


class Scripted:
    """A server whose engine plays one script for all requests, with Qwen3's tokens and template."""

    def __init__(self, **settings: Any) -> None:
        """settings: of `RunningServer`."""
        self.tokenizer: tokenizers.Tokenizer = qwen3_huggingface()
        self.choose: Callable[[Generation], Script] = lambda _: script("")
        self.engine = ReplayEngine(
            lambda request: self.choose(request), vocabulary=vocabulary(self.tokenizer), model="qwen", context=4096
        )
        template = template_of_qwen3()
        service = service_of(self.engine, "qwen3", tokenizer=self.tokenizer, template=template)
        self.server = RunningServer(service, **settings)

    @property
    def service(self) -> Any:
        return self.server.service

    def say(self, text: str, chunks: int = 1, ending: Any = "stop") -> None:
        ids = encode(self.tokenizer, text)
        self.choose = lambda _: script(ids, chunks=chunks, ending=ending)

    def post(self, path: str, **body: Any) -> Any:
        response = patient_http.post(f"{self.server.url}/v1{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def chat(self, **more: Any) -> dict[str, Any]:
        (choice,) = self.post("/chat/completions", **{"messages": HELLO, **more})["choices"]
        return dict(choice)

    def chunks(self, path: str = "/chat/completions", **body: Any) -> list[Any]:
        asks = body if "prompt" in body else {"messages": HELLO, **body}
        response = patient_http.post(f"{self.server.url}/v1{path}", json={"stream": True, **asks})
        *events, done, rest = response.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", ""), response.text
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def stream(self, **more: Any) -> dict[str, Any]:
        return folded(self.chunks(**more))[0]

    def prompt(self) -> str:
        """What the engine was last given."""
        prompt = self.engine.requests[-1].prompt
        assert not isinstance(prompt, str)
        return self.tokenizer.decode(list(prompt), skip_special_tokens=False)


@cache
def template_of_qwen3() -> Any:
    return from_source(qwen3_config()["chat_template"])
