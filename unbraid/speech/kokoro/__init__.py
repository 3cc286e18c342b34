"""Kokoro-82M in this process: text to speech on ONNX Runtime."""
