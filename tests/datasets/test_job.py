"""Jobs: files and folders, ended in the middle and taken up again."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unbraid import UnbraidError
from unbraid.cli import main
from unbraid.datasets.job import PARTS, JobProgress, kind_of, run, suffix_of
from unbraid.datasets.rows import COLUMNS, ERROR, ON_ERROR, OnError, Parsing, RowCounts

from ..support.byte_vocabulary import ByteVocabulary
from ..support.processes import is_running
from ..support.waiting import wait_for

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'unbraid[datasets]'")
import pyarrow.parquet as pq  # noqa: E402
import zstandard  # noqa: E402

PARSING = Parsing("qwen3", "output")
OUTPUT = (
    '<think>\nRow {}.\n</think>\n\nAnswer {}.\n<tool_call>\n{{"name": "f", "arguments": {{"n": {}}}}}\n</tool_call>'
)
ROWS = [{"n": n, "output": OUTPUT.format(n, n, n) if n % 10 else None} for n in range(400)]
KINDS = (".parquet", ".jsonl")
PACKED = (".jsonl.gz", ".jsonl.zst")


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".jsonl" in path.suffixes:
        write_lines(path, [json.dumps(row).encode() for row in rows])
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_lines(path: Path, lines: list[bytes]) -> Path:
    data = b"".join(line + b"\n" for line in lines)
    half = len(data) // 2  # two members, two frames: as tools that append write them
    if path.suffix == ".gz":
        data = gzip.compress(data[:half]) + gzip.compress(data[half:])
    elif path.suffix == ".zst":
        data = b"".join(zstandard.ZstdCompressor().compress(each) for each in (data[:half], data[half:]))
    path.write_bytes(data)
    return path


def read_lines(path: Path) -> list[bytes]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zst":
        with zstandard.open(path) as file:  # it stops after the first frame
            data = file.read()
    return data.splitlines()


def read(path: Path) -> list[dict[str, Any]]:
    if ".jsonl" in path.suffixes:
        return [json.loads(line) for line in read_lines(path)]
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def job(source: Path, target: Path, **options: Any) -> JobProgress:
    return run(source, target, PARSING, **{"processes": 2, "part_bytes": 4000, **options})


@pytest.mark.parametrize("kind", [*KINDS, PACKED[1]])
def test_a_file(tmp_path: Path, kind: str) -> None:
    source, target = write(tmp_path / f"in{kind}"), tmp_path / f"out{kind}"
    done = job(source, target)
    assert (done.share, done.counts.rows, done.counts.with_calls, done.kept) == (1.0, 400, 360, RowCounts())
    assert (done.counts.empty, done.counts.bad, done.counts.calls, done.counts.broken) == (40, 0, 360, {})
    rows = read(target)
    assert [{key: row[key] for key in ("n", "output")} for row in rows] == ROWS
    assert set(rows[0]) == {"n", "output", *COLUMNS, ERROR}
    assert [row["content"] for row in rows] == [f"Answer {n}." if n % 10 else None for n in range(400)]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"in{kind}", f"out{kind}"], "something was left"


def test_a_folder_of_both_kinds(tmp_path: Path) -> None:
    source = tmp_path / "in"
    for name in ("a.parquet", "deep/b.jsonl", "deep/_set_apart.jsonl"):
        write(source / name)
    done = job(source, tmp_path / "out")
    assert done.counts.rows == 800
    found = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*"))
    assert found == ["a.parquet", "deep/b.jsonl"]


@pytest.mark.parametrize("kind", [*KINDS, *PACKED])
@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(tmp_path: Path, kind: str, rows: int) -> None:
    source, target = tmp_path / f"in{kind}", tmp_path / f"out{kind}"
    if ".jsonl" in kind:
        write(source, ROWS[1 : 1 + rows])
    else:
        pq.write_table(pa.Table.from_pylist(ROWS).slice(1, rows), source)
    job(source, target)
    assert len(read(target)) == rows
    assert kind == ".jsonl" or target.stat().st_size  # the format of what is packed does not allow an empty file


def test_the_first_output_may_come_late(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl", [{"n": 1}] * 200 + ROWS[1:2]), tmp_path / "out.jsonl"
    assert parsed_here(source, target, PARSING).empty == 200
    assert read(target)[-1]["tool_calls"]


def test_lines_stay_as_they_are(tmp_path: Path) -> None:
    lines = [
        b'{"output": "One.", "big": 12345678901234567890.10, "twice": 1, "twice": 2, "half": "\\ud800"}\r',
        b"",
        '{ "a": "ä" , "output" : "Two." } '.encode(),
        b'{"output": "half: \\ud800"}',
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    job(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    written = (tmp_path / "out.jsonl").read_bytes().split(b"\n")
    for line, parsed in zip(lines, written, strict=False):
        assert parsed.startswith(line.rstrip()[:-1])
    rows = [json.loads(line) for line in written if line.strip()]
    assert [row["content"] for row in rows] == ["One.", "Two.", "half: \ud800"]


# Rows that cannot be parsed


def parsed_here(source: Path, target: Path, parsing: Parsing) -> RowCounts:
    """The same in this process."""
    kind = kind_of(source)
    kind.check(source, parsing)
    files, counts = [], RowCounts()
    for number, part in enumerate(kind.parts(source, 40)):
        files.append(target.with_name(f"{number}{suffix_of(source)}"))
        counts += kind.parse_part(part, parsing, files[-1])
    kind.put_together(source, parsing, files, target)
    return counts


BAD_LINES = [
    b'{"output": "One."}',
    b'{"output": ',
    b'{"output": 7, "n": 1}',
    b'{"n": 2}',
    b'["output"]',
    b"\xff",
    b'{"output": "Two.", "content": "mine"}',
    b"{}",
    b'{"output": "Three."}',
    '{"output": "Four."}'.encode("utf-16-le"),  # Python takes it as JSON, and the new keys are UTF-8
    b'{"output": "\xed\xa0\x80"}',  # half a character, as some write it, and as Python reads it
]
BAD = (2, 3, 5, 6, 7, 10)
"""The numbers of the bad ones. A row without the column is none."""
TEXTS = tuple(number for number in BAD if number != 3)
"""The same without the one that new keys can be added to."""


@pytest.mark.parametrize("kind", [".jsonl", *PACKED])
def test_a_bad_line_may_end_the_job(tmp_path: Path, kind: str) -> None:
    source, target = write_lines(tmp_path / f"in{kind}", BAD_LINES), tmp_path / f"out{kind}"
    with pytest.raises(UnbraidError, match=rf"in{kind}, line 2: no JSON.*--on-error keep"):
        parsed_here(source, target, Parsing("qwen3", "output", on_error="fail"))


@pytest.mark.parametrize("on_error", [each for each in ON_ERROR if each != "fail"])
@pytest.mark.parametrize("kind", [".jsonl", *PACKED])
def test_a_bad_line_is_no_end(tmp_path: Path, kind: str, on_error: OnError) -> None:
    source, target = write_lines(tmp_path / f"in{kind}", BAD_LINES), tmp_path / f"out{kind}"
    parsing = Parsing("qwen3", "output", on_error=on_error)
    counts = parsed_here(source, target, parsing)
    assert (counts.rows, counts.bad, counts.empty) == (len(BAD_LINES), len(BAD), 2)
    assert [re.findall(r", line (\d+): ", reason) for reason in counts.reasons] == [[str(number)] for number in BAD[:5]]
    rows = read(target)
    if on_error == "skip":
        assert [row["content"] for row in rows] == ["One.", None, None, "Three.", "\ud800"]
        assert not any(ERROR in row for row in rows)
        return
    assert [number for number, row in enumerate(rows, 1) if row[ERROR] is not None] == list(BAD)
    assert (rows[2]["output"], rows[2]["content"]) == (7, None)
    kept = [rows[number - 1]["line"].encode("utf-8", "surrogateescape") for number in TEXTS]
    assert kept == [BAD_LINES[number - 1] for number in TEXTS]


def test_the_reason_stands_in_a_column_with_the_prefix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_lines(tmp_path / "in.jsonl", [b'{"output": "One.", "error": 1}', b"no"])
    arguments = ["--dataset", str(source), "--out", str(tmp_path / "out.jsonl"), "--processes", "1"]
    assert main(["parse", "--format", "qwen3", *arguments]) == 2
    assert "has a column 'error' already: give the new ones a prefix" in capsys.readouterr().err
    assert main(["parse", "--format", "qwen3", "--prefix", "p_", *arguments]) == 0
    said = capsys.readouterr()
    assert "in.jsonl, line 2: no JSON" in said.err
    assert "- bad: 1, kept, with the reason in the column 'p_error'" in said.out
    assert [(row.get("error"), row["p_error"] is None) for row in read(tmp_path / "out.jsonl")] == [
        (1, True),
        (None, False),
    ]


NO_UTF8 = pa.Array.from_buffers(pa.string(), 3, pa.array([b"Hi", b"\xff", b"!"]).buffers())


@pytest.mark.parametrize("outputs", [[[72, 105], [72, None], [33]], NO_UTF8], ids=["ids", "bytes"])
@pytest.mark.parametrize("on_error", ["keep", "skip"])
def test_a_bad_row_of_parquet(tmp_path: Path, on_error: OnError, outputs: Any) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"ids": outputs}), source)
    parsing = Parsing("qwen3", "ids", tokenizer=ByteVocabulary(), on_error=on_error)
    counts = parsed_here(source, target, parsing)
    assert (counts.rows, counts.bad) == (3, 1)
    assert f"{source}, row 2: 'ids' must" in counts.reasons[0]
    kept = ["Hi", None, "!"] if on_error == "keep" else ["Hi", "!"]
    assert pq.read_table(target, columns=["content"])["content"].to_pylist() == kept


def test_broken_calls_are_counted_by_kind(tmp_path: Path) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'
    outputs = [call + call, call.replace("1", "x"), call[:-20], "Words."]
    source = write(tmp_path / "in.jsonl", [{"output": output} for output in outputs])
    counts = parsed_here(source, tmp_path / "out.jsonl", PARSING)
    assert (counts.calls, counts.broken) == (2, {"malformed_json": 1, "unfinished_call": 1})


# Ended in the middle


@pytest.mark.system
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_done_is_not_done_again(tmp_path: Path, kind: str) -> None:
    source, target = write(tmp_path / f"in{kind}"), tmp_path / f"out{kind}"

    def end(progress: JobProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job(source, target, progress=end)
    assert not target.exists()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / (target.name + PARTS)).rglob(f"*{kind}")}
    assert kept
    seen: list[dict[Path, int]] = []

    def look(progress: JobProgress) -> None:
        seen.append({path: path.stat().st_mtime_ns for path in kept if path.exists()})

    done = job(source, target, progress=look)
    assert seen[0] == kept, "a part that was there was written again"
    assert done.kept.rows >= 1
    assert (done.kept + done.counts).rows == 400
    job(source, tmp_path / f"again{kind}")
    assert read(target) == read(tmp_path / f"again{kind}"), "ids of calls and all"


SCRIPT = """
import multiprocessing, sys
from pathlib import Path
from unbraid.datasets.job import run
from unbraid.datasets.rows import Parsing

def tell(progress):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    sys.stdin.read()

if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), Parsing("qwen3", "output"), processes=2, part_bytes=4000, progress=tell)
"""


@pytest.mark.system
def test_a_job_that_was_killed_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    source, target, script = write(tmp_path / "in.parquet"), tmp_path / "out.parquet", tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(source), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        children = [int(pid) for pid in process.stdout.readline().split()]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(children) == 2
    wait_for(lambda: not any(map(is_running, children)))
    assert not target.exists()
    done = job(source, target)
    assert done.kept.rows >= 1
    assert (done.kept + done.counts).rows == 400
    assert [row["n"] for row in read(target)] == list(range(400))


def test_parts_of_another_job_are_not_taken(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    (tmp_path / f"out.jsonl{PARTS}").mkdir()
    (tmp_path / f"out.jsonl{PARTS}" / "job.json").write_text("{}")
    with pytest.raises(UnbraidError, match="parts of another job"):
        job(source, target)


# The command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = write(tmp_path / "in.parquet"), tmp_path / "out.parquet"
    command = ["parse", "--format", "qwen3", "--dataset", str(source), "--out", str(target), "--processes", "1"]
    assert main(command) == 0
    assert (
        capsys.readouterr().out
        == """\
rows: 400, read as qwen3
- without an output: 40
- with calls: 360
- with diagnostics: 0
calls: 360
"""
    )
    assert len(read(target)) == 400
    assert main(command) == 2
    assert "exists: remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "x.parquet"], "needs both"),
        (["--dataset", "no.parquet", "--out", "x.parquet"], "there is no file and no folder"),
        (["--dataset", "two.jsonl", "--out", "x.jsonl"], "Give --column: a, b"),
        (["--dataset", "two.jsonl", "--out", "x.parquet", "--column", "a"], "ends with .jsonl"),
        (
            ["--dataset", "two.jsonl", "--out", "x.jsonl", "--column", "c"],
            "two.jsonl has no column 'c'",
        ),
        (
            ["--dataset", "bad.jsonl", "--out", "x.jsonl", "--column", "a", "--on-error", "fail"],
            "bad.jsonl, line 2: no JSON",
        ),
        (
            ["--dataset", "cut.jsonl.gz", "--out", "x.jsonl.gz", "--column", "n"],
            "cut.jsonl.gz cannot be read to its end",
        ),
        (["--dataset", "cut.jsonl.zst", "--out", "x.jsonl.zst"], "cut.jsonl.zst cannot be read to its end"),
        (["--dataset", "bad.parquet", "--out", "x.parquet", "--column", "a"], "cannot be read as Parquet"),
        (["--dataset", "notes.txt", "--out", "x.txt", "--column", "a"], "no dataset that is known"),
        (["--dataset", ".", "--out", "deep/x", "--column", "a"], "lies in it"),
        (
            ["--dataset", "torn.parquet", "--out", "x.parquet", "--column", "a"],
            "torn.parquet cannot be read to its end",
        ),
        (["--dataset", "twice.parquet", "--out", "x.parquet", "--column", "a"], "has several columns 'a'"),
        (["--dataset", "ids.parquet", "--out", "x.parquet", "--column", "a"], "ids.parquet: 'a' holds token ids"),
        (
            ["--dataset", "ids.jsonl", "--out", "x.jsonl", "--column", "a"],
            "ids.jsonl, in its first 100 lines, 'a' holds",
        ),
        (
            ["--dataset", "two.jsonl", "--out", "notes.txt/x.jsonl", "--column", "a"],
            "--out notes.txt/x.jsonl cannot be written",
        ),
        (
            ["--dataset", "two.jsonl", "--out", "x.jsonl", "--column", "a", "--tokenizer", "notes.txt"],
            "notes.txt is no tokenizer that can be read",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "two.jsonl", [{"a": "x", "b": "y"}])
    (tmp_path / "bad.jsonl").write_text('{"a": "x"}\n{"a": ')
    for packed in PACKED:
        whole = write(tmp_path / f"whole{packed}").read_bytes()
        (tmp_path / f"cut{packed}").write_bytes(whole[: len(whole) // 3])
    (tmp_path / "bad.parquet").write_text("nothing of the kind")
    (tmp_path / "notes.txt").write_text("notes")
    write(tmp_path / "ids.jsonl", [{"a": [1, 2]}])
    write(tmp_path / "ids.parquet", [{"a": [1, 2]}])
    pq.write_table(pa.table([pa.array(["x"]), pa.array(["y"])], names=["a", "a"]), tmp_path / "twice.parquet")
    pq.write_table(
        pa.table({"a": ["word " * 1000]}), tmp_path / "torn.parquet", compression="none", use_dictionary=False
    )
    data = (tmp_path / "torn.parquet").read_bytes()
    (tmp_path / "torn.parquet").write_bytes(data.replace(b"\x88\x13\x00\x00word", b"\xff" * 8, 1))  # its length
    assert main(["parse", "--format", "qwen3", "--processes", "1", *arguments]) == 2
    assert said in capsys.readouterr().err
