"""Files of every kind to samples, and files that are none."""

from __future__ import annotations

import io
import os
import struct
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unbraid import UnbraidError
from unbraid.speech.audio import decode as audio
from unbraid.speech.audio.decode import RATE, AudioLimits, BadAudio, TooMuchAudio, read

from ...support.real_speech import recording

av: Any = pytest.importorskip("av", reason="av is not installed: pip install av")

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Kind:
    """A file as people have it."""

    name: str
    container: str  # as PyAV names it
    codec: str
    rate: int = 44_100
    options: tuple[tuple[str, str], ...] = ()
    lossless: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind("flac", "flac", "flac", lossless=True),
        Kind("mp3", "mp3", "libmp3lame"),
        Kind("mp3 of 16 kHz", "mp3", "libmp3lame", 16_000),
        Kind("mp4", "mp4", "aac"),
        Kind("fragmented mp4", "mp4", "aac", 48_000, (("movflags", "frag_keyframe+empty_moov+default_base_moof"),)),
        Kind("mpeg", "mpeg", "mp2", 48_000),
        Kind("mpga", "mp2", "mp2"),
        Kind("m4a", "ipod", "aac", 48_000),
        Kind("m4a to be streamed", "ipod", "aac", 48_000, (("movflags", "faststart"),)),
        Kind("m4a, alac", "ipod", "alac", lossless=True),
        Kind("mov, pcm", "mov", "pcm_s16le", lossless=True),
        Kind("ogg, vorbis", "ogg", "vorbis", options=(("strict", "experimental"),)),
        Kind("ogg, flac", "ogg", "flac", lossless=True),
        Kind("opus", "opus", "libopus", 48_000),
        Kind("wav", "wav", "pcm_s16le", lossless=True),
        Kind("webm", "webm", "libopus", 48_000),
        Kind("aac", "adts", "aac"),
    )
}
WAV_CODECS = {  # and how far a sample may be off
    "pcm_u8": 1 / 128,
    "pcm_s16le": 1 / 32768,
    "pcm_s24le": 1e-6,
    "pcm_s32le": 1e-6,
    "pcm_s64le": 1e-6,
    "pcm_f32le": 1e-6,
    "pcm_f64le": 1e-6,
    "pcm_alaw": 0.02,
    "pcm_mulaw": 0.02,
    "adpcm_ms": 0.1,
}


# Files made here


def tone(seconds: float, rate: int, *frequencies: float, level: float = 0.5) -> Array:
    times = np.arange(round(seconds * rate)) / rate
    waves = sum((np.sin(2 * np.pi * frequency * times) for frequency in frequencies), np.zeros(len(times)))
    return (level / len(frequencies) * waves).astype(np.float32)


def encode(
    channels: Sequence[Array] | Array,
    rate: int,
    container: str,
    codec: str,
    *,
    layout: str | None = None,
    options: tuple[tuple[str, str], ...] = (),
    tracks: int = 1,
    picture: bool = False,
) -> bytes:
    """A file of these channels. With several tracks, each has them half as loud as the one before."""
    planes = np.atleast_2d(np.asarray(channels, np.float32))
    if codec == "vorbis" and len(planes) == 1:  # FFmpeg's own encoder has stereo only
        planes = np.repeat(planes, 2, axis=0)
    layout = layout or {1: "mono", 2: "stereo"}[len(planes)]
    with tempfile.TemporaryDirectory() as folder:  # a file and not a buffer: some are read again to be finished
        path = Path(folder, "file")
        with av.open(str(path), "w", format=container, container_options=dict(options)) as output:
            video = _video_stream(output) if picture else None
            streams = []
            for _ in range(tracks):
                try:
                    stream = output.add_stream(codec, rate=rate, layout=layout, options=dict(options))
                except (av.FFmpegError, ValueError) as error:
                    pytest.skip(f"this build of av cannot encode {codec}: {error}")
                streams.append(stream)
            if video is not None:
                _draw(output, video)
            for at, stream in enumerate(streams):
                packed = np.ascontiguousarray(planes.T * 0.5**at).reshape(1, -1)
                frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
                frame.sample_rate = rate
                frame.pts = 0
                for packet in [*stream.encode(frame), *stream.encode(None)]:
                    output.mux(packet)
        return path.read_bytes()


def _video_stream(output: Any) -> Any:
    stream = output.add_stream("mpeg4", rate=5)
    stream.width = stream.height = 64
    stream.pix_fmt = "yuv420p"
    return stream


def _draw(output: Any, stream: Any) -> None:
    for at in range(5):
        frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 40 * at, np.uint8), format="rgb24")
        for packet in stream.encode(frame):
            output.mux(packet)
    for packet in stream.encode(None):
        output.mux(packet)


def encode_kind(kind: Kind, samples: Array) -> bytes:
    return encode(samples, kind.rate, kind.container, kind.codec, options=kind.options)


@cache
def short(name: str) -> bytes:
    """A second and a half in this kind."""
    return encode_kind(KINDS[name], tone(1.5, KINDS[name].rate, 440.0, 1500.0))


def wav(
    data: bytes, *, rate: int = RATE, channels: int = 1, bits: int = 16, tag: int = 1, size: int | None = None
) -> bytes:
    align = channels * bits // 8
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * align & 0xFFFFFFFF, align & 0xFFFF, bits)
    size = len(data) if size is None else size
    head = b"RIFF" + struct.pack("<I", min(size + 36, 0xFFFFFFFF)) + b"WAVEfmt " + struct.pack("<I", len(form)) + form
    return head + b"data" + struct.pack("<I", size) + data


def samples_of(source: bytes | Path | BinaryIO, limits: AudioLimits | None = None) -> Array:
    reading = read(io.BytesIO(source) if isinstance(source, bytes) else source, limits=limits or AudioLimits())
    return np.concatenate(list(reading))


def decibels(ratio: float) -> float:
    return float(20 * np.log10(max(ratio, 1e-9)))


def rms(samples: Array) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def peaks(samples: Array, count: int) -> list[float]:
    """The loudest frequencies."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    found = []
    for _ in range(count):
        at = int(np.argmax(spectrum))
        found.append(at * RATE / len(samples))
        spectrum[max(0, at - 20) : at + 20] = 0
    return sorted(found)


# Every kind of file


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_kinds(kind: Kind) -> None:
    reading = read(io.BytesIO(encode_kind(kind, tone(3.0, kind.rate, 440.0, 2500.0))))
    blocks = list(reading)
    samples = np.concatenate(blocks)
    assert all(block.dtype == np.float32 and block.ndim == 1 and 0 < len(block) <= 2 * RATE for block in blocks)
    assert abs(len(samples) - 3 * RATE) <= (1 if kind.lossless else 0.1 * RATE)
    assert reading.seconds == len(samples) / RATE
    middle = samples[RATE // 2 : -RATE // 2]
    assert peaks(middle, 2) == pytest.approx([440.0, 2500.0], abs=2.0)
    assert abs(decibels(rms(middle) / (0.5 / 2))) < 0.5
    assert reading.warnings == ()


@pytest.mark.system
@pytest.mark.parametrize("name", ["flac", "mp3", "m4a", "opus", "webm", "ogg, vorbis"])
def test_speech_stays_where_it_is(name: str) -> None:
    """A word is heard at its time: codecs begin with a delay, which is taken off again."""
    kind = KINDS[name]
    spoken = recording("en", "demo-thanks").samples
    at_rate = np.interp(np.arange(len(spoken) * kind.rate // RATE) * RATE / kind.rate, np.arange(len(spoken)), spoken)
    samples = samples_of(encode_kind(kind, at_rate.astype(np.float32)))
    most = 1 << 17
    lags = np.fft.irfft(np.fft.rfft(samples, most) * np.conj(np.fft.rfft(spoken, most)), most)
    lag = int(np.argmax(lags))
    assert min(lag, most - lag) <= 0.002 * RATE
    assert lags.max() / (np.linalg.norm(samples) * np.linalg.norm(spoken)) > 0.9
    assert abs(len(samples) - len(spoken)) < 0.1 * RATE
    assert abs(decibels(rms(samples) / rms(spoken))) < 1.0


@pytest.mark.system
def test_recordings_of_the_wild() -> None:
    """Files that others made: FFmpeg's and libsndfile's are not the only encoders."""
    for language, name in (("en", "jfk"), ("de", "words"), ("ru", "demo-nogo")):
        found = recording(language, name)
        assert np.array_equal(samples_of(found.path), found.samples)


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000, 192_000])
def test_rates(rate: int) -> None:
    samples = samples_of(encode(tone(2.5, rate, 440.0), rate, "wav", "pcm_f32le"))
    assert abs(len(samples) - 2.5 * RATE) <= 1
    inside = slice(RATE // 10, -RATE // 10)
    assert np.abs(samples - tone(2.5, RATE, 440.0)[: len(samples)])[inside].max() < 1e-4


def test_what_is_too_high_to_be_kept_does_not_come_back() -> None:
    for frequency, most in ((7_000.0, 0.1), (9_000.0, -80.0), (12_000.0, -80.0), (20_000.0, -80.0)):
        samples = samples_of(encode(tone(1.0, 44_100, frequency), 44_100, "wav", "pcm_f32le"))
        level = decibels(rms(samples[2000:-2000]) / (0.5 * 0.5**0.5))
        assert abs(level) < most if frequency < 8_000 else level < most


def test_16_khz_is_passed_on_as_it_is() -> None:
    values = np.random.default_rng(1).integers(-32768, 32768, 50_000).astype("<i2")
    assert np.array_equal(samples_of(wav(values.tobytes())), values.astype(np.float32) / 32768)


@pytest.mark.parametrize("codec", WAV_CODECS)
def test_sample_formats(codec: str) -> None:
    samples = samples_of(encode(tone(1.0, RATE, 440.0), RATE, "wav", codec))
    errors = np.abs(samples[:RATE] - tone(1.0, RATE, 440.0))
    assert errors[1000:].max() <= WAV_CODECS[codec]  # adpcm takes a while to begin


def test_samples_that_are_no_numbers() -> None:
    values = np.array([0.5, np.nan, np.inf, -np.inf, 1e38, -3.0, 0.25] * 1000, "<f4")
    samples = samples_of(wav(values.tobytes(), bits=32, tag=3))
    assert np.array_equal(samples[:7], np.array([0.5, 0.0, 1.0, -1.0, 1.0, -1.0, 0.25], np.float32))


# Channels


def test_stereo_is_the_mean_of_both() -> None:
    left, right = tone(1.0, RATE, 440.0), tone(1.0, RATE, 1000.0)
    assert np.abs(samples_of(encode([left, right], RATE, "wav", "pcm_f32le")) - (left + right) / 2).max() < 1e-6
    assert np.abs(samples_of(encode([left, left], RATE, "wav", "pcm_s16le")) - left).max() < 1e-4


@pytest.mark.parametrize(
    ("container", "codec"),
    [("wav", "pcm_s16le"), ("wav", "pcm_u8"), ("flac", "flac"), ("mp4", "aac"), ("ogg", "libopus")],
)
def test_no_sum_is_too_loud(container: str, codec: str) -> None:
    """And eight channels are no more trouble than two: PyAV reads beyond the end of a list of eight planes."""
    loud = tone(0.5, 48_000, 440.0, level=0.95)
    layouts = {"stereo": 2, "quad": 4, "5.1": 6, "7.1": 8}
    if codec == "aac":
        del layouts["quad"]  # which it cannot encode
    for layout, count in layouts.items():
        samples = samples_of(encode([loud] * count, 48_000, container, codec, layout=layout))
        assert np.abs(samples).max() <= 1.01
        assert abs(decibels(rms(samples[2000:-2000]) / rms(loud))) < 0.5


@pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_s16le"), ("flac", "flac"), ("mp4", "aac")])
def test_speech_in_the_middle_of_5_1_is_heard_best(container: str, codec: str) -> None:
    """Film sound has speech in the middle, and rumbling in a channel of its own."""
    levels = []
    for channel in range(6):  # left, right, middle, bass, back left, back right
        planes = [tone(1.0, 48_000, 60.0 if channel == 3 else 440.0)] * 6
        planes = [plane * (at == channel) for at, plane in enumerate(planes)]
        levels.append(rms(samples_of(encode(planes, 48_000, container, codec, layout="5.1"))))
    assert levels[2] == max(levels)
    assert levels[3] < 0.001
    assert levels[0] == pytest.approx(levels[1], rel=0.02)
    assert min(*levels[:3], *levels[4:]) > 0.02


def test_channels_that_nobody_named() -> None:
    values = np.zeros((8000, 11), "<i2")
    values[:, 7] = 11_000
    assert samples_of(wav(values.tobytes(), channels=11)) == pytest.approx(1_000 / 32768, abs=1e-5)


# What else is in files


@pytest.mark.parametrize(("container", "codec"), [("matroska", "flac"), ("mp4", "aac")])
def test_the_first_of_several_tracks(container: str, codec: str) -> None:
    reading = read(io.BytesIO(encode(tone(0.4, 48_000, 440.0), 48_000, container, codec, tracks=3, picture=True)))
    samples = np.concatenate(list(reading))
    assert abs(decibels(rms(samples[1000:-1000]) / (0.5 * 0.5**0.5))) < 0.5
    assert reading.warnings == ()  # though the pictures go on for half a second more


def test_cover_art() -> None:
    picture = io.BytesIO()
    with av.open(picture, "w", format="image2pipe") as output:
        stream = output.add_stream("mjpeg", rate=1)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuvj420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    inner = b"\0image/jpeg\0\3\0" + picture.getvalue()
    whole = b"APIC" + struct.pack(">IH", len(inner), 0) + inner
    size = bytes(len(whole) >> shift & 0x7F for shift in (21, 14, 7, 0))
    reading = read(io.BytesIO(b"ID3\3\0\0" + size + whole + short("mp3")))
    assert abs(len(np.concatenate(list(reading))) - 1.5 * RATE) < 0.1 * RATE
    assert reading.warnings == ()


def test_rates_that_change_on_the_way() -> None:
    """Two files joined to one."""
    first = encode(tone(1.0, 44_100, 440.0), 44_100, "adts", "aac")
    second = encode(tone(1.0, 22_050, 440.0), 22_050, "adts", "aac")
    samples = samples_of(first + second)
    assert abs(len(samples) - 2 * RATE) < 0.2 * RATE
    for part in (samples[2000:14000], samples[-14000:-3000]):
        assert peaks(part, 1) == pytest.approx([440.0], abs=3.0)


def test_names_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    path.write_bytes(short("mp3"))
    assert len(samples_of(path)) > RATE
    assert np.array_equal(np.concatenate(list(read(str(path)))), samples_of(path))


def test_pipes() -> None:
    """mp4 files have their table at the end; a pipe cannot go back."""

    class Pipe(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part = self._data.read(min(len(buffer), 777))
            buffer[: len(part)] = part
            return len(part)

    for name in ("m4a", "mp3"):
        assert np.array_equal(samples_of(cast(BinaryIO, Pipe(short(name)))), samples_of(short(name)))
    with pytest.raises(TooMuchAudio, match="larger than"):
        samples_of(cast(BinaryIO, Pipe(short("wav"))), AudioLimits(bytes=10_000))


# Files that break off


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "m4a to be streamed", "opus", "webm", "ogg, flac"])
def test_what_could_be_decoded_is_kept(name: str) -> None:
    kind = KINDS[name]
    whole = encode_kind(kind, tone(8.0, kind.rate, 440.0, 1500.0))
    reading = read(io.BytesIO(whole[: len(whole) * 5 // 8 - 5]))
    samples = np.concatenate(list(reading))
    assert 3.0 * RATE < len(samples) < 6.0 * RATE
    assert peaks(samples[4000:-4000], 2) == pytest.approx([440.0, 1500.0], abs=3.0)
    assert len(reading.warnings) >= 1
    assert "cannot be read beyond" in reading.warnings[-1] or "truncated" in reading.warnings[-1]


@pytest.mark.parametrize("name", ["flac", "m4a", "mp3", "webm"])
def test_a_hole_in_the_middle(name: str) -> None:
    kind = KINDS[name]
    data = bytearray(encode_kind(kind, tone(6.0, kind.rate, 440.0)))
    size = len(data)
    data[size // 2 : size // 2 + size // 12] = np.random.default_rng(5).bytes(size // 12)
    reading = read(io.BytesIO(bytes(data)))
    samples = np.concatenate(list(reading))
    assert len(samples) > 4 * RATE
    assert reading.warnings
    assert peaks(samples[4000:20000], 1) == peaks(samples[-20000:-4000], 1) == pytest.approx([440.0], abs=3.0)


# Files that are no recordings


def _png() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="image2pipe") as output:
        stream = output.add_stream("png", rate=1)
        stream.width = stream.height = 64
        stream.pix_fmt = "rgb24"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def _video(container: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        _draw(output, _video_stream(output))
    return file.getvalue()


def test_no_recordings(tmp_path: Path) -> None:
    cases = {
        "empty": (b"", "is empty"),
        "text": (b"Dear Sir or Madam,\n" * 500, "send one of flac, mp3"),
        "a word": (b"hello", "send one of flac, mp3"),
        "zeros": (bytes(100_000), "not a sound file|no sound"),
        "picture": (_png(), "send one of flac, mp3"),
        "video, mp4": (_video("mp4"), "no sound, only video"),
        "video, webm": (_video("matroska"), "no sound, only video"),
        "header": (short("wav")[:30], "sound"),
        "no samples": (wav(b""), "no sound could be decoded"),
        "one sample a second": (wav(bytes(1000), rate=1), "1 samples a second"),
        "mp4 without its end": (short("m4a")[: len(short("m4a")) // 2], "send one of flac, mp3"),
        "playlist": (b"#EXTM3U\n#EXTINF:10,\nspeech.wav\n#EXT-X-ENDLIST\n", "send one of flac, mp3"),
        "list": (b"ffconcat version 1.0\nfile speech.wav\n", "send one of flac, mp3"),
    }
    (tmp_path / "speech.wav").write_bytes(short("wav"))  # which the lists point to
    for name, (data, message) in cases.items():
        path = tmp_path / f"{name}.mp3"
        path.write_bytes(data)
        for source in (path, io.BytesIO(data)):
            with pytest.raises(BadAudio, match=message):
                samples_of(source)
    for missing in (tmp_path / "none.mp3", tmp_path, "http://127.0.0.1:1/speech.wav", "a\0b"):
        with pytest.raises(BadAudio, match="cannot be opened"):
            next(read(missing))


def test_a_file_that_cannot_be_read_is_not_bad_audio() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 100_000:
                raise ConnectionResetError("the other side has gone")
            return super().read(min(size or 0, 4096))

    with pytest.raises(ConnectionResetError):
        samples_of(Broken(encode(tone(4.0, RATE, 440.0), RATE, "wav", "pcm_s16le")))


# Limits


def test_too_long() -> None:
    data = encode(tone(5.0, RATE, 440.0), RATE, "mp3", "libmp3lame")
    assert len(samples_of(data, AudioLimits(seconds=5.2))) > 4.9 * RATE
    with pytest.raises(TooMuchAudio, match=r"longer than 0\.05 minutes"):
        samples_of(data, AudioLimits(seconds=3.0))
    # A stream without a length is found too long where it is.
    reading = read(io.BytesIO(encode(tone(5.0, RATE, 440.0), RATE, "adts", "aac")), limits=AudioLimits(seconds=3.0))
    blocks: list[Array] = []
    with pytest.raises(TooMuchAudio):
        blocks.extend(reading)
    assert 0 < len(blocks) <= 3


def test_headers_that_promise_hours() -> None:
    """A promise that the file is too small to keep is not believed: what is there is read."""
    reading = read(io.BytesIO(wav(bytes(64_000), size=0xFFFF_FFF0)), limits=AudioLimits(seconds=3600.0))
    assert sum(map(len, reading)) == 32_000
    assert "is truncated after 2.0 s" in reading.warnings[0]
    assert sum(map(len, read(io.BytesIO(wav(bytes(64_000), size=0xFFFF_FFFF))))) == 32_000  # a stream


def test_a_compressed_file_is_as_long_as_it_says() -> None:
    """Silence takes few bytes in FLAC, so that a day of it is no reason to doubt the header."""
    data = bytearray(encode(tone(1.0, RATE, 440.0), RATE, "flac", "flac"))
    samples = 24 * 3600 * RATE
    assert data[:4] == b"fLaC"
    data[21] = data[21] & 0xF0 | samples >> 32
    data[22:26] = (samples & 0xFFFF_FFFF).to_bytes(4, "big")
    with pytest.raises(TooMuchAudio, match="longer than 240 minutes"):
        samples_of(bytes(data))


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    path.write_bytes(short("wav"))
    size = path.stat().st_size
    assert len(samples_of(path, AudioLimits(bytes=size)))
    for source in (path, io.BytesIO(short("wav"))):
        with pytest.raises(TooMuchAudio, match="larger than 0 MB"):
            samples_of(source, AudioLimits(bytes=size - 1))


def test_only_as_much_is_read_as_is_asked_for() -> None:
    file = io.BytesIO(encode(tone(40.0, RATE, 440.0), RATE, "wav", "pcm_s16le"))
    reading = read(file)
    assert len(next(reading)) < 2 * RATE
    assert file.tell() < 10 * 2 * RATE
    reading.close()
    assert not file.closed
    assert list(reading) == []


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are counted in /proc")
def test_no_file_stays_open(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.flac", tmp_path / "bad.mp3"
    good.write_bytes(encode(tone(5.0, RATE, 440.0), RATE, "flac", "flac"))
    bad.write_bytes(b"no sound" * 1000)
    before = _descriptors()
    list(read(good))
    for _ in range(3):
        next(read(good))  # and forgotten
        with read(good) as reading:
            next(reading)
        with pytest.raises(BadAudio):
            next(read(bad))
    with pytest.raises(TooMuchAudio):
        list(read(good, limits=AudioLimits(seconds=2.0)))
    read(good)  # never asked
    assert _descriptors() == before


def test_without_av(monkeypatch: pytest.MonkeyPatch) -> None:
    audio._av.cache_clear()
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UnbraidError, match=r"pip install 'unbraid\[speech\]'"):
        next(read(io.BytesIO(short("wav"))))


# Hostile files


def _box(tag: bytes, *parts: bytes) -> bytes:
    return struct.pack(">I", 8 + sum(map(len, parts))) + tag + b"".join(parts)


def _table(tag: bytes, *numbers: int, flags: int = 0) -> bytes:
    return _box(tag, struct.pack(f">{len(numbers) + 1}I", flags, *numbers))


def _mp4(handler: bytes, samples: int, *, hidden: bool = False) -> bytes:
    """A few hundred bytes that promise many samples."""
    entry = _box(b"mp4a", bytes(6), struct.pack(">HHHIHHHHI", 1, 0, 0, 0, 1, 16, 0, 0, RATE << 16))
    tables = _table(b"stsc", 1, 1, samples, 1) + _table(b"stsz", 1, samples) + _table(b"stco", 1, 48)
    described = _box(b"stsd", struct.pack(">II", 0, 1), entry if not hidden else _box(b"mp4a", entry[8:], tables))
    times = _table(b"stts", 1, samples, 1)
    media = _box(
        b"mdia",
        _table(b"mdhd", 0, 0, RATE, RATE, 0x55C40000),
        _box(b"hdlr", bytes(8), handler, bytes(14)),
        _box(b"minf", _box(b"stbl", described, times, b"" if hidden else tables)),
    )
    track = _box(b"trak", _table(b"tkhd", 0, 0, 1, 0, 1000, *[0] * 15, flags=7), media)
    movie = _box(b"moov", _table(b"mvhd", 0, 0, 1000, 1000, 0x10000, *[0] * 19), track)
    return _box(b"ftyp", b"isom", bytes(4), b"isommp41") + _box(b"mdat", b"\1\2" * 64) + movie


def _fragments(samples: int) -> bytes:
    whole = encode_kind(KINDS["fragmented mp4"], tone(0.3, 48_000, 440.0))
    run = _box(b"traf", _table(b"tfhd", 1, flags=0x20000), _table(b"trun", samples, 100, flags=1))
    return whole + _box(b"moof", _table(b"mfhd", 9), run) + _box(b"mdat", bytes(64))


@pytest.mark.parametrize(
    "data",
    [
        _mp4(b"vide", 80_000_000),
        _mp4(b"vide", 80_000_000, hidden=True),
        _mp4(b"soun", 80_000_000),
        _fragments(80_000_000),
    ],
    ids=["pictures", "hidden", "sound", "fragments"],
)
def test_mp4_files_that_promise_too_much(data: bytes) -> None:
    """Two of them took three gigabytes and nine seconds each."""
    with pytest.raises(BadAudio, match="claims more samples"):
        samples_of(data)


class Watched(io.BytesIO):
    """Counts what is read of it."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def check_hostile(data: bytes) -> None:
    """Samples or `BadAudio`; with less work than a small multiple of the file's size, or of the limits."""
    file = Watched(data)
    reading = read(file, limits=AudioLimits(seconds=30.0, bytes=1 << 20))
    with suppress(BadAudio):
        for block in reading:
            assert block.dtype == np.float32
            assert np.isfinite(block).all()
            assert len(block) <= 20 * RATE
    assert reading.seconds <= 30.0 + 20.0
    assert file.count <= 17 * len(data) + (33 << 20)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(short(draw(st.sampled_from(sorted(KINDS)))))
    # Headers are where the harm is done.
    places = st.one_of(st.integers(0, min(200, len(data) - 1)), st.integers(0, len(data) - 1))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(places)
        match draw(st.sampled_from(["flip", "write", "zero", "ones", "cut", "double", "remove", "text"])):
            case "flip":
                data[at : at + 1] = bytes([(data[at] if at < len(data) else 0) ^ 1 << draw(st.integers(0, 7))])
            case "write":
                data[at : at + 4] = struct.pack(">I", draw(st.integers(0, 2**32 - 1)))
            case "zero":
                data[at : at + draw(st.integers(1, 5000))] = bytes(draw(st.integers(1, 5000)))
            case "ones":
                data[at : at + 8] = b"\xff" * 8
            case "cut":
                del data[at:]
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 5000))]
            case "remove":
                del data[at : at + draw(st.integers(1, 500))]
            case "text":
                data[at : at + 4] = draw(st.binary(min_size=4, max_size=64))
        data = data or bytearray(b"\0")
    return bytes(data)


@given(damaged())
def test_damaged_files(data: bytes) -> None:
    check_hostile(data)


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=2000))
def test_junk_behind_a_true_beginning(name: str, junk: bytes) -> None:
    check_hostile(short(name)[:64] + junk)


@given(st.binary(max_size=5000))
def test_junk(data: bytes) -> None:
    check_hostile(data)


@given(
    rate=st.integers(0, 2**32 - 1),
    channels=st.integers(0, 2**16 - 1),
    bits=st.integers(0, 2**16 - 1),
    tag=st.sampled_from([0, 1, 2, 3, 6, 7, 0x11, 0x31, 0x50, 0x55, 0xFF, 0x2000, 0xFFFE]),
    size=st.integers(0, 2**32 - 1),
)
def test_wav_headers(rate: int, channels: int, bits: int, tag: int, size: int) -> None:
    check_hostile(wav(bytes(range(256)) * 40, rate=rate, channels=channels, bits=bits, tag=tag, size=size))
