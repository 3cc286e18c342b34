"""Going on from a turn: what a template writes between two turns, and whether it would have gone on so.

`bridges` has the text between two turns, taken from a rendering of stand-ins (`stand_ins`); `recipes` has it without a
rendering, where one was followed before; `proof` asks the template whether it goes on; `extension` puts it together.
"""
