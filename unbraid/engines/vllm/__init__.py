"""vLLM, as a server and inside the process."""
