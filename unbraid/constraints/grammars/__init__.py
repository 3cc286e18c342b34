"""The grammars that clients give: what the input of a custom tool must follow, in Lark or as a regular expression.

`lark` reads the notation into rules, `reduction` takes out the recursion that is only repetition and puts rules into
each other, and `automaton` makes what is regular deterministic.

A grammar is read as a language of texts: a text follows it if the rules can produce it, whatever a lexer would make of
it. Where nothing nests, the language is a regular node; otherwise it is `Nested`.
"""
