"""What the adapters share, and that each peer has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from scoreboard.adapters import worker
from scoreboard.peers import PEERS, state


@pytest.mark.parametrize("name", sorted(PEERS))
def test_each_peer_has_an_adapter_and_a_state_of_its_code(name: str) -> None:
    assert (Path(worker.__file__).parent / f"{PEERS[name].module}.py").is_file()
    assert len(state(PEERS[name])) == 16
    assert PEERS[name].note


def test_a_marker_is_one_token_in_a_vocabulary_of_the_peers_own() -> None:
    job = {"texts": ["<a>", "b<a>", ""]}
    assert list(worker.own_ids(job, {"<a>": 1}, lambda text: [9] * len(text))) == [[1], [9] * 4, []]


def test_a_vocabulary_gets_the_tokens_that_are_asked_for() -> None:
    tokens: list[str] = []

    def create() -> str:
        assert "[gMASK]" in tokens, "Special token '[gMASK]' not found in tokenizer vocabulary"
        assert "<|x|>" in tokens, "Expected single token for <|x|>, got [1, 2]"
        return "made"

    assert worker.with_tokens(create, tokens.append) == "made"
    assert tokens == ["[gMASK]", "<|x|>"]

    def fails() -> None:
        raise ValueError("another reason")

    with pytest.raises(ValueError, match="another reason"):
        worker.with_tokens(fails, tokens.append)


def test_a_reply_that_was_not_streamed() -> None:
    fields = worker.fields("a", None, [("f", {"x": 1}, None), (None, "{", False)])
    assert fields["calls"] == [["f", '{"x": 1}', None], ["", "{", False]]


def test_a_peer_that_does_not_stream_says_so() -> None:
    with pytest.raises(NotImplementedError, match="does not stream"):
        worker.NotStreamed().open({})
