"""Going on from ids alone: nobody knows which messages they were, so what does it matter which?

Histories of many kinds may be the real one: with a system message, with earlier turns, calls and reasoning, and with
each word that switches the template. The ids cannot be a rendering of some of them, because they lack a token or a word
that the template writes there. Those that are left are tried. Where one of them makes a difference, that is a
reason to refuse: only a prompt that knows its messages will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..caching import LruCache
from ..core.vocabulary import Vocabulary, is_whole
from ..templates.sandbox.budget import stopped_clock
from ..templates.switches import Switches
from .bridges import Bridges, NoBridge
from .past_words import Inspection, PastWords, SearchedTexts, Suspect, WordTokens
from .regions import Regions
from .shapes import EARLIER, ONE_CALL, SYSTEM, TOOLS, USER, WORD, Shape, call, result
from .values import Messages, PromptKey, Tools, key_of

_LONGEST_WORD = 60
_SETTINGS = 64
_PROMPTS = 256
_BEFORE = {"role": "user", "content": f"{WORD} long before"}
EVERYTHING: Messages = (
    SYSTEM,
    _BEFORE,
    Shape(reasoning=True, calls=(call(3),)).message(),
    USER,
    Shape(content=False, calls=(call(4),)).message(),
    result(4),
    Shape(content=False, reasoning=True, calls=(call(5),)).message(),
    result(5),
)
"""What an ordinary conversation with tools may have in it: words before a call, and one that nobody answered, too."""
TALK: Messages = (SYSTEM, _BEFORE, Shape(reasoning=True).message(), USER, Shape().message(), USER)
"""What one without tools may have in it."""
ADVICE = "give the prompt as `render` or `extend` returned it, not as ids"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Spelled(dict[int, bytes]):
    """The bytes of tokens, as they come: a prompt has thousands, and each is looked up without a call."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def __missing__(self, token: int) -> bytes:
        data = self._vocabulary.token_bytes(token)
        if data is None:
            return b""
        self[token] = data
        return data


class UnknownPast:
    """What one template makes of messages that nobody knows."""

    def __init__(self, bridges: Bridges, switches: Switches) -> None:
        assert bridges.builder.encoder is not None
        self._bridges = bridges
        self._spelled = _Spelled(bridges.builder.encoder.vocabulary)
        self._words = [word for word in switches.words if len(word) <= _LONGEST_WORD]
        self._settings: LruCache[bytes, SearchedTexts] = LruCache(_SETTINGS)
        vocabulary = bridges.builder.encoder.vocabulary
        self._word_tokens = WordTokens(vocabulary) if is_whole(vocabulary) else None
        self._past_words: LruCache[bytes, PastWords] = LruCache(_SETTINGS)
        self._inspected: LruCache[tuple[bytes, PromptKey], tuple[Inspection, Sequence[int]]] = LruCache(_PROMPTS)
        """Of prompts, or of what they begin with, and the ids that follow."""

    def inspected(
        self,
        prompt: PromptKey,
        ids: Sequence[int],
        assumed: Messages,
        tools: Tools | None,
        variables: Mapping[str, Any],
    ) -> Inspection:
        """What is seen in the ids of a prompt. One that was inspected, or that goes on from it, is not read again.

        assumed: the history that stands for the unknown one.
        """
        key = key_of((tools, variables))
        kept = self._inspected.get((key, prompt))
        if kept is not None and not kept[1]:
            return kept[0]
        inspection = None if kept is None else kept[0].followed_by(self._text(kept[1]))
        if inspection is None:
            setting = self._settings.get(key) or self._settings.setdefault(
                key, self._setting(key, assumed, tools, variables)
            )
            inspection = setting.inspected(self._text(ids))
        self._inspected[key, prompt] = inspection, ()
        return inspection

    def goes_on(self, inspection: Inspection, more: Sequence[int], prompt: PromptKey) -> None:
        """Note a prompt that goes on from one that was inspected with more ids."""
        self._inspected[inspection.setting.key, prompt] = inspection, more

    def past_words(self, setting: SearchedTexts) -> PastWords | None:
        """The same things to look for, by ids; None where the vocabulary cannot list its tokens."""
        if self._word_tokens is None:
            return None
        words = self._past_words.get(setting.key)
        if words is None:
            words = PastWords(setting, self._word_tokens.searched(setting.texts))
            self._past_words[setting.key] = words
        return words

    def head_with_tools(self, setting: SearchedTexts, ids: Sequence[int]) -> tuple[int, ...]:
        """The beginning of a prompt, up to where it has shown the tools of the setting."""
        text = self._text(ids)
        until = max((text.find(shown) + len(shown) for shown in setting.shown), default=0)
        size = at = 0
        while at < until:
            at += len(self._spelled[ids[size]])
            size += 1
        return tuple(ids[:size])

    def _text(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._spelled.__getitem__, ids))

    def _setting(
        self, key: bytes, assumed: Messages, tools: Tools | None, variables: Mapping[str, Any]
    ) -> SearchedTexts:
        suspects, shown = self._listed(assumed, tools, variables)
        texts = list(dict.fromkeys(text for each in suspects for text, _ in each.evidence))
        numbered = tuple(
            (each, tuple((texts.index(text), times) for text, times in each.evidence)) for each in suspects
        )
        return SearchedTexts(key, numbered, tuple(map(_encoded, texts)), tuple(map(_encoded, shown)))

    def _listed(
        self, assumed: Messages, tools: Tools | None, variables: Mapping[str, Any]
    ) -> tuple[tuple[Suspect, ...], tuple[str, ...]]:
        """All histories, each with what would be in the prompt, and what is in every prompt with these tools."""
        with stopped_clock():
            base = self._rendered(assumed, tools, variables)
            without = self._rendered(assumed, None, variables) or self._rendered(assumed, TOOLS, variables)
            suspects = []
            for number, (history, what) in enumerate(self._histories(assumed)):
                rendered = self._rendered(history, tools, variables)
                if base is not None and rendered is not None:
                    suspects.append(Suspect(number, history, what, self._evidence(base, rendered)))
        shown = () if base is None or without is None else _added(base, without, assumed)
        return tuple(suspects), shown

    def _histories(self, assumed: Messages) -> list[tuple[Messages, str]]:
        last = assumed[-1]
        answer = Shape().message()
        two = Shape(content=False, calls=(call(6), call(7))).message()
        histories: list[tuple[Messages, str]] = [
            ([SYSTEM, USER], "a system message"),
            ([_BEFORE, answer, last], "earlier turns"),
            ([_BEFORE, ONE_CALL.message(), result(), answer, last], "an earlier call"),
            ([SYSTEM, last, two, result(6), result(7)], "a system message and two results"),
            ([last, ONE_CALL.message(), result()], "a result"),
            (EARLIER, "reasoning and a call since the user's last message"),
            ([*EARLIER, answer, last], "an earlier call after reasoning"),
            ([_BEFORE, Shape(reasoning=True).message(), last], "earlier reasoning"),
            ([*[_BEFORE, ONE_CALL.message(), result(), answer] * 4, last], "many messages"),
        ]
        for word in self._words:
            spoken = f"{WORD} {word} {WORD}"
            histories += [
                ([{**SYSTEM, "content": spoken}, USER], f"{word!r} in a system message"),
                ([{**last, "content": spoken}], f"{word!r} in a message"),
                ([{**last, "content": word}], f"{word!r} as a message"),
                ([_BEFORE, {**answer, "content": spoken}, last], f"{word!r} in an earlier turn"),
                ([last, ONE_CALL.message({word: word}), result()], f"{word!r} in a call"),
                ([last, ONE_CALL.message(), {**result(), "content": word}], f"{word!r} in a result"),
            ]
        return histories

    def _rendered(self, history: Messages, tools: Tools | None, variables: Mapping[str, Any]) -> Regions | None:
        try:
            return self._bridges.regions(history, tools, variables, prompt=True)
        except NoBridge:
            return None

    def _evidence(self, base: Regions, rendered: Regions) -> tuple[tuple[str, int], ...]:
        """What the template writes for a history that it does not write for the assumed one."""
        texts = dict.fromkeys([*self._words, *(token.text for token in rendered.tokens)])
        return tuple(
            (text, base.text.count(text)) for text in texts if rendered.text.count(text) > base.text.count(text)
        )


def _added(base: Regions, without: Regions, messages: Messages) -> tuple[str, ...]:
    """What is written in one prompt of these messages and not in the other, by runs of lines."""
    lines = set(_own_text(without, messages).split("\n"))
    runs: list[list[str]] = [[]]
    for line in _own_text(base, messages).split("\n"):
        if line in lines and line.strip():
            runs.append([])
        else:
            runs[-1].append(line)
    return tuple(text for run in runs if (text := "\n".join(run).strip()))


def _own_text(regions: Regions, messages: Messages) -> str:
    """What is written beside what these messages say, with a line's end in the place of that."""
    text = regions.text
    for message in messages:
        text = text.replace(message["content"], "\n")
    return text
