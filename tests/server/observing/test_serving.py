"""`unbraid serve` as a process: what it writes to stderr, and the spans that it sends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from unbraid.engines.replay import script
from unbraid.errors import UnbraidError
from unbraid.server.observing.otel import OpenTelemetry, tracer

from ...support import patient_http
from ...support.serve_process import Process, record, serve
from ...support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.system


def end(process: Process) -> list[str]:
    """End a server in order, and return its log."""
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(PATIENCE) == 0
    process.log_ended.wait(PATIENCE)
    return process.log


@pytest.fixture
def recording(tmp_path: Path) -> str:
    return record(tmp_path / "recording.jsonl", script("A secret."), script("A secret.").failing(2))


def test_every_line_is_json(recording: str) -> None:
    flags = ("--replay", recording, "--format", "hermes", "--log-format", "json")
    with serve(*flags, PYTHONWARNINGS="error") as process:
        process.chat(tools=[{"type": "function", "function": {"name": "f"}}])
        process.chat(stream=True)
        patient_http.get(f"{process.url}/models/%0a%00%ff", headers={"x-request-id": "x" * 129})
        lines = [json.loads(line) for line in end(process)]
    assert process.line.startswith("unbraid "), "the line that says it is ready is as it was"
    access = [line for line in lines if line["logger"] == "unbraid.access"]
    assert [(line["status"], line["outcome"]) for line in access] == [
        (200, "complete"),
        (502, "failed"),
        (404, "failed"),
    ]
    assert all(line["request_id"].startswith("req_") for line in access)
    assert {line["level"] for line in lines} <= {"info", "warning", "error"}
    assert "secret" not in json.dumps(lines)
    by_id = [line for line in lines if line.get("request_id") == access[0]["request_id"]]
    assert any("no place for tools" in line["message"] for line in by_id), "what a plan logs belongs to its request"


def test_text_lines(recording: str) -> None:
    with serve("--replay", recording, "--format", "hermes") as process:
        process.chat()
        lines = end(process)
    assert sum(" INFO unbraid.access [req_" in line for line in lines) == 1
    assert all(line[:2] == "20" for line in lines)


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_settings_that_are_wrong_are_json_too(more: tuple[str, ...]) -> None:
    flags = ["--port", "0", "--replay", "nowhere.jsonl", "--log-format", "json", *more]
    command = [sys.executable, "-m", "unbraid", "serve", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == (1 if more else 2)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert "nowhere.jsonl" in line["message"]
    assert line["level"] == "error"


def test_a_level_without_access_lines(recording: str) -> None:
    with serve("--replay", recording, "--format", "hermes", "--log-level", "error") as process:
        process.chat()
        assert end(process) == []


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Where spans are sent to, and those that have come."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest()
            sent.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
            for each in sent.resource_spans:
                names = {pair.key: pair.value.string_value for pair in each.resource.attributes}
                spans.extend((names["service.name"], span) for scope in each.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("more", "service"), [({}, "unbraid"), ({"OTEL_SERVICE_NAME": "mine"}, "mine")])
def test_spans_are_sent_by_otlp(recording: str, more: dict[str, str], service: str) -> None:
    """Those of the last requests, too, when the server ends."""
    with collector() as (url, spans):
        flags = ("--replay", recording, "--format", "hermes", "--otel")
        with serve(*flags, OTEL_EXPORTER_OTLP_ENDPOINT=url, **more) as process:
            process.chat()
            end(process)
        wait_for(lambda: len(spans) == 2)
    assert {name for name, _ in spans} == {service}
    assert sorted(span.name for _, span in spans) == ["chat recorded", "text_completion recorded"]


def test_no_collector_is_no_trouble(recording: str) -> None:
    nowhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with serve("--replay", recording, "--format", "hermes", "--otel", **nowhere) as process:
        assert process.chat().status_code == 200
        end(process)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "carrier-pigeon"}, "'carrier-pigeon'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "pip install opentelemetry-exporter-otlp-proto-grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "smoke"}, "'smoke'"),
    ],
)
def test_exporters_that_are_not_there(environment: dict[str, str], said: str) -> None:
    with pytest.raises(UnbraidError, match="there is no OpenTelemetry exporter") as raised:
        tracer(environment)
    assert said in str(raised.value)


class _Deaf(SpanExporter):
    """A collector that takes a connection and never answers."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        threading.Event().wait()
        return SpanExportResult.FAILURE


def test_a_collector_that_does_not_answer_does_not_keep_the_server(caplog: pytest.LogCaptureFixture) -> None:
    provider, exporter = TracerProvider(shutdown_on_exit=False), _Deaf()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1))
    tracing = OpenTelemetry(provider, farewell=0.01)
    tracing.request("GET", {}, {}).end()
    assert exporter.asked.wait(PATIENCE)
    tracing.close()
    assert "the last spans could not be sent" in caplog.text


def test_none_is_no_exporter() -> None:
    made = tracer({"OTEL_TRACES_EXPORTER": "none"})
    made.request("GET", {}, {}).end()
    made.close()


def test_without_the_extra_it_says_what_to_install(recording: str) -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from unbraid.cli import main\n"
        f"sys.exit(main(['serve', '--otel', '--replay', {recording!r}, '--format', 'hermes', '--port', '0']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "pip install 'unbraid[otel]'" in done.stderr
    assert "Traceback" not in done.stderr
