"""Text as XML writes it: entities, and sections in which all is text."""

from __future__ import annotations

import re

from ...lazily import lazily

SECTION_OPEN, SECTION_CLOSE = "<![CDATA[", "]]>"
AMPERSAND = "&"

_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ENTITY = rf"&(?:(?P<name>{'|'.join(_NAMED)})|#(?P<number>[0-9]{{1,7}})|#[xX](?P<hex>[0-9a-fA-F]{{1,6}}));"
_entity = lazily(lambda: re.compile(_ENTITY).match)
_begins = "|".join(sorted({name[:size] for name in _NAMED for size in range(1, len(name) + 1)}, key=len, reverse=True))
_begun = lazily(lambda: re.compile(rf"&(?:{_begins}|#(?:[0-9]{{0,7}}|[xX][0-9a-fA-F]{{0,6}}))?\Z").match)
_markup = lazily(
    lambda: (
        re.compile(rf"{_ENTITY}|{re.escape(SECTION_OPEN)}(?P<text>.*?)(?:{re.escape(SECTION_CLOSE)}|\Z)", re.DOTALL).sub
    )
)


def entity(text: str, at: int, more: bool) -> tuple[int, str]:
    """How long the entity is that begins at an ampersand, and the character that it is; length 0 where that cannot be
    told while more comes. An ampersand that begins none is itself."""
    found = _entity(text, at)
    if found is None:
        return (0, "") if more and _begun(text, at) else (1, AMPERSAND)
    char = _char(found)
    return (1, AMPERSAND) if char is None else (found.end() - at, char)


def decode(text: str) -> str:
    """What a text says. A section in it may be without its end."""
    return _markup(_decoded, text) if AMPERSAND in text or SECTION_OPEN in text else text


def encode(text: str) -> str:
    """A text so that it reads back as what it is: in a section, where there is anything in it that would not."""
    if "<" not in text and AMPERSAND not in text:
        return text
    # What ends a section is cut in two, with a section for each half.
    inside = text.replace(SECTION_CLOSE, f"]]{SECTION_CLOSE}{SECTION_OPEN}>")
    return f"{SECTION_OPEN}{inside}{SECTION_CLOSE}"


def encode_attribute(text: str) -> str:
    """A text as it stands in an attribute."""
    for name in ("amp", "lt", "gt", "quot"):
        text = text.replace(_NAMED[name], f"&{name};")
    return "".join(f"&#{ord(char)};" if char < " " else char for char in text)


def _char(found: re.Match[str]) -> str | None:
    """The character that an entity is; None for a number that is none."""
    name, number, hex = found.group("name", "number", "hex")
    if name:
        return _NAMED[name]
    code = int(number) if number else int(hex, 16)
    return chr(code) if code < 0xD800 or 0xE000 <= code <= 0x10FFFF else None


def _decoded(found: re.Match[str]) -> str:
    if found.group("text") is not None:
        return found.group("text")
    char = _char(found)
    return found.group() if char is None else char
