"""ONNX for speech models.

    graph.py     ONNX files: read, rewritten, written
    protobuf.py  the wire format that they are in
    runtime.py   sessions of ONNX Runtime

Whisper, Moonshine, Kokoro and the voice activity detector share these modules.
"""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
"""`auto` is the GPU where ONNX Runtime has its CUDA provider and can use it, and else the processor."""
