"""From what a client asks to what it is told, in no dialect.

A dialect makes a `ChatTask` (`task`). It becomes a `Plan`: the prompt, the sampling, what is enforced (`enforcing`) and
how the output is parsed. Each choice is a `Turn`, which runs the engine and the parser and gives `Update`s (`turn`),
with no more reasoning than it may have (`thinking`). Dialects whose replies are lists of parts read them as `blocks`.
"""
