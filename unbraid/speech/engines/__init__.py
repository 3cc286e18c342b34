"""Speech models on other engines, as listeners.

    remote.py          what all listeners share whose model is on a server
    endpoint.py        servers with OpenAI's `/v1/audio/transcriptions`
    chat.py            models behind `/v1/chat/completions`, such as Qwen3-ASR
    adapters.py        how endpoints and Qwen3-ASR are asked
    sglang.py          Whisper on SGLang, by tokens
    vllm.py            Whisper on vLLM in this process
    vllm_processor.py  Whisper's rules inside vLLM's own processes

Only `adapters` can be imported without httpx.
"""
