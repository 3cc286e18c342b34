"""Speech models that run in other engines: SGLang, vLLM, and servers with a transcription endpoint."""
