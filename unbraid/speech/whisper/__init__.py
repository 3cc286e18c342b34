"""Whisper on ONNX Runtime.

    listener.py  the listener: chunks that wait are decoded as one batch
    adapter.py   how a Whisper is asked, on whichever engine it runs
    tokens.py    its special tokens, and its vocabulary
    rules.py     which token may follow
    files.py     its files: found, or fetched
    features.py  samples to log-mel spectrograms
    model.py     the loaded model, one step at a time
    decoder.py   which file of the decoder does what
    graphs.py    quantised files made accurate and fast

`adapter`, `tokens` and `rules` also serve the Whispers in `engines`.
"""
