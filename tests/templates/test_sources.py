"""Where templates are found: folders, files, configurations and the built-in ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unbraid.templates import (
    PromptBuilder,
    TemplateNotFound,
    built_in,
    from_source,
    load_templates,
)

from .prompt_cases import TOOLS


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_templates_in_a_folder(tmp_path: Path) -> None:
    config = {"chat_template": "{{ bos_token }}1", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}

    def render(name: str) -> str:
        return load_templates(tmp_path)[name].render([])

    write(tmp_path, {"tokenizer_config.json": config})
    assert render("default") == "<s>1"
    assert load_templates(tmp_path / "tokenizer_config.json")["default"].render([]) == "<s>1"
    named = [{"name": "default", "template": "2"}, {"name": "tool_use", "template": "{{ eos_token }}"}]
    write(tmp_path, {"tokenizer_config.json": {**config, "chat_template": named}})
    assert (render("default"), render("tool_use")) == ("2", "</s>")
    write(tmp_path, {"chat_template.json": {"chat_template": "3"}})
    assert render("default") == "3"
    write(tmp_path, {"chat_template.jinja": "4{{ bos_token }}", "additional_chat_templates/tool_use.jinja": "5"})
    assert (render("default"), render("tool_use")) == ("4<s>", "5")
    assert load_templates(tmp_path / "chat_template.jinja")["default"].render([]) == "4<s>"
    builder = PromptBuilder(load_templates(tmp_path))
    assert builder.build([{"role": "user", "content": "x"}]).text == "4<s>"
    assert builder.build([{"role": "user", "content": "x"}], tools=TOOLS).text == "5"


def test_templates_that_are_not_there(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "no chat template"), (tmp_path / "x", "no file or folder")):
        with pytest.raises(TemplateNotFound, match=says):
            load_templates(path)
    with pytest.raises(TemplateNotFound, match="not JSON"):
        load_templates(write(tmp_path, {"tokenizer_config.json": "{"}))
    with pytest.raises(TemplateNotFound, match="chatml"):
        built_in("nope")
    with pytest.raises(TemplateNotFound, match="text"):
        from_source(None)
