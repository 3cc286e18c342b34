"""llama.cpp: inside the process (`embedded`, over `model`, `requests`, `reader`, `prompt_queue`) and as a server."""
