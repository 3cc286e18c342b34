"""Small model files and packages, made for the tests; and errors as the hub's library has them."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any


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


class GatedRepoError(Exception):
    pass


class RepositoryNotFoundError(Exception):
    pass


class EntryNotFoundError(Exception):
    pass
