"""MkDocs' hooks: they add the pages that are made from the code, and those of the documents outside of `docs/`.

`mkdocs build` and `mkdocs serve` load this file by its path, so it puts the repository on Python's path itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from scripts.docs import (  # noqa: E402
    command_pages,
    format_pages,
    model_pages,
    reference_pages,
    route_pages,
    setting_pages,
)
from scripts.docs.format_index import linked  # noqa: E402
from scripts.docs.links import MOVED, for_site  # noqa: E402

_GENERATED = {
    setting_pages.PATH: setting_pages.page,
    command_pages.PATH: command_pages.page,
    route_pages.PATH: route_pages.page,
    model_pages.PATH: model_pages.page,
}
_INDEX = "formats.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation of what is generated: every format, by how it writes calls, and the reference."""
    formats: list[Any] = [
        {group: [{format.name: format_pages.path_of(format)} for format in formats]}
        for group, formats in format_pages.grouped().items()
    ]
    reference = [{title: reference_pages.path_of(name)} for name, (title, _, _) in reference_pages.PAGES.items()]
    for section in config.nav or ():
        for pages in section.get("Reference", ()):
            if isinstance(pages, dict):
                pages.get("Formats", []).extend(formats)
                pages.get("Python", []).extend(reference)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages that are no file of `docs/`."""
    made = {path: page() for path, page in _GENERATED.items()}
    made |= {
        format_pages.path_of(format): format_pages.page(format)
        for formats in format_pages.grouped().values()
        for format in formats
    }
    made |= {reference_pages.path_of(name): reference_pages.page(name) for name in reference_pages.PAGES}
    made |= {place: (ROOT / source).read_text(encoding="utf-8") for source, place in MOVED.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = page.file.src_uri
    if path == _INDEX:
        markdown = linked(markdown)
    sources = {place: source for source, place in MOVED.items()}
    if path in sources or (Path(config.docs_dir) / path).is_file():
        markdown = for_site(markdown, sources.get(path, f"docs/{path}"), files.src_uris)
    return markdown
