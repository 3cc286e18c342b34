"""ONNX for speech models: files that are read and rewritten (`graph`), and sessions of ONNX Runtime (`runtime`)."""

from typing import Literal

Device = Literal["auto", "cpu", "cuda"]
"""`auto` is the GPU where ONNX Runtime has its CUDA provider and can use it, and else the processor."""
