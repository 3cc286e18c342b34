"""The playground: a page that shows what the parser and the constraints do, and talks to the server's models.

    routes.py     the page and its views on the server
    views.py      everything that the page asks about a text, by name: JSON in, JSON out
    question.py   what a view is asked, checked
    samples.py    the formats, outputs to begin with, and transcripts as files
    apart.py      an output taken apart
    chunks.py     the same as the chunks of three APIs
    constrain.py  grammars, and a walk through one
    tokens.py     token texts and boundaries
    site.py       the page as a static site, in which the views run in the browser by Pyodide

`page/` is the page itself: HTML, CSS and JavaScript modules, served as they are. The views import nothing but the
library and `msgspec`, so that the same code answers on the server, in the browser and in the tests. On the server they
run within the budget of any request (`Service.planned`).
"""
