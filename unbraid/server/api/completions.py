"""`POST /v1/completions`: OpenAI's older dialect, a raw prompt and the raw text that follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict, cast

from msgspec import Raw
from msgspec.json import encode
from starlette.requests import Request
from starlette.responses import Response

from ...constraints import Constraint, Unenforced
from ...core.events import Content
from ...core.grammar import Format
from ...core.tools import Tools
from ...engines import Generation, TokenLogprob
from ...parsing import Parser
from ..errors import ApiError
from ..generation.choice import Choice, merged
from ..generation.enforcing import enforced, naming_the_part, unenforced_header
from ..generation.plan import repeated, sampling
from ..generation.task import ClientPlaces
from ..generation.updates import Update, Usage
from ..http import json_response, while_connected
from ..model import Model, Served
from ..observing.exchange import arrival, note_reply
from ..observing.metrics import Metrics
from ..service import Service
from .bodies import read_and_plan
from .fields import GenerationFields, Top
from .replies import FinishReason, Head, TokenUsage, finite, usage_of, usage_so_far
from .sse import frame, stream_updates

Prompt = str | tuple[int, ...]
_MAX_TOKENS = 16
"""OpenAI's default."""


class CompletionRequest(GenerationFields, kw_only=True):
    """The body of `POST /v1/completions`."""

    PLANNED = ("prompt", "response_format", "logit_bias", "stop", "stop_token_ids", "metadata")
    prompt: str | list[str | int | list[int]]
    """A text, the ids of its tokens, or several of either."""
    echo: bool | None = None
    logprobs: Top | None = None


async def completions(service: Service, request: Request) -> Response:
    arrived = arrival()
    body, served, plan = await read_and_plan(service, request, CompletionRequest, plan_text)
    head = Head(body.model or served.names[0], "cmpl")
    note_reply(head.id)
    service.log_unenforced(plan.unenforced)
    runs = _choices(plan, served, service.metrics, arrived)
    usages = list({id(run.usage): run.usage for run in runs}.values())
    prompts = [run.generation.prompt for run in runs]
    reply = TextReply(
        head,
        plan.echoes,
        usages,
        with_usage=body.wants_usage(),
        with_logprobs=body.logprobs is not None,
        prompts=prompts if body.return_token_ids else None,
        counted_from=[*map(len, prompts)] if body.wants_running_usage() and served.model.encoder else None,
    )
    updates, headers = merged(runs), unenforced_header(plan.unenforced)
    if body.stream:
        return await stream_updates(request.receive, updates, reply, headers=headers)
    return json_response(await while_connected(request.receive, reply.collect(updates)), headers=headers)


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A request, ready for the engine."""

    format: Format
    """A format for raw text, with the end tokens of the model's own."""
    generations: Sequence[tuple[Generation, ...]]
    """`n` for each prompt."""
    echoes: Sequence[str]
    """The beginning of each reply: the prompt, if `echo` asks for it."""
    needs_ids: str
    unenforced: tuple[Unenforced, ...]


def plan_text(model: Model, request: CompletionRequest) -> TextPlan:
    plain = Format("plain", ends=model.format.ends)
    if request.echo and request.logprobs is not None:
        raise ApiError(400, "echo with logprobs: those of the prompt are not known here; leave one out", param="echo")
    needs_ids = "return_token_ids" if request.return_token_ids else ""
    model.check_ids(needs_ids)
    generations, echoes = [], []
    unenforced: tuple[Unenforced, ...] = ()
    for prompt in _prompts(model, request):
        constraint, unenforced = _constraint(model, plain, request, prompt)
        generation = Generation(
            prompt=prompt,
            sampling=sampling(model, request.chosen_sampling(), request.token_bias()),
            max_tokens=request.max_tokens or _MAX_TOKENS,
            stop=request.stop_texts(),
            stop_tokens=(*model.end_tokens, *(request.stop_token_ids or ())),
            constraint=constraint,
            logprobs=request.logprobs,
        )
        generations.append(repeated(generation, request.n or 1))
        echoes += [model.text_of(prompt) if request.echo else ""] * (request.n or 1)
    return TextPlan(plain, generations, echoes, needs_ids, unenforced)


def _choices(plan: TextPlan, served: Served, metrics: Metrics, arrived: float) -> list[Choice]:
    """All choices, ready to run. Those of one prompt are counted together."""
    places: ClientPlaces = {("constraint",): ("response_format",)}
    runs: list[Choice] = []
    for same in plan.generations:
        usage = Usage()
        for each in same:
            parser = Parser(plan.format, tools=Tools([]), tokenizer=served.model.vocabulary, keep_message=False)
            runs.append(
                Choice(
                    served,
                    metrics,
                    each,
                    parser,
                    len(runs),
                    usage,
                    arrived,
                    needs_ids=plan.needs_ids,
                    places=lambda: places,
                )
            )
    return runs


def _prompts(model: Model, request: CompletionRequest) -> list[Prompt]:
    prompt = request.prompt
    if isinstance(prompt, str):
        return [model.raw_prompt(prompt)]
    if not prompt or [] in prompt:
        raise ApiError(400, "prompt is empty: there is nothing to go on with", param="prompt")
    ids = tuple(each for each in prompt if isinstance(each, int))
    prompts = [each for each in prompt if not isinstance(each, int)]
    if ids and prompts:
        raise ApiError(400, "prompt: a list has either token ids or whole prompts, not both", param="prompt")
    model.check_count(len(prompts) * (request.n or 1), "prompt")
    return [ids] if ids else [model.raw_prompt(each) if isinstance(each, str) else tuple(each) for each in prompts]


def _constraint(
    model: Model, plain: Format, request: CompletionRequest, prompt: Prompt
) -> tuple[Constraint | None, tuple[Unenforced, ...]]:
    if (request.response_format or {}).get("type", "text") == "text":
        return None, ()
    with naming_the_part(()):
        return enforced(
            model,
            plain,
            tools=(),
            tool_choice=None,
            parallel_tool_calls=None,
            reasoning=None,
            response_format=request.response_format,
            prompt=prompt,
        )


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: FinishReason | None
    token_ids: NotRequired[list[int]]
    prompt_token_ids: NotRequired[Sequence[int] | str]


class TextCompletion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: TokenUsage


class TextReply:
    """Writes completions, whole or in chunks.

    with_usage: a stream ends with the token counts.
    prompts: the prompt of each choice, where token ids are told.
    counted_from: how many tokens each of them has, where each chunk tells the counts so far.
    """

    def __init__(
        self,
        head: Head,
        echoes: Sequence[str],
        usages: Sequence[Usage],
        *,
        with_usage: bool,
        with_logprobs: bool,
        prompts: Sequence[Prompt] | None = None,
        counted_from: Sequence[int] | None = None,
    ) -> None:
        self._head = head
        self._fields = head.fields("text_completion")
        self._echoes = echoes
        self._usages = usages
        self._with_usage = with_usage
        self._with_logprobs = with_logprobs
        self._offsets = [len(echo) for echo in echoes]
        self._prompts = prompts
        self._counted_from = counted_from
        self._counts = [0] * len(echoes)
        """The tokens of each choice so far."""
        self._pending_ids: list[list[int]] = [[] for _ in echoes]
        """The ids of tokens whose text has not gone out yet, where they are told."""
        self._begun = [False] * len(echoes)

    def first(self) -> bytes:
        return b"".join(self._chunk(choice, echo) for choice, echo in enumerate(self._echoes) if echo)

    def update(self, update: Update) -> bytes:
        text = _text(update)
        self._counts[update.choice] += len(update.ids)
        self._keep_ids(update)
        if not text and not update.logprobs and update.end is None:
            return b""
        return self._chunk(update.choice, text, update.logprobs, update.end)

    def last(self) -> bytes:
        return frame({**self._fields, "choices": [], "usage": usage_of(self._usages)}) if self._with_usage else b""

    async def collect(self, updates: AsyncGenerator[Update, None]) -> TextCompletion:
        texts = [[echo] for echo in self._echoes]
        logprobs = [self._logprobs(choice, ()) for choice, _ in enumerate(texts)]
        reasons = [""] * len(texts)
        async with aclosing(updates):
            async for update in updates:
                texts[update.choice].append(_text(update))
                if self._with_logprobs:
                    for name, new in self._logprobs(update.choice, update.logprobs).items():
                        logprobs[update.choice][name] += new
                self._keep_ids(update)
                reasons[update.choice] = update.end or ""
        choices: list[TextChoice] = []
        for choice, text in enumerate(texts):
            # Choices may be large, with the ids of their prompts: each is encoded by itself, and others have their turn
            # in between.
            encoded = Raw(encode(self._choice(choice, "".join(text), logprobs[choice], reasons[choice])))
            choices.append(cast(TextChoice, encoded))
            await asyncio.sleep(0)
        head = self._head
        return {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
            "choices": choices,
            "usage": usage_of(self._usages),
        }

    def _chunk(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = (), reason: str | None = None) -> bytes:
        usage: dict[str, Any] = {"usage": None} if self._with_usage else {}
        if self._counted_from is not None:
            usage["usage"] = usage_so_far(self._counted_from[choice], self._counts[choice])
        logprobs_field = self._logprobs(choice, logprobs)
        return frame({**self._fields, "choices": [self._choice(choice, text, logprobs_field, reason)], **usage})

    def _choice(self, choice: int, text: str, logprobs: dict[str, list[Any]], reason: str | None) -> TextChoice:
        logprobs_field = logprobs if self._with_logprobs else None
        reply: TextChoice = {"index": choice, "text": text, "logprobs": logprobs_field, "finish_reason": reason}
        if self._prompts is not None:  # the ids that came since the last time, and those of the prompt the first time
            reply["token_ids"], self._pending_ids[choice] = self._pending_ids[choice], []
            if not self._begun[choice]:
                self._begun[choice], reply["prompt_token_ids"] = True, self._prompts[choice]
        return reply

    def _keep_ids(self, update: Update) -> None:
        if self._prompts is not None:
            self._pending_ids[update.choice] += update.ids

    def _logprobs(self, choice: int, logprobs: Sequence[TokenLogprob]) -> dict[str, list[Any]]:
        """The logprobs of a reply. The alternatives are encoded at once, since they are many times as large as the
        text."""
        tokens = [_spelled(one) for one in logprobs]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets[choice])
            self._offsets[choice] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [finite(one.logprob) for one in logprobs],
            "top_logprobs": [
                Raw(encode({_spelled(other): finite(other.logprob) for other in one.top})) for one in logprobs
            ],
            "text_offset": offsets,
        }


def _text(update: Update) -> str:
    return "".join(event.text for event in update.events if isinstance(event, Content))


def _spelled(one: TokenLogprob) -> str:
    return one.bytes.decode("utf-8", "replace")
