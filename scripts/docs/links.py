"""Links that are right both where the sources are read and on the site.

Sources link to each other as files of the repository. On the site, some of these files have another place, and those
of the code are not there: what links to them becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files outside of `docs/` that are pages too, and where."""
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"^ *<!-- needs: .*? -->\n", re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LABEL = re.compile(r"(\] ?)\[")
_HOME = "docs"


def for_site(markdown: str, source: str, files: Collection[str]) -> str:
    """The Markdown of a page, with the links of the site.

    source: where it stands in the repository.
    files: all pages of the site.
    """
    markdown = _NEEDS.sub("", markdown)
    written, at = [], 0
    for fence in _FENCED.finditer(markdown):
        written += [_relinked(markdown[at : fence.start()], source, files), fence[0]]
        at = fence.end()
    return "".join([*written, _relinked(markdown[at:], source, files)])


def _relinked(text: str, source: str, files: Collection[str]) -> str:
    folder = posixpath.dirname(_place(source)) or "."

    def link(found: re.Match[str]) -> str:
        path, hash, anchor = found["target"].partition("#")
        if not path or ":" in path:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = _place(target)
        if target.startswith(f"{_HOME}/") or target in MOVED or place in files:
            return f"{found['image']}[{found['text']}]({posixpath.relpath(place, folder)}{hash}{anchor})"
        return found["text"]

    return _outside_code(_LINK.sub(link, text))


def _place(file: str) -> str:
    """Where a file of the repository is on the site."""
    return MOVED.get(file) or file.removeprefix(f"{_HOME}/")


def _outside_code(text: str) -> str:
    """Brackets that follow each other are quoted from templates (`[A] [B]`), and never a link by its label."""
    written, at = [], 0
    for code in _CODE.finditer(text):
        written += [_LABEL.sub(r"\1\\[", text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*written, _LABEL.sub(r"\1\\[", text[at:])])
