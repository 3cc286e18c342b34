"""One module for each peer, run by the peer's own interpreter; worker.py is the loop that they share."""
