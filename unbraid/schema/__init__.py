"""JSON Schema, read once for the whole library.

A schema comes in through `repair`, which reads what people write by mistake as what they mean. Behind that door every
reader may rely on well-formed keywords: `kinds` says which kinds of value an argument may be (the parser needs no
more), `checks` refuses what no constraint can be made of, and `normal_form` brings a schema to a form in which it can
be intersected and printed. `types` reads the `type` keyword, `references` resolves `$ref`, `keywords` lists which
keywords hold schemas, and `patterns` reads regular expressions into the nodes of `regular`.
"""
