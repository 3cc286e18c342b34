"""How arguments are written: one module for each notation.

| module | what a model writes |
| --- | --- |
| `json` | `{"city": "Paris"}` |
| `json_call` | `{"name": "weather", "arguments": {"city": "Paris"}}` |
| `tagged.arguments` | `<parameter=city>Paris</parameter>` |
| `tagged.xml` | the same, with entities and CDATA sections |
| `tagged.elements` | `<city>Paris</city>`, nested |
| `python` | `city="Paris"`, or `{'city': 'Paris'}` |
| `bare` | `{city:<|"|>Paris<|"|>}` |

`base.py` says what a notation is. The nodes of the grammar are exported here, for formats to use.
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
