"""What a verification found: a table, JSON, JUnit and one page of HTML; and two reports compared."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from ..version import __version__
from .checks import KINDS
from .refusals import RefusedField
from .running import Blamed, ProbeResult

Report = Mapping[str, Any]
"""A report as JSON has it: `url`, `model`, `api`, `probes`, each with its verdict and its faults."""


def report(
    results: Iterable[ProbeResult], *, url: str, model: str, api: str, refused: Mapping[str, RefusedField] | None = None
) -> dict[str, Any]:
    """A report of what came of the probes.

    refused: fields that the server did not take.
    """
    probes = [_probe(result) for result in results]
    return {
        "unbraid": __version__,
        "url": url,
        "model": model,
        "api": api,
        "ok": all(probe["verdict"] != "failed" for probe in probes),
        "refused": {name: {"remedy": each.remedy, "said": each.said} for name, each in (refused or {}).items()},
        "probes": probes,
    }


def _probe(result: ProbeResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "shows": result.shows,
        "verdict": result.verdict,
        "sureness": result.sureness,
        "trials": result.trials,
        "telling": result.telling,
        "faults": [_fault(each) for each in result.faults],
    }


def _fault(each: Blamed) -> dict[str, Any]:
    exchange = each.exchange
    return {
        "kind": each.fault.kind,
        "means": KINDS[each.fault.kind],
        "detail": each.fault.detail,
        "whose": each.whose,
        "streamed": exchange.streamed,
        "request": dict(exchange.body),
        "status": exchange.reply.status,
        "reply": exchange.raw,
        "written": exchange.written,
        "read": {"content": exchange.reply.content, "reasoning": exchange.reply.reasoning}
        | {"calls": [asdict(call) for call in exchange.reply.calls], "ending": exchange.reply.ending},
    }


def line(result: ProbeResult) -> str:
    """One row of the table in the terminal, with a line for each kind of fault."""
    rows = [f"{result.verdict:7} {result.name:10} {result.shows} ({result.sureness})"]
    kinds = dict.fromkeys((each.fault.kind, each.whose) for each in result.faults)
    for kind, whose in kinds:
        same = [each for each in result.faults if (each.fault.kind, each.whose) == (kind, whose)]
        rows.append(f"        {kind} ×{len(same)}, {whose}: {same[0].fault.detail[:300]}")
    return "\n".join(rows)


def refusals(report: Report) -> Iterator[str]:
    """A line for each field that the server did not take."""
    for name, each in report["refused"].items():
        yield f"{name} was {each['remedy']}; the server says: {' '.join(each['said'].split())[:300]}"


_SKIPPED = {"unsure": "", "model": "the model's own fault, "}
"""Verdicts that neither pass nor fail, and what is said of them."""


def as_junit(report: Report) -> str:
    """The report as JUnit's XML, which CI servers show."""
    failed = sum(probe["verdict"] == "failed" for probe in report["probes"])
    skipped = sum(probe["verdict"] in _SKIPPED for probe in report["probes"])
    counts = {"tests": str(len(report["probes"])), "failures": str(failed), "skipped": str(skipped)}
    suite = ElementTree.Element("testsuite", {"name": f"unbraid verify {report['url']}", **counts})
    for probe in report["probes"]:
        case = ElementTree.SubElement(suite, "testcase", {"classname": report["api"], "name": probe["name"]})
        if probe["verdict"] in _SKIPPED:
            ElementTree.SubElement(case, "skipped", {"message": _SKIPPED[probe["verdict"]] + probe["sureness"]})
        for fault in probe["faults"] if probe["verdict"] == "failed" else ():
            failure = ElementTree.SubElement(case, "failure", {"type": fault["kind"], "message": fault["means"]})
            failure.text = _printable(f"{fault['detail']}\n({fault['whose']})\n{json.dumps(fault['request'])}")
    if report["refused"]:
        ElementTree.SubElement(suite, "system-out").text = _printable("\n".join(refusals(report)))
    return ElementTree.tostring(suite, encoding="unicode")


def _printable(text: str) -> str:
    """A text without the characters that XML does not have."""
    return "".join(each if each >= " " or each in "\n\t" else f"\\x{ord(each):02x}" for each in text)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>unbraid verify: {title}</title>
<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}
td,th{{text-align:left;padding:.2rem .6rem}}
pre{{white-space:pre-wrap;overflow-wrap:anywhere;background:#8881;padding:.6rem}}
.failed{{color:#b00}}.unsure,.model{{color:#860}}</style>
<h1>{title}</h1><p>{about}</p>{refused}
<table><tr><th>verdict<th>probe<th>shows<th>how sure</tr>{rows}</table>{faults}</html>
"""


def as_html(report: Report) -> str:
    """The report as one page, with every exchange that shows a fault."""
    rows = "".join(
        f'<tr class="{probe["verdict"]}"><td>{probe["verdict"]}<td>{html.escape(probe["name"])}'
        f"<td>{html.escape(probe['shows'])}<td>{html.escape(probe['sureness'])}</tr>"
        for probe in report["probes"]
    )
    faults = "".join(_fault_html(probe["name"], fault) for probe in report["probes"] for fault in probe["faults"])
    about = html.escape(f"{report['model']}, {report['api']} API, unbraid {report['unbraid']}")
    refused = "".join(f"<p>{html.escape(text)}</p>" for text in refusals(report))
    return _PAGE.format(title=html.escape(report["url"]), about=about, refused=refused, rows=rows, faults=faults)


def _fault_html(probe: str, fault: Mapping[str, Any]) -> str:
    parts = {
        "Request": json.dumps(fault["request"], ensure_ascii=False, indent=1),
        "Reply": fault["reply"],
        "Written by the model": fault["written"],
    }
    blocks = "".join(
        f"<details><summary>{name}</summary><pre>{html.escape(text)}</pre></details>"
        for name, text in parts.items()
        if text is not None
    )
    title = html.escape(f"{probe}: {fault['means']} ({fault['whose']})")
    return f"<h2>{title}</h2><p>{html.escape(fault['detail'])}</p>{blocks}"


def compared(new: Report, old: Report) -> tuple[list[str], bool]:
    """What differs from a report before, a line each, and whether anything is worse."""
    before = {probe["name"]: probe for probe in old["probes"]}
    lines, worse = list[str](), False
    for probe in new["probes"]:
        was = before.get(probe["name"])
        if was is None:
            lines.append(f"{probe['name']}: {probe['verdict']}; not in the baseline")
            worse = worse or probe["verdict"] == "failed"
            continue
        kinds, past = (_kinds(each["faults"]) for each in (probe, was))
        if probe["verdict"] != was["verdict"] or kinds != past:
            lines.append(f"{probe['name']}: {was['verdict']} → {probe['verdict']}{_change(past, kinds)}")
        if probe["shows"] != was["shows"]:
            lines.append(f"{probe['name']}: {was['shows']} → {probe['shows']}")
        worse = worse or bool(_kinds(_of_server(probe)) - past)
    names = {probe["name"] for probe in new["probes"]}
    lines += (
        f"{name}: {was['verdict']} in the baseline; not asked now" for name, was in before.items() if name not in names
    )
    return lines, worse


def _of_server(probe: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [fault for fault in probe["faults"] if fault["whose"] != "model"]


def _kinds(faults: Sequence[Mapping[str, Any]]) -> set[str]:
    return {fault["kind"] for fault in faults}


def _change(old: set[str], new: set[str]) -> str:
    parts = [*(f"+{kind}" for kind in sorted(new - old)), *(f"-{kind}" for kind in sorted(old - new))]
    return f" ({', '.join(parts)})" if parts else ""
