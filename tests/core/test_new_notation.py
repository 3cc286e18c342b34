"""A notation of one's own: two functions that read and write it, one that constrains it, and nothing else to touch.

This follows "Add a notation" in CONTRIBUTING.md. The notation is made here, in a process of its own, so that the tables
of the library stay as they are: `set key=value;` for each argument, every value a string without semicolons.
"""

from __future__ import annotations

import subprocess
import sys

from ..support.places import ROOT

NOTATION = """
from dataclasses import dataclass
from typing import Any

import unbraid
from unbraid.constraints.language import SPACE, TextExcept
from unbraid.constraints.notations import NOTATIONS, NotationLanguage
from unbraid.core.grammar import Call, Calls, Format, Name
from unbraid.core.machine.machine import Frame
from unbraid.core.machine.output import ARGUMENTS, MARKUP
from unbraid.core.machine.steps import BeginNotation
from unbraid.core.notations.base import CallNotation
from unbraid.core.json_text import decode, escape, members
from unbraid.core.notations.base import ObjectWriter
from unbraid.schema.regular import Repeat, Verbatim, choice, sequence


@dataclass(frozen=True, slots=True)
class SetArguments(CallNotation):
    def step(self, place):
        return BeginNotation(lambda markers: SetFrame(markers))

    def write(self, call, number):
        return "".join(f"set {key}={decode(value)};" for key, value in members(call.arguments).items())


class SetFrame(Frame):
    kind = "set"
    opened_by = ("calls",)
    saved = ("keys", "inside")
    __slots__ = ("inside", "keys", "markers")

    def __init__(self, markers):
        self.markers, self.keys, self.inside = markers, ObjectWriter(), False

    def step(self, machine):
        if self.inside:
            end = machine.buffer.find(";", machine.position)
            stop = len(machine.buffer) if end < 0 else end
            if stop > machine.position:
                text = machine.buffer[machine.position : stop]
                machine.take(stop - machine.position, ARGUMENTS, escape(machine.spell(text)))
            if end < 0:
                return machine.needs_more()
            machine.take(1, ARGUMENTS, '"')
            self.inside = False
            return True
        machine.skip_space()
        rest = machine.buffer[machine.position :]
        if self.markers.matches_at(machine.buffer, machine.position):
            machine.pop()
            self.keys.end(machine)
            return True
        equals = rest.find("=")
        if not rest.startswith("set ") or equals < 0:
            return machine.needs_more()
        machine.take(equals + 1, ARGUMENTS, self.keys.begin(machine, rest[4:equals]) + '"')
        self.inside = True
        return True



def arguments(notation, call):
    known = [
        sequence(SPACE, Verbatim(f"set {key}="), TextExcept((";",)), Verbatim(";"))
        for name in call.names
        for key in call.parameters.properties
    ]
    return Repeat(choice(*known)) if known else SPACE


NOTATIONS[SetArguments] = NotationLanguage(arguments)
FORMAT = Format("mine", tools=Calls("<do>", Call((Name(), "\\n", SetArguments())), "</do>"))
"""

USE = """
message = unbraid.parse(FORMAT, "Now.<do>f\\nset city=Paris; set unit=C;</do>")
assert [(call.name, call.arguments, call.complete) for call in message.tool_calls] == [
    ("f", '{"city": "Paris", "unit": "C"}', True)
], message
text = unbraid.render(FORMAT, message)
for at in range(len(text) + 1):  # cut anywhere, and saved there
    first = unbraid.Parser(FORMAT)
    first.feed(text[:at])
    second = unbraid.Parser(FORMAT)
    second.restore(first.snapshot())
    second.feed(text[at:])
    second.finish()
    assert second.message == message, at
tools = [{"name": "f", "parameters": {"properties": {"city": {"type": "string"}}}}]
assert "set city=" in unbraid.constraint(FORMAT, tools=tools, tool_choice="required").to_ebnf()
"""


def test_a_notation_is_two_modules_and_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", NOTATION + USE], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
