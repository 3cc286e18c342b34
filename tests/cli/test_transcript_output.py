"""What `unbraid transcribe` writes, without a model: several transcripts in one stream, and how far it is."""

from __future__ import annotations

import io
import json
import sys
import wave
from pathlib import Path

import pytest

from unbraid import UnbraidError
from unbraid.cli.transcribe.transcripts import (
    ProgressLine,
    RecordingFile,
    TranscriptFiles,
    TranscriptStream,
    lengths,
    transcript_place,
)
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.outputs import ResponseFormat, render_transcript
from unbraid.speech.transcript import Delta, Segment, Transcript

SEGMENTS = (Segment(0.0, 1.5, " Hello there.", "en"), Segment(2.0, 3.0, " Good bye -->", "en"))
TRANSCRIPT = Transcript("Hello there. Good bye -->", "en", 0.9, 3.0, SEGMENTS)
OPTIONS = TranscriptionOptions()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(format: ResponseFormat, names: tuple[str, ...], to: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stdout", to)
    stream = TranscriptStream(format, OPTIONS, several=len(names) > 1)
    for name in names:
        stream.begin(RecordingFile(name, name, Path(name)))
        for segment in SEGMENTS:
            stream.delta(Delta(segment.text))
            stream.segment(segment)
            stream.rest()
        stream.end(TRANSCRIPT)
    return to.getvalue()


@pytest.mark.parametrize("format", ["text", "srt", "vtt"])
def test_one_is_as_it_always_was_and_several_are_told_apart(
    format: ResponseFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = render_transcript(TRANSCRIPT, format, OPTIONS)
    assert written(format, ("a.wav",), io.StringIO(), monkeypatch) == alone
    both = written(format, ("a.wav", "b.wav"), io.StringIO(), monkeypatch)
    assert both == f"==> a.wav <==\n{alone}\n==> b.wav <==\n{alone}"


@pytest.mark.parametrize("format", ["json", "verbose_json"])
def test_json_is_a_line_each(format: ResponseFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = render_transcript(TRANSCRIPT, format, OPTIONS)
    assert isinstance(alone, dict)
    assert json.loads(written(format, ("a.wav",), io.StringIO(), monkeypatch)) == alone
    lines = written(format, ("a.wav", "b.wav"), io.StringIO(), monkeypatch).splitlines()
    assert [json.loads(line) for line in lines] == [{"file": name, **alone} for name in ("a.wav", "b.wav")]


def test_one_recording_goes_to_several_files(tmp_path: Path) -> None:
    names = ("talk.srt", "talk.vtt", "talk.TXT", "talk.json", "folder")
    files = TranscriptFiles([transcript_place(str(tmp_path / name), "text") for name in names], OPTIONS)
    files.begin(RecordingFile("talk.wav", "talk.wav", Path("talk")))
    files.end(TRANSCRIPT)
    formats: dict[str, ResponseFormat] = {"talk.srt": "srt", "talk.vtt": "vtt", "talk.TXT": "text"}
    for name, format in formats.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == render_transcript(TRANSCRIPT, format, OPTIONS)
    assert (tmp_path / "folder" / "talk.txt").read_text(encoding="utf-8") == TRANSCRIPT.text + "\n"
    assert json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))["segments"]


@pytest.mark.parametrize(("name", "format"), [("a.json", "json"), ("a.json", "verbose_json"), ("a.srt", "srt")])
def test_the_format_that_is_named_is_kept_where_the_ending_allows_it(name: str, format: ResponseFormat) -> None:
    assert transcript_place(name, format).format == format


def test_an_ending_that_is_no_format_is_refused_and_not_made_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnbraidError, match=r"ends with \.txt, \.srt, \.vtt, \.json, and a folder with /"):
        transcript_place("talk.docx", "text")
    (tmp_path / "v1.0").mkdir()
    for folder in ("transcripts", "v1.1/", "..", str(tmp_path / "v1.0")):
        assert transcript_place(folder, "text").is_folder


def test_on_a_terminal_each_part_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there is room for the progress below it."""
    assert written("text", ("a.wav",), Terminal(), monkeypatch) == "Hello there.\nGood bye -->\n"


@pytest.mark.parametrize("to", [io.StringIO, Terminal])
def test_one_that_breaks_off(to: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = to()
    monkeypatch.setattr(sys, "stdout", stdout)
    stream = TranscriptStream("text", OPTIONS, several=True)
    for name in ("a.wav", "b.wav", "c.wav"):
        stream.begin(RecordingFile(name, name, Path(name)))
        if name != "b.wav":  # nothing is known of it
            stream.delta(Delta(" Hello"))
        if name == "c.wav":
            stream.end(Transcript("Hello", "en", None, 1.0, ()))
        else:
            stream.broken_off()
    assert stdout.getvalue() == "==> a.wav <==\nHello\n\n==> c.wav <==\nHello\n"


def test_how_far_it_is_and_how_long_it_will_take() -> None:
    now, total = [100.0], [None]
    line = ProgressLine(clock=lambda: now[0])
    line.begin(0, "talk.mp3", lambda: total[0])
    assert line.line(0.0) == "talk.mp3 0:00"
    total[0] = 4000.0  # type: ignore[call-overload]
    assert line.line(0.0) == "talk.mp3 0:00 of 1:06:40 [..............................] 0%"
    now[0], line.language = 130.0, "en"
    assert line.line(1000.0) == "talk.mp3 [en] 16:40 of 1:06:40 [#######.......................] 25%, 1:30 left"
    assert line.line(9000.0).endswith("100%, 0:00 left")


def test_several_recordings_have_one_bar() -> None:
    """Its share and the time left are those of all."""
    now = [100.0]
    line = ProgressLine([60.0, 120.0, 20.0], clock=lambda: now[0])
    line.begin(0, "(1/3) a.mp3", lambda: 60.0)
    assert line.line(0.0) == "(1/3) a.mp3 0:00 of 3:20 [..............................] 0%"
    now[0] = 110.0
    line.begin(1, "(2/3) b.mp3", lambda: 120.0)
    assert line.line(40.0) == "(2/3) b.mp3 1:40 of 3:20 [###############...............] 50%, 0:10 left"


def test_the_lengths_of_recordings_are_read_without_decoding_them(tmp_path: Path) -> None:
    """One that is no recording has none, and is told when it is its turn; what is no file says nothing."""
    pytest.importorskip("av", reason="av is not installed: pip install av")
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000 * 3))
    (tmp_path / "b.wav").write_bytes(b"Dear Sir or Madam," * 99)
    sound, letter = (RecordingFile(name, str(tmp_path / name), Path(name)) for name in ("a.wav", "b.wav"))
    assert lengths([sound, letter, sound]) == [3.0, 0.0, 3.0]
    assert lengths([sound, RecordingFile("-", io.BytesIO(), Path("stdin"))]) is None
