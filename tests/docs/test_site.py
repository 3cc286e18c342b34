"""The documentation's site: it builds without a dead link, and everything that has a name has its place on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from html.parser import HTMLParser
from operator import attrgetter
from pathlib import Path

import pytest

import unbraid
from unbraid import all_formats
from unbraid.cli import all_commands
from unbraid.server.api.openapi import description
from unbraid.server.settings import Settings

from ..support.places import ROOT
from .running import environment

pytestmark = pytest.mark.system

pytest.importorskip("mkdocs", reason="the site takes mkdocs: pip install -r requirements/test.txt")

ALL_FORMATS = list(all_formats())


def build(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(into),
    ]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


class Read(HTMLParser):
    """What a page shows, what can be linked to in it, and what a browser loads for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.ids: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if found.get("id"):
            self.ids.add(str(found["id"]))
        source = found.get("src") or (found.get("href") if tag == "link" else None)
        if source:
            self.loaded.add(source)

    def handle_data(self, data: str) -> None:
        self.text += data


@cache
def read(path: Path) -> Read:
    return Read(path)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(ALL_FORMATS)
    for page in pages:
        outside = [url for url in read(page).loaded if re.match(r"(\w+:)?//", url)]
        assert not outside, f"{page.name}: {outside}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


@pytest.mark.parametrize("format", ALL_FORMATS, ids=attrgetter("name"))
def test_every_format_has_a_page(site: Path, format: unbraid.Format) -> None:
    page = read(site / "formats" / f"{format.name}.html")
    for name in (format.name, *all_formats()[format]):
        assert name in page.text
    assert {"what-the-model-writes", "how-it-parses", "names-in-vllm-and-sglang", "its-constraint"} <= page.ids


def test_every_format_is_in_the_list(site: Path) -> None:
    index = (site / "formats.html").read_text(encoding="utf-8")
    missing = [format.name for format in ALL_FORMATS if f'<a href="formats/{format.name}.html"><code>' not in index]
    assert not missing


def test_every_setting_is_listed(site: Path) -> None:
    text = read(site / "settings.html").text
    for each in fields(Settings):
        if each.metadata:
            assert f"--{each.name.replace('_', '-')}" in text
            assert f"UNBRAID_{each.name.upper()}" in text


def test_every_route_is_listed(site: Path) -> None:
    text = read(site / "routes.html").text
    for path, operations in description()["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in text


def test_every_command_is_listed(site: Path) -> None:
    page = read(site / "commands.html")
    for name in all_commands():
        assert f"unbraid-{name}" in page.ids


@pytest.mark.parametrize("name", unbraid.__all__)
def test_every_public_name_is_in_the_reference(site: Path, name: str) -> None:
    found = [page.name for page in (site / "reference").glob("*.html") if f"unbraid.{name}" in read(page).ids]
    assert len(found) == 1


def test_the_search_knows_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"formats/hermes.html", "reference/parsing.html", "settings.html", "quickstart.html"} <= places


@pytest.mark.parametrize("link", ["nowhere.md", "index.md#nowhere", "#nowhere"])
def test_a_dead_link_fails(tmp_path: Path, link: str) -> None:
    """With the settings of the site, on a site of one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# One\n\n[dead]({link})\n", encoding="utf-8")
    config = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "hooks": [], "plugins": [], "nav": ["index.md"]}
    (tmp_path / "mkdocs.yml").write_text(json.dumps(config), encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
