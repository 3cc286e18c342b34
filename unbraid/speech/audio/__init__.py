"""Recordings: files decoded to samples (`decode`), with guards for hostile files, and cut into chunks (`chunking`)."""
