"""What the tests of the page do in it: go to a view, write, wait, and read links and the clipboard."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as TooLate

import unbraid

PAGE = Path(unbraid.__file__).parent / "server" / "playground" / "page"
VIEWS = ["apart", "constrain", "chat", "talk", "transcribe", "compare"]
CALL = (
    '<think>\nThey ask.\n</think>\n\nOne moment.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}'
)
CALL += "\n</tool_call>"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


def show(page: Page, view: str) -> None:
    """Go to a view, and wait until it is there."""
    page.locator(f"#view-{view}").click()
    expect(page.locator(f".view.{view} h1")).to_be_attached()
    if view == "apart":
        expect(page.locator(".badge")).to_contain_text("Same result")
    elif view == "constrain":
        expect(page.locator(".grammar")).to_contain_text("root ::=")
        expect(page.locator(".chips li").first).to_be_visible()
    elif view == "compare":
        expect(page.locator("tbody tr").first).to_be_visible()
    settled(page)


def settled(page: Page) -> None:
    """Wait until every question of the page is answered: nothing is redrawn until the next one."""
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")


def put(page: Page, text: str) -> None:
    """Have a text taken apart."""
    page.get_by_label("Raw output", exact=True).fill(text)
    spelled(page, ".raw .seg", text)
    settled(page)


def spelled(page: Page, selector: str, text: str) -> None:
    """Wait until these elements, one after the other, spell exactly this text."""
    joined = "selector => [...document.querySelectorAll(selector)].map(one => one.textContent).join('')"
    joined += ".replaceAll('\u23ce', '')"
    try:
        page.wait_for_function(f"([selector, text]) => ({joined})(selector) === text", arg=[selector, text])
    except TooLate:
        assert page.evaluate(joined, selector) == text


def linked(page: Page, holds: Callable[[dict[str, Any]], bool]) -> str:
    """The address, once what it holds is this."""
    page.wait_for_url(lambda url: "#s=" in url and holds(unpacked(url)))
    return page.url


def unpacked(url: str) -> dict[str, Any]:
    """What a link holds."""
    held = url.partition("#s=")[2]
    return dict(json.loads(zlib.decompress(base64.urlsafe_b64decode(held + "=" * (-len(held) % 4)), wbits=-15)))


def copied(page: Page, part: str) -> str:
    """What is in the clipboard, once it has this part."""
    read = "part => navigator.clipboard.readText().then(text => text.includes(part) && text)"
    return str(page.wait_for_function(read, arg=part).json_value())


def middle(page: Page, selector: str, across: float = 0.5) -> tuple[float, float]:
    """A point of an element that may be drawn anew: found and measured in one go."""
    measure = "selector => { const box = document.querySelector(selector)?.getBoundingClientRect();"
    measure += " return box && box.height ? [box.x, box.y, box.width, box.height] : null; }"
    x, y, width, height = page.wait_for_function(measure, arg=selector).json_value()
    return x + width * across, y + height / 2
