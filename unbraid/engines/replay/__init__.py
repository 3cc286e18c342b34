"""Recorded outputs, played back; and the recorder that writes them."""
