"""What the pages that are made from the code are made of."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from operator import attrgetter

import pytest

from scripts.docs import model_pages
from scripts.docs.docstrings import with_section
from scripts.docs.format_pages import grouped
from scripts.docs.links import for_site
from scripts.docs.markdown import code, fence, table
from scripts.docs.samples import coloured, sample
from unbraid import Format, all_formats
from unbraid.formats.hub_names import HUB_NAMES

from ..support.places import ROOT


@pytest.mark.parametrize("format", all_formats(), ids=attrgetter("name"))
def test_a_coloured_sample_has_every_character_once(format: Format) -> None:
    made = sample(format)
    assert unescape(re.sub(r"<[^>]*>", "", coloured(made))) == made.text
    assert len(made.message.tool_calls) == (2 if format.tools is not None else 0)


def test_every_format_is_in_one_group() -> None:
    assert sorted(format.name for formats in grouped().values() for format in formats) == sorted(
        format.name for format in all_formats()
    )


def test_links_lead_to_where_files_are_on_the_site() -> None:
    files = {"index.md", "security.md", "server.md", "sub/page.md"}
    text = "[a](../SECURITY.md#x) [b](server.md) [c](../unbraid/errors.py) [d](https://a.org) [e](#here)"
    assert (
        for_site(text, "docs/library.md", files) == "[a](security.md#x) [b](server.md) c [d](https://a.org) [e](#here)"
    )
    assert for_site("[b](docs/server.md)", "README.md", files) == "[b](server.md)"
    assert for_site("![b](docs/assets/b.png)", "README.md", files) == "![b](assets/b.png)"


def test_code_and_comments_on_needs_are_left_alone_and_left_out() -> None:
    text = "<!-- needs: server -->\n```text\n[a](../SECURITY.md)\n```\nwrote [A][B], not `[A][B]`"
    assert for_site(text, "docs/a.md", set()) == "```text\n[a](../SECURITY.md)\n```\nwrote [A]\\[B], not `[A][B]`"


def test_parameters_get_a_section_of_their_own() -> None:
    text = "Do it.\n\na: the first,\n    and more.\nb, c: others.\nnote: no parameter.\n\nThe end."
    assert with_section(text, {"a", "b", "c"}) == (
        "Do it.\n\nnote: no parameter.\n\nThe end.\n\n"
        "Args:\n    a: the first,\n        and more.\n    b: others.\n    c: others."
    )
    assert with_section("a: no parameter", set()) == "a: no parameter"


def test_what_is_written_as_code_stays_what_it_is() -> None:
    assert code("a`b") == "`` a`b ``"
    assert code("<think>\n") == "`<think>\\n`"
    assert fence("text", "```\nx\n```").startswith("````text\n")
    assert table(("a",), [("x|y\nz",)]) == "| a |\n| --- |\n| x\\|y z |"


def test_models_are_listed_with_their_formats_and_templates() -> None:
    text = model_pages.page()
    for name, models in HUB_NAMES.items():
        for model in models:
            assert f"| `{model}` | [`{name}`](formats/{name}.md) |" in text
    templates = model_pages.vendor_templates()
    assert "meta-llama-Llama-3.1-8B-Instruct" in templates["llama-3"]
    assert set(templates) <= {format.name for format in all_formats()}


def test_the_copy_button_leaves_out_prompts_and_what_commands_print() -> None:
    """The theme copies what is displayed while it marks the block as being copied."""
    sheet = (ROOT / "docs/assets/site.css").read_text(encoding="utf-8")
    assert re.search(r"\[data-md-copying\] \.gp,\s.*\[data-md-copying\] \.go \{ display: none; \}", sheet)
    command = [sys.executable, "-m", "pygments", "-l", "console", "-f", "html"]
    console = "$ unbraid formats\nname  reasoning\n"
    lexed = subprocess.run(command, input=console, capture_output=True, text=True, check=True).stdout
    assert '<span class="gp">$ </span>' in lexed
    assert '<span class="go">name  reasoning</span>' in lexed
