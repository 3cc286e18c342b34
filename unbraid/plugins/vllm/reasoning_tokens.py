"""Reasoning in token ids: where it ends, and how many tokens it has.

vLLM's engine asks at every step whether the reasoning is over, with all ids so far. So the markers are looked up as
tokens, from the end, and nothing is parsed; only a marker that is no single token is searched in the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

from ...core.grammar import Format
from ...core.machine.driver import Driver
from ...core.vocabulary import Vocabulary

Marker = Literal["open", "close", "end"]


class DecodedTokens:
    """The vocabulary of a tokenizer of an unknown kind, by the methods that all tokenizers of vLLM have. Characters
    that span several tokens are lost, so it serves to find markers and for nothing else."""

    version = None
    dummy_prefix = False

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def token_id(self, text: str) -> int | None:
        token: int | None = self._tokenizer.get_vocab().get(text)
        return token

    def token_bytes(self, token: int) -> bytes | None:
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text.encode("utf-8", "replace")


class ReasoningMarkers:
    """Finds the markers of a format's reasoning in ids: as tokens or, if they are no single tokens, in the text."""

    def __init__(self, format: Format, vocabulary: Vocabulary) -> None:
        assert format.reasoning is not None
        self.open, self.close = format.reasoning.open.strip(), format.reasoning.close.strip()
        self._bytes = vocabulary.token_bytes
        ends = (vocabulary.token_id(text) for text in format.ends)
        self._markers: dict[int, Marker] = {token: "end" for token in ends if token is not None}
        open, close = vocabulary.token_id(self.open), vocabulary.token_id(self.close)
        self.spelled = open is None or close is None
        """Whether a marker is written in several tokens."""
        if open is not None and close is not None:
            self._markers |= {open: "open", close: "close"}

    def last(self, ids: Sequence[int]) -> tuple[Marker | None, int]:
        """The last marker in `ids`, and the position after it. "end" is the end of an earlier turn; the end of the last
        turn is ignored."""
        stop = len(ids)
        while stop and self._markers.get(ids[stop - 1]) == "end":
            stop -= 1
        at = next((at for at in range(stop - 1, -1, -1) if ids[at] in self._markers), -1)
        if self.spelled:
            marker, inside = self._last_spelled(ids[at + 1 : stop])
            if marker is not None:
                return marker, at + 1 + inside
        return (None, 0) if at < 0 else (self._markers[ids[at]], at + 1)

    def _last_spelled(self, ids: Sequence[int]) -> tuple[Marker | None, int]:
        pieces = [self._bytes(token) or b"" for token in ids]
        data, open, close = b"".join(pieces), self.open.encode(), self.close.encode()
        opened, closed = data.rfind(open), data.rfind(close)
        if max(opened, closed) < 0:
            return None, 0
        behind = opened + len(open) if opened > closed else closed + len(close)
        tokens = bisect_left(list(accumulate(map(len, pieces))), behind) + 1
        return "open" if opened > closed else "close", tokens

    def closes(self, ids: Sequence[int], new: int) -> bool:
        """Whether the last `new` ids close the reasoning. The cost does not depend on how many there are before."""
        # A marker in several tokens may begin before the new ones; it has at most as many tokens as bytes.
        reach = new + len(self.close.encode()) if self.spelled else new
        start = max(0, len(ids) - reach)
        marker, after = self.last(ids[start:])
        return marker == "close" and start + after > len(ids) - new

    def begins_otherwise(self, output: Sequence[int]) -> bool:
        """Whether the output begins with something that is not reasoning."""
        text = b"".join(self._bytes(token) or b"" for token in output).decode("utf-8", "replace").lstrip()
        return bool(text) and not text.startswith(self.open) and not self.open.startswith(text)


class ReasoningCounter:
    """Counts the tokens of the reasoning without its markers."""

    def __init__(self, format: Format, vocabulary: Vocabulary, prompt: str | Sequence[int] | None) -> None:
        self._machine = Driver(format, vocabulary=vocabulary, prompt=prompt, keep_raw=False)
        self._seen = self._count = 0

    def count(self, ids: Sequence[int]) -> int:
        """The count for all ids so far. vLLM asks again as they grow; each id is parsed once."""
        for token in ids[self._seen :]:
            before = self._machine.strands[-1]
            self._machine.feed_tokens((token,))
            self._count += before == self._machine.strands[-1] == "reasoning"
        self._seen = len(ids)
        return self._count
