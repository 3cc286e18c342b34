"""JSON Schema's own test suite, draft 2020-12, through every syntax: how many of its cases are right, and how many are
said.

A case is a schema and a value. It is right if the grammar takes the value just where the schema does. It is said if the
grammar takes more, and lists what it does not enforce, or if the schema is refused with a reason. All else is wrong.

The suite comes with the source of the package `jsonschema`, or is a checkout that `UNBRAID_JSON_SCHEMA_SUITE` names.
`python -m tests.constraints.schema_suite` counts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

from unbraid.constraints.language import Json, OutputLanguage
from unbraid.constraints.printers.regex import NotRegular
from unbraid.errors import InvalidSchema
from unbraid.schema.checks import check
from unbraid.schema.repair import repair

from ..support.places import CACHE
from ..support.sdists import download_sdist, extract_sdist
from .test_schemas import PRINTED, text

VERSION = "4.26.0"
"""Of the package that the suite comes with."""
FETCHED = CACHE / f"json-schema-suite-{VERSION}"
LEFT_OUT = {
    "format": "the suite takes formats for remarks; here they are enforced",
    "vocabulary": "which keywords count is said in another document",
}
MOST_ORDERS = 120


@dataclass
class Count:
    """What became of the cases."""

    right: int = 0
    said: int = 0
    wrong: list[str] = field(default_factory=list)


def suite_folder() -> Path | None:
    """Where the suite is, if it is here."""
    folder = Path(os.environ.get("UNBRAID_JSON_SCHEMA_SUITE") or FETCHED / "json")
    return folder if folder.is_dir() else None


def fetch_suite() -> None:
    if not FETCHED.is_dir():
        archive = FETCHED.with_suffix(".tar.gz")
        archive.parent.mkdir(parents=True, exist_ok=True)
        download_sdist("jsonschema", VERSION, archive)
        extract_sdist(archive, FETCHED, "json/tests/draft2020-12/", ".json")
        archive.unlink()


@cache
def groups(folder: Path) -> list[tuple[str, Any, list[dict[str, Any]]]]:
    """Name, schema and values of all cases."""
    paths = sorted((folder / "tests" / "draft2020-12").glob("*.json"))
    return [
        (f"{path.stem}: {group['description']}", group["schema"], group["tests"])
        for path in paths
        if path.stem not in LEFT_OUT
        for group in json.loads(path.read_text(encoding="utf-8"))
    ]


def count(folder: Path, syntax: str) -> Count:
    counted = Count()
    for name, source, tests in groups(folder):
        try:
            schema, _ = repair(source, "p")
            check(schema, "p")
            printed = PRINTED[syntax][0](OutputLanguage(Json(schema, "p"), {}))
        except (InvalidSchema, NotRegular):
            counted.said += len(tests)
            continue
        texts = [list(islice(spellings(test["data"]), MOST_ORDERS)) for test in tests]
        answers = iter(PRINTED[syntax][1](printed.grammar)([one for several in texts for one in several]))
        for test, several in zip(tests, texts, strict=True):
            taken = sum(next(answers) for _ in several) > 0
            if taken == test["valid"]:
                counted.right += 1
            elif taken and printed.unenforced:
                counted.said += 1
            else:
                counted.wrong.append(f"{name}, {test['description']}: {'taken' if taken else 'not taken'}")
    return counted


def spellings(value: Any) -> Iterator[str]:
    """A value as models write it. Grammars take properties in the order of the schema, and 1 but not 1.0."""
    return map(text, _spelled(value))


def _spelled(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from map(list, product(*map(_spelled, value)))
    elif isinstance(value, dict):
        for order in permutations(value):
            for values in product(*(_spelled(value[key]) for key in order)):
                yield dict(zip(order, values, strict=True))
    else:
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**60
        yield int(value) if whole else value


def main() -> None:
    fetch_suite()
    folder = suite_folder()
    assert folder is not None
    total = sum(len(tests) for _, _, tests in groups(folder))
    print(f"{total} cases")
    for syntax in sys.argv[1:] or PRINTED:
        counted = count(folder, syntax)
        print(f"{syntax}: {counted.right} right, {counted.said} said, {len(counted.wrong)} wrong")
        for wrong in counted.wrong:
            print(f"  {wrong}")


if __name__ == "__main__":
    main()
