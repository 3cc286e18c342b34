"""What the fuzzer has found, in words. Bytes would mean something else as soon as a target changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import unbraid
from unbraid import UnbraidError
from unbraid.engines.recording import read_recording

from ..support.described_api import DescribedApi


@pytest.mark.parametrize("line", [b"\xff\n", b"\xed\xa0\x80\n", b"[" * 2000 + b"\n", b"null\n", b"{}\n", b"1e999\n"])
def test_a_recording_that_is_none_is_refused_with_the_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_bytes(line)
    with pytest.raises(UnbraidError, match="line 1, is no line of a recording"):
        read_recording(path)


@pytest.mark.parametrize("text", ["|x" * 200, "a\0b", "\ud800", "x" * 999])
def test_a_text_that_can_be_no_path_is_a_template(text: str) -> None:
    """Longer than names may be, or with characters that none has: it is not even looked for."""
    with pytest.raises(UnbraidError) as raised:
        unbraid.detect(text)
    assert "is a path" not in str(raised.value)


@pytest.fixture(scope="module")
def api() -> Iterator[DescribedApi]:
    described = DescribedApi()
    yield described
    described.close()


@pytest.mark.parametrize("limit", ["9" * 5000, "²", "-1", "1e3", " 5", "0x10", "٣"])
def test_a_limit_that_is_no_number_is_refused(api: DescribedApi, limit: str) -> None:
    """However it is written: Python reads more digits than one would think, and not as many of them."""
    reply = httpx.get(f"{api.url}/v1/responses/{api.stored}/input_items", params={"limit": limit}, timeout=60)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "limit")
