"""llama.cpp as an engine.

    server.py    llama.cpp's server, over HTTP
    embedded.py  llama.cpp inside this process, as an engine
    model.py     a loaded model, and which requests may enter it
    requests.py  requests and constraints as llama.cpp's JSON; its errors as ours
    reader.py    the answers inside this process

Both engines take and give token ids.
"""
