"""What `deploy/` says is true of the server, its settings, routes, metrics times; Kubernetes takes the manifests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from unbraid.server.settings import SETTINGS, ServerSettings
from unbraid.server.settings_sources import settings_of

from ..support.places import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*/*.yaml") if path.name != "kustomization.yaml")
BASES = sorted((DEPLOY / "kubernetes").glob("*/kustomization.yaml"))
TEXTS = sorted(path for path in DEPLOY.rglob("*") if path.is_file())


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_manifest_follows_the_schema_of_the_api(path: Path) -> None:
    kubernetes_validate.validate(read(path), "1.30", strict=True)


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.parent.name)
def test_a_base_names_all_its_files(path: Path) -> None:
    assert sorted(read(path)["resources"]) == sorted(each.name for each in MANIFESTS if each.parent == path.parent)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    names = set(re.findall(r"\bUNBRAID_[A-Z_]+\b", path.read_text(encoding="utf-8")))
    assert names <= {each.variable for each in SETTINGS}


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.parent.name)
def test_the_server_takes_the_settings_of_a_base(path: Path) -> None:
    (generated,) = read(path)["configMapGenerator"]
    environment = dict(literal.split("=", 1) for literal in generated["literals"])
    settings = settings_of({}, environment | {"UNBRAID_API_KEY": "key", "UNBRAID_SECRET": "s" * 32})
    assert settings.drain_seconds == 10
    assert settings.each_model()


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container of unbraid, with its pod."""
    for path in MANIFESTS:
        manifest = read(path)
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            yield from ((pod, each) for each in pod["containers"] if each["name"] == "unbraid")


def test_probes_ask_routes_that_are_there() -> None:
    text = (ROOT / "unbraid" / "server" / "app.py").read_text(encoding="utf-8")
    asked = {each[probe]["httpGet"]["path"] for _, each in containers() for probe in each if probe.endswith("Probe")}
    assert asked == {"/health", "/ready"}
    assert all(f'("{path}", "GET"' in text for path in asked)


def test_a_pod_has_time_to_end() -> None:
    drains = {int(text) for path in BASES for text in re.findall(r"DRAIN_SECONDS=(\d+)", path.read_text())}
    longest = max(drains) + ServerSettings().shutdown_seconds
    assert all(pod["terminationGracePeriodSeconds"] > longest for pod, _ in containers())


def test_no_container_is_root_or_writes_outside_its_volume() -> None:
    for pod, container in containers():
        context = {**pod["securityContext"], **container["securityContext"]}
        assert context["runAsNonRoot"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert [each["mountPath"] for each in container["volumeMounts"]] == ["/data"]


def metrics(text: str) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bunbraid_[a-z_]+\b", text)}


def test_rules_and_dashboard_name_metrics_that_are_there() -> None:
    documented = metrics((ROOT / "docs" / "operating.md").read_text(encoding="utf-8"))
    rules = (DEPLOY / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    shown = "\n".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    assert metrics(rules)
    assert metrics(shown)
    assert metrics(rules) | metrics(shown) <= documented


def test_prometheus_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    command = [promtool, "check", "rules", str(DEPLOY / "monitoring" / "alerts.yaml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
