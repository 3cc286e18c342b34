"""Reasoning alone: where it ends in token ids and in text, and how many tokens it has."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

from ...core.events import Content, Diagnostic, Event, Markup, Reasoning
from ...core.grammar import Format
from ...core.machine.driver import Driver
from ...core.vocabulary import Vocabulary
from ...parsing import Parser

Mark = Literal["open", "close", "end"]


class DecodedTokens:
    """The tokens of a tokenizer of which nothing is known but what all of vLLM's can do. Characters that are cut over
    several tokens are lost, so that this is good for finding markers and for nothing else."""

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


class ReasoningMarks:
    """Finds the markers of a format's reasoning in ids, without parsing them all: as tokens, or in the text where they
    are none."""

    def __init__(self, format: Format, vocabulary: Vocabulary) -> None:
        assert format.reasoning is not None
        self.open, self.close = format.reasoning.open.strip(), format.reasoning.close.strip()
        self._bytes = vocabulary.token_bytes
        ends = (vocabulary.token_id(text) for text in format.ends)
        self._marks: dict[int, Mark] = {token: "end" for token in ends if token is not None}
        open, close = vocabulary.token_id(self.open), vocabulary.token_id(self.close)
        self._spelled = open is None or close is None
        if open is not None and close is not None:
            self._marks |= {open: "open", close: "close"}

    def last(self, ids: Sequence[int]) -> tuple[Mark | None, int]:
        """The last marker in `ids`, and where what follows it begins. "end" where that is the end of an earlier turn;
        the end of this one is not looked at."""
        stop = len(ids)
        while stop and self._marks.get(ids[stop - 1]) == "end":
            stop -= 1
        at = next((at for at in range(stop - 1, -1, -1) if ids[at] in self._marks), -1)
        if self._spelled:
            mark, inside = self._last_spelled(ids[at + 1 : stop])
            if mark is not None:
                return mark, at + 1 + inside
        return (None, 0) if at < 0 else (self._marks[ids[at]], at + 1)

    def _last_spelled(self, ids: Sequence[int]) -> tuple[Mark | None, int]:
        pieces = [self._bytes(token) or b"" for token in ids]
        data, open, close = b"".join(pieces), self.open.encode(), self.close.encode()
        opened, closed = data.rfind(open), data.rfind(close)
        if max(opened, closed) < 0:
            return None, 0
        behind = opened + len(open) if opened > closed else closed + len(close)
        tokens = bisect_left(list(accumulate(map(len, pieces))), behind) + 1
        return "open" if opened > closed else "close", tokens

    def closes(self, ids: Sequence[int], new: int) -> bool:
        """Whether the last `new` of the ids close the reasoning. What this costs does not depend on the others."""
        # A marker that is spelled out may have begun before them; it has no more tokens than bytes.
        reach = new + len(self.close.encode()) if self._spelled else new
        start = max(0, len(ids) - reach)
        mark, after = self.last(ids[start:])
        return mark == "close" and start + after > len(ids) - new

    def begins_otherwise(self, output: Sequence[int]) -> bool:
        """Whether the output does not begin with reasoning, and never will."""
        text = b"".join(self._bytes(token) or b"" for token in output).decode("utf-8", "replace").lstrip()
        return bool(text) and not text.startswith(self.open) and not self.open.startswith(text)


class ReasoningTokens:
    """Counts the tokens of the reasoning, its markers aside."""

    def __init__(self, format: Format, vocabulary: Vocabulary, prompt: str | Sequence[int] | None) -> None:
        self._machine = Driver(format, vocabulary=vocabulary, prompt=prompt, keep_raw=False)
        self._seen = self._count = 0

    def count(self, ids: Sequence[int]) -> int:
        """Of all ids so far. vLLM asks again as they come; those that were counted are not looked at once more."""
        for token in ids[self._seen :]:
            before = self._machine.strands[-1]
            self._machine.feed_tokens((token,))
            self._count += before == self._machine.strands[-1] == "reasoning"
        self._seen = len(ids)
        return self._count


class UpToContent:
    """Text, parsed as far as the reasoning goes. From the first words of the content on it is left as it is."""

    def __init__(self, format: Format, prompt: str | None) -> None:
        assert format.reasoning is not None
        self.over = False
        """Whether content has come."""
        self._parser = Parser(format, prompt=prompt, keep_message=False, markup=True)
        self._marks = ("", format.reasoning.open.strip(), format.reasoning.close.strip())
        self._held = ""
        self._held_at = 0

    def feed(self, text: str) -> tuple[str, str]:
        """The reasoning in this text, and the content."""
        if self.over:
            return "", text
        self._held += text
        return self._split(self._parser.feed(text))

    def finish(self) -> tuple[str, str]:
        """What is left at the end of the output."""
        return ("", "") if self.over else self._split(self._parser.finish())

    def _split(self, events: list[Event]) -> tuple[str, str]:
        reasoning: list[str] = []
        content: list[str] = []
        done = self._held_at
        for event in events:
            match event:
                case Diagnostic():
                    continue
                case Reasoning(text):
                    reasoning.append(text)
                case Markup(text) if text.strip() in self._marks:
                    pass
                case Content(text) if text.isspace():
                    content.append(text)
                case _:
                    self.over = True
                    content.append(self._held[done - self._held_at :])
                    break
            done = event.end
        self._held, self._held_at = self._held[done - self._held_at :], done
        return "".join(reasoning), "".join(content)
