"""The playground as a static site: one folder that any host can serve, with the parser in the browser.

    python -m unbraid.server.playground.site build/site

The folder has the page, Pyodide (CPython compiled for browsers, from npm), an archive of Python modules that are
imported from it as it is, one of msgspec, which is compiled and so has to be unpacked, and the memory of a Python that
has started and answered (`snapshot.mjs`, run here by Node). To start Python and import the library takes a browser
seconds; to go on from its memory does not. Nothing comes from elsewhere while the page runs, and a service worker keeps
all of it, so that it works offline once it was open.

A version of Pyodide goes with a version of Python, and compiled packages with that: change `PYODIDE` and `MSGSPEC`
together. Pyodide calls its snapshots experimental: they are for exactly the version that made them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from ...errors import UnbraidError
from ...models.cache import cache_folder, keep
from ...models.pinned import PinnedPackage, take_files
from ...models.progress import bar
from .views import about, documents

PYODIDE = PinnedPackage("npm:pyodide@314.0.7", 6_488_647)
PYODIDE_FILES = {
    "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
    "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
    "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
    "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
    "pyodide-lock.json": "5dc2fc119108bc148c7457dc86e7675b5c87e1cafd420b9c34c1eaef7b36c010",
}
MSGSPEC = PinnedPackage(
    "pypi:msgspec==0.22.0",
    136_814,
    ("--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14", "--implementation", "cp"),
)
MSGSPEC_FILES = {  # in its folder `msgspec`
    "__init__.py": "d5330f3406745b0ffde3a1ed17bc20dc5ec47bc5362939520138d710d2202f26",
    "_core.cpython-314-wasm32-emscripten.so": "01924fcc69e023baba88398727711be1a77cce2475134eadd3ab4e5fd7b0fde7",
    "_json_schema.py": "887a97cfc2f43db20438f5092667c73ed2e265563a9564582ed218cbb178a157",
    "_typing_utils.py": "aa6e8036f1f0a5e1e3e853899c660bb3bf84e23723ecce38a2a649e4d724cfb8",
    "_utils.py": "0e50dee5699999112139e3752be6491a4f0253142c7f977618bdff677a555aae",
    "_version.py": "458083f5fa36540ea5be4efe3a9fb6fa3b8a328c85d531aa7e7610c0abdc8da4",
    "inspect.py": "3d4a7cc4d904a04b79a267e33ede18c7ef7027ded3c1589f18707f7c36950ad6",
    "json.py": "908ce99b6347b339007c06cd71e9b1abf8541cab77ab11f6f72001287d0c9d3b",
    "msgpack.py": "25244b704aa9c82830cbfc03d65a05dea1cdff2b670902dcf115f7dee0136c25",
    "structs.py": "b32a4cf9b2dc9c1ec56f71133a3423c6c1f327f133f1792adb35c9d8b7cb3659",
    "toml.py": "7b43760ba6437171b146e812e22559e2936f18ab275bf42a49df4b948527c997",
    "yaml.py": "23f65ce600d4f7209d6ac435aebfd782e0eee7c2010b2b06961ab7dbaa7cdfca",
}
_LEFT_OUT = ("cli", "plugins", "rollouts", "speech")
"""Packages that no view of the site needs."""


def build(out: Path) -> None:
    """Make the site in the folder `out`, which is made anew."""
    if out.exists() and not (out / "playground" / "config.json").exists() and any(out.iterdir()):
        raise UnbraidError(f"{out} holds something else than the site: name another folder, or empty it")
    shutil.rmtree(out, ignore_errors=True)
    page = out / "playground"
    with as_file(files(__package__).joinpath("page")) as source:
        shutil.copytree(source, page)
    (page / "docs").mkdir(exist_ok=True)
    for document in documents():
        shutil.copy(document, page / "docs")
    shutil.move(page / "index.html", out / "index.html")
    shutil.move(page / "offline.js", out / "offline.js")  # a service worker is for the folder that it lies in
    facts = {"server": False, "recorded": (page / "recorded_cases.json").exists(), **about()}
    (page / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    shutil.copytree(_kept(PYODIDE, "package", PYODIDE_FILES), page / "pyodide")
    _archive(page / "library.zip", [*_library(), *_templates()])
    _archive(page / "msgspec.zip", _msgspec())
    (page / "snapshot.bin").write_bytes(gzip.compress(_snapshot(page), mtime=0))
    _list_files(out)


def _kept(package: PinnedPackage, folder: str, pinned: dict[str, str]) -> Path:
    """A folder with these files of a folder of a package, fetched if need be."""

    def make(place: Path) -> None:
        place.mkdir()
        take_files(package, {f"{folder}/{name}": sha256 for name, sha256 in pinned.items()}, place, bar)

    name = hashlib.sha256(json.dumps(pinned).encode()).hexdigest()[:16]
    return keep(cache_folder() / "playground" / f"{name}-{package.package.partition(':')[2]}", make)


def _library() -> Iterator[tuple[str, Path]]:
    """The modules of unbraid and the data of the views. The page itself is not among them."""
    package = Path(__file__).parents[2]
    for path in sorted(package.rglob("*")):
        place = path.relative_to(package)
        shipped = path.suffix in (".py", ".jinja") or path.name == "recorded.json"
        if shipped and place.parts[0] not in _LEFT_OUT and "page" not in place.parts:
            yield f"unbraid/{place.as_posix()}", path


def _templates() -> Iterator[tuple[str, Path]]:
    """Jinja as it is installed here, without what was compiled for this machine."""
    for name in ("jinja2", "markupsafe"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise UnbraidError(f"the site needs {name}: pip install 'unbraid[templates]'")
        for path in sorted(Path(spec.origin).parent.rglob("*.py")):
            yield f"{name}/{path.relative_to(Path(spec.origin).parent).as_posix()}", path


def _msgspec() -> Iterator[tuple[str, Path]]:
    for path in sorted(_kept(MSGSPEC, "msgspec", MSGSPEC_FILES).iterdir()):
        yield f"msgspec/{path.name}", path


def _snapshot(page: Path) -> bytes:
    """The memory of Python in the page, once it has answered."""
    node = shutil.which("node")
    if node is None:
        raise UnbraidError("the site needs Node, which comes with npm, and there is no `node` on the PATH")
    with tempfile.TemporaryDirectory() as folder, as_file(files(__package__).joinpath("snapshot.mjs")) as script:
        snapshot = Path(folder) / "snapshot"
        command = [node, str(script), str(page.resolve()), str(snapshot)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise UnbraidError(f"Python did not start in Node ({node}): {done.stderr.strip()[-1000:]}")
        return snapshot.read_bytes()


def _archive(target: Path, members: Iterable[tuple[str, Path]]) -> None:
    """A zip file that is the same each time."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in members:
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def _list_files(out: Path) -> None:
    """Tell the service worker what to keep, and that it is new where anything has changed."""
    paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "offline.js"]
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in paths)).hexdigest()[:16]
    names = ["./", *(path.relative_to(out).as_posix() for path in paths if path.name != "index.html")]
    worker = out / "offline.js"
    constants = f"const VERSION = {json.dumps(digest)};\nconst FILES = {json.dumps(names)};\n"
    worker.write_text(constants + worker.read_text(encoding="utf-8"), encoding="utf-8")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m unbraid.server.playground.site FOLDER", file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    try:
        build(out)
    except UnbraidError as error:
        print(f"unbraid: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out} is ready ({size / 1e6:.1f} MB). Serve it with: python -m http.server --directory {out} 8080")
    return 0


if __name__ == "__main__":
    sys.exit(main())
