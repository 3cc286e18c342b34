"""Our own engine on a GPU: its worker, its forced prefix, its sampling and its rules, with the products in PyTorch.

    python bench/whisper_gpu.py FOLDER [RECORDING.wav …]      # needs torch with CUDA; FOLDER has a Whisper for ONNX

`WhisperEngine` runs as it does on a processor; only `WhisperModel`, which computes with ONNX Runtime, is replaced by
one on PyTorch, as machines with a GPU need not have ONNX Runtime's CUDA provider. What is measured:

- with the weights of FOLDER and its recordings: that the GPU writes what the processor writes.
- with the shape of Whisper large-v3 and random weights, on which time does not depend: the language detected in the
  request that transcribes (fused), given (fixed), and asked for in a request of its own first (two passes); and the
  first request of this process beside the tenth. Each output has a fixed number of tokens: a bias makes the model write
  certain tokens, so that it neither ends nor repeats itself.

PyTorch runs without CUDA graphs, so a step costs more here than in a serving engine, in all three ways alike.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transcribe_language import FIXED, FUSED, TWICE, Bench, Case, Compared, Engine, Row
from transcribe_weights import read_onnx

from unbraid.speech.audio.decode import RATE, Samples
from unbraid.speech.options import TranscriptionOptions
from unbraid.speech.transcriber import Transcriber
from unbraid.speech.whisper import listener
from unbraid.speech.whisper.files import WhisperFiles, resolve_whisper
from unbraid.speech.whisper.listener import WhisperEngine
from unbraid.speech.whisper.model import Encoded, WhisperState

FRAMES, CONTEXT = 1500, 448
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # the processor, to try this program out
_WRITTEN = 1000  # the first of the tokens that the bias makes a model with random weights write


@dataclass(frozen=True)
class Shape:
    bins: int
    width: int
    heads: int
    layers: int
    vocabulary: int


LARGE = Shape(80, 1280, 20, 32, 51865)
"""Whisper large-v3, but for the bins and one token of the vocabulary, which are those of the smaller ones."""


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.split = shape.heads
        self.query, self.key = nn.Linear(shape.width, shape.width), nn.Linear(shape.width, shape.width, bias=False)
        self.value, self.out = nn.Linear(shape.width, shape.width), nn.Linear(shape.width, shape.width)

    def seen(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values of what is looked at."""
        return self._heads(self.key(states)), self._heads(self.value(states))

    def forward(self, states: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        found = scaled_dot_product_attention(self._heads(self.query(states)), keys, values, attn_mask=mask)
        result: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result

    def _heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.split, -1)).transpose(1, 2)


class Block(nn.Module):
    """With the names that OpenAI gives its parts."""

    def __init__(self, shape: Shape, *, crosses: bool) -> None:
        super().__init__()
        self.attn, self.attn_ln = Attention(shape), nn.LayerNorm(shape.width)
        if crosses:
            self.cross_attn, self.cross_attn_ln = Attention(shape), nn.LayerNorm(shape.width)
        up, down = nn.Linear(shape.width, 4 * shape.width), nn.Linear(4 * shape.width, shape.width)
        self.mlp, self.mlp_ln = nn.Sequential(up, nn.GELU(), down), nn.LayerNorm(shape.width)


class Encoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(shape.bins, shape.width, 3, padding=1)
        self.conv2 = nn.Conv1d(shape.width, shape.width, 3, stride=2, padding=1)
        self.positional_embedding = nn.Parameter(torch.randn(FRAMES, shape.width))
        self.blocks = nn.ModuleList(Block(shape, crosses=False) for _ in range(shape.layers))
        self.ln_post = nn.LayerNorm(shape.width)

    def forward(self, mels: Tensor) -> Tensor:
        states = gelu(self.conv2(gelu(self.conv1(mels)))).transpose(1, 2) + self.positional_embedding
        for block in self.blocks:
            normed = block.attn_ln(states)
            states = states + block.attn(normed, *block.attn.seen(normed))
            states = states + block.mlp(block.mlp_ln(states))
        result: Tensor = self.ln_post(states)
        return result


class Decoder(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, shape.width))
        self.blocks = nn.ModuleList(Block(shape, crosses=True) for _ in range(shape.layers))
        self.ln = nn.LayerNorm(shape.width)


class TorchWhisper(nn.Module):
    """What `WhisperEngine` needs of `WhisperModel`. Times of words are not among it."""

    heads: tuple[tuple[int, int], ...] = ()
    context = CONTEXT
    reads_runs = True

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(shape), Decoder(shape)
        self.bins = shape.bins
        self.passes = self.steps = 0
        """How often the encoder and the decoder have run."""
        self.english: int | None = None
        """The token of the language that a model with random weights detects; None for real weights."""

    def run_options(self) -> Any:
        return SimpleNamespace()

    @torch.inference_mode()  # a mode of the thread, and the engine has its own
    def hidden(self, mel: Any, options: Any = None) -> Any:
        self.passes += 1
        return self.encoder(self._given(mel)[None])

    @torch.inference_mode()
    def encoded(self, outputs: Sequence[Any]) -> Encoded:
        hidden = torch.cat(list(outputs))
        cross = {str(at): block.cross_attn.seen(hidden) for at, block in enumerate(self.decoder.blocks)}
        return Encoded(len(hidden), hidden, cross)

    def begin(self, encoded: Encoded, prompts: Any, *, attentions: bool = False) -> WhisperState:
        rows = tuple(range(encoded.rows))
        state = WhisperState(encoded, rows, encoded.cross, {}, 0, np.empty((len(rows), 0), np.float32))
        self.step(state, prompts)
        return state

    @torch.inference_mode()
    def step(self, state: WhisperState, tokens: Any) -> Any:
        """Read the next tokens of each row, all in one step."""
        read = torch.as_tensor(tokens, device=DEVICE).reshape(state.rows, -1)
        count = read.shape[1]
        self.steps += 1
        places = torch.arange(state.length, state.length + count, device=DEVICE)
        mask = None if count == 1 else torch.arange(state.length + count, device=DEVICE)[None] <= places[:, None]
        states = self.decoder.token_embedding(read) + self.decoder.positional_embedding[places]
        past = {}
        for at, block in enumerate(self.decoder.blocks):
            normed = block.attn_ln(states)
            own = block.attn.seen(normed)
            if state.past:
                own = tuple(torch.cat(pair, dim=2) for pair in zip(state.past[str(at)], own, strict=True))
            past[str(at)] = own
            states = states + block.attn(normed, *own, mask)
            states = states + block.cross_attn(block.cross_attn_ln(states), *state.cross[str(at)])
            states = states + block.mlp(block.mlp_ln(states))
        logits = (self.decoder.ln(states[:, -1]) @ self.decoder.token_embedding.weight.T).float()
        state.past, state.length = past, state.length + count
        if self.english is not None:
            logits[:, self.english] += 1e4
            logits[:, _WRITTEN + state.length] += 1e6
        state.logits = logits.cpu().numpy()
        return state.logits

    @torch.inference_mode()
    def select(self, state: WhisperState, rows: Sequence[int]) -> WhisperState:
        chosen = torch.as_tensor(list(rows), device=DEVICE)

        def taken(values: Any) -> Any:
            return {name: tuple(one[chosen] for one in pair) for name, pair in values.items()}

        audio = tuple(state.audio[row] for row in rows)
        cross, past = taken(state.cross), taken(state.past)
        return WhisperState(state.encoded, audio, cross, past, state.length, state.logits[list(rows)])

    def _given(self, mel: Any) -> Tensor:
        return torch.as_tensor(mel, device=DEVICE).to(self.encoder.conv1.weight.dtype)


@dataclass(frozen=True)
class Clip:
    """A recording."""

    samples: Samples
    language: str = "en"

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE


def clip(path: Path) -> Clip:
    with wave.open(str(path)) as file:
        return Clip(np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / np.float32(32768))


def on_gpu(files: WhisperFiles, model: TorchWhisper, parallel: int) -> Engine:
    """Our engine with the products elsewhere."""
    with mock.patch.object(listener, "WhisperModel", return_value=model):
        return Engine(files, parallel=parallel)


def real(files: WhisperFiles) -> TorchWhisper:
    """The weights of the files."""
    config, weights = files.config, read_onnx(files)
    shape = Shape(
        files.bins,
        config["d_model"],
        config["encoder_attention_heads"],
        config["encoder_layers"],
        len(weights["decoder.token_embedding.weight"]),
    )
    model = TorchWhisper(shape)
    model.load_state_dict({name: torch.from_numpy(np.array(values, np.float32)) for name, values in weights.items()})
    model.to(DEVICE).eval()
    return model


async def same(files: WhisperFiles, clips: Sequence[Clip]) -> None:
    """That both write the same."""
    options = TranscriptionOptions(timestamps=True)
    texts: dict[str, list[str]] = {}
    for name, engine in (("processor", WhisperEngine(files)), ("GPU", on_gpu(files, real(files), 4))):
        transcriber = Transcriber(engine)
        start = time.perf_counter()
        found = [await transcriber.transcribe([one.samples], options) for one in clips]
        texts[name] = [f"{one.language}: {one.text}" for one in found]
        print(f"{files.name}, {name}: {len(clips)} recordings in {time.perf_counter() - start:.2f} s")
        await engine.close()
    for processor, gpu in zip(*texts.values(), strict=True):
        print("the same  " if processor == gpu else "different ", gpu if processor == gpu else f"{processor} | {gpu}")


async def large(files: WhisperFiles, rounds: int, batches: Sequence[int], tokens: Sequence[int]) -> None:
    torch.manual_seed(0)
    with torch.device(DEVICE):
        model = TorchWhisper(LARGE).to(torch.bfloat16 if DEVICE == "cuda" else torch.float32).eval()
    for batch in batches:
        engine = on_gpu(files, model, batch)
        if model.english is None:
            model.english = engine.tokens.language("en")
            await _first(Bench("", engine))
            print("| recordings | tokens | encoder + decoder runs for one, fixed | fused | two passes", end=" ")
            print("| fixed (ms) | fused / fixed | two passes / fixed |", "|" + " ---: |" * 8, sep="\n")
        for count in tokens:
            bench = Bench("the shape of large-v3", engine)
            case = bench.chunks([_noise(count, seed) for seed in range(batch)])
            alone = bench.chunks([_noise(count, 0)])
            runs = [await _counted(bench, alone, model, variant) for variant in (FIXED, FUSED, TWICE)]
            await bench.measure([case], rounds)
            row = Row.of("", [case])
            cells = (batch, count, *runs, f"{row.fixed.milliseconds:.0f}", _cell(row.fused), _cell(row.twice))
            print("|", " | ".join(map(str, cells)), "|", flush=True)
        await engine.close()


async def _first(bench: Bench) -> None:
    case = bench.chunks([_noise(64, 0)])
    times = [(await bench._take(case, FUSED)).seconds for _ in range(10)]
    print(
        f"requests of this process: the first {times[0]:.2f} s, the second {times[1]:.2f}, the tenth {times[9]:.2f}\n"
    )


def _noise(tokens: int, seed: int) -> Clip:
    """As long as an output of so many tokens may be; see `_most_tokens` in unbraid/speech/whisper/adapter.py."""
    return Clip(np.random.default_rng(seed).normal(0, 0.1, (tokens - 32) * RATE // 16).astype(np.float32))


async def _counted(bench: Bench, case: Case, model: TorchWhisper, variant: str) -> str:
    """How often encoder and decoder run: what the time follows from."""
    model.passes = model.steps = 0
    await bench._take(case, variant)
    return f"{model.passes} + {model.steps}"


def _cell(one: Compared) -> str:
    return f"{one.ratio:.3f} ({one.low:.3f} … {one.high:.3f})"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("recordings", type=Path, nargs="*")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--tokens", type=int, nargs="+", default=[64, 128], help="tokens of each output")
    options.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    asked = options.parse_args()
    files = resolve_whisper(asked.folder)
    print(f"{torch.cuda.get_device_name() if DEVICE == 'cuda' else 'no GPU'}, torch {torch.__version__}\n")
    asyncio.run(large(files, asked.rounds, asked.batches, asked.tokens))
    if asked.recordings:
        print()
        asyncio.run(same(files, [clip(path) for path in asked.recordings]))


if __name__ == "__main__":
    main()
