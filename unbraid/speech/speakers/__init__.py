"""Who speaks: voices told apart in a recording.

    campplus.py     CAM++, a model that says how a voice sounds, on ONNX Runtime
    torch_files.py  weights in PyTorch's files, read without PyTorch
    turns.py        who speaks when: voices of short windows, grouped; and the segments of a transcript by speaker

The names of speakers are `A`, `B`, … in the order in which they begin to speak, as in OpenAI's API.
"""
