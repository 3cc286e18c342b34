"""The SGLang plug-in: SGLang's detectors of calls and reasoning with unbraid's parsing, and a parser of speech.

    import unbraid.plugins.sglang

    unbraid.plugins.sglang.install()  # then --tool-call-parser unbraid-hermes, --reasoning-parser unbraid-qwen3, …

From the command line, `python -m unbraid.plugins.sglang serve --tool-call-parser step_audio_2 …` is `sglang serve` with
the plug-in. See docs/sglang.md.

    registration.py  our detectors in SGLang's registries
    hooks.py         what the plug-in relies on in SGLang
    detectors.py     SGLang's detectors with our parsing
    text_streams.py  one response as SGLang's two kinds of detectors take it apart
    audio_parser.py  speech taken out of token ids
    command.py       the command `sglang` with the plug-in

Only `detectors` and `registration` import SGLang.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import UnbraidError
from ..hooks import when_imported
from .audio_parser import AudioParser, AudioParserManager, StepAudio2AudioParser, TtsContent
from .hooks import HOOKS, SUPPORTED

if TYPE_CHECKING:
    from .detectors import StepAudio2Detector, StepAudio2ReasoningDetector
    from .registration import RegisteredNames

_log = logging.getLogger(__name__)

REPLACE = "UNBRAID_SGLANG_REPLACE"
"""The environment variable that asks to replace SGLang's own detectors. Processes that SGLang starts inherit it."""

_LAZY = ("StepAudio2Detector", "StepAudio2ReasoningDetector")
"""Names that need SGLang; they are imported when they are used."""

__all__ = [
    "AudioParser",
    "AudioParserManager",
    "SGLangMissing",
    "StepAudio2AudioParser",
    "StepAudio2Detector",
    "StepAudio2ReasoningDetector",
    "TtsContent",
    "install",
]


class SGLangMissing(UnbraidError, ImportError):
    """SGLang is not installed, or this version does not fit; the message says which."""


def install(replace: bool | None = None) -> RegisteredNames:
    """Register unbraid's detectors with SGLang, in this process: `unbraid-NAME` for every format and for every name
    that SGLang has, and for Step-Audio 2 the tool-call parser `step_audio_2` and the reasoning parser `step-audio2`.

    replace: also replace SGLang's own detectors of the same name (`hermes`, `qwen25`, `mistral`, `qwen3`, …). The
        default is taken from the variable UNBRAID_SGLANG_REPLACE.
    """
    if replace is None:
        replace = _asked_to_replace()
    _check_fit()
    from .registration import register, tell_the_server

    when_imported("sglang.srt.server_args", tell_the_server)
    return register(replace)


def load() -> None:
    """What SGLang calls by itself (an entry point of `sglang.srt.plugins`), for everyone who has unbraid installed. If
    this SGLang does not fit, the log says so and SGLang goes on without the plug-in; where a parser of ours was asked
    for, it does not start: it would run with another one."""
    try:
        install()
    except SGLangMissing as problem:
        _log.error("%s", problem)
        if _asked_to_replace() or any("unbraid-" in argument for argument in sys.argv):
            # SGLang goes on after any other exception.
            raise SystemExit(str(problem)) from problem


def _asked_to_replace() -> bool:
    return os.environ.get(REPLACE, "").lower() not in ("", "0", "false", "no")


def _check_fit() -> None:
    """Raise `SGLangMissing` before a module is imported that imports SGLang."""
    if (problem := SUPPORTED.problem(HOOKS, _self_test)) is not None:
        raise SGLangMissing(problem)


def _self_test() -> Iterator[str]:
    from .registration import self_test

    return self_test()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _check_fit()
    from . import detectors

    return getattr(detectors, name)
