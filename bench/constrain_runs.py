"""Measuring constraints; what the numbers mean is said in constrain.py."""

from __future__ import annotations

import gc
import statistics
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from time import perf_counter
from typing import Any, Protocol, cast

import constrain_cases
import constrain_xgrammar
from constrain_cases import Model, Walk

import unbraid
from unbraid.constraints import Constraint, forced_prefix
from unbraid.constraints.masks import Masks
from unbraid.core.vocabulary import WholeVocabulary
from unbraid.tokens import vocabulary

SLOW_MS = 1000  # a grammar that takes longer to compile is not compiled again
# No two requests have tools of the same series, save where they mean to.
_series = numbers()


class Stepper(Protocol):
    """Masks, whoever makes them."""

    def allowed(self) -> Any: ...
    def advance(self, token: int) -> None: ...


@dataclass(frozen=True)
class Steps:
    """Microseconds a step."""

    steps: int
    median: float
    mean: float
    p99: float
    max: float


@dataclass(frozen=True)
class Walked:
    """One walk in microseconds: its first mask, and each step."""

    first_mask: float
    steps: list[float]


@dataclass(frozen=True)
class Made:
    """Masks that nothing has asked for before: milliseconds to make them, and how to make the same again."""

    build: float
    compile: float
    masks: Stepper
    again: Callable[[], Stepper]


@dataclass(frozen=True)
class Request:
    """A kind of request: milliseconds, but for `seen_before`, which is microseconds, and the steps."""

    tools: int
    tool_choice: str
    build: float
    compile: float
    first_mask: float
    seen_before: float
    new: dict[str, Steps]
    known: dict[str, Steps]

    @property
    def whole(self) -> float:
        return self.build + self.compile + self.first_mask


@dataclass(frozen=True)
class TokenSetSteps:
    """Whisper's beginning without a library: milliseconds to make the sets, microseconds a step."""

    build: float
    step: float


@dataclass
class Found:
    """What was measured on one vocabulary; the set-up in milliseconds."""

    name: str
    tokens: int
    set_up: float
    requests: list[Request] = field(default_factory=list)
    xgrammar_set_up: float | None = None
    xgrammar: list[Request] = field(default_factory=list)
    token_sets: TokenSetSteps | None = None


def model(which: Model, counts: Sequence[int], repeats: int, xgrammar: Any) -> Found:
    """All requests on one vocabulary; `xgrammar` is the module, or None."""
    tokenizer = which.load()
    tokens = cast(WholeVocabulary, vocabulary(tokenizer))
    set_up, _ = milliseconds(lambda: unbraid.constraint(which.format, tokenizer=tokenizer).masks())
    found = Found(f"{which.name}, format {which.format}", tokens.size, set_up)
    compiler = None
    if xgrammar is not None:
        ends = [tokens.token_id(text) for text in unbraid.find(which.format).ends]
        compiler = constrain_xgrammar.Compiler(xgrammar, tokens, [token for token in ends if token is not None])
        found.xgrammar_set_up = compiler.set_up * 1e3
    _ask(which, tokenizer, "auto", _new_tools(1)).masks().allowed()  # some things are made once a process
    gc.collect()
    gc.freeze()  # so that looking for garbage takes no time: a vocabulary is a lot to look through
    for count in counts:
        walks = constrain_cases.walks(which, tokenizer, count)
        for choice in ("auto", "required"):
            some = [walk for walk in walks if walk.tool_choice == choice]
            make = partial(_ours, which, tokenizer, count, choice)
            seen_before = _seen_before(which, tokenizer, count, choice)
            found.requests.append(request(count, choice, some, repeats, make, in_bytes, seen_before))
            if compiler is not None:
                make = partial(_theirs, compiler, which, tokenizer, count, choice)
                allows = constrain_xgrammar.in_tensor
                found.xgrammar.append(request(count, choice, some, repeats, make, allows))
    return found


def request(
    tools: int,
    tool_choice: str,
    walks: Sequence[Walk],
    repeats: int,
    make: Callable[[], Made],
    allows: Callable[[Any, int], bool],
    seen_before: float = 0.0,
) -> Request:
    """Every walk, several times, each time under a grammar of its own."""
    every: list[Made] = []
    new: dict[str, list[Walked]] = {one.name: [] for one in walks}
    known: dict[str, list[Walked]] = {one.name: [] for one in walks}
    for run in range(repeats):
        if run and every[-1].compile > SLOW_MS:
            break
        for one in walks:
            made = make()
            every.append(made)
            new[one.name].append(walk(made.masks, one.tokens, allows))
            known[one.name].append(walk(made.again(), one.tokens, allows))
    return Request(
        tools,
        tool_choice,
        statistics.median(made.build for made in every),
        statistics.median(made.compile for made in every),
        statistics.median(run.first_mask for runs in new.values() for run in runs) / 1e3,
        seen_before,
        {one.name: steps(new[one.name], one) for one in walks},
        {one.name: steps(known[one.name], one) for one in walks},
    )


def milliseconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long it took, and what it made."""
    gc.collect()
    start = perf_counter()
    made = work()
    return (perf_counter() - start) * 1e3, made


def walk(masks: Stepper, tokens: Sequence[int], allows: Callable[[Any, int], bool]) -> Walked:
    """Every token must be allowed; the check is not counted."""
    masked: list[float] = []
    spent: list[float] = []
    gc.collect()
    for token in tokens:
        start = perf_counter()
        mask = masks.allowed()
        masked.append((perf_counter() - start) * 1e6)
        if not allows(mask, token):
            raise RuntimeError(f"token {token}, after {len(spent)} others, is not allowed")
        start = perf_counter()
        masks.advance(token)
        spent.append(masked[-1] + (perf_counter() - start) * 1e6)
    return Walked(masked[0], spent)


def steps(runs: Sequence[Walked], of: Walk) -> Steps:
    """Each step with its best time."""
    best = [min(times) for times in zip(*(run.steps for run in runs), strict=True)]
    counted = sorted(best[of.first : of.last])
    middle, mean = statistics.median(counted), statistics.mean(counted)
    return Steps(len(counted), middle, mean, counted[int(len(counted) * 0.99)], counted[-1])


def in_bytes(mask: bytes, token: int) -> bool:
    return bool(mask[token // 8] >> token % 8 & 1)


# --- Requests with tools ---------------------------------------------------------------------------------------------


def _ask(which: Model, tokenizer: Any, choice: str, tools: list[dict[str, Any]]) -> Constraint:
    return unbraid.constraint(which.format, tools=tools, tool_choice=choice, tokenizer=tokenizer)


def _new_tools(count: int) -> list[dict[str, Any]]:
    return constrain_cases.tools(count, next(_series))


def _ours(which: Model, tokenizer: Any, count: int, choice: str) -> Made:
    tools = _new_tools(count)

    def build() -> Constraint:
        made = _ask(which, tokenizer, choice, tools)
        _ = made._lark  # what `masks` compiles; it is kept
        return made

    built, made = milliseconds(build)
    compiled, masks = milliseconds(made.masks)
    return Made(built, compiled, masks, made.masks)


def _theirs(compiler: constrain_xgrammar.Compiler, which: Model, tokenizer: Any, count: int, choice: str) -> Made:
    """By xgrammar, which does much of the work of a step when it compiles."""
    asked = _ask(which, tokenizer, choice, _new_tools(count))
    built, tag = milliseconds(asked.to_structural_tag)
    compiled, grammar = milliseconds(lambda: compiler.compile(tag))
    return Made(built, compiled, compiler.masks(grammar), lambda: compiler.masks(grammar))


def _seen_before(which: Model, tokenizer: Any, count: int, choice: str) -> float:
    tools = _new_tools(count)

    def again() -> None:
        _ask(which, tokenizer, choice, tools).masks()

    again()
    times = max(1, 200 // count)
    return min(timeit.repeat(again, number=times, repeat=5)) / times * 1e6


# --- Whisper ---------------------------------------------------------------------------------------------------------


def whisper(load: Callable[[], Any], repeats: int) -> Found:
    """What Whisper begins with: a language, what to do, and no times. A grammar says it, and so do sets of tokens."""
    tokens = cast(WholeVocabulary, vocabulary(load()))
    languages, end = _languages(tokens), tokens.token_id("<|endoftext|>")
    assert end is not None
    set_up, _ = milliseconds(lambda: Masks("start: /x/\n", tokens, [end]))
    left_out = numbers(10)

    def masks(languages: list[str]) -> Masks:
        return Masks(_prefix(languages, tokens).to_lark(), tokens, [end])

    def make() -> Made:
        # Without one of the languages, each time another, the grammar is a new one.
        out = next(left_out)
        some = [text for at, text in enumerate(languages) if at != out]
        built, lark = milliseconds(lambda: _prefix(some, tokens).to_lark())
        compiled, first = milliseconds(lambda: Masks(lark, tokens, [end]))
        return Made(built, compiled, first, lambda: masks(some))

    masks(languages)
    seen_before = min(timeit.repeat(lambda: masks(languages), number=20, repeat=5)) / 20 * 1e6
    walks = [constrain_cases.whisper_walk(load())]
    made = request(0, f"{len(languages)} languages", walks, repeats, make, in_bytes, seen_before)
    return Found("Whisper, forced prefix", tokens.size, set_up, [made], token_sets=_token_sets(languages, tokens))


def _languages(tokens: WholeVocabulary) -> list[str]:
    """Their tokens stand between two others."""
    before, after = tokens.token_id("<|startoftranscript|>"), tokens.token_id("<|translate|>")
    assert before is not None
    assert after is not None
    return [(tokens.token_bytes(token) or b"").decode() for token in range(before + 1, after)]


def _prefix(languages: list[str], tokens: WholeVocabulary) -> Constraint:
    return forced_prefix([languages, ["<|transcribe|>"], ["<|notimestamps|>"]], tokens)


def _token_sets(languages: list[str], tokens: WholeVocabulary) -> TokenSetSteps:
    build = min(timeit.repeat(lambda: _prefix(languages, tokens).to_token_sets(), number=20, repeat=5)) / 20
    sets = _prefix(languages, tokens).to_token_sets()
    written = [min(some) for some in sets.sets]
    before = [written[:count] for count in range(len(written) + 1)]

    def all_steps() -> None:
        for some in before:
            sets.allowed(some)

    step = min(timeit.repeat(all_steps, number=1000, repeat=5)) / 1000 / len(before)
    return TokenSetSteps(build * 1e3, step * 1e6)
