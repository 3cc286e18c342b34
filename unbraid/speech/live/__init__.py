"""Live speech: sound that is still being spoken, to words that stay as they are.

`sound` reads what clients send (PCM, G.711) to samples of 16 kHz, `turns` says where somebody begins and ends to speak,
and `hearing` makes words of one utterance while it is spoken; `agreement` says which of them are certain.
"""
