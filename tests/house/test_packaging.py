"""The package as it is published: its extras, its pins, and an sdist from which `make test` can run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..support.places import ROOT

IN_SDIST = ("tests", "examples", "docs", "bench", "requirements", "scoreboard", "scripts", "unbraid", "Makefile", ".ci")
SPEECH_ONLY = {"av", "numpy", "onnxruntime", "python-multipart"}
PRIVATE_PARTS_USED = ("jinja2", "onnxruntime")


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def required_by(extra: str) -> Iterator[Requirement]:
    """What an extra brings, with what the extras that it names bring."""
    for line in project()["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == "unbraid":
            for other in requirement.extras:
                yield from required_by(other)
        else:
            yield requirement


def names(extra: str) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in required_by(extra)}


def test_the_library_needs_nothing() -> None:
    assert project()["dependencies"] == []


def test_a_requirement_stands_in_one_extra() -> None:
    lines = [line for extra in project()["optional-dependencies"].values() for line in extra]
    once = [Requirement(line).name for line in lines if not line.startswith("unbraid[")]
    assert sorted(once) == sorted(set(once))


def test_the_text_server_brings_nothing_of_speech() -> None:
    assert not names("server") & SPEECH_ONLY
    assert names("speech") >= SPEECH_ONLY


def test_all_is_all_that_users_can_ask_for() -> None:
    extras = project()["optional-dependencies"]
    # Ray is a cluster, for those who have one; espeak-ng is under the GPL; a server has no microphone.
    beside = ("test", "ray", "voice", "voice-chinese", "voice-japanese", "microphone")
    assert names("all") == {name for extra in extras if extra not in beside for name in names(extra)}
    assert names("all") < names("test")


def test_what_is_used_in_private_has_an_upper_bound() -> None:
    private = [one for one in required_by("all") if canonicalize_name(one.name) in PRIVATE_PARTS_USED]
    assert private
    assert not [one for one in private if not any(bound.operator == "<" for bound in one.specifier)]


def test_the_pins_are_what_the_extras_ask_for() -> None:
    lines = (ROOT / "requirements" / "test.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in required_by("test"):
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"requirements/test.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}"


def wanted() -> set[str]:
    """What the sdist must hold: what git has of these folders, or all of them where there is no git (in an sdist)."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *IN_SDIST]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    files = (path for name in IN_SDIST for path in [ROOT / name, *(ROOT / name).rglob("*")] if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the sdist unpacks to."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return Path(str(archive).removesuffix(".tar.gz"))


def test_the_sdist_holds_all_that_its_tests_need(sdist: Path) -> None:
    missing = {name for name in wanted() if not (sdist / name).is_file()}
    assert not missing


def test_the_image_copies_all_that_the_package_is_built_from(tmp_path: Path) -> None:
    build = (
        (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").partition("\nFROM ")[2].partition("\nFROM ")[0]
    )
    for line in re.findall(r"^COPY (.+)$", build, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            place = tmp_path / target.strip("/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [*tmp_path.glob("*.whl")]


@pytest.mark.system
def test_the_tests_of_the_sdist_can_be_run(sdist: Path) -> None:
    """`make test` has all its rules, and every test module can be imported from there."""
    dry = subprocess.run(["make", "--dry-run", "test"], cwd=sdist, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    collected = subprocess.run(command, cwd=sdist, env=_environment(sdist), capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout[-4000:] + collected.stderr[-4000:]
    assert re.search(r"[1-9]\d* tests? collected|[1-9]\d*/\d+ tests collected", collected.stdout)


def _environment(sdist: Path) -> dict[str, str]:
    """The tests' own, but with the `unbraid` of the sdist."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    before = kept.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in before if path and not (Path(path) / "unbraid").is_dir()]
    return kept | {"PYTHONPATH": os.pathsep.join([str(sdist), *others])}


def test_every_extra_that_a_message_names_is_there() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "unbraid").rglob("*.py")
        for name in re.findall(r"unbraid\[([a-z]+)\]", path.read_text(encoding="utf-8"))
    }
    unknown = {(path, name) for path, name in found if name not in project()["optional-dependencies"]}
    assert not unknown


def test_the_documents_are_built_with_the_versions_of_the_tests() -> None:
    pins = [
        {line for line in (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines() if "==" in line}
        for name in ("docs.txt", "test.txt")
    ]
    assert pins[0]
    assert pins[0] < pins[1]


@pytest.mark.system
def test_a_release_works_outside_of_the_checkout(tmp_path: Path) -> None:
    """Without the site, which `tests/docs/test_site.py` builds."""
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), str(tmp_path / "dist")]
    command += ["--without-site", "--without-image"]  # minutes, and a registry of images
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.suffix for path in (tmp_path / "dist").iterdir()}
    assert {".whl", ".gz", ""} <= names
    lines = (tmp_path / "dist" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(list((tmp_path / "dist").iterdir())) - 1
