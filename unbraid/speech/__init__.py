"""Speech to text, and text to speech. Recordings are decoded, cut into chunks, and transcribed by a model.

    loading.py      from settings to a `Transcriber`, and from a name to a `Speaker`
    transcriber.py  a recording of any length to its transcript
    attempt.py      one chunk decoded once, and whether its output is to be believed
    segments.py     the parser's events to the text and the segments of a chunk
    words.py        when each word was said
    transcript.py   the results; the events on the way to them
    outputs.py      a transcript in OpenAI's response formats
    options.py      what a user asks of one recording
    languages.py    codes and names of languages
    errors.py       what users can get wrong
    listening.py    the protocols of speech models: `Listener` runs one, `Adapter` knows how its family is asked
    families.py     the list of families
    audio/          files of any format to samples, where somebody speaks in them, and samples to chunks
    decoding/       choosing tokens: sampling, beam search, word times, changes of language, the worker thread
    onnx/           ONNX files and ONNX Runtime
    whisper/        Whisper in this process
    moonshine.py    Moonshine in this process
    engines/        speech models on vLLM, on SGLang, behind chat completions and behind transcription endpoints
    live/           sound that is still being spoken, to words that stay as they are
    speakers/       who speaks
    synthesis/      text to speech

`options`, `outputs`, `transcript`, `languages`, `errors` and `loading` need only the standard library. The rest needs
`unbraid[speech]`. The text half of unbraid imports nothing from here: the server and the command line import `loading`
when a model that transcribes is asked for.
"""
