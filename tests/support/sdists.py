"""Sdists of other projects: they hold what their wheels do not, such as tests and chat templates."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from .system import system_only


class NoSdist(Exception):
    """It cannot be had here, for the reason that it says."""


def download_sdist(package: str, number: str, to: Path) -> None:
    """By pip, so that its index, its proxy and its certificates are used. `pip download` would try to build it."""
    system_only("the source of another project")
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet
    from pip._vendor.requests.exceptions import RequestException

    command = create_command("download")
    options, _ = command.parse_args(["--no-binary", ":all:", package])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        found = finder.find_best_candidate(package, SpecifierSet(f"=={number}")).best_candidate
        if found is None:
            raise NoSdist(f"the index has no sdist of {package} {number}")
        try:
            answer = session.get(found.link.url_without_fragment, headers={"Accept-Encoding": "identity"})
            answer.raise_for_status()
        except RequestException as error:
            raise NoSdist(f"the sdist of {package} {number} cannot be fetched: {error}") from error
    begun = to.with_suffix(".begun")
    begun.write_bytes(answer.content)
    begun.rename(to)


def extract_sdist(archive: Path, folder: Path, part: str, ending: str = "") -> None:
    """What the archive has under `part`, with names that end so, without its first folder."""
    begun = folder.with_suffix(".begun")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True)
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.partition("/")[2]
            if name.startswith(part) and name.endswith(ending) and member.isfile():
                member.name = name
                opened.extract(member, begun, filter="data")
    begun.rename(folder)
