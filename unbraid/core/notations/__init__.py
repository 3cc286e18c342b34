"""How arguments are written: one module for each notation.

| module | what a model writes |
| --- | --- |
| `json` | `{"city": "Paris"}` |
| `json_call` | `{"name": "weather", "arguments": {"city": "Paris"}}` |
| `tagged` | `<parameter=city>Paris</parameter>` |
| `xml` | `<param name="city">A &amp; B</param>`: tagged, with entities and CDATA sections |
| `elements` | `<city>Paris</city>`, nested |
| `python` | `city="Paris"`, or `{'city': 'Paris'}` |
| `bare` | `{city:<|"|>Paris<|"|>}` |

A parser passes all of them on as JSON: `{"city": "Paris"}`. The nodes of the grammar are exported here, for formats to
use. The other modules serve them:

    base.py           what a notation is
    json_scanner.py   one JSON value, checked while it passes by
    python_values.py  Python's literals as JSON
    tagged_values.py  one value between tags
    nested_values.py  an array or an object between tags
    value_ends.py     where a value between tags ends
"""

from __future__ import annotations

from .bare import BareArguments
from .elements import ElementArguments
from .json import Arguments
from .json_call import JsonCall
from .python import PythonArguments, PythonDict
from .tagged import TaggedArguments
from .xml import XmlArguments

__all__ = [
    "Arguments",
    "BareArguments",
    "ElementArguments",
    "JsonCall",
    "PythonArguments",
    "PythonDict",
    "TaggedArguments",
    "XmlArguments",
]
