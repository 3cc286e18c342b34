"""Whisper: the language, the task, and text with times in it, or without."""

from __future__ import annotations

from ..core.grammar import Format, TranscriptMarkup

# In the order of their tokens. Cantonese came with large-v3.
_CODES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk
te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo
ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
"""

WHISPER = Format(
    "whisper",
    transcript=TranscriptMarkup(
        tuple(_CODES.split()),
        times=1501,
        ignored=("startoftranscript", "startoflm", "startofprev", "nospeech", "nocaptions"),
    ),
    ends=("<|endoftext|>",),
)
