"""Whether a reply is spoken: what was asked, what the model can do, and the lines of the log that say so.

A request asks for speech with `tts_output`, or in the older way with the marker at the beginning of a message that the
model continues. A model that cannot speak answers in text, with a warning in the log, unless the request insists.

Users of Step-Audio 2 look for two of these lines to see whether speech is on. So their words are fixed:
`TTS output enabled: appended <tts_start> token` and `[TTS] is_tts_output: True, from_request: True`. `from_request`
says that `tts_output` asked for it. For requests without speech there is no line.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...templates import Prompt

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speaking:
    """Whether a reply is spoken."""

    asked: bool
    """`tts_output` asked for it."""
    spoken: bool
    """The prompt makes the model speak."""
    marker: str = ""
    """What was appended to the prompt for that."""
    problem: str = ""
    """Why the model cannot speak, where it was asked to."""

    @classmethod
    def of(cls, asked: bool, prompt: Prompt) -> Speaking:
        return cls(asked, prompt.spoken, prompt.speech_marker, prompt.silence)

    def log(self) -> None:
        if self.marker:
            _log.info("TTS output enabled: appended %s token", self.marker)
        if self.problem:
            _log.warning("the reply is not spoken: %s", self.problem)
        if self.asked or self.spoken or self.problem:
            _log.info("[TTS] is_tts_output: %s, from_request: %s", self.spoken, self.asked)


SILENT = Speaking(asked=False, spoken=False)
