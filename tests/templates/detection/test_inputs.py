"""Detection: what can be given to it, and the command `unbraid detect`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unbraid
from unbraid import UnbraidError
from unbraid.cli import main
from unbraid.templates import built_in
from unbraid.templates.detection import Detection

from ...support.embedded_model import smollm2
from ..prompt_models import template_source
from .templates import CHATML, ENDLESS, SYNTHETIC, chat, made_from


def test_the_template_for_tools_tells_more() -> None:
    found = unbraid.detect(
        {
            "chat_template": [
                {"name": "default", "template": CHATML},
                {"name": "tool_use", "template": SYNTHETIC["numbers"]},
            ]
        }
    )
    assert found.how == "derived"
    assert unbraid.detect({"chat_template": {"default": SYNTHETIC["numbers"], "other": CHATML}}).how == "derived"


def test_a_gguf_file(tmp_path: Path) -> None:
    path = smollm2().gguf
    assert unbraid.detect(path).how == "plain"
    (tmp_path / "model.gguf").symlink_to(path)
    assert unbraid.detect(tmp_path).how == "plain"


@pytest.mark.parametrize("name", ["chatml", "step-audio-2"])
def test_templates_of_our_own(name: str) -> None:
    assert unbraid.detect(built_in(name)).name == ("plain" if name == "chatml" else name)


def test_what_holds_no_template(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere", {"eos_token": "</s>"}, {}):
        with pytest.raises(UnbraidError, match=r"chat.template|no file"):
            unbraid.detect(place)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UnbraidError, match="not JSON"):
        unbraid.detect(tmp_path / "config.json")
    with pytest.raises(UnbraidError, match="give it as Path"):
        unbraid.detect(str(tmp_path))
    with pytest.raises(UnbraidError, match="not int"):
        unbraid.detect(3)  # type: ignore[arg-type]


def test_the_library_stays_light() -> None:
    """Importing it brings neither jinja2 nor the detection; where jinja2 is missing, the error says so."""
    code = (
        "import sys; import unbraid; assert not {'jinja2', 'unbraid.templates'} & set(sys.modules)\n"
        "sys.modules['jinja2'] = None\n"
        "try: unbraid.detect('{{ messages }}')\n"
        "except unbraid.UnbraidError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert "pip install 'unbraid[templates]'" in done.stdout


# --- The command ------------------------------------------------------------------------------------------------------


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["detect", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "chat_template.jinja").write_text(SYNTHETIC["JSON in tags"])
    return tmp_path


def test_the_command_says_why_and_what_to_do(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = command(capsys, str(folder))
    assert (code, err) == (0, "")
    assert out.startswith("derived\n- no registered format reads what the template writes")
    written = out[out.index("unbraid.register(") + len("unbraid.register(") :].strip()
    assert made_from(written[:-1]) == unbraid.detect(folder).format


def test_the_command_names_a_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template_source("Qwen-Qwen3-0.6B"))
    code, out, _ = command(capsys, str(tmp_path / "chat_template.jinja"))
    assert code == 0
    assert out.startswith("qwen3\n- ")
    assert "--format qwen3" in out


def test_the_command_as_json(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, _ = command(capsys, "--json", str(folder))
    said = json.loads(out)
    assert code == 0
    assert (said["format"], said["verified"], said["how"]) == ("derived", True, "derived")
    assert made_from(said["definition"]) == unbraid.detect(folder).format


def test_the_command_where_nothing_is_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text(chat("<act>{{ f.name }}: {{ f.arguments.values() | join }}</act>"))
    code, out, err = command(capsys, str(path))
    assert (code, out) == (2, "")
    assert "no format was found" in err
    assert "Nearest are" in err
    assert "Add a format" in err
    code, out, err = command(capsys, "--json", str(path))
    assert (code, json.loads(out)["format"]) == (2, None)


@pytest.mark.parametrize(("text", "said"), [("Hello.", "no chat template"), (ENDLESS, "steps")])
def test_the_command_with_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "chat_template.jinja"
    path.write_text(text)
    code, out, err = command(capsys, str(path))
    assert (code, out) == (2, "")
    assert said in err
    code, _, err = command(capsys, str(tmp_path / "nowhere"))
    assert code == 2
    assert "no file or folder" in err


def test_a_detection_without_a_format_is_a_value() -> None:
    nothing = Detection(None, False, "none", ("why",), ("hermes",))
    assert (nothing.name, nothing.definition) == (None, None)
    assert nothing.to_json()["alternatives"] == ["hermes"]
