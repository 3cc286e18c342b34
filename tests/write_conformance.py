"""Writes docs/conformance.md: what three engines and unbraid say to the recorded cases.

python -m tests.write_conformance           write it
python -m tests.write_conformance --check   only say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from .conformance_answers import AFTER_CALLS, ANSWERS, EMITTED, UNKNOWN, Answer, Part
from .conformance_cases import FAMILIES, Case, cases

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"

_HEAD = """\
# Conformance

NVIDIA's Dynamo project has recorded what three engines make of the same tool-call texts: its own parser, vLLM's and
SGLang's. They often contradict each other, so the records are evidence, not truth. Our rule:

- Where all three agree, so do we.
- Elsewhere our answer is written down with the law that it follows (`tests/conformance_answers.py`; the laws
  are in [design.md](design.md)), and a test holds the parser to it, whole and one character at a time.

Two things to know when comparing. The engines drop text that follows the first call; we keep it (law 3), and compare
only the text before it. They answer without streaming; a call that never became complete is text in their answers, and
so it is in ours when taken `settled()`. Below, such a call is marked *not complete*.

*Engines*: "agree" means all three; "two agree" means that the third has no parser for the family; otherwise the
engines are named that say the same as we do. `[…]` stands for text that is cut short here.

Written by `python -m tests.write_conformance`; do not edit.
"""


def document() -> str:
    lines = [_HEAD]
    for family, format in FAMILIES.items():
        found = cases(family)
        lines += [
            f"## {family}: format `{format}`",
            "",
            f"{len(found)} cases. {_agreement(list(found.values()))}",
            "",
            "| case | what it holds | engines | ours | law |",
            "| --- | --- | --- | --- | --- |",
            *(_row(family, name, case) for name, case in found.items()),
            "",
        ]
    return "\n".join(lines)


def _agreement(found: list[Case]) -> str:
    agree = sum(case.unanimous is not None for case in found)
    if any(case.agreed is not None for case in found):
        return f"All three engines agree on {agree}."
    return f"Only {' and '.join(found[0].engines)} have a parser for them; they agree on {agree}."


def _row(family: str, name: str, case: Case) -> str:
    answer, description = ANSWERS[family].get(name), case.description.replace("<", r"\<")
    if answer is None:
        rest = AFTER_CALLS.get((family, name))
        ours = "the same" + (f", then {_part(rest)}" if rest else "")
        law = "law 3: text after a call is kept" if rest else ""
        if (family, name) in EMITTED:
            ours, law = 'the same with `unknown_tools="emit"`; otherwise text', UNKNOWN
        cells = [name, description, "agree", ours, law]
    else:
        ours = ", ".join(map(_part, answer.parts)) or "nothing"
        cells = [name, description, _engines(case, answer), ours, answer.law]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _engines(case: Case, answer: Answer) -> str:
    if case.unanimous is not None:
        return "two agree, with us" if answer.same else "two agree, not with us"
    return f"differ; {' and '.join(answer.same)} as we do" if answer.same else "differ; none as we do"


def _part(part: Part) -> str:
    if isinstance(part, str):
        return _code(repr(part))
    return _code(f"{part.name}({part.arguments})") + ("" if part.complete else " *not complete*")


def _code(text: str, most: int = 72) -> str:
    return f"`{text if len(text) <= most else text[: most - 20] + '[…]' + text[-16:]}`"


def main(arguments: list[str]) -> int:
    text = document()
    if arguments == ["--check"]:
        current = DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text
        print("up to date" if current else f"{DOCUMENT.name} is out of date")
        return 0 if current else 1
    if arguments:
        print(__doc__)
        return 2
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
