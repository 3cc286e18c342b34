"""Probing: known turns, what a template renders for them, and in how many ways it can be asked to."""
