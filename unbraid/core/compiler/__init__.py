"""Compiles a format to what the machine runs: its markers as search patterns, its calls as steps."""
