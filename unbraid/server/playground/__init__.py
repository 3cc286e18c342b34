"""The playground: a page that shows what the parser and the constraints do, and talks to the server's models.

    page/        the page itself: HTML, CSS and JavaScript modules, served as they are
    views.py     everything that the page asks about a text, by name: JSON in, JSON out
    asked.py     what a view was asked, checked
    apart.py     an output taken apart      chunks.py   the same as the chunks of three APIs
    constrain.py grammars, and a walk       samples.py  outputs to begin with
    tokens.py    token texts and boundaries saving.py   transcripts as files
    routes.py    the page and its views on the server
    site.py      the page as a static site, in which the views run in the browser by Pyodide

The views import nothing but the library and `msgspec`, so that the same code answers on the server, in the browser and
in the tests. On the server they run within the budget of any request (`Service.planned`).
"""
