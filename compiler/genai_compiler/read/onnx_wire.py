"""ONNX bytes -> ONNX bytes without bulk tensor data, so that reading a signature never copies weights.

Works on the protobuf wire format (https://protobuf.dev/programming-guides/encoding) with the field numbers of
onnx.proto3. A length that runs over the end of the file, the usual sign of an interrupted download, is found here.
"""

from collections.abc import Iterator
from enum import Enum

KEEP = 4096  # bytes: longer tensor payloads are dropped; constants that steer a graph are far shorter
MAX_DEPTH = 64
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireFault(ValueError):
    """The bytes are no well-formed protobuf message."""


class _Kind(Enum):
    MODEL = "model"
    GRAPH = "graph"
    NODE = "node"
    ATTRIBUTE = "attribute"
    TENSOR = "tensor"
    FUNCTION = "function"
    SPARSE = "sparse tensor"


_CHILDREN: dict[_Kind, dict[int, _Kind]] = {
    _Kind.MODEL: {7: _Kind.GRAPH, 25: _Kind.FUNCTION},
    _Kind.GRAPH: {1: _Kind.NODE, 5: _Kind.TENSOR, 15: _Kind.SPARSE},
    _Kind.NODE: {5: _Kind.ATTRIBUTE},
    _Kind.ATTRIBUTE: {5: _Kind.TENSOR, 6: _Kind.GRAPH, 10: _Kind.TENSOR, 11: _Kind.GRAPH, 22: _Kind.SPARSE},
    _Kind.TENSOR: {},
    _Kind.FUNCTION: {7: _Kind.NODE, 11: _Kind.ATTRIBUTE},
    _Kind.SPARSE: {1: _Kind.TENSOR, 2: _Kind.TENSOR},
}
# float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data
_PAYLOAD = frozenset({4, 5, 6, 7, 9, 10, 11})


def without_bulk_data(model: memoryview) -> bytes:
    """A serialized ModelProto equal to `model` but for tensor payloads over KEEP bytes, which are absent.

    Raises WireFault on truncated or malformed bytes, or nesting deeper than MAX_DEPTH.
    """
    return bytes(_stripped(model, _Kind.MODEL, 0))


def with_references(model: memoryview, location: str) -> bytes:
    """A serialized ModelProto whose initializers over KEEP bytes point into the file that `model` is the content of.

    location: that file's name, as external data give it. Only raw data of the outermost graph can be pointed at; other
    payloads stay. Raises WireFault as `without_bulk_data`.
    """
    out = bytearray()
    for number, wire, start, body, end in _fields(model):
        if number == 7 and wire == _BYTES:
            graph = _referencing(model[body:end], body, location)
            out += _tag(number) + _varint(len(graph)) + graph
        else:
            out += model[start:end]
    return bytes(out)


def _referencing(graph: memoryview, base: int, location: str) -> bytearray:
    """A graph's fields, its large initializers by reference. base: where the graph begins in the file."""
    out = bytearray()
    for number, wire, start, body, end in _fields(graph):
        if number == 5 and wire == _BYTES and end - body > KEEP:
            tensor = _referenced(graph[body:end], base + body, location)
            out += _tag(number) + _varint(len(tensor)) + tensor
        else:
            out += graph[start:end]
    return out


def _referenced(tensor: memoryview, base: int, location: str) -> bytearray:
    out = bytearray()
    for number, wire, start, body, end in _fields(tensor):
        if number == 9 and wire == _BYTES and end - body > KEEP:
            for key, value in (("location", location), ("offset", str(base + body)), ("length", str(end - body))):
                entry = _text(1, key) + _text(2, value)
                out += _tag(13) + _varint(len(entry)) + entry  # external_data
            out += _varint(14 << 3 | _VARINT) + _varint(1)  # data_location: EXTERNAL
        else:
            out += tensor[start:end]
    return out


def _text(number: int, text: str) -> bytes:
    content = text.encode()
    return _tag(number) + _varint(len(content)) + content


def _stripped(view: memoryview, kind: _Kind, depth: int) -> bytearray:
    if depth > MAX_DEPTH:
        raise WireFault(f"graphs are nested deeper than {MAX_DEPTH} messages")
    out, children = bytearray(), _CHILDREN[kind]
    for number, wire, start, body, end in _fields(view):
        if wire != _BYTES or end - body <= KEEP:
            out += view[start:end]
        elif kind is _Kind.TENSOR and number in _PAYLOAD:
            continue
        elif number in children:
            child = _stripped(view[body:end], children[number], depth + 1)
            out += _tag(number) + _varint(len(child)) + child
        else:
            out += view[start:end]
    return out


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """(field number, wire type, start of the tag, start of the value, end of the value) of each field."""
    at, size = 0, len(view)
    while at < size:
        start = at
        tag, at = _read_varint(view, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            body, (_, end) = at, _read_varint(view, at)
        elif wire == _BYTES:
            length, body = _read_varint(view, at)
            end = body + length
        elif wire in (_FIXED64, _FIXED32):
            body, end = at, at + (8 if wire == _FIXED64 else 4)
        else:
            raise WireFault(f"byte {start} starts no protobuf field")
        if number == 0 or end > size:
            raise WireFault(f"a field needs {end - size} bytes more than there are" if number else "field number 0")
        yield number, wire, start, body, end
        at = end


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise WireFault("a number runs over the end of the data")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)
