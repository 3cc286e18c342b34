"""`unbraid transcribe` as a process: its formats, several files, and what it says when something is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from ..speech.whisper.whisper_models import files
from ..support.places import ROOT
from ..support.real_speech import recording
from ..support.waiting import PATIENCE

pytestmark = pytest.mark.system

pytest.importorskip("av", reason="av is not installed: pip install av")

CLOCK = r"\d\d:\d\d:\d\d,\d{3}"


def command(*arguments: str | Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "unbraid",
        "transcribe",
        "--model",
        str(files("whisper-tiny").folder),
        *map(str, arguments),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(command(*arguments), capture_output=True, env=environment(), timeout=PATIENCE)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def weasels() -> Path:
    return recording("en", "tt-weasels").path


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    """It is no recording, whatever its name is."""
    path = tmp_path / "letter.mp3"
    path.write_bytes(b"Dear Sir or Madam,\n" * 100)
    return path


def test_several_files_of_which_some_are_broken(weasels: Path, letter: Path, tmp_path: Path) -> None:
    """The others are transcribed all the same."""
    code, out, err = run(weasels, letter, tmp_path / "none.wav", recording("fr", "tt-weasels").path)
    assert code == 2
    french_path = recording("fr", "tt-weasels").path
    first, english, empty, second, french = out.splitlines()
    assert (first, empty, second) == (f"==> {weasels} <==", "", f"==> {french_path} <==")
    assert "phone system" in english
    assert "téléphonique" in french
    missing, broken = err.splitlines()  # what is missing is told before a model is loaded
    assert missing == f"unbraid: {tmp_path / 'none.wav'}: there is no such file: check its path"
    assert broken.startswith(f"unbraid: {letter}: ")
    assert "not a sound file" in broken


def test_a_folder_and_a_pipe_as_json_lines(weasels: Path, tmp_path: Path) -> None:
    """The recordings in a folder and the folders in it, by their names; what is hidden or no recording is left out."""
    inner = tmp_path / "talks" / "b"
    inner.mkdir(parents=True)
    for path in (inner / "Deep.WAV", tmp_path / "talks" / "a.wav", tmp_path / "talks" / ".hidden.wav"):
        path.write_bytes(weasels.read_bytes())
    (inner / "notes.txt").write_text("not a recording")
    with weasels.open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as pipe:
        done = subprocess.run(
            command(tmp_path / "talks", "-", "--format", "json", "--language", "en"),
            stdin=pipe.stdout,
            capture_output=True,
            env=environment(),
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    found = [json.loads(line) for line in done.stdout.decode().splitlines()]
    names = [str(tmp_path / "talks" / "a.wav"), str(inner / "Deep.WAV"), "-"]
    assert [one["file"] for one in found] == names
    assert all("phone system" in one["text"] for one in found)


def test_nothing_to_transcribe_loads_no_model(tmp_path: Path) -> None:
    """Not even one that is not there."""
    (tmp_path / "empty").mkdir()
    code, out, err = run(tmp_path / "none.wav", tmp_path / "empty", "--model", "nobody/has-this")
    assert (code, out) == (2, "")
    missing, empty = err.splitlines()
    assert "no such file" in missing
    assert "no recordings in this folder (aac, flac, " in empty


def test_standard_input_that_is_no_recording() -> None:
    ours, theirs = pty.openpty()
    for given, stdin, message in (
        (["-"], theirs, "pipe one in"),
        (["-", "-"], subprocess.DEVNULL, "was given twice"),
        (["-"], subprocess.DEVNULL, "is empty"),
    ):
        done = subprocess.run(
            command(*given), stdin=stdin, capture_output=True, env=environment(), timeout=PATIENCE, text=True
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    os.close(ours)
    os.close(theirs)


def test_a_model_that_cannot_be_fetched(weasels: Path, tmp_path: Path) -> None:
    """Without a network: what could not be had, and why."""
    nowhere = "http://127.0.0.1:9"
    offline = {"UNBRAID_CACHE": str(tmp_path), "npm_config_registry": nowhere, "npm_config_fetch_retries": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "unbraid", "transcribe", str(weasels), "--model", "moonshine-tiny-en", "--no-vad"],
        capture_output=True,
        env={**environment(), **offline},
        timeout=PATIENCE,
        text=True,
    )
    assert done.returncode == 2
    assert "@usefulsensors/moonshine-js@0.1.21" in done.stderr
    assert "Traceback" not in done.stderr


def test_srt(weasels: Path) -> None:
    code, out, err = run(weasels, "--format", "srt", "--language", "English")
    assert (code, err) == (0, "")
    assert re.fullmatch(f"1\n{CLOCK} --> {CLOCK}\nWeasels have eaten our phone system.\n", out)


def test_translations_into_a_folder(tmp_path: Path) -> None:
    """In the format of the API, each in a file of its own."""
    spanish, french = recording("es", "demo-thanks").path, tmp_path / "fr.wav"
    french.write_bytes(recording("fr", "demo-thanks").path.read_bytes())
    folder = tmp_path / "new" / "folder"
    code, out, err = run(spanish, french, "--translate", "--format", "verbose_json", "--output", folder)
    assert (code, out, err) == (0, "", "")
    found = {path.name: json.loads(path.read_text("utf-8")) for path in folder.iterdir()}
    assert found.keys() == {"demo-thanks.json", "fr.json"}
    assert {each["language"] for each in found.values()} == {"spanish", "french"}
    for each in found.values():
        assert each["task"] == "translate"
        assert each["text"], "what a tiny model makes of it is its affair"


def test_words_and_beams(weasels: Path) -> None:
    code, out, err = run(weasels, "--format", "verbose_json", "--word-timestamps", "--beam-size", "2")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [word["word"] for word in found["words"]] == found["text"].split()
    assert found["words"][0]["start"] < found["words"][-1]["end"] <= found["duration"]
    code, out, _ = run(weasels, "--format", "verbose_json")
    assert "words" not in json.loads(out)


def test_json_and_what_it_may_be(weasels: Path) -> None:
    code, out, _ = run(
        weasels, "--format", "json", "--languages", "de, en", "--prompt", "Weasels", "--temperature", "0"
    )
    assert code == 0
    found = json.loads(out)
    assert (found["language"], found["usage"]) == ("en", {"type": "duration", "seconds": 3})


def test_a_language_that_is_not_known(weasels: Path) -> None:
    code, out, err = run(weasels, "--language", "germn")
    assert (code, out) == (2, "")
    assert "knows no language 'germn'; near it are german" in err
    assert "Traceback" not in err


def test_settings_that_are_wrong(weasels: Path, tmp_path: Path) -> None:
    code, _, err = run(weasels, "--temperature", "3")
    assert (code, err) == (2, "unbraid: --temperature must be from 0 to 1, not 3\n")
    (tmp_path / f"{weasels.stem}.mp3").write_bytes(b"other")
    code, _, err = run(weasels, tmp_path / f"{weasels.stem}.mp3", "--output", tmp_path)
    assert code == 2
    assert f"would both be written to {tmp_path / weasels.stem}.txt" in err
    code, _, err = run(weasels, "--word-timestamps")
    assert (code, err) == (2, "unbraid: --word-timestamps needs --format verbose_json: text has no place for them\n")
    code, _, err = run(weasels, "--beam-size", "9")
    assert (code, err) == (2, "unbraid: this model takes 1 to 8 beams, not 9\n")
    code, _, err = run(weasels, "--format", "xml")
    assert code == 2
    assert "verbose_json" in err


def test_a_model_that_is_not_there(weasels: Path) -> None:
    code, _, err = run(weasels, "--model", "whisper-gigantic")
    assert code == 2
    assert "whisper-base" in err
    assert "Traceback" not in err


def test_the_line_that_says_how_far_it_is(weasels: Path) -> None:
    """On a terminal only, and gone at the end."""
    ours, theirs = pty.openpty()
    done = subprocess.run(command(weasels), stdout=subprocess.PIPE, stderr=theirs, env=environment(), timeout=PATIENCE)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert b"phone system" in done.stdout
    assert f"\r{weasels.name} [en] 0:02 of 0:02 [##############################] 100%, 0:00 left" in shown
    assert shown.endswith("\r\x1b[K")


def test_interrupted(tmp_path: Path) -> None:
    """It ends at once, without a word."""
    path = tmp_path / "long.wav"
    with wave.open(str(recording("en", "demo-instruct").path)) as speech, wave.open(str(path), "wb") as long:
        long.setparams(speech.getparams())
        long.writeframes(speech.readframes(speech.getnframes()) * 20)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(path), stdout=subprocess.PIPE, stderr=theirs, env=environment())
    os.close(theirs)
    shown = b""
    while b"[en] 0:" not in shown:  # the first chunk is done, and the model works on the next ones
        shown += os.read(ours, 10_000)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    with contextlib.suppress(OSError):  # how a terminal says that it is at its end
        while more := os.read(ours, 10_000):
            shown += more
    os.close(ours)
    assert process.returncode == 130
    assert out.strip(), "text is there as it is made"
    assert shown.endswith(b"\r\x1b[K")  # nothing but the line, which is gone
    assert b"Traceback" not in shown
