"""What requests say about voice activity."""

from __future__ import annotations

import pytest
from starlette.datastructures import FormData

from unbraid.server.audio.transcription_request import Fields, read_vad
from unbraid.server.errors import ApiError
from unbraid.speech.options import VadOptions

STRATEGY = "chunking_strategy"


def asked(*fields: tuple[str, str], available: bool = True) -> VadOptions | None:
    return read_vad(Fields(FormData(list(fields)), {STRATEGY, "vad_filter"}), available)


def test_it_is_on_unless_it_is_switched_off() -> None:
    assert asked() == asked(("vad_filter", "true")) == asked((STRATEGY, "auto")) == VadOptions()
    assert asked(("vad_filter", "false")) is None
    assert asked(available=False) == VadOptions()  # which nobody reads


def test_openais_strategy_as_json_and_spread_over_the_form() -> None:
    """Its clients send the second."""
    wanted = VadOptions(threshold=0.7, padding=0.3, pause=0.5)
    text = '{"type": "server_vad", "threshold": 0.7, "prefix_padding_ms": 300, "silence_duration_ms": 500}'
    assert asked((STRATEGY, text)) == wanted
    spread = {"type": "server_vad", "threshold": "0.7", "prefix_padding_ms": "300", "silence_duration_ms": "500"}
    assert asked(*((f"{STRATEGY}[{key}]", value) for key, value in spread.items())) == wanted
    assert asked((STRATEGY, '{"type": "server_vad", "threshold": null}')) == VadOptions()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([(STRATEGY, "{")], "must be auto or an object"),
        ([(STRATEGY, "[]")], "must be auto or an object"),
        ([(STRATEGY, '{"type": "semantic_vad"}')], "must be auto or an object"),
        ([(STRATEGY, '{"type": "server_vad", "eagerness": "low"}')], "eagerness is not known"),
        ([(STRATEGY, '{"type": "server_vad", "threshold": 2}')], "threshold must be a number from 0 to 1"),
        ([(STRATEGY, '{"type": "server_vad", "silence_duration_ms": "NaN"}')], "must be a number"),
        ([(STRATEGY, "auto"), ("vad_filter", "false")], "leave one of them out"),
        ([("vad_filter", "maybe")], "true or false"),
    ],
)
def test_what_is_wrong(fields: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(ApiError, match=said):
        asked(*fields)
