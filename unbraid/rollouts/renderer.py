"""The renderer: messages to ids and back, and on from there, for those who train on what a model wrote.

    renderer = unbraid.renderer("path/to/model", tokenizer)
    prompt = renderer.render(messages, tools=tools)
    turn = renderer.parse(sampled_ids, prompt=prompt)
    prompt = renderer.extend(prompt, sampled_ids, new_messages)

Everything is derived: prompts from the model's own template (`templates`), turns by the parser of its format, what
comes between two turns by a trace of the template (`bridges`, `extension`), and whether the template itself would have
gone on so by a proof (`proof`). There is no code for any model.

What `extend` does where the template would rewrite the past is the caller's choice (`past`), because both answers are
right for someone. Whoever evaluates, or serves the model by its template, must not train on prompts that the template
never makes: so the default is to refuse. Whoever keeps the tokens in the engine's cache between turns has a model that
did see its old reasoning, and `past="sampled"` says so.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from ..caching import LruCache
from ..core.compiler.compiler import Program, compile_format
from ..core.compiler.prompt_end import telling_end
from ..core.grammar import Format
from ..core.machine.driver import driver
from ..core.message import Fold
from ..core.tally import LabelledTally
from ..core.tools import Tools as CheckedTools
from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..templates.prompt.builder import PromptBuilder
from ..templates.switches import Switches, switches_of
from .bridges import Bridges, ends_of_turns
from .extension import Extension
from .masking import Masker
from .proof import Proof
from .values import (
    Ended,
    MaskPart,
    Messages,
    PromptKeys,
    Rendering,
    Sample,
    Tools,
    TrainingMasks,
    TrajectoryStep,
    Turn,
    ids_of,
    joined_steps,
    key_of,
    plain_ids,
)

_TOOLS_KEPT = 64
_TURNS_KEPT = 64
_PROMPTS_KEPT = 256
Past = Literal["template", "sampled", "anew"]


class Renderer:
    """Renders and parses the conversations of one model. Make it with `unbraid.renderer`.

    builder: makes its prompts; it must have a tokenizer.
    ends: further tokens that end a turn, by their text.
    variables: of the template, for every rendering.
    recipe: a function and its arguments that make the same renderer in another process.
    """

    def __init__(
        self,
        builder: PromptBuilder,
        format: Format,
        *,
        name: str = "the chat template",
        ends: Iterable[str] = (),
        variables: Mapping[str, Any] | None = None,
        recipe: tuple[Callable[..., Renderer], tuple[Any, ...]] | None = None,
    ) -> None:
        encoder = builder.encoder
        if encoder is None:
            raise UnbraidError("a renderer needs a tokenizer: its prompts are token ids")
        self.builder: PromptBuilder = builder
        """What makes its prompts."""
        self._encoder = encoder
        self._controls = builder.controls
        self._variables = dict(variables or {})
        self._recipe = recipe
        self._checked_tools: LruCache[bytes, CheckedTools] = LruCache(_TOOLS_KEPT)
        self._prompts = PromptKeys(_PROMPTS_KEPT)
        self._turns: LruCache[int, tuple[tuple[int, ...], Sequence[int], CheckedTools | None, Turn]]
        self._turns = LruCache(_TURNS_KEPT)
        """Turns that were parsed, by a hash: each with its ids, those of its prompt that matter, and its tools."""
        format = format.for_version(encoder.vocabulary.version)
        closers, stops = ends_of_turns(builder, format, ends, self._variables)
        self.format: Format = replace(format, ends=tuple(dict.fromkeys([*format.ends, *stops])))
        """The format of its turns."""
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys(self._controls.ids[text] for text in stops))
        """The tokens that end a turn: for `stop_token_ids` of an engine."""
        self._stop_texts = {self._controls.ids[text]: text for text in stops}
        bridges = Bridges(builder, closers)
        self._proof = Proof(bridges, self.format, name, self._variables)
        self._masker = Masker(builder, bridges, closers)
        switches = Switches()
        for template in builder.templates.values():
            switches = switches.joined(switches_of(template))
        self._extension = Extension(
            bridges, self._proof, self._masker, self._stop_texts, switches, self.format, self._prompts
        )

    def __reduce__(self) -> tuple[Callable[..., Renderer], tuple[Any, ...]]:
        if self._recipe is None:
            raise TypeError("only a renderer that unbraid.renderer made can be sent to another process")
        return self._recipe

    # What is proven

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens."""
        return self._encoder.vocabulary

    @property
    def is_prefix_stable(self) -> bool:
        """Whether the template goes on from every turn as it stands: it rewrites nothing."""
        return not self.reasons

    @property
    def reasons(self) -> tuple[str, ...]:
        """Where the template rewrites the past, each with its lines."""
        return self._proof.reasons

    @property
    def proof(self) -> Mapping[str, str | None]:
        """What happens in rollouts, and for each case whether the template goes on: None, or the reason why not."""
        return MappingProxyType(self._proof.cases)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What else there is to know: where `{% generation %}` blocks of the template are not what a model writes, and
        where the template cannot show calls."""
        differing = self._masker.differing_blocks(self._variables)
        forbidden = self.builder.forbidden(tools=True)
        if forbidden:
            forbidden = (
                f"calls are written into the content: {forbidden}; transformers, vLLM "
                "and SGLang render with jinja2's ImmutableSandboxedEnvironment too, and raise this error for calls"
            )
        return tuple(each for each in (differing, forbidden) if each)

    # Messages to ids

    def render(
        self,
        messages: Messages,
        tools: Tools | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> Rendering:
        """The prompt for messages of the chat API. `variables` are the template's (`enable_thinking=False`)."""
        values = {**self._variables, **variables}
        self._checked(tools)
        prompt = self.builder.build(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            template_kwargs=values,
            check_tools=False,
        )
        assert prompt.ids is not None
        ids = prompt.ids
        messages = list(messages)  # whoever asks goes on with the same list
        continues = continue_final_message or messages[-1].get("eot", True) is False

        def masks() -> TrainingMasks:
            traced = self.builder.trace(
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=values,
            )
            prompted = add_generation_prompt and not continues
            return self._masker.of(ids, traced, messages, values, prompted=prompted, continues=continues)

        return Rendering(
            ids,
            (MaskPart(masks),),
            messages=messages,
            tools=tools,
            variables=values,
            notes=prompt.notes,
            prompted=add_generation_prompt and not continues,
            continues=continues,
        )

    def _checked(self, tools: Tools | None) -> CheckedTools | None:
        """The tools, checked and repaired once: a rollout has the same ones in every turn."""
        if not tools:
            return None
        key = key_of(tools)
        return self._checked_tools.get(key) or self._checked_tools.setdefault(key, CheckedTools(tools).copy())

    # Ids to messages

    def parse(
        self, sampled: Sequence[int], prompt: Rendering | Sequence[int] | None = None, *, tools: Tools | None = None
    ) -> Turn:
        """What a model wrote.

        prompt: what it was given; its end says where the output begins.
        tools: those of the request; a call of any other is text. A prompt that was rendered with tools knows them.
        """
        prompt_ids, sampled = ids_of(prompt), plain_ids(sampled)
        if tools is None and isinstance(prompt, Rendering):
            tools = prompt.tools
        return self._turn(prompt_ids, sampled, self._checked(tools))

    def _turn(self, prompt_ids: Sequence[int] | None, sampled: Sequence[int], tools: CheckedTools | None) -> Turn:
        """What a model wrote. A turn that was parsed is mostly extended next, and then not parsed again."""
        sampled = tuple(sampled)
        telling = () if prompt_ids is None else telling_end(self._program, prompt_ids)
        # For the ids of calls: a turn that is parsed again has the same, and another turn has others.
        seed = hash((-1 if prompt_ids is None else len(prompt_ids), sampled))
        kept = self._turns.get(seed)
        if kept is not None and kept[:2] == (sampled, telling) and kept[2] is tools:
            return kept[3]
        turn = self._parsed(telling if prompt_ids is not None else None, sampled, tools, seed)
        self._turns[seed] = sampled, telling, tools, turn
        return turn

    @cached_property
    def _program(self) -> Program:
        """What reads its turns."""
        return compile_format(self.format, self._encoder.vocabulary)

    def _parsed(
        self, prompt_ids: Sequence[int] | None, sampled: Sequence[int], tools: CheckedTools | None, seed: int
    ) -> Turn:
        machine = driver(self.format, tools, prompt_ids, seed, vocabulary=self.vocabulary, label_tokens=True)
        fold = Fold()
        fold.add(machine.feed_tokens(sampled))
        fold.add(machine.finish())
        assert isinstance(machine.tally, LabelledTally)
        ended = sampled[-1] if sampled and sampled[-1] in self._stop_texts else None
        how: Ended = "length" if ended is None else "stop"
        return Turn(fold.message(), machine.tally, how, ended)

    # On from there

    def extend(
        self,
        prompt: Rendering | Sequence[int],
        sampled: Sequence[int],
        new_messages: Messages,
        *,
        tools: Tools | None = None,
        past: Past = "template",
        **variables: Any,
    ) -> Rendering | None:
        """The next prompt: the ids of `prompt`, those that were sampled, and those of `new_messages`.

        prompt: what the model was given: ids, or what `render` and `extend` return, which know their messages, tools
            and variables.
        past: what to do where the template would rewrite what stands before the new messages. "template": return None;
            `obstacle` says why. "sampled": go on from what was sampled all the same. "anew": render the whole
            conversation anew, which needs a `prompt` that knows its messages; the result says so (`Rendering.anew`).
        """
        if past not in ("template", "sampled", "anew"):
            raise UnbraidError(f'past is "template", "sampled" or "anew", not {past!r}')
        sampled = plain_ids(sampled)
        if not isinstance(prompt, Rendering):
            prompt = tuple(plain_ids(prompt))  # it is asked for more than once
        turn, tools, values, checked = self._in_context(prompt, sampled, tools, variables)
        step = self._extension.step(prompt, turn, new_messages, tools, values, checked)
        if step.refusal is None and (past == "sampled" or step.obstacle is None):
            return self._extension.extended(prompt, sampled, turn, step, new_messages, tools, values)
        if past != "anew":
            return None
        history = prompt.given if isinstance(prompt, Rendering) else None
        if history is None:
            raise UnbraidError(
                'past="anew" needs a prompt that `render` or `extend` made: ids do not tell the messages'
            )
        rendering = self.render([*history, turn.to_openai(), *new_messages], tools, **values)
        rendering.anew = True
        return rendering

    def obstacle(
        self,
        prompt: Rendering | Sequence[int],
        sampled: Sequence[int],
        new_messages: Messages,
        *,
        tools: Tools | None = None,
        past: Past = "template",
        **variables: Any,
    ) -> str | None:
        """Why `extend` returns None for the same arguments; None if it does not."""
        turn, tools, values, checked = self._in_context(prompt, plain_ids(sampled), tools, variables)
        step = self._extension.step(prompt, turn, new_messages, tools, values, checked)
        if past == "anew":
            return None
        return step.refusal if past == "sampled" else step.obstacle or step.refusal

    def _in_context(
        self,
        prompt: Rendering | Sequence[int],
        sampled: Sequence[int],
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> tuple[Turn, Tools | None, dict[str, Any], CheckedTools | None]:
        if isinstance(prompt, Rendering):
            tools = prompt.tools if tools is None else tools
            variables = {**prompt.variables, **variables}
        checked = self._checked(tools)
        turn = self._turn(ids_of(prompt), sampled, checked)
        return turn, tools, {**self._variables, **variables}, checked

    # Samples

    def training_sample(
        self, trajectory: Iterable[TrajectoryStep | tuple[Any, ...]], *, weights: Mapping[str, float] | None = None
    ) -> Sample:
        """A trajectory as one row: its ids, what of them was sampled, and a weight for each by its strand.

        trajectory: its steps: prompt and sampled ids, in order. Each prompt must begin with all ids before it.
        weights: of a strand; 1 for each that is not named.
        """
        steps = [step if isinstance(step, TrajectoryStep) else TrajectoryStep(*step) for step in trajectory]
        return joined_steps(lambda step: self.parse(step.sampled, step.prompt), steps, weights or {})

    # Batches

    def render_many(
        self,
        conversations: Iterable[Messages],
        tools: Tools | None = None,
        *,
        workers: int | None = None,
        **options: Any,
    ) -> Iterator[Rendering]:
        """`render` for each of many conversations, in order, with the same tools and options.

        workers: how many processes to do it in. It pays for thousands of conversations (see `in_order`).
        """
        jobs = ((messages, tools, options) for messages in conversations)
        return in_order(_render_one, self, jobs, workers)

    def parse_many(
        self,
        outputs: Iterable[tuple[Sequence[int], Sequence[int] | Rendering | None]],
        *,
        tools: Tools | None = None,
        workers: int | None = None,
    ) -> Iterator[Turn]:
        """`parse` for each of many outputs: pairs of what was sampled and the prompt before it."""
        return in_order(_parse_one, self, ((sampled, ids_of(prompt), tools) for sampled, prompt in outputs), workers)


def _render_one(renderer: Renderer, job: tuple[Messages, Tools | None, dict[str, Any]]) -> Rendering:
    messages, tools, options = job
    return renderer.render(messages, tools, **options)


def _parse_one(renderer: Renderer, job: tuple[Sequence[int], Sequence[int] | None, Tools | None]) -> Turn:
    sampled, prompt, tools = job
    return renderer.parse(sampled, prompt, tools=tools)


_CHUNK = 64
"""How many items a process is given at a time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Any, Item], Result], renderer: object, items: Iterable[Item], workers: int | None
) -> Iterator[Result]:
    """`work(renderer, item)` for each item, in order. Results come one by one: nothing of a batch is kept.

    Templates and parsers are Python, so only processes help. A process takes about a second to start, and its results
    have to be sent back. So processes pay for thousands of items, and the default is to do without.

    work: a function of a module, so that another process can find it.
    renderer: with `workers`, it must be one that can be pickled.
    """
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise UnbraidError(f"workers is how many processes there are, 1 or more, not {workers!r}")
    if workers is None or workers == 1:
        return (work(renderer, item) for item in items)
    return _in_processes(work, renderer, items, workers)


def _in_processes(
    work: Callable[[Any, Item], Result], renderer: object, items: Iterable[Item], workers: int
) -> Iterator[Result]:
    waiting: deque[Future[list[Result]]] = deque()
    rest = iter(items)
    context = multiprocessing.get_context("spawn")  # a fork beside threads is not safe
    with ProcessPoolExecutor(workers, context, _set_up, (renderer,)) as pool:
        while chunk := list(islice(rest, _CHUNK)):
            waiting.append(pool.submit(_work, work, chunk))
            if len(waiting) > 2 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


_renderer: Any = None
"""In a worker process: its renderer."""


def _set_up(renderer: Any) -> None:
    global _renderer
    _renderer = renderer


def _work(work: Callable[[Any, Any], Any], items: list[Any]) -> list[Any]:
    return [work(_renderer, item) for item in items]
