"""The protobuf wire format: messages as sequences of numbered fields.

A field is a tag (its number and its wire type) and a value: a varint, or bytes with a length. That is all ONNX needs.
Nothing is copied on reading: values are views of the message, so weights stay in the mapped file until they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Raw = bytes | memoryview
Field = tuple[int, int | Raw]

_VARINT, _BYTES = 0, 2
_FIXED_SIZES = {1: 8, 5: 4}


def fields(message: Raw) -> Iterator[Field]:
    """The fields of a message, in order. Raises `IndexError` or `KeyError` for bytes that are no message."""
    view = memoryview(message)
    at, end = 0, len(view)
    while at < end:
        tag, at = _read_varint(view, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(view, at)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(view, at)
        else:
            size = _FIXED_SIZES[wire_type]
        if at + size > end:
            raise IndexError("a field ends after its message")
        yield number, view[at : at + size]
        at += size


def join(parts: Iterable[Field]) -> bytes:
    """A message of these fields."""
    return b"".join(pieces(parts))


def pieces(parts: Iterable[Field]) -> list[Raw]:
    """The message of these fields in pieces: large values are not copied."""
    message: list[Raw] = []
    for number, value in parts:
        if isinstance(value, int):
            message.append(varint(number << 3 | _VARINT) + varint(value))
        else:
            message.append(header(number, len(value)))
            message.append(value)
    return message


def header(number: int, size: int) -> bytes:
    """The tag and the length of a field of `size` bytes."""
    return varint(number << 3 | _BYTES) + varint(size)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varints(packed: Raw) -> Iterator[int]:
    """The numbers of a packed field. Negative ones are written as 64 bits."""
    view = memoryview(packed)
    at = 0
    while at < len(view):
        value, at = _read_varint(view, at)
        yield value - (1 << 64) if value >> 63 else value


def as_bytes(value: int | Raw) -> Raw:
    if isinstance(value, int):
        raise TypeError("a number where a message should be")
    return value


def as_number(value: int | Raw) -> int:
    if not isinstance(value, int):
        raise TypeError("a message where a number should be")
    return value


def as_text(value: int | Raw) -> str:
    return bytes(as_bytes(value)).decode()


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
