"""Qwen3-ASR, which listens behind vLLM's or SGLang's chat completions."""
