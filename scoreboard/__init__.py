"""The same streams through everybody's parser, judged by the message that was written.

`python -m scoreboard` runs the board, `python -m scoreboard show CELL` prints one stream of it, what was meant and what
came. A cell is `PEER:FORMAT:KIND:NUMBER:CUT`; the corpus follows from its seed, so a name is enough to make it again.

corpus.py     messages, drawn by a seed, as vendors' templates write them
streams.py    these as tokens, cut into deltas
judge.py      what a peer made of a stream, against what was meant
peers.py      the peers, their environments, and a run of one
adapters/     one script for each peer, run by the peer's own interpreter
schemas.py    schemas with values, for the board of constraints
grammars.py   that board: our dialects and the libraries' own converters on the same schemas
reports.py    what was found in peers, as pages of docs/upstream/ with a script that runs again
board.py      all verdicts as one small file; docs/scoreboard.md is written from it
"""
