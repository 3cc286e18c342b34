"""Choosing tokens: sampling, beam search, word times and the thread it all runs in."""
