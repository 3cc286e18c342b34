"""Recordings in any format that OpenAI's transcription API takes, as mono float32 samples at 16 kHz.

for block in read("talk.m4a"):
    ...  # about a second each

FFmpeg decodes, through PyAV, which is imported with the first file. It is kept on a short leash, for the files are
strangers': no format that could point to other files or addresses, no video, no more memory for a long file than for a
short one, and an end to files that never end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from ...errors import UnbraidError
from ..errors import BadAudio, TooMuchAudio
from .mp4_guard import check_boxes
from .sources import Source, opened
from .truncation import breaks_off, counts_frames

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer

__all__ = ["RATE", "AudioLimits", "BadAudio", "Reading", "Samples", "TooMuchAudio", "read"]

RATE = 16_000
"""Samples a second."""

Samples = NDArray[np.float32]

_FORMATS = "flac, mp3, mp4, mpeg, mpga, m4a, ogg, opus, wav or webm"
_DEMUXERS = "aac,flac,matroska,mp3,mpeg,mpegts,ogg,wav"
_MP4 = "mov"
_GUESSED = ("aac", "mp3", "mpeg", "mpegts")  # whose length is reckoned from the size of the file
_RATES = range(1_000, 768_001)
_LONGEST_FRAME = 1 << 18  # samples that a codec may make at once; the most of an ordinary one are 65,535
_LEAST_BYTES = 250.0  # a second that a file must have for its header to be believed
_LOSS = 0.5  # seconds that may be missing of what a file says: codecs take off a little at the end
_OPENING = 60.0  # seconds in which a file must say what is in it
_PACKETS = 8  # times the size of the file, in packets: they may hold a little more than the file, as Matroska's do
_WEIGHTS = {"FC": 1.0, "FL": 0.5**0.5, "FR": 0.5**0.5, "DL": 0.5**0.5, "DR": 0.5**0.5, "LFE": 0.0, "LFE2": 0.0}
_OTHER_WEIGHT = 0.5
_NOT_IN_NUMPY = ("s64", "s64p")  # by PyAV
_MOST_PLANES = 7  # with more, PyAV looks for the end of their list where it is not, and reads at random addresses


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """How much is taken of one file; None for any amount."""

    seconds: float | None = 4 * 3600.0
    bytes: int | None = 1 << 30


DEFAULT_LIMITS = AudioLimits()


def read(source: str | Path | BinaryIO, *, limits: AudioLimits = DEFAULT_LIMITS) -> Reading:
    """The samples of a file, in blocks of about a second. What can be wrong with it is raised by the first block.

    source: a path, or a file opened for binary reading, which is read from its beginning and not closed.
    """
    return Reading(source, limits)


class Reading(Iterator[Samples]):
    """The blocks of one file. Raises `BadAudio`; `TooMuchAudio` where the limits end in the middle of it.

    The file is opened with the first block and closed with the last one, with an error, by `close`, or when nobody has
    the reading any more.
    """

    def __init__(self, source: str | Path | BinaryIO, limits: AudioLimits) -> None:
        self._account = _Account(limits)
        self._blocks = _blocks(source, self._account)

    @property
    def seconds(self) -> float:
        """How much has been read."""
        return self._account.seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was lost, in sentences: known when the last block has come. Empty for a file that is whole. What
        comes after a loss in the middle comes that much too early."""
        return tuple(self._account.warnings)

    def __next__(self) -> Samples:
        return next(self._blocks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._blocks.close()


@dataclass
class _Account:
    """What a reading tells of itself. The generator has this and not the reading, or neither would be let go."""

    limits: AudioLimits
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0


def _blocks(source: str | Path | BinaryIO, account: _Account) -> Generator[Samples]:
    _av()
    longest = account.limits.seconds
    with opened(source, account.limits.bytes) as file, _errors(file), _container(file) as container:
        stream = _stream(container, file)
        promised = _promised(container, stream, file)
        if promised is not None and longest is not None and longest < promised < file.size / _LEAST_BYTES:
            raise _too_long(file, longest)  # at once: hours would be transcribed only to be thrown away
        count = 0
        for block in _resampled(_mono(container, stream, file, account)):
            count += len(block)
            account.seconds = count / RATE
            if longest is not None and account.seconds > longest:
                raise _too_long(file, longest)
            yield block
        if count == 0:
            raise BadAudio(f"no sound could be decoded from {file.name}: it is empty or damaged; record it again")
        if promised is not None and promised - account.seconds > _LOSS:
            account.warnings.append(
                f"{file.name} says that it is {promised:.1f} s long, but only {account.seconds:.1f} s could be read: "
                "it breaks off, or is damaged"
            )
        elif breaks_off(file, container.format.name):
            account.warnings.append(f"{file.name} breaks off after {account.seconds:.1f} s")


def _mono(
    container: InputContainer, stream: AudioStream, file: Source, account: _Account
) -> Iterator[tuple[int, Samples]]:
    """What the decoder makes of a stream, with the rate that it has there. Damaged packets are left out."""
    damaged, first, seconds = 0, 0.0, 0.0
    left = _PACKETS * file.size + (1 << 20)
    packets = container.demux(stream)
    over = False
    while not over:
        try:
            packet = next(packets, None)
        except _av().FFmpegError as error:
            account.warnings.append(f"{file.name} breaks off after {seconds:.1f} s ({error.strerror})")
            packet = None
        over = packet is None
        try:
            frames = stream.codec_context.decode(packet)  # None makes it give what it still has
        except EOFError:
            break
        except _av().FFmpegError:
            damaged += 1
            first = first if damaged > 1 else seconds
            frames = []
        for frame in frames:
            if frame.samples:
                yield _rate(frame, file), _downmixed(frame)
                seconds += frame.samples / frame.sample_rate
        left -= 1 + (packet.size if packet is not None else 0)
        if left < 0:
            raise BadAudio(f"{file.name} repeats itself without end: it is damaged; convert it to wav or flac")
    if damaged:
        what = "a piece" if damaged == 1 else f"{damaged} pieces"
        account.warnings.append(f"{what} of {file.name}, at {first:.1f} s or later, could not be decoded")


def _too_long(file: Source, most: float) -> TooMuchAudio:
    return TooMuchAudio(
        f"{file.name} is longer than {most / 60:,.4g} minutes, which is the most that is taken: cut it into several "
        "files"
    )


# Opening


@cache
def _av() -> Any:
    try:
        import av
    except ImportError as error:
        raise UnbraidError(f"decoding audio needs av ({error}): pip install 'unbraid[transcription]'") from error
    return av


@cache
def _audio_decoders() -> str:
    """The names of all decoders that are for sound. Others are not let near a file: a picture can need gigabytes."""
    av = _av()
    names = []
    for name in sorted(av.codecs_available):
        try:
            if av.Codec(name, "r").type == "audio":
                names.append(name)
        except ValueError:  # it is there for encoding only
            pass
    return ",".join(names)


@contextmanager
def _errors(file: Source) -> Iterator[None]:
    """Whatever the decoder stumbles over is the file's fault, save an error of reading it."""
    try:
        yield
    except BadAudio:
        raise
    except Exception as error:
        if file.failure is not None:
            raise file.failure from None
        raise BadAudio(f"{file.name} is damaged ({error}): convert it to wav or flac, or record it again") from error


@contextmanager
def _container(file: Source) -> Iterator[InputContainer]:
    """The opened file. mp4 files are looked at before the decoder may see them."""
    try:
        container = _open(file, _DEMUXERS)
    except _av().FFmpegError:
        if file.failure is not None:
            raise
        check_boxes(file)
        try:
            container = _open(file, _MP4)
        except _av().FFmpegError as error:
            if file.failure is not None:
                raise
            raise BadAudio(
                f"{file.name} is not a sound file that can be read: send one of {_FORMATS}, and see that it is whole"
            ) from error
    with container:
        yield container


def _open(file: Source, demuxers: str) -> InputContainer:
    file.seek(0)
    container: InputContainer = _av().open(
        file,
        mode="r",
        metadata_errors="replace",
        timeout=(_OPENING, None),
        container_options={
            "format_whitelist": demuxers,
            "codec_whitelist": _audio_decoders(),
            "protocol_whitelist": "none",
        },
    )
    return container


def _stream(container: InputContainer, file: Source) -> AudioStream:
    """The first audio stream, ready to be decoded."""
    if not container.streams.audio:
        what = ", only video" if container.streams.video else ""
        raise BadAudio(f"{file.name} holds no sound{what}: send a file with an audio track")
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise BadAudio(f"the sound in {file.name} has a coding that cannot be decoded: convert it to wav or flac")
    stream.codec_context.options = {"max_samples": str(_LONGEST_FRAME)}
    return stream


def _promised(container: InputContainer, stream: AudioStream, file: Source) -> float | None:
    """How long the sound is by the file's own account, in seconds."""
    if container.format.name in _GUESSED and not counts_frames(file, container.format.name):
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is None or container.streams.video:  # pictures may go on when the sound is over
        return None
    return container.duration / 1_000_000


# Samples


def _rate(frame: AudioFrame, file: Source) -> int:
    if frame.sample_rate not in _RATES:
        raise BadAudio(
            f"{file.name} says that it has {frame.sample_rate} samples a second: it is damaged; convert it to a rate "
            f"between {_RATES[0]} and {_RATES[-1]}"
        )
    return frame.sample_rate


def _downmixed(frame: AudioFrame) -> Samples:
    """A frame's samples as one channel between -1 and 1. The middle, where speech is, counts most, the bass not at all;
    no sum of channels can be too loud."""
    channels = frame.layout.nb_channels
    if (frame.format.is_planar and channels > _MOST_PLANES) or frame.format.name in _NOT_IN_NUMPY:
        (frame,) = _av().AudioResampler(format="flt").resample(frame)
    array = frame.to_ndarray()
    if not frame.format.is_planar:
        array = array.reshape(-1, channels).T
    mono = array[0] if len(array) == 1 else _weights(frame.layout.name) @ array
    if array.dtype.kind == "f":
        mono = np.nan_to_num(mono, copy=False, nan=0.0, posinf=1.0, neginf=-1.0).astype(np.float32)
        return np.clip(mono, -1.0, 1.0, out=mono)
    bits = 8 * array.dtype.itemsize
    middle = 128.0 if array.dtype.kind == "u" else 0.0
    scaled: Samples = ((mono - middle) * 2.0 ** (1 - bits)).astype(np.float32)
    return scaled


@cache
def _weights(layout: str) -> NDArray[np.float32]:
    names = [channel.name for channel in _av().AudioLayout(layout).channels]
    weights = np.array([_WEIGHTS.get(name, _OTHER_WEIGHT) for name in names], np.float32)
    if not weights.any():
        weights[:] = 1.0
    normal: NDArray[np.float32] = weights / weights.sum()
    return normal


def _resampled(pieces: Iterator[tuple[int, Samples]]) -> Iterator[Samples]:
    """Pieces joined to blocks of a second, each brought to `RATE`. A rate may change on the way, as in joined files."""
    held: list[Samples] = []
    count = 0
    resampler = _Resampler(RATE)
    for rate, piece in pieces:
        if rate != resampler.rate:
            yield from resampler.feed(held)
            yield from resampler.flush()
            held, count, resampler = [], 0, _Resampler(rate)
        held.append(piece)
        count += len(piece)
        if count >= rate:
            yield from resampler.feed(held)
            held, count = [], 0
    yield from resampler.feed(held)
    yield from resampler.flush()


class _Resampler:
    """From one rate to `RATE`, by FFmpeg's own resampler. Its filter is twice as long as by default: then nothing
    audible is lost below 7.5 kHz, and what was above 8.5 kHz comes back 70 dB weaker."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._graph: Any = None

    def feed(self, pieces: list[Samples]) -> Iterator[Samples]:
        if not pieces:
            return
        samples = np.concatenate(pieces)
        if self.rate == RATE:
            yield samples
            return
        if self._graph is None:
            self._graph = self._make()
        frame = _av().AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = self.rate
        self._graph.push(frame)
        yield from self._pull()

    def flush(self) -> Iterator[Samples]:
        if self._graph is not None:
            self._graph.push(None)
            yield from self._pull()

    def _make(self) -> Any:
        graph = _av().filter.Graph()
        nodes = [
            graph.add("abuffer", sample_rate=str(self.rate), sample_fmt="flt", channel_layout="mono"),
            graph.add("aresample", sample_rate=str(RATE), filter_size="64", cutoff="0.98"),
            graph.add("aformat", sample_fmts="flt", sample_rates=str(RATE), channel_layouts="mono"),
            graph.add("abuffersink"),
        ]
        for node, following in pairwise(nodes):
            node.link_to(following)
        graph.configure()
        return graph

    def _pull(self) -> Iterator[Samples]:
        while True:
            try:
                frame = self._graph.pull()
            except (BlockingIOError, EOFError):  # nothing more for now, or at all
                return
            if frame.samples:
                yield frame.to_ndarray()[0]
