"""Determinisation: a grammar in which the next character decides."""
