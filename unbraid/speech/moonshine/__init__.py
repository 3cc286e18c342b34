"""Moonshine: its files, its model and what it is asked."""
