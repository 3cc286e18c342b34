"""Tokens in, tokens out: what gateways of vLLM, llm-d and KServe ask of the service that tokenizes and parses for them.

The wire format is that of `vllm launch render`, field by field. What is ours is how streams go on: vLLM parses the
whole history again for each chunk, here a state of constant size goes back and forth.

    render.py         a chat or completion request to ids, and what the engine needs beside them
    derender.py       the ids of a chat's reply, whole or chunk by chunk, to the objects of OpenAI's API
    derender_text.py  the same for completions
    readings.py       how the reply to a request is to be read, looked up by the request's bytes
    streams.py        the state of a stream that goes back and forth
    deltas.py         the events of one chunk as one delta
    wire.py           the bodies and errors
"""
