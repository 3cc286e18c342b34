"""Where in a strand's prose the next character stands, as far as that tells a marker from its name.

Models explain markup, too: "Write `<tool_call>` first." Whether a marker in an answer is one depends on what stands
before it: whether the answer has begun, whether its line has text, whether it stands in inline code or in a code fence.
That is all that is remembered of the text that has gone out, as the bits of one number for each strand.
"""

from __future__ import annotations

import re

BEGUN = 1
"""Text other than whitespace has come since the start, or since the last call."""
IN_LINE = 2
"""It has come in this line."""
SPAN = 4
"""Inline code is open: after a backtick alone, as two are also a quote."""
FENCE = 8
"""A code fence is open."""
FENCE_LINE = 16
"""The line opens a fence or closes one: the rest of it is no code."""
AFTER_CALL = 32
"""A call has come since the last text."""
_TICK = 64
"""One backtick of a run that may go on. Three are as good as any more."""
_TICKS = 3 * _TICK
_OF_LINE = IN_LINE | SPAN | FENCE_LINE
QUOTED = SPAN | FENCE
MAY_QUOTE = QUOTED | _TICKS
"""None of these: what comes next stands in no code."""
CHANGING = BEGUN | IN_LINE | AFTER_CALL | _TICKS
"""What any text may change."""
PLAIN_LINE = BEGUN | IN_LINE
"""These alone of CHANGING: text without line breaks and backticks changes nothing."""

_pieces = re.compile(r"\n|`+|[^\n`]+").findall


def after(state: int, text: str) -> int:
    """The state after some more text."""
    if "`" in text or state & _TICKS:
        if state & _TICKS or "```" in text or (line := text.rfind("\n")) < 0:
            return _after_ticks(state, text)
        # One line's inline code says nothing of the next, and a fence is what three backticks open.
        if text[:line].strip():
            state |= BEGUN
        state &= ~_OF_LINE
        return after(state, text[line + 1 :])
    if text[-1:].strip():
        return (state & ~_OF_LINE if "\n" in text else state) | PLAIN_LINE
    line = text.rfind("\n") + 1
    if line:
        state &= ~_OF_LINE
        text, rest = text[line:], text
    else:
        rest = ""
    if not state & IN_LINE and text.strip():
        return state | BEGUN | IN_LINE
    return state if state & BEGUN or not (text.strip() or rest.strip()) else state | BEGUN


def _after_ticks(state: int, text: str) -> int:
    for piece in _pieces(text):
        if piece[0] == "`":
            ticks = min((state & _TICKS) // _TICK + len(piece), 3)
            state = state & ~_TICKS | ticks * _TICK | BEGUN
            continue
        state = settled(state)
        if piece == "\n":
            state &= ~_OF_LINE
        elif piece.strip():
            state |= BEGUN | IN_LINE
    return state


def settled(state: int) -> int:
    """The state where no more backticks follow: a run of them opens or closes something."""
    ticks = (state & _TICKS) // _TICK
    if not ticks:
        return state
    state &= ~_TICKS
    if ticks >= 3 and not state & IN_LINE:
        return (state ^ FENCE) | IN_LINE | FENCE_LINE
    return (state ^ SPAN if ticks == 1 and not state & (FENCE | FENCE_LINE) else state) | IN_LINE
