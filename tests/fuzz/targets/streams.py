"""What a server behind ours sends: its events are the same however they are cut."""

from __future__ import annotations

from unbraid.engines.http.address import EventReader

from ..source import Source


def events(data: bytes) -> None:
    source = Source(data)
    size = source.below(16) + 1
    words = [
        "data: ",
        "data:",
        "event: ",
        "\r\n",
        "\n\n",
        "\r\r",
        ": ping",
        "data",
        "[DONE]",
        '{"a": 1}',
        "é",
        "\ufeff",
    ]
    stream = "".join(source.words(words)).encode() + source.choice([b"", b"\xff\n\n", b"\xef\xbb"])
    whole = EventReader().feed(stream)
    for step in (1, size):
        reader = EventReader()
        assert [one for at in range(0, len(stream), step) for one in reader.feed(stream[at : at + step])] == whole
