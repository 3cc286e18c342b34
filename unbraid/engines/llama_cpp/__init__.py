"""llama.cpp, inside the process and as a server."""
