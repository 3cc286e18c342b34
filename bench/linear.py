"""Does the cost of an output grow with its length, and no faster?

    python bench/linear.py [FORMAT …]

Every format is given floods in one piece: many calls, well-formed, cut off, with something missing or too much in them.
A flood eight times as long should take eight times as long. Told are those that take more than twice that, and the
worst of each format; the exit status says whether there were any.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import unbraid
from unbraid import Format, Message, ToolCall

CALLS, TIMES = 250, 8
TOO_MUCH = 2 * TIMES
NOISE = 0.05
"""Seconds in which anything may come between."""
ARGUMENTS = '{"a": "x y", "b": [1, {"c": null}]}'
PLACES = (0.3, 0.5, 0.7, 0.85, 0.95)


def main() -> int:
    worst_of_all = 0.0
    for format in unbraid.all_formats():
        if format.tools is None or (sys.argv[1:] and format.name not in sys.argv[1:]):
            continue
        ratio, name = max((grown(format, *flood), flood[0]) for flood in floods(format))
        worst_of_all = max(worst_of_all, ratio)
        print(f"{format.name:24} {ratio:5.1f}  {name}", flush=True)
    print(f"{TIMES} times as much took at most {worst_of_all:.1f} times as long")
    return int(worst_of_all > TOO_MUCH)


def floods(format: Format) -> Iterator[tuple[str, str, str]]:
    """A name, what a flood begins with, and what is repeated."""
    one = unbraid.render(format, Message((ToolCall("f", ARGUMENTS, "abcdefghi"),)))
    two = unbraid.render(
        format, Message((ToolCall("f", ARGUMENTS, "abcdefgh0"), ToolCall("f", ARGUMENTS, "abcdefgh1")))
    )
    yield "calls", "", one
    for place in PLACES:
        at = int(len(one) * place)
        yield f"cut off at {place}", "", one[:at]
        yield f"missing at {place}", "", one[:at] + one[at + 3 :]
        yield f"too much at {place}", "", one[:at] + '} x" ]<' + one[at:]
        at = int(len(two) * place)
        yield f"repeated from {place}", two[:at], two[at : at + 9] * 5
        yield f"signs from {place}", two[:at], '{"a[,x</' * 5


def grown(format: Format, name: str, begin: str, repeated: str) -> float:
    """How many times as long the longer flood takes."""
    ratios: list[float] = []
    while len(ratios) < 3 and min(ratios, default=TOO_MUCH) > 1.25 * TIMES:
        few, many = (seconds(format, begin + repeated * count) for count in (CALLS, CALLS * TIMES))
        if many < NOISE:
            return 0.0
        ratios.append(many / few)
    return min(ratios)


def seconds(format: Format, text: str) -> float:
    times = []
    for _ in range(2):
        parser = unbraid.parser(format, keep_message=False, prompt="")
        begin = time.perf_counter()
        parser.feed(text)
        parser.finish()
        times.append(time.perf_counter() - begin)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
