"""The machine behind the parser.

    machine.py       what every frame runs on: input and the stack
    output.py        events, and the call that is being read
    scopes.py        text of a strand and the markers in it; citations
    headers.py       headers of messages
    calls.py         between the markers of calls
    steps.py         the steps that read a call
    whole_calls.py   the step that reads a call at once, where all of it has come
    markers.py       finding markers and words in text that arrives in pieces
    prose.py         where in a text a marker is one, and where it is a name
    out_of_band.py   audio codes, languages and times
    driver.py        text, token ids and codes in, events out
    snapshot.py      the state as plain values, and back

**The machine.** A parser is a pushdown automaton over characters. Its state is a stack of frames. At the bottom stands
the content; on top of it stand the strands that markers have opened (reasoning, speech) and, at the very top, the
states of a call. New input is appended to a buffer. The top frame takes what it understands and changes the stack, then
the frame that is on top runs, until one of them needs more input.

**No chunk boundaries.** A frame that lacks input returns False and has changed nothing. The next piece of input is
appended, and the frame looks again. So nothing can depend on where the stream was cut: law 1 (docs/laws.md#law-1). And
there is no second code path for whole texts: law 2 (docs/laws.md#law-2). What comes as templates write it may be read
at once (`whole_calls.py`, `Frame.fast_path`); a parser that reports markup reads nothing at once, and the tests compare
the two.

**One door.** Input leaves the buffer only through `Machine.take`, which says what it means and where it stood. So
nothing is lost and nothing is said twice: law 3 (docs/laws.md#law-3).

**Nesting.** In a scope the nearest marker decides. A scope admits the openers of what is not open yet and the closers
of what is. A call in reasoning in speech is therefore no special case, and no parser has to run before another. The
stack cannot grow without bound: a strand cannot open inside itself, and calls do not nest.

**Calls.** All of a call is held back until its name is known. Then it is accepted and starts to go out, or it is
rejected and all of it is text of the strand around it. After that its arguments go out as they arrive, as JSON.

**Malformed input** never raises: law 8 (docs/laws.md#law-8). There are three ways to go on:

1. *It never was a call*: no name, an unknown tool, a marker in the middle. All that was held is text. The closing
   marker that is still to come is text too, and no surprise (`ScopeFrame.orphan_closer`).
2. *An accepted call breaks* (`Malformed`): what was sent stays sent, the call ends as not complete with its raw text,
   and everything up to the nearest marker is text. In a list, the next call is read again.
3. *Its arguments break, and only they*: brackets and quotes are still followed, so that the end of the arguments is
   found and the next call is not lost. The call ends as not complete.

What is not closed at the end of the output is closed there, with a diagnostic where a closer was due.

**The table.** Every kind of frame declares which others may open it (`Frame.opened_by`), and says what it reads, what
ends it and what malformed input does to it (`Frame.about`). `Machine.push` asserts the first, and docs/machine.md is
written from both. A test runs hostile texts through all formats. It fails on a transition that is not declared, and on
one that is declared and never happens.
"""
