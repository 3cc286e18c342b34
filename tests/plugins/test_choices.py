"""What is chosen for the plug-ins by environment variables."""

from __future__ import annotations

import pytest

from unbraid import UnbraidError, find
from unbraid.plugins.choices import CALLS_IN_REASONING, as_chosen


@pytest.mark.parametrize(
    ("word", "expected"),
    [(None, True), ("", True), ("auto", True), ("yes", True), ("1", True), ("no", False), ("0", False)],
)
def test_calls_in_reasoning(word: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CALLS_IN_REASONING, raising=False)
    if word is not None:
        monkeypatch.setenv(CALLS_IN_REASONING, word)
    assert as_chosen(find("qwen3")).calls_in_reasoning is expected


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLS_IN_REASONING, "perhaps")
    with pytest.raises(UnbraidError, match="yes, no or auto"):
        as_chosen(find("qwen3"))
