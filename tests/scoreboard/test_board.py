"""The committed board: small, in agreement with its document, and without a wrong stream of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scoreboard.adapters import run_unbraid, worker
from scoreboard.board import DOCUMENT, FILE, OTHERS, collect, document, wilson
from scoreboard.corpus import SEED
from scoreboard.judge import FAULTS, Reply, judge
from scoreboard.peers import PEERS, Peer
from scoreboard.streams import CUTS, streams

README = Path(__file__).resolve().parents[2] / "README.md"
BOARD = json.loads(FILE.read_text(encoding="utf-8"))


def test_it_is_small_and_the_document_is_written_from_it() -> None:
    assert FILE.stat().st_size < 60_000
    assert DOCUMENT.read_text(encoding="utf-8") == document(BOARD)


def test_the_figures_of_the_readme_come_from_it() -> None:
    (row,) = (
        line for line in README.read_text(encoding="utf-8").splitlines() if "(docs/scoreboard.md); we wrote" in line
    )
    peers = {peer["name"]: peer for peer in BOARD["peers"]}
    right, count = peers["unbraid"]["all"]["right"]
    figures = [f"{right:,} of {count:,}, in {len(peers['unbraid']['formats'])} formats"]
    for name in ("vllm", "sglang"):
        right, count = peers[name]["all"]["right"]
        figures.append(f"{PEERS[name].title} {right / count:.1%}")
    assert [figure for figure in figures if figure not in row] == []


def test_every_peer_was_run_or_says_why_not() -> None:
    for peer in BOARD["peers"]:
        assert peer.get("missing") or (peer["versions"] and peer["all"]["right"][1])
        assert not set(peer.get("examples", ())) - set(FAULTS)


def test_unbraid_has_no_wrong_stream() -> None:
    ours = [peer for peer in BOARD["peers"] if peer["name"].startswith("unbraid")]
    assert len(ours) == 2
    for peer in ours:
        right, count = peer["all"]["right"]
        assert right == count
        assert peer["unjudged"] == {}
    assert BOARD["better"] == []


@pytest.mark.parametrize("name", ["hermes", "mistral-v3", "qwen3-coder", "glm-4.5", "deepseek-v3.1", "pythonic"])
@pytest.mark.parametrize("by_text", [False, True])
def test_unbraid_reads_these_streams_now(name: str, by_text: bool, tmp_path: Path) -> None:
    adapter = run_unbraid.Unbraid(by_text)
    kinds = ("calls", "markup-in-argument", "markup-in-answer", "text-after-call", "cut-off")
    for stream in streams(name, 1, kinds):
        job = stream.job(tmp_path)
        for cut in CUTS:
            reply = worker.one(adapter, job, job["cuts"][cut])
            assert judge(stream, Reply.of(reply)).faults == (), f"unbraid:{stream.meant.name}:{cut}"


def test_a_format_that_cannot_be_read_at_all_is_not_judged() -> None:
    verdict = {"faults": ["lost"], "exact": False, "unknown": ""}
    line = {"cell": "p:f:call:0", "peer": "p", "format": "f", "kind": "call", "source": "ours", "differs": []}
    lines = [line | {"verdicts": {"whole": verdict}, "argument_deltas": 0, "tokens": 9}]
    peers = {
        "p": {"title": "P", "note": "", "streams": False, "versions": {"p": "1"}},
        "q": {"title": "Q", "note": "", "missing": "no"},
    }
    board = collect({"peers": peers, "lines": lines, "seed": 1, "machine": "here"}, 1)
    assert board["peers"][0]["unjudged"] == {"f": "0 of 1 of the kind `call` are right (lost)"}
    assert board["peers"][0]["formats"] == {}
    assert board["peers"][0]["every"] == [0, 1]
    assert "| Q | no |" in document(board)
    assert "| P | f | does not count | 0 of 1 " in document(board)


def test_a_format_that_a_peer_cannot_read_by_its_own_fault_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "p", Peer("p", "P", "", faults={"f": "its name"}))
    verdict = {"faults": ["lost"], "exact": False, "unknown": ""}
    line = {"cell": "p:f:call:0", "peer": "p", "format": "f", "kind": "call", "source": "ours", "differs": []}
    lines = [line | {"verdicts": {"whole": verdict}, "argument_deltas": 0, "tokens": 9}]
    peers = {"p": {"title": "P", "note": "", "streams": False, "versions": {"p": "1"}}}
    board = collect({"peers": peers, "lines": lines, "seed": 1, "machine": "here"}, 1)
    assert board["peers"][0]["formats"] == {"f": [0, 1]}
    assert board["peers"][0]["unjudged"] == {}
    assert "| P | f | counts | its name |" in document(board)


def test_the_seed_of_the_board_is_none_that_was_looked_at() -> None:
    assert SEED not in OTHERS
    assert BOARD["seed"] == BOARD["constraints"]["seed"] == SEED


def test_intervals() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(10, 10)[1] == 1.0
    assert wilson(50, 100) == pytest.approx((0.404, 0.596), abs=0.001)


def test_a_cell_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    from scoreboard.__main__ import main

    assert main(["show", "unbraid:hermes:call:0:tokens"]) == 0
    out = capfd.readouterr().out
    assert "<tool_call>" in out
    assert "tokens: right" in out
    assert main(["show", "hermes"]) == 2


def test_the_adapters_need_no_unbraid() -> None:
    scripts = Path(worker.__file__).parent.glob("run_*.py")
    assert [one.name for one in scripts if "import unbraid" in one.read_text(encoding="utf-8")] == ["run_unbraid.py"]
