"""Recordings: files to samples, and samples to chunks.

    decode.py      files of any format to samples of 16 kHz
    sources.py     files as FFmpeg may read them: bounded, checked, whole
    pcm.py         samples as bytes and back: PCM, G.711, WAV
    microphone.py  sound as it is recorded
    vad.py         where somebody speaks
    chunking.py    long recordings in pieces that a model can take

All samples are mono, float32, 16 kHz.
"""
