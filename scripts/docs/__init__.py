"""What the documentation's site has beside `docs/`: pages that are made from the code each time it is built.

`mkdocs.yml` names `hooks.py`, which adds the pages. Every other module makes pages of one kind, as Markdown.
"""
