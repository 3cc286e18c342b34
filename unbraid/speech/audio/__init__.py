"""Recordings: decoded, checked and cut into chunks."""
