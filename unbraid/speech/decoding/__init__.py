"""Decoding: choosing the tokens of an output, by sampling or beam search, and when each token was said."""
