"""Speech to text, and text to speech. Recordings are decoded, cut into chunks, and transcribed by a model.

    loading        from settings to a `Transcriber`
    transcriber    a recording of any length to its transcript; `attempt` is one chunk decoded once
    listening      the protocol of speech models; `adapters` and `families` say what is particular to each family
    transcript     the results; `outputs` renders them in OpenAI's response formats
    audio/         files of any format to samples, and samples to chunks
    decoding/      choosing tokens: sampling, beam search, word times, the worker thread
    onnx/          ONNX files and ONNX Runtime
    whisper/       Whisper in this process
    moonshine/     Moonshine in this process
    qwen_asr/      Qwen3-ASR, which runs elsewhere
    synthesis/     text to speech; kokoro/ is a model that speaks
    engines/       speech models on vLLM, on SGLang, and behind OpenAI's transcription endpoint

`options`, `outputs`, `transcript`, `languages`, `errors` and `loading` need only the standard library. The rest needs
`unbraid[speech]`. The text half of unbraid imports nothing from here: the server and the command line import `loading`
when a model that transcribes is asked for.
"""
