"""Audio decoding: files of any format that OpenAI's transcription API takes, as mono float32 samples at 16 kHz.

    for block in read("talk.m4a"):
        ...  # about a second each

FFmpeg decodes, through PyAV, which is imported with the first file. Files are untrusted, so FFmpeg is restricted: only
formats that cannot refer to other files or addresses, only audio codecs, memory that does not grow with the length of
the file, and limits for files that never end. `sources` bounds the reads, `mp4_guard` the memory of mp4 tables.

Why not a worker process with resource limits (RLIMIT_AS, RLIMIT_CPU)? Python has none on Windows, and macOS does not
enforce RLIMIT_AS, so the guards would have to stay. A process takes 0.3 s to start and import numpy and PyAV, while a
minute of mp3 decodes in 0.1 s. Forking is not safe beside the threads of ONNX Runtime and llama.cpp. A worker would
contain a crash of FFmpeg, which the guards cannot: if you serve strangers, run the server under a supervisor that
limits its memory and restarts it.
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
from .sources import AudioSource, check_mp4, counts_frames, is_truncated, opened

if TYPE_CHECKING:
    from av import AudioFrame, AudioStream
    from av.container import InputContainer

__all__ = ["RATE", "AudioBlocks", "AudioLimits", "BadAudio", "Samples", "TooMuchAudio", "read"]

RATE = 16_000
"""Samples a second."""

Samples = NDArray[np.float32]

_FORMATS = "flac, mp3, mp4, mpeg, mpga, m4a, ogg, opus, wav or webm"
_DEMUXERS = "aac,flac,matroska,mp3,mpeg,mpegts,ogg,wav"
_MP4 = "mov"
_GUESSED = ("aac", "mp3", "mpeg", "mpegts")  # FFmpeg estimates their length from the size of the file
_RATES = range(1_000, 768_001)
_LONGEST_FRAME = 1 << 18  # samples that a codec may give at once; ordinary ones give at most 65,535
_PIPED = ("wav",)  # the header may claim more than there is
_LEAST_BYTES = 250.0  # per second: a wav that claims a lower bit rate is not believed
_LOSS = 0.5  # seconds that may be missing at the end: codecs trim a little
_OPENING = 60.0  # seconds that FFmpeg may take to open a file
_PACKETS = 8  # bytes of packets per byte of the file; Matroska's packets may hold a little more than the file
_WEIGHTS = {"FC": 1.0, "FL": 0.5**0.5, "FR": 0.5**0.5, "DL": 0.5**0.5, "DR": 0.5**0.5, "LFE": 0.0, "LFE2": 0.0}
_OTHER_WEIGHT = 0.5
_NOT_IN_NUMPY = ("s64", "s64p")  # sample formats that PyAV does not convert
_MOST_PLANES = 7  # with more, PyAV reads beyond the list of planes, at random addresses


@dataclass(frozen=True, slots=True)
class AudioLimits:
    """How much one file may have; None for no limit."""

    seconds: float | None = 4 * 3600.0
    bytes: int | None = 1 << 30


DEFAULT_LIMITS = AudioLimits()


def read(source: str | Path | BinaryIO, *, limits: AudioLimits = DEFAULT_LIMITS) -> AudioBlocks:
    """The samples of a file, in blocks of about a second. Nothing is opened, and nothing raised, before the first.

    source: a path, or a file opened for binary reading. It is read from its start, and not closed.
    """
    return AudioBlocks(source, limits)


def length(source: str | Path) -> float | None:
    """The length of a file in seconds, as it says; None if it does not. Nothing is decoded. Raises `BadAudio`."""
    _av()
    with opened(source, None) as file, _errors(file), _container(file) as container:
        return _length(container, _claimed_seconds(container, _stream(container, file), file))


def _length(container: InputContainer, claimed: float | None) -> float | None:
    """The length that a file claims, or that FFmpeg guesses."""
    return claimed or (container.duration / 1_000_000 if container.duration else None)


class AudioBlocks(Iterator[Samples]):
    """The blocks of one file. Raises `BadAudio`, and `TooMuchAudio` where the file exceeds the limits.

    The file is opened with the first block. It is closed after the last one, after an error, by `close`, or when the
    object is garbage.
    """

    def __init__(self, source: str | Path | BinaryIO, limits: AudioLimits) -> None:
        self._account = _Account(limits)
        self._blocks = _blocks(source, self._account)

    @property
    def seconds(self) -> float:
        """The length of what has been read."""
        return self._account.seconds

    @property
    def total(self) -> float | None:
        """The length of the whole, as the file says or FFmpeg guesses; None before the first block, and if unknown."""
        return self._account.total

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was lost, in sentences; complete after the last block. Empty for an intact file. After a loss in the
        middle, the samples come that much too early."""
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
    """The state that `AudioBlocks` shares with its generator. A reference to `AudioBlocks` itself would be a cycle."""

    limits: AudioLimits
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    total: float | None = None


def _blocks(source: str | Path | BinaryIO, account: _Account) -> Generator[Samples]:
    _av()
    longest = account.limits.seconds
    with opened(source, account.limits.bytes) as file, _errors(file), _container(file) as container:
        stream = _stream(container, file)
        claimed = _claimed_seconds(container, stream, file)
        account.total = _length(container, claimed)
        if claimed is not None and longest is not None and longest < claimed and _is_credible(claimed, container, file):
            raise _too_long(file, longest)  # before hours are transcribed only to be thrown away
        count = 0
        for block in _resampled(_mono(container, stream, file, account)):
            count += len(block)
            account.seconds = count / RATE
            if longest is not None and account.seconds > longest:
                raise _too_long(file, longest)
            yield block
        if count == 0:
            raise BadAudio(f"no sound could be decoded from {file.name}: it is empty or damaged; record it again")
        if claimed is not None and claimed - account.seconds > _LOSS:
            account.warnings.append(
                f"{file.name} says that it is {claimed:.1f} s long, but only {account.seconds:.1f} s could be read: "
                "it is truncated or damaged"
            )
        elif is_truncated(file, container.format.name):
            account.warnings.append(f"{file.name} is truncated after {account.seconds:.1f} s")


def _mono(
    container: InputContainer, stream: AudioStream, file: AudioSource, account: _Account
) -> Iterator[tuple[int, Samples]]:
    """The decoded frames as one channel, each with its sample rate. Damaged packets are left out."""
    damaged, first, seconds = 0, 0.0, 0.0
    left = _PACKETS * file.size + (1 << 20)
    packets = container.demux(stream)
    over = False
    while not over:
        try:
            packet = next(packets, None)
        except _av().FFmpegError as error:
            account.warnings.append(f"{file.name} cannot be read beyond {seconds:.1f} s ({error.strerror})")
            packet = None
        over = packet is None
        try:
            frames = stream.codec_context.decode(packet)  # None flushes the decoder
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


def _too_long(file: AudioSource, most: float) -> TooMuchAudio:
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
        raise UnbraidError(f"decoding audio needs av ({error}): pip install 'unbraid[speech]'") from error
    return av


@cache
def _audio_decoders() -> str:
    """The names of all audio decoders. No others may run: a picture can need gigabytes."""
    av = _av()
    names = []
    for name in sorted(av.codecs_available):
        try:
            if av.Codec(name, "r").type == "audio":
                names.append(name)
        except ValueError:  # an encoder only
            pass
    return ",".join(names)


@contextmanager
def _errors(file: AudioSource) -> Iterator[None]:
    """Errors of the decoder are the file's fault, except errors of reading it."""
    try:
        yield
    except BadAudio:
        raise
    except Exception as error:
        if file.failure is not None:
            raise file.failure from None
        raise BadAudio(f"{file.name} is damaged ({error}): convert it to wav or flac, or record it again") from error


@contextmanager
def _container(file: AudioSource) -> Iterator[InputContainer]:
    """Open the file. mp4 files are checked before FFmpeg reads them."""
    try:
        container = _open(file, _DEMUXERS)
    except _av().FFmpegError:
        if file.failure is not None:
            raise
        check_mp4(file)
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


def _open(file: AudioSource, demuxers: str) -> InputContainer:
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


def _stream(container: InputContainer, file: AudioSource) -> AudioStream:
    """The first audio stream, ready to decode."""
    if not container.streams.audio:
        what = ", only video" if container.streams.video else ""
        raise BadAudio(f"{file.name} holds no sound{what}: send a file with an audio track")
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise BadAudio(f"the sound in {file.name} has a codec that cannot be decoded: convert it to wav or flac")
    stream.codec_context.options = {"max_samples": str(_LONGEST_FRAME)}
    return stream


def _claimed_seconds(container: InputContainer, stream: AudioStream, file: AudioSource) -> float | None:
    """The length that the file claims, in seconds."""
    if container.format.name in _GUESSED and not counts_frames(file, container.format.name):
        return None
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration is None or container.streams.video:  # the video may be longer than the sound
        return None
    return container.duration / 1_000_000


def _is_credible(claimed: float, container: InputContainer, file: AudioSource) -> bool:
    """Whether a file may be as long as it claims. A program that writes wav into a pipe does not know the length, and
    writes the greatest; a compressed silence may be hours in a few bytes."""
    return container.format.name not in _PIPED or claimed < file.size / _LEAST_BYTES


# Samples


def _rate(frame: AudioFrame, file: AudioSource) -> int:
    if frame.sample_rate not in _RATES:
        raise BadAudio(
            f"{file.name} says that it has {frame.sample_rate} samples a second: it is damaged; convert it to a rate "
            f"between {_RATES[0]} and {_RATES[-1]}"
        )
    return frame.sample_rate


def _downmixed(frame: AudioFrame) -> Samples:
    """The samples of a frame as one channel between -1 and 1. The centre channel, where speech is, counts most, the
    bass channel not at all. The weights sum to 1, so nothing clips."""
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
    """Blocks of about a second at `RATE`. The sample rate may change on the way, as in concatenated files."""
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
    """From one rate to `RATE`, by FFmpeg's resampler. Its filter is twice as long as by default: it keeps everything
    below 7.5 kHz, and damps aliases from above 8.5 kHz by 70 dB."""

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
            except (BlockingIOError, EOFError):  # no more for now, or the end
                return
            if frame.samples:
                yield frame.to_ndarray()[0]
