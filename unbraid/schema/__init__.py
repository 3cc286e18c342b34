"""JSON Schema, read once for the whole library.

    repair.py        reads what people write by mistake as what they mean; every schema comes in through it
    references.py    makes pointers of references by address or name
    keywords.py      which keywords there are, `type`, `$ref`
    kinds.py         which kinds of value an argument may be; the parser needs no more
    checks.py        refuses schemas that no constraint can be made of
    normal_form.py   brings a schema to a form without combinations of keywords
    forms.py         the values that a normal form is made of
    intersection.py  the form of what satisfies two forms
    patterns.py      regular expressions, read into the nodes of `regular`
    regular.py       regular languages as values: text, character classes, sequence, choice, repetition

Behind `repair`, every reader may rely on well-formed keywords.
"""
