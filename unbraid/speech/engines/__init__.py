"""Speech models on other engines: vLLM in this process, SGLang servers, and servers with OpenAI's endpoint."""
