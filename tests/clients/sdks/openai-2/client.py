"""Does tasks of contract.py with a client that has an environment of its own, and prints what came of them as JSON.

python client.py CLIENT ROUTE TASK… < {"url": …, "model": …, "greeting": …, "describe": …, "result": …, "tools": …,
    "streamed_tools": …}
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

GIVEN = json.loads(sys.stdin.read())
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": SCHEMA}}
RESPONSES_WEATHER = {"type": "function", "name": "get_weather", "parameters": SCHEMA}


class Description(BaseModel):
    city: str
    sunny: bool


def user(said: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": said}]


class LiteLLM:
    """litellm.completion, by the vendor that the name of the model begins with, and litellm.responses."""

    def __init__(self, route: str) -> None:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks GitHub for the prices of all models
        import litellm

        litellm.suppress_debug_info = True
        self.litellm: Any = litellm
        self.route = route
        vendor, base = ("anthropic", "") if route == "/v1/messages" else ("openai", "/v1")
        self.where = {"model": f"{vendor}/{GIVEN['model']}", "api_base": GIVEN["url"] + base, "api_key": "any"}

    def _complete(self, said: list[dict[str, Any]], **more: Any) -> Any:
        if self.route == "/v1/messages":
            more = {"max_tokens": 1000, **more}
        return self.litellm.completion(messages=said, num_retries=0, **self.where, **more)

    def answer(self) -> Any:
        if self.route == "/v1/responses":
            return self._response(self._respond(GIVEN["greeting"]))
        message = self._complete(user(GIVEN["greeting"])).choices[0].message
        return {"text": message.content, "reasoning": getattr(message, "reasoning_content", None)}

    def stream(self) -> Any:
        if self.route == "/v1/responses":
            events = list(self._respond(GIVEN["greeting"], stream=True))
            deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
            return {**self._response(events[-1].response), "pieces": len(deltas)}
        text, thought = [], []
        for chunk in self._complete(user(GIVEN["greeting"]), stream=True):
            delta = chunk.choices[0].delta
            text += [delta.content] if delta.content else []
            thought += [delta.reasoning_content] if getattr(delta, "reasoning_content", None) else []
        return {"text": "".join(text), "reasoning": "".join(thought) or None, "pieces": len(text)}

    def _response(self, response: Any) -> Any:
        text = [part.text for item in response.output if item.type == "message" for part in item.content]
        parts = [part for item in response.output if item.type == "reasoning" for part in item.content or ()]
        thought = [part["text"] if isinstance(part, dict) else part.text for part in parts]
        return {"text": "".join(text), "reasoning": "".join(thought) or None}

    def tools(self) -> Any:
        if self.route == "/v1/responses":
            return self._response_loop(lambda said: self._respond(said, tools=[RESPONSES_WEATHER]), GIVEN["tools"])
        return self._loop(lambda said: self._complete(said, tools=[WEATHER]), GIVEN["tools"])

    def streamed_tools(self) -> Any:
        def streamed(said: Any) -> Any:
            return self.litellm.stream_chunk_builder(list(self._complete(said, tools=[WEATHER], stream=True)))

        def streamed_response(said: Any) -> Any:
            return list(self._respond(said, tools=[RESPONSES_WEATHER], stream=True))[-1].response

        if self.route == "/v1/responses":
            return self._response_loop(streamed_response, GIVEN["streamed_tools"])
        return self._loop(streamed, GIVEN["streamed_tools"])

    def _respond(self, said: Any, **more: Any) -> Any:
        return self.litellm.responses(input=said, **self.where, **more)

    def _response_loop(self, ask: Callable[[Any], Any], question: str) -> Any:
        said: list[Any] = user(question)
        cities: list[str] = []
        for _ in range(4):
            response = ask(said)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return {"text": self._response(response)["text"], "cities": cities}
            said += [item if isinstance(item, dict) else item.model_dump() for item in response.output]
            for call in calls:
                cities.append(json.loads(call.arguments)["city"])
                said.append({"type": "function_call_output", "call_id": call.call_id, "output": GIVEN["result"]})
        raise AssertionError(f"it goes on calling: {said}")

    def _loop(self, ask: Callable[[Any], Any], question: str) -> Any:
        said: list[Any] = user(question)
        cities: list[str] = []
        for _ in range(4):
            message = ask(said).choices[0].message
            if not message.tool_calls:
                return {"text": message.content, "cities": cities}
            said.append(message)
            for call in message.tool_calls:
                cities.append(json.loads(call.function.arguments)["city"])
                said.append({"role": "tool", "tool_call_id": call.id, "content": GIVEN["result"]})
        raise AssertionError(f"it goes on calling: {said}")

    def structured(self) -> Any:
        found = self._complete(user(GIVEN["describe"]), response_format=Description)
        return json.loads(found.choices[0].message.content)


class Instructor:
    """Instructor, which makes values of answers."""

    def __init__(self, route: str) -> None:
        self.route = route

    def structured(self) -> Any:
        import instructor

        client: Any
        if self.route == "/v1/messages":
            import anthropic

            client = instructor.from_anthropic(anthropic.Anthropic(base_url=GIVEN["url"], api_key="any"))
        else:
            import openai

            modes = instructor.Mode
            mode = modes.RESPONSES_TOOLS if self.route == "/v1/responses" else modes.TOOLS
            client = instructor.from_openai(openai.OpenAI(base_url=GIVEN["url"] + "/v1", api_key="any"), mode=mode)
        more = {"max_tokens": 1000} if self.route == "/v1/messages" else {}
        asked = {"model": GIVEN["model"], "messages": user(GIVEN["describe"]), "max_retries": 0}
        return client.chat.completions.create(**asked, **more, response_model=Description).model_dump()


class LlamaIndex:
    """LlamaIndex, with its model for servers like OpenAI's, and with that for responses."""

    def __init__(self, route: str) -> None:
        self.route = route
        common = {"model": GIVEN["model"], "api_base": GIVEN["url"] + "/v1", "api_key": "any", "max_retries": 0}
        if route == "/v1/responses":
            from llama_index.llms.openai import OpenAIResponses

            self.model: Any = OpenAIResponses(**common, context_window=4096)
        else:
            from llama_index.llms.openai_like import OpenAILike

            self.model = OpenAILike(**common, is_chat_model=True, is_function_calling_model=True)

    def answer(self) -> Any:
        return {"text": self.model.complete(GIVEN["greeting"]).text, "reasoning": None}

    def stream(self) -> Any:
        pieces = [chunk.delta for chunk in self.model.stream_complete(GIVEN["greeting"]) if chunk.delta]
        return {"text": "".join(pieces), "reasoning": None, "pieces": len(pieces)}

    def tools(self) -> Any:
        return self._loop(lambda tool, said: self.model.chat_with_tools([tool], chat_history=said), GIVEN["tools"])

    def streamed_tools(self) -> Any:
        def streamed(tool: Any, said: Any) -> Any:
            return list(self.model.stream_chat_with_tools([tool], chat_history=said))[-1]

        return self._loop(streamed, GIVEN["streamed_tools"])

    def _loop(self, ask: Callable[[Any, Any], Any], question: str) -> Any:
        from llama_index.core.llms import ChatMessage
        from llama_index.core.tools import FunctionTool

        cities: list[str] = []

        def get_weather(city: str) -> str:
            cities.append(city)
            return str(GIVEN["result"])

        tool = FunctionTool.from_defaults(get_weather)
        said = [ChatMessage(role="user", content=question)]
        for _ in range(4):
            reply = ask(tool, said)
            calls = self.model.get_tool_calls_from_response(reply, error_on_no_tool_call=False)
            if not calls:
                return {"text": reply.message.content, "cities": cities}
            said.append(reply.message)
            for call in calls:
                result = get_weather(**call.tool_kwargs)
                known = {"tool_call_id": call.tool_id}
                said.append(ChatMessage(role="tool", content=result, additional_kwargs=known))
        raise AssertionError(f"it goes on calling: {said}")

    def structured(self) -> Any:
        from llama_index.core.prompts import PromptTemplate

        return self.model.structured_predict(Description, PromptTemplate(GIVEN["describe"])).model_dump()


def done(client: Any, task: str) -> Any:
    try:
        return getattr(client, task)()
    except Exception:
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    kind = {"litellm": LiteLLM, "instructor": Instructor, "llama-index": LlamaIndex}[sys.argv[1]]
    chosen = kind(sys.argv[2])
    print(json.dumps({task: done(chosen, task) for task in sys.argv[3:]}))
