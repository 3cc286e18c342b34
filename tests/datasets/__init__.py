"""Datasets of recorded outputs."""
