"""Tokens in, tokens out: what gateways of vLLM, llm-d and KServe ask of the service that tokenizes and parses for them.

- `render`: a chat or completion request to token ids, and what the engine needs beside them.
- `derender`: the ids of a reply, whole or chunk by chunk, to the objects of OpenAI's API.

The wire format is that of `vllm launch render`, field by field (`wire`, `errors`). What is ours is how streams go on:
vLLM parses the whole history again for each chunk, here a state of constant size goes back and forth (`streams`).
"""
