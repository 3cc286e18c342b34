"""Graphs of Kokoro's shape: in halves where the values between them have the makers' names, and else whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unbraid.engines import Unsupported
from unbraid.speech.onnx.graph import Graph, GraphNode, OnnxModel, integer, tensor_input, write_model
from unbraid.speech.synthesis.kokoro import FRAME, KokoroFiles, KokoroModel
from unbraid.speech.synthesis.phonemes import LONGEST

STYLE = np.zeros((LONGEST, 256), np.float32)
COUNT = 200
NAMES = ("/encoder/MatMul_1_output_0", "/encoder/F0_proj/Conv_output_0", "/encoder/N_proj/Conv_output_0")


def files(folder: Path, names: tuple[str, str, str], more: str = "speed") -> KokoroFiles:
    """A model whose sound is its tokens over and over, a frame for each."""
    said, height, loudness = names
    graph = Graph(
        [
            GraphNode("Cast", ["input_ids"], ["numbers"], [integer("to", 1)]),
            GraphNode("Mul", ["numbers", more], ["faster"]),
            GraphNode("ReduceSum", ["style"], ["silence"]),
            GraphNode("Add", ["faster", "silence"], ["styled"]),
            GraphNode("Unsqueeze", ["styled", "axis"], [said]),
            GraphNode("Concat", [said, said], [height], [integer("axis", 2)]),
            GraphNode("Concat", [said, said], [loudness], [integer("axis", 2)]),
            GraphNode("Sub", [height, loudness], ["none"]),
            GraphNode("ReduceSum", ["none"], ["nothing"]),
            GraphNode("Tile", [said, "times"], ["sounding"]),
            GraphNode("Sum", ["sounding", "nothing", "silence"], ["sound"]),
        ],
        {},
        {},
        {"sound": tensor_input("sound", 3)},
    )
    for name, rank, kind in (("input_ids", 2, np.int64), ("style", 2, np.float32), (more, 1, np.float32)):
        graph.inputs[name] = tensor_input(name, rank, kind)
    graph.put("axis", np.array([1], np.int64))
    graph.put("times", np.array([1, 1, FRAME], np.int64))
    path = folder / "model.onnx"
    path.write_bytes(write_model(OnnxModel(graph, {"": 17}, 8)))
    return KokoroFiles("made", path, {}, {})


@pytest.mark.parametrize("halves", [True, False])
def test_its_sound_at_once_and_in_parts(tmp_path: Path, halves: bool) -> None:
    model = KokoroModel(files(tmp_path, NAMES if halves else ("a", "b", "c")), threads=1)
    tokens = range(1, COUNT + 1)
    [whole] = model.speak(tokens, STYLE, 2.0)
    frames = [0, *(2 * token for token in tokens), 0]
    np.testing.assert_array_equal(whole.sound, np.tile(np.array(frames, np.float32), FRAME))
    assert (whole.read, whole.made) == (COUNT, COUNT + 2)

    parts = list(model.speak(tokens, STYLE, 2.0, soon=True))
    assert (len(parts) > 2) == halves
    assert [part.read for part in parts] == [COUNT, *[0] * (len(parts) - 1)]
    if halves:
        assert [part.total for part in parts] == [(COUNT + 2) * FRAME, *[0] * (len(parts) - 1)]
        assert len(parts[0].sound) < len(whole.sound) // 4


def test_what_is_no_kokoro(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="is no Kokoro: its inputs are input_ids, style, pace"):
        KokoroModel(files(tmp_path, NAMES, more="pace"), threads=1)
