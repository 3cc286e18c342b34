"""Decoding: which tokens a model writes, and when each of them was said.

    sampling.py   one token after the other
    beams.py      beam search
    alignment.py  when each token was said, by the decoder's attention
    language_changes.py  where people change their language within a chunk
    worker.py     the thread that a model runs in, and which chunks it decodes together

Models in this process use all of it. Engines elsewhere decode by themselves.
"""
