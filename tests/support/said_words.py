"""What a conversation says, in words that occur nowhere else, and whether a prompt says all of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

words_in = re.compile(r"wq\d+qw").findall


class Said(NamedTuple):
    """A part of what a client sends."""

    kind: str
    """A role, or `call` or `result`."""
    text: str
    id: str = ""


def lost(sent: Sequence[Said], prompt: str) -> list[str]:
    """What is wrong with the words of a prompt."""
    wanted = [word for said in sent for word in words_in(said.text)]
    shown = [word for word in words_in(prompt) if word in set(wanted)]
    if sorted(wanted) != sorted(shown):
        return [f"of {wanted} only {shown} are said, and each once"]
    begin = next(at for at, said in enumerate(sent) if said.kind not in ("system", "developer"))
    place = {word: at for at, word in enumerate(shown)}
    rest = [(said, [place[word] for word in words_in(said.text)]) for said in sent[begin:]]
    # Results of calls that were made at once may stand each after its call.
    in_order = [
        [at for said, places in rest if (said.kind == "result") is is_result for at in places]
        for is_result in (True, False)
    ]
    in_order += [
        [*places, *others]
        for at, (said, places) in enumerate(rest)
        for other, others in rest[at + 1 :]
        if (said.kind == "call" and other.id == said.id)
        or (said.kind == "result" and other.kind not in ("call", "result"))
    ]
    return [f"{wanted} are said as {shown}"] if any(sorted(each) != each for each in in_order) else []
