"""The example in the docstring of `Engine` does what it says."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from textwrap import dedent
from typing import Any

from unbraid.engines import base
from unbraid.engines.base import Engine, Finish, Piece

from ..support.in_loop import in_loop


@in_loop
async def test_the_example() -> None:
    assert Engine.__doc__ is not None
    engine, session = re.findall(r"(?:\n {8}.*|\n)+(?=\n)", Engine.__doc__)
    names: dict[str, Any] = dict(vars(base))
    exec(dedent(engine), names)
    request, expected = re.findall(r">>> request = (.*)\n|^ {8}(\[Piece.*)$", session, re.MULTILINE)
    outputs: AsyncGenerator[Piece | Finish, None] = names["EchoEngine"]().generate(eval(request[0], names))
    assert [output async for output in outputs] == eval(expected[1], names)
