"""Trajectories as rows to train on.

A trajectory is a list of steps, each a prompt and what was sampled after it. The steps are one row if each prompt
begins with all ids before it, which is what `extend` makes sure of. So nothing is tokenized again, and the loss mask is
exactly what was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..core.tally import STRANDS
from ..errors import UnbraidError
from .values import Rendering, Sample, Step, Turn


def joined_steps(parse: Callable[[Step], Turn], steps: Sequence[Step], weights: Mapping[str, float]) -> Sample:
    """The steps of one trajectory as one row.

    parse: takes apart what was sampled in a step.
    """
    if not steps:
        raise UnbraidError("a trajectory needs at least one step: a prompt and what was sampled")
    unknown = sorted(set(weights) - set(STRANDS))
    if unknown:
        raise UnbraidError(f"weights: there is no strand {unknown[0]!r}, only {', '.join(STRANDS)}")
    ids: list[int] = []
    strands: list[str] = []
    turns: list[int] = []
    logprobs: list[float] | None = [] if all(step.logprobs is not None for step in steps) else None
    first = 0
    for number, step in enumerate(steps):
        prompt = list(step.prompt.ids if isinstance(step.prompt, Rendering) else map(int, step.prompt))
        if prompt[: len(ids)] != ids:
            at = next((at for at, pair in enumerate(zip(prompt, ids, strict=False)) if pair[0] != pair[1]), len(prompt))
            raise UnbraidError(
                f"step {number}: its prompt does not begin with the ids before it (they differ at {at}): the past was "
                "rewritten, so this is another trajectory; make one sample of the steps before it, and one from here"
            )
        first = first or len(prompt)
        turn = parse(step)
        added = len(prompt) - len(ids)
        strands += [""] * added + list(turn.strands)
        turns += [-1] * added + [number] * len(step.sampled)
        if logprobs is not None and step.logprobs is not None:
            if len(step.logprobs) != len(step.sampled):
                raise UnbraidError(f"step {number}: {len(step.logprobs)} logprobs for {len(step.sampled)} sampled ids")
            logprobs += [0.0] * added + list(step.logprobs)
        ids = [*prompt, *map(int, step.sampled)]
    mask = tuple(int(turn >= 0) for turn in turns)
    return Sample(
        tuple(ids),
        mask,
        tuple(float(weights.get(strand, 1.0)) if strand else 0.0 for strand in strands),
        tuple(strands),
        tuple(turns),
        first,
        None if logprobs is None else tuple(logprobs),
    )
