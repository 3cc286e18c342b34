"""The heart of unbraid: grammars, parser, renderer. No I/O, nothing but the standard library.

What is written and read, then what reads it:

    grammar.py       what a format is made of: plain values
    events.py        what a parser says
    message.py       the events folded into a message
    render.py        a message back to raw text
    diagnostics.py   the kinds of what can be wrong with an output
    limits.py        bounds on what a parser holds
    tools.py         the tools of a request
    custom_tools.py  tools whose input is free text
    call_ids.py      ids for calls
    tally.py         tokens counted by strand
    vocabulary.py    what a parser asks of a tokenizer; token ids to text
    json_text.py     JSON as text: quoting, escapes, numbers
    fast_import.py   what keeps `import unbraid` fast
    compiler/        a format made ready to run
    machine/         how a parser runs
    notations/       the ways to write arguments: JSON, tags, XML, elements, Python, bare keys
"""
