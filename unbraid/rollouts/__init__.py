"""Rollouts: messages to token ids and back, exactly, for those who train on what a model wrote.

    renderer = unbraid.renderer(template, tokenizer)
    prompt = renderer.render(messages, tools=tools)            # ids, and what each of them is
    turn = renderer.parse(sampled_ids, prompt=prompt)          # the message, its strands by token, how it ended
    prompt = renderer.extend(prompt, sampled_ids, results)     # begins with exactly those ids, or is None
    sample = renderer.training_sample(steps)                   # ids, loss mask, weights by strand

Everything is derived from the model's own template and its format; see `renderer`.
"""

from __future__ import annotations

from .loading import renderer
from .renderer import Renderer
from .values import Rendering, Sample, TokenSpan, TrainingMasks, TrajectoryStep, Turn

__all__ = ["Renderer", "Rendering", "Sample", "TokenSpan", "TrainingMasks", "TrajectoryStep", "Turn", "renderer"]
