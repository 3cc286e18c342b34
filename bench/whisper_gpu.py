"""What it costs on a GPU to detect the language in the request that transcribes: fused, against a language that is
given, and against two passes, as servers do it that ask for the language first.

Time does not depend on weights, so none are needed: the model has the shape of Whisper large-v3 and random values. As
in a serving engine, every stage is one CUDA graph over buffers that stay where they are, so that no launch of Python's
is measured; choosing a token is part of the graph.

    python bench/whisper_gpu.py          # needs torch with CUDA

- fixed: encode; the prompt `<|startoftranscript|><|en|><|transcribe|><|notimestamps|>` in one step; then the text.
- fused: encode; `<|startoftranscript|>`; the likeliest of the vocabulary's languages; it and the two forced tokens in
  one step; then the text. Nothing comes back to the host before the text.
- two passes: encode; `<|startoftranscript|>`; the likeliest language goes back to the host; then all of fixed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

SOT, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS = 50258, 50259, 50360, 50364
FIRST_LANGUAGE, LANGUAGES = 50259, 100
VOCABULARY, BINS, WIDTH, LAYERS, HEADS = 51866, 128, 1280, 32, 20
FRAMES, CONTEXT = 1500, 448


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def forward(self, states: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        seen = scaled_dot_product_attention(self.heads(self.query(states)), keys, values, attn_mask=mask)
        result: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    def __init__(self, cross: bool) -> None:
        super().__init__()
        self.own, self.own_norm = Attention(), nn.LayerNorm(WIDTH)
        self.cross = Attention() if cross else None
        self.cross_norm = nn.LayerNorm(WIDTH) if cross else None
        self.up, self.down, self.norm = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def think(self, states: Tensor) -> Tensor:
        return states + self.down(gelu(self.up(self.norm(states))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(BINS, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.places = nn.Parameter(torch.randn(FRAMES, WIDTH))
        self.blocks = nn.ModuleList(Block(cross=False) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, mels: Tensor) -> Tensor:
        states = gelu(self.second(gelu(self.first(mels)))).transpose(1, 2) + self.places
        for block in self.blocks:
            normed = block.own_norm(states)
            own = block.own
            states = states + own(normed, own.heads(own.key(normed)), own.heads(own.value(normed)))
            states = block.think(states)
        result: Tensor = self.norm(states)
        return result


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block(cross=True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)


class Engine:
    """One batch of thirty-second recordings, with its buffers and graphs."""

    def __init__(self, encoder: Encoder, decoder: Decoder, batch: int) -> None:
        self.encoder, self.decoder, self.batch = encoder, decoder, batch
        self.mels = torch.randn(batch, BINS, 2 * FRAMES, dtype=torch.bfloat16, device="cuda")
        shape = (LAYERS, 2, batch, HEADS, CONTEXT, WIDTH // HEADS)
        self.own = torch.zeros(shape, dtype=torch.bfloat16, device="cuda")
        self.heard = torch.zeros((*shape[:4], FRAMES, shape[5]), dtype=torch.bfloat16, device="cuda")
        self.at = torch.zeros(1, dtype=torch.long, device="cuda")
        """How many tokens have been read."""
        self.chosen = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
        """The token that was chosen last."""
        self.encode = captured(self._encode)
        self.read_language = captured(lambda: self._read(self._tokens(SOT), languages=True))
        self.read_prompt = captured(lambda: self._read(self._tokens(SOT, ENGLISH, TRANSCRIBE, NO_TIMESTAMPS)))
        self.read_forced = captured(
            lambda: self._read(torch.cat([self.chosen, self._tokens(TRANSCRIBE, NO_TIMESTAMPS)], dim=1))
        )
        self.read_text = captured(lambda: self._read(self.chosen))

    def fixed(self, words: int) -> None:
        self.encode()
        self.read_prompt()
        self._write(words)

    def fused(self, words: int) -> None:
        self.encode()
        self.read_language()
        self.read_forced()
        self._write(words)

    def two_passes(self, words: int) -> None:
        self.encode()
        self.read_language()
        self.chosen.cpu()  # the first request is answered
        self.fixed(words)

    def _write(self, words: int) -> None:
        for _ in range(words):
            self.read_text()

    # --- What is captured ------------------------------------------------------------------------------------------

    def _tokens(self, *tokens: int) -> Tensor:
        return torch.stack([torch.full((self.batch,), token, device="cuda") for token in tokens], dim=1)

    def _encode(self) -> None:
        states = self.encoder(self.mels)
        for layer, block in enumerate(self.decoder.blocks):
            cross = block.cross
            self.heard[layer, 0].copy_(cross.heads(cross.key(states)))
            self.heard[layer, 1].copy_(cross.heads(cross.value(states)))
        self.at.zero_()

    def _read(self, tokens: Tensor, languages: bool = False) -> None:
        """Read tokens after those that were read before, and choose the next."""
        places = self.at + torch.arange(tokens.shape[1], device="cuda")
        mask = torch.arange(CONTEXT, device="cuda")[None] <= places[:, None]
        states = self.decoder.words(tokens) + self.decoder.places[places]
        for layer, block in enumerate(self.decoder.blocks):
            normed = block.own_norm(states)
            own, (keys, values) = block.own, self.own[layer]
            keys.index_copy_(2, places, own.heads(own.key(normed)))
            values.index_copy_(2, places, own.heads(own.value(normed)))
            states = states + own(normed, keys, values, mask)
            states = states + block.cross(block.cross_norm(states), *self.heard[layer])
            states = block.think(states)
        logits = self.decoder.norm(states[:, -1:]) @ self.decoder.words.weight.T
        if languages:
            logits = logits[..., FIRST_LANGUAGE : FIRST_LANGUAGE + LANGUAGES]
        self.chosen.copy_(logits.argmax(dim=-1) + (FIRST_LANGUAGE if languages else 0))
        self.at += tokens.shape[1]


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """`work` as one graph."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    replay: Callable[[], None] = graph.replay
    return replay


def milliseconds(work: Callable[[int], None], words: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    work(words)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def measure(engine: Engine, words: int, rounds: int) -> str:
    engine.fixed(words)  # the clock of the GPU goes up; nothing of it is fused
    firsts = [milliseconds(engine.fused, words) for _ in range(10)]
    times: dict[str, list[float]] = {"fixed": [], "fused": [], "two_passes": []}
    for _ in range(rounds):  # in turn, so that what disturbs one disturbs all
        for name, found in times.items():
            found.append(milliseconds(getattr(engine, name), words))
    fixed, fused, two = (statistics.median(found) for found in times.values())
    return (
        f"| {engine.batch} | {words} | {fixed:.1f} | {fused:.1f} | {fused / fixed:.3f} | {two:.1f} "
        f"| {two / fixed:.3f} | {firsts[0] / firsts[-1]:.3f} |"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--words", type=int, nargs="+", default=[64, 128], help="tokens of text in each output")
    options.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    asked = options.parse_args()
    torch.manual_seed(0)
    with torch.device("cuda"):
        encoder, decoder = Encoder().bfloat16().eval(), Decoder().bfloat16().eval()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16, medians of {asked.rounds} rounds\n")
    print("| recordings | tokens | fixed (ms) | fused (ms) | ratio | two passes (ms) | ratio | first / tenth fused |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for batch in asked.batches:
        engine = Engine(encoder, decoder, batch)
        for words in asked.words:
            print(measure(engine, words, asked.rounds), flush=True)
        del engine


if __name__ == "__main__":
    with torch.inference_mode():
        main()
