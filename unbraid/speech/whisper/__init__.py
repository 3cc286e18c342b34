"""Whisper: its files (`files`, `graphs`), the model on ONNX Runtime (`model`), its prompts (`adapter`), its rules."""
