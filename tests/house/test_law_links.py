"""Comments and docstrings that cite a law link to it, and the link leads there."""

from __future__ import annotations

import re

from ..support.places import ROOT
from .modules import HOME

ANCHORS = set(re.findall(r'<a id="(law-\d+)">', (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")))
CITED = re.compile(r"\b[Ll]aws? \d+\b(?!\s*\(docs/laws\.md#law-\d+\))")
LINK = re.compile(r"\b[Ll]aw (\d+)\s*\(docs/laws\.md#(law-\d+)\)")


def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (ROOT / HOME).rglob("*.py")}


def test_every_law_has_an_anchor() -> None:
    laws = re.findall(r"^(\d+)\. ", (ROOT / "docs" / "laws.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"law-{number}" for number in laws} == ANCHORS


def test_a_law_is_cited_with_a_link() -> None:
    wrong = [f"{file}: {match.group()}" for file, text in sources().items() for match in CITED.finditer(text)]
    assert not wrong, "\n".join(["link it: law 3 (docs/laws.md#law-3)", *wrong])


def test_a_link_to_a_law_leads_there() -> None:
    links = {(file, *match) for file, text in sources().items() for match in LINK.findall(text)}
    assert links
    assert not [link for link in links if link[2] not in ANCHORS or link[2] != f"law-{link[1]}"]
