"""A release: wheel, sdist, site and image, with checksums, each tried outside of the checkout (`make release`).

    dist/unbraid-0.1.0-py3-none-any.whl
    dist/unbraid-0.1.0.tar.gz
    dist/unbraid-0.1.0-docs.tar.gz       the site, in a folder named by the version
    dist/unbraid-0.1.0-image.tar         only where docker or podman is
    dist/SHA256SUMS

Nothing is published. What does not work is an error, and no release is left then.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from unbraid.version import __version__  # noqa: E402

SUMS = "SHA256SUMS"
_BUILDERS = ("docker", "podman")
_OUTPUT = "<think>\nHm.\n</think>\n\nIt rains."


def main(arguments: Sequence[str]) -> int:
    """Make and try a release in a folder: `dist`, unless another is named. `--without-site` and
    `--without-image` leave these out."""
    folder = ROOT / next((each for each in arguments if not each.startswith("-")), "dist")
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "dist"
        made.mkdir()
        files = build_packages(made)
        if "--without-site" not in arguments:
            files.append(build_site(made))
        image = None if "--without-image" in arguments else build_image(made)
        files += [image] if image else []
        write_sums(made)
        for file in files:
            try_out(file)
        check_sums(made)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    for path in sorted(folder.iterdir()):
        print(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
    return 0


def build_packages(folder: Path) -> list[Path]:
    """The sdist, and the wheel that is made of it: what the sdist lacks, the wheel cannot have."""
    _run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder), cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        source = Path(place) / f"unbraid-{__version__}"
        _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=source)
    (wheel,) = folder.glob("*.whl")
    return [sdist, wheel]


def build_site(folder: Path) -> Path:
    """The site, under its version: several versions can stand beside each other."""
    with tempfile.TemporaryDirectory() as place:
        site = Path(place) / __version__
        _run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site), cwd=ROOT)
        target = folder / f"unbraid-{__version__}-docs.tar.gz"
        with tarfile.open(target, "w:gz") as archive:
            archive.add(site, arcname=__version__)
    return target


def build_image(folder: Path) -> Path | None:
    """The server as an image, where there is what builds one."""
    builder = next((each for each in _BUILDERS if shutil.which(each)), None)
    if builder is None:
        print(f"no image: neither of {', '.join(_BUILDERS)} is installed", file=sys.stderr)
        return None
    name, target = f"unbraid:{__version__}", folder / f"unbraid-{__version__}-image.tar"
    # Only Docker's format has health checks.
    format = ("--format", "docker") if builder == "podman" else ()
    _run(builder, "build", *format, "--tag", name, "--file", "deploy/Containerfile", ".", cwd=ROOT)
    _run(builder, "save", "--output", str(target), name, cwd=folder)
    return target


def try_out(file: Path) -> None:
    """Use what a file holds, in a folder of its own. Raises `SystemExit` if it does not work."""
    with tempfile.TemporaryDirectory() as place:
        if file.name.endswith("-docs.tar.gz"):
            _try_site(file, Path(place))
        elif file.name.endswith("-image.tar"):
            builder = next(each for each in _BUILDERS if shutil.which(each))
            _run(builder, "load", "--input", str(file), cwd=Path(place))
            run = (builder, "run", "--rm", "--read-only", f"unbraid:{__version__}")
            _says(__version__, *run, "--version", cwd=Path(place))
        else:
            _try_package(file, Path(place))


def _try_package(file: Path, place: Path) -> None:
    venv.create(place / "env", with_pip=True)
    python = str(place / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
    # The sdist is built with the tools of this environment: they are what the wheel was built with.
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(file), cwd=place)
    _says(f"unbraid {__version__}", python, "-m", "unbraid", "--version", cwd=place)
    (place / "output.txt").write_text(_OUTPUT, encoding="utf-8")
    _says("[reasoning]\nHm.\n[content]\nIt rains.", python, "-m", "unbraid", "parse", "output.txt", cwd=place)


def _try_site(file: Path, place: Path) -> None:
    with tarfile.open(file) as archive:
        archive.extractall(place, filter="data")
    lacks = [
        page
        for page in ("index.html", "quickstart.html", "which-format.html", "upgrading.html")
        if not (place / __version__ / page).is_file()
    ]
    if lacks:
        raise SystemExit(f"{file.name} lacks {', '.join(lacks)}")


def write_sums(folder: Path) -> None:
    """The SHA-256 of each file, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path) -> None:
    """Raise `SystemExit` if a file is not what its checksum says."""
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, name = line.split("  ", 1)
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{name} is not what {SUMS} says")


def _says(expected: str, *command: str, cwd: Path) -> None:
    output = _run(*command, cwd=cwd)
    if expected not in output:
        raise SystemExit(f"{' '.join(command)} should print {expected!r}, and printed {output!r}")


def _run(*command: str, cwd: Path) -> str:
    """What a command prints. It sees nothing of the checkout but its folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
