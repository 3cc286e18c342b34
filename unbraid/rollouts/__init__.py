"""Rollouts: messages to token ids and back, exactly, for those who train on what a model wrote.

    renderer = unbraid.renderer(template, tokenizer)
    prompt = renderer.render(messages, tools=tools)            # ids, and what each of them is
    turn = renderer.parse(sampled_ids, prompt=prompt)          # the message, its strands by token, how it ended
    prompt = renderer.extend(prompt, sampled_ids, results)     # begins with exactly those ids, or is None
    sample = renderer.training_sample(steps)                   # ids, loss mask, weights by strand

Everything is derived from the model's own template and its format.

    loading.py    a renderer from a template or a model's folder, a tokenizer and a format
    renderer.py   the renderer itself, and batches in several processes
    values.py     what it returns: renderings, turns, samples to train on
    extension.py  the next prompt after a turn
    bridges.py    the text between two turns, rendered; the tokens that end a turn
    proof.py      whether the template would go on from a turn as it stands
    stand_ins.py  short messages in the place of those before a turn, which the template cannot tell from them
    unknown_past.py  what it matters where only the ids of a prompt are known
    past_words.py  words that are looked for in such ids
    shapes.py     what turns are like, and short conversations to try a template with
    regions.py    a traced prompt cut up by message
    masking.py    the masks of a prompt
    prime.py      a renderer for the package `renderers`, which verifiers and prime-rl use
"""

from __future__ import annotations

from .loading import renderer
from .renderer import Renderer
from .values import (
    CallAttempt,
    Rendering,
    Sample,
    TokenDiagnostic,
    TokenSpan,
    TrainingMasks,
    TrajectoryStep,
    Turn,
)

__all__ = [
    "CallAttempt",
    "Renderer",
    "Rendering",
    "Sample",
    "TokenDiagnostic",
    "TokenSpan",
    "TrainingMasks",
    "TrajectoryStep",
    "Turn",
    "renderer",
]
