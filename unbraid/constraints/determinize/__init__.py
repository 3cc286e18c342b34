"""Determinisation of grammars, for llama.cpp, which follows every alternative at once. Start with `states`."""
