"""What the documentation points at is there: links, headings, and the paths of files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..support.places import ROOT
from .blocks import DOCUMENTS

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:unbraid|tests|bench|docs|examples|requirements|scripts)/[\w./-]+)`")
_CODE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)


def prose(document: Path) -> str:
    return _CODE.sub("", document.read_text(encoding="utf-8"))


def anchors(document: Path) -> set[str]:
    """The anchors of a document: its headings', as GitHub makes them, and those that it sets itself."""
    text = prose(document)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    own = re.findall(r'<a id="([\w-]+)"></a>', text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {*own}


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in [link for link in _LINK.findall(prose(document)) if not link.startswith(("http:", "https:"))]:
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{document.name}: there is no {path}"
        if anchor:
            assert anchor in anchors(target), f"{document.name}: {target.name} has no heading #{anchor}"


@each_document
def test_paths_that_are_named_are_there(document: Path) -> None:
    missing = [path for path in _PATH.findall(prose(document)) if not (ROOT / path).exists()]
    assert not missing


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_map_fits_one_screen() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"^```text\n(unbraid/\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found
    assert len(found[1].splitlines()) <= 40


def test_every_package_is_on_the_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    packages = [path.name for path in (ROOT / "unbraid").iterdir() if (path / "__init__.py").is_file()]
    missing = [name for name in packages if f"\n  {name}/ " not in text]
    assert not missing
