"""Where the output starts: what the end of the prompt has opened, read with the same markers as the output.

Templates end a prompt with `<think>` or `<|start|>assistant`, and a client may prefill the beginning of the answer. The
output then begins inside a strand, or in the middle of a header.

A prompt may also break off in the middle of a strand. Token ids say for sure which marker was meant. In text, a user
may have written it; but what a user wrote is followed by what ends a turn and begins another. So markers count that
nothing of that kind follows, and that stand at the beginning of a line or right after another marker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ...errors import UnbraidError
from ..fast_import import lazily
from ..machine.headers import CALLS, CONTENT, HeaderRule
from ..machine.markers import Marker
from ..vocabulary import Detokenizer
from .compiler import Program

_TURN = (
    r"<[|｜][^<>]*(?:im_|turn|user|assistant|system|human|bot|header|eot|eom|end|start|begin|message|msg|role|sep|"
    r"observation|TURN|BOT|EOT)[^<>]*>|<[^<>\s]*turn[|｜]?>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_RESULTS|AVAILABLE_TOOLS)\]|"
    r"<(?:start|end|begin)_of_\w+>|\]~b\]|</assistant>|<(?:user|assistant|system)>"
)
"""What begins or ends a turn in the templates there are."""
_role = lazily(lambda: re.compile(r"(?:\A|\n)[^\w\n]{0,5}\w{1,20}[^\w\n]{0,3}:[^\w\n]{0,3}\Z").search)
"""Whether a text ends with a word at the beginning of a line, as it says whose turn it is: `assistant: `."""
_TURN_SIZE = 100_000
"""How much of a prompt's text is looked at for a strand that it breaks off in."""
_SHORT = 64
"""What is read in a prompt of so many characters or tokens is kept: many have the same."""
_FEW_TOKENS = 12
"""Nearly always these are enough."""
_MARKER_TOKENS = 64
"""No markers at the end of a prompt, and no header, have more tokens than this."""


EndKey = tuple[tuple[str, ...], str, str, str, bool]


@dataclass(slots=True, eq=False, repr=False)
class PromptEnd:
    """What a prompt leaves open. It is kept for prompts that are the same, and never changes."""

    strands: list[str] = field(default_factory=list)
    """The strands that are open, outermost first."""
    trail: str = ""
    """The whitespace of its last marker that the prompt has not written, and the output may."""
    header: str = ""
    """What it has written of a header that it has not finished."""
    label: str = ""
    """What should come after its last marker."""
    in_message: bool = False
    """Whether it has begun an answer with a header, and not ended it."""

    @property
    def key(self) -> EndKey:
        """All of it, as a key."""
        return tuple(self.strands), self.trail, self.header, self.label, self.in_message


_NOTHING = PromptEnd()


def read_end(program: Program, prompt: str | Sequence[int]) -> PromptEnd:
    """What `prompt` leaves open."""
    prompt = prompt if isinstance(prompt, str) else telling_end(program, prompt)
    return (_read_short if len(prompt) <= _SHORT else _read_end)(program, prompt)


def telling_end(program: Program, prompt: Sequence[int]) -> tuple[int, ...]:
    """The ids at the end of a prompt that tell what it leaves open: more of it would change nothing."""
    if program.headers is not None:
        return tuple(_last_tokens(program, prompt))
    few = tuple(prompt[-_FEW_TOKENS:])
    end, left = _opened_by_last(program, few)
    if left >= _longest_marker(program) and (end.strands or not program.ends.isdisjoint(few)):
        return few
    return tuple(prompt[max(min(_turn(program, prompt) - 1, len(prompt) - _MARKER_TOKENS), 0) :])


def _read_end(program: Program, prompt: str | Sequence[int]) -> PromptEnd:
    end = opened_at_end(program, prompt)
    if not end.strands and program.headers is None:  # a header has told it
        if isinstance(prompt, str):
            opened = _opened_in_text(program, prompt)
        else:
            opened = _opened_by_ids(program, prompt)
        return PromptEnd(opened, end.trail) if opened else end
    return replace(end, header=_unfinished_header(program, prompt))


_read_short = lru_cache(maxsize=256)(_read_end)


def with_speech(program: Program, strands: list[str]) -> list[str]:
    """The strands that a prompt leaves open, with the speech that no marker opens."""
    speech = program.format.speech
    return ["speech", *strands] if speech is not None and speech.implied else strands


def opened_at_end(program: Program, prompt: str | Sequence[int]) -> PromptEnd:
    """What `prompt` leaves open, by nothing but the markers that it ends with."""
    if isinstance(prompt, str):
        return _opened_at_end(program, prompt, by_ids=False)[0]
    if program.headers is None:
        end, left = _opened_by_last(program, tuple(prompt[-_FEW_TOKENS:]))
        if left >= _longest_marker(program):  # more of the prompt would change nothing
            return end
    return _opened_at_end(program, _text(program, _last_tokens(program, prompt)), by_ids=True)[0]


@lru_cache(maxsize=256)
def _opened_by_last(program: Program, ids: tuple[int, ...]) -> tuple[PromptEnd, int]:
    """As `_opened_at_end`, for a few tokens. Nearly all prompts of a template end with the same."""
    return _opened_at_end(program, _text(program, ids), by_ids=True)


def _opened_at_end(program: Program, prompt: str, by_ids: bool) -> tuple[PromptEnd, int]:
    """What the end of a prompt leaves open, and how much of that text stands before its markers.

    by_ids: whether markers that are tokens stand in the text as their placeholders.
    """
    if program.headers is not None:
        return _in_message(program, program.headers, program.spelled(prompt)), 0
    rest = prompt.rstrip()
    if not rest.endswith(_last_words(program, by_ids)):
        return _NOTHING, len(rest)
    trailing = prompt[len(rest) :]
    opened: list[str] = []
    trail: str | None = None
    label = ""

    def take(markers: tuple[Marker, ...]) -> bool:
        """Take one of the markers off the end of the prompt, if it is there."""
        nonlocal rest, trail, label
        for marker in markers:
            key, said = marker.key + marker.end, marker.label.rstrip()
            key = key if by_ids else program.spelled(key)
            after = marker.trail
            if said and rest.endswith(key + said):
                key, after = key + said, marker.label[len(said) :]
            if rest.endswith(key):
                if trail is None:
                    trail = after[len(trailing) :] if after.startswith(trailing) else ""
                    label = "" if said and key.endswith(said) else marker.label
                rest = rest[: -len(key)].rstrip()
                return True
        return False

    took_one = True
    while took_one:
        took_one = False
        for strand, scope in program.content.inner.items():
            if not opened and take(scope.closes):
                # Only a section that was opened and closed at once lets us see what stands before it.
                took_one = take(scope.opens)
                break
            if strand not in opened and take(scope.opens):
                opened.insert(0, strand)
                took_one = True
                break
    return PromptEnd(opened, trail or "", label=label if opened else ""), len(rest)


@lru_cache(maxsize=256)
def _last_words(program: Program, by_ids: bool) -> tuple[str, ...]:
    """What a prompt that leaves something open, or has closed it, ends with: a marker, or one with its label."""
    words = []
    for marker in _markers(program):
        key = marker.key + marker.end
        key = key if by_ids else program.spelled(key)
        words += [key, key + marker.label.rstrip()]
    return tuple(words)


@lru_cache(maxsize=256)
def _longest_marker(program: Program) -> int:
    """How long the markers are that a prompt may end with, with their labels."""
    return max((len(marker.key) + len(marker.end) + len(marker.label) for marker in _markers(program)), default=0)


def _markers(program: Program) -> list[Marker]:
    return [marker for scope in program.content.inner.values() for marker in (*scope.opens, *scope.closes)]


@lru_cache(maxsize=256)
def _spelled_markers(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """What opens a strand in text, and what closes one."""
    scopes = program.content.inner.values()
    opens = frozenset(program.spelled(marker.key + marker.end) for scope in scopes for marker in scope.opens)
    closes = frozenset(program.spelled(marker.key + marker.end) for scope in scopes for marker in scope.closes)
    return opens, closes


def _text(program: Program, ids: Sequence[int]) -> str:
    if program.vocabulary is None:
        raise UnbraidError("a prompt of token ids needs a tokenizer: give tokenizer=…, or the prompt as text")
    return Detokenizer(program.vocabulary).text(ids, program.token_placeholders)


def _last_tokens(program: Program, prompt: Sequence[int]) -> Sequence[int]:
    """The tokens that matter, at the end of a prompt: its last markers, or all from its last header on."""
    begin = len(prompt)
    if program.headers is not None:
        opens = {key[0] for key in program.headers.opens}
        placeholders = program.token_placeholders
        begin = next((at for at in range(begin, 0, -1) if placeholders.get(prompt[at - 1]) in opens), begin)
    return prompt[max(begin - _MARKER_TOKENS, 0) :]


def _opened_by_ids(program: Program, prompt: Sequence[int]) -> list[str]:
    """The strands that a prompt opens, in the turn that it has begun, and does not close."""
    turn = _turn(program, prompt)
    if program.format.spelled_markers:
        return _opened_in_text(program, _text(program, prompt[turn:]))
    opened: list[str] = []
    for key in filter(None, map(program.token_placeholders.get, prompt[turn:])):
        _read(program, key, opened)
    return opened


def _turn(program: Program, prompt: Sequence[int]) -> int:
    """Where in a prompt the turn begins that it has begun: after the last token that ends one."""
    return next((at for at in range(len(prompt), 0, -1) if prompt[at - 1] in program.ends), 0)


def _opened_in_text(program: Program, prompt: str) -> list[str]:
    """As `_opened_by_ids`, by text. The first strand is opened at the beginning of a line, or after another marker."""
    opens, closes = _spelled_markers(program)
    begin = max(len(prompt) - _TURN_SIZE, 0)
    first = min((at for open in opens if (at := prompt.find(open, begin)) >= 0), default=None)
    if first is None:
        return []
    keys = "|".join(map(re.escape, sorted(opens | closes, key=len, reverse=True)))
    ends = "|".join([*map(re.escape, program.format.ends), _TURN])
    opened: list[str] = []
    for match in re.finditer(f"({keys})|{ends}", prompt[first:]):
        key = match.group(1)
        before = prompt[max(first + match.start() - 80, 0) : first + match.start()].rstrip(" \t")
        if key is None:
            opened.clear()
        elif opened or not before or before[-1] in "\n>]" or _role(before):
            _read(program, key, opened)
    return opened


def _read(program: Program, key: str, opened: list[str]) -> None:
    """Open or close a strand, as the marker says."""
    for strand, scope in program.content.inner.items():
        if strand not in opened and any(key in _spellings(program, marker) for marker in scope.opens):
            opened.append(strand)
        elif strand in opened and any(key in _spellings(program, marker) for marker in scope.closes):
            del opened[opened.index(strand) :]


def _spellings(program: Program, marker: Marker) -> tuple[str, str]:
    return marker.key, program.spelled(marker.key + marker.end)


def _in_message(program: Program, rule: HeaderRule, prompt: str) -> PromptEnd:
    """What a prompt leaves open, by the header of the message that it has begun, and not ended."""
    opens, closes = ([program.spelled(key) for key in keys] for keys in (rule.opens, rule.closes))
    end = max(prompt.rfind(close) + len(close) if close in prompt else -1 for close in closes)
    begin = max(prompt.rfind(open, 0, max(end, 0)) for open in opens)
    if begin < 0 or any(program.spelled(end) in prompt[begin:] for end in rule.ends):
        return PromptEnd()
    strand = rule.strand(prompt[begin:end])[0]
    opened = [strand] if strand in program.content.inner else []
    return PromptEnd(opened, in_message=strand == CONTENT and rule.answers_end)


def _unfinished_header(program: Program, prompt: str | Sequence[int]) -> str:
    """What a prompt has written of a header that it has not finished; or all of it, where calls come."""
    rule = program.headers
    if rule is None:
        return ""
    if not isinstance(prompt, str):
        prompt = program.spelled(_text(program, prompt[-_MARKER_TOKENS:]))
    opens, closes = ([program.spelled(key) for key in keys] for keys in (rule.opens, rule.closes))
    begin = max(prompt.rfind(open) for open in opens)
    # The first of several that open one header: `<|start|>` comes before `<|channel|>`.
    for open in opens:
        at = prompt.rfind(open)
        if 0 <= at < begin and not any(close in prompt[at:begin] for close in closes):
            begin = at
    header = prompt[begin:] if begin >= 0 else ""
    finished = any(close in header for close in closes)
    if finished and not (header.endswith(tuple(closes)) and rule.strand(header)[0] == CALLS):
        return ""
    return header
