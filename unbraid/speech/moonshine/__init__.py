"""Moonshine: its files, the model on ONNX Runtime, its adapter and its listener."""
