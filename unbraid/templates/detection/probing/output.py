"""Where a turn begins and ends in a rendered conversation."""

from __future__ import annotations

from ..affixes import boundaries, shared_end, shared_length
from .probes import NEXT_USER, USER

LONGEST_TURN = 3_000
"""Characters that a template may write for one probe turn, and after it."""


def output_at(whole: str, prompt: str) -> tuple[bool, int]:
    """Where the model's output begins in a rendered conversation, and whether the whole prompt comes before it. The
    longest agreement with the prompt counts."""
    if whole.startswith(prompt):
        return True, len(prompt)
    shared = shared_length(whole, prompt)
    begin = max(0, min(whole.rfind(USER, 0, shared), shared), shared - LONGEST_TURN)
    cut = max(boundaries(whole, begin, shared) & boundaries(prompt, begin, shared))
    if (after := after_words(whole, cut, prompt[cut:].split())) is not None:
        return True, after
    # Some prompts contain more than a finished conversation does. Then the prompt's end follows the shared part.
    ends = [
        at for at in boundaries(prompt, cut, len(prompt)) if prompt[at:].strip() and whole.startswith(prompt[at:], cut)
    ]
    return False, cut + max((len(prompt) - at for at in ends), default=0)


def after_words(text: str, at: int, words: list[str]) -> int | None:
    """The position after `words`, if they come at `at` with any whitespace between them; else None. Some templates vary
    the whitespace between the prompt and the conversation."""
    for word in words:
        at += len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(word, at):
            return None
        at += len(word)
    return at if words else None


def next_turn(whole: str) -> range:
    """From where to where the words may come with which the user's next turn begins: those that stand before the first
    one as well."""
    first, second = whole.find(USER), whole.find(NEXT_USER)
    second = len(whole) if second < 0 else second
    return range(second - len(shared_end(whole[:first], whole[:second])), second + 1)
