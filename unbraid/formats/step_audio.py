"""Step-Audio 2: speech, tools and reasoning in one stream."""

from __future__ import annotations

from ..core.grammar import Call, Calls, Format, Name, SpeechMarkup
from ..core.notations import Arguments
from .think import THINK_TAGS

STEP_AUDIO_2 = Format(
    "step-audio-2",
    reasoning=THINK_TAGS,
    tools=Calls("<tool_call>", Call(("function\n", Name(), "\n", Arguments())), "</tool_call>"),
    speech=SpeechMarkup(
        "<tts_start>", "<tts_end>", code="<audio_{}>", codes=6561, padding=("<tts_pad>", "<audio_6561>")
    ),
    ends=("<|EOT|>",),
)
