"""Damage to the files of a package: bytes, text, trees of JSON and YAML, ONNX models field by field."""

import json
import random
from collections.abc import Callable
from typing import Any

import onnx
import yaml
from google.protobuf import text_format
from google.protobuf.message import Message

from tests.read.mutations import damaged

Files = dict[str, bytes]
PIECES = (
    "\n",
    "\t",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "&a ",
    "*a",
    "<<: *a",
    "!!python/object:os.system x",
    "!!binary x",
    "# ",
    "\0",
    "\ufeff",
    "\u202e",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "%YAML 9",
    "---\n",
    "...\n",
    "|",
    ">-",
    "? ",
    "~",
    "null",
    "true",
    "1e999",
    "-0",
    "0x1f",
    "1_000",
    "NaN",
    ".inf",
    "{" * 200,
    "[" * 2000,
    "9" * 400,
    '"\\ud800"',
    "\\u0000",
    ",",
    "\\",
    "../",
    "/etc/passwd",
    "é",
    "2001-01-01",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    63,
    64,
    127,
    128,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63),
    10**400,
)
ODD = (
    *NUMBERS,
    "",
    "x",
    "..",
    "/",
    "a/../b",
    "\0",
    "a" * 5000,
    None,
    True,
    [],
    {},
    [[]],
    1.5,
    -1e308,
    "%d",
    "%s%d",
    "model.onnx",
    "{}",
    "\n",
    "\x1b[31m",
)
SIDE = (
    "inference_metadata.yaml",
    "inference_metadata.json",
    "genai_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "config.json",
    "chat_template.jinja",
    "execution_hints.json",
)


def damage(files: Files, dice: random.Random, others: list[Files]) -> Files:
    """A package with one to three changes."""
    changed = dict(files)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        if not changed or dice.randrange(25) == 0:
            donor = dice.choice(others)
            changed[dice.choice(SIDE)] = dice.choice(list(donor.values()))
        elif dice.randrange(40) == 0:
            del changed[dice.choice(list(changed))]
        else:
            name = dice.choice(_weighted(changed))
            changed[name] = _damaged_file(name, changed[name], dice, others)
    return changed


def _weighted(files: Files) -> list[str]:
    """File names, documents three times as often as graphs."""
    return [name for name in files for _ in range(1 if name.endswith((".onnx", ".textproto")) else 3)]


def _damaged_file(name: str, data: bytes, dice: random.Random, others: list[Files]) -> bytes:
    ways: list[Callable[[], bytes]] = [lambda: _bytes(data, dice), lambda: _spliced(data, dice, others)]
    if name.endswith(".onnx"):
        ways += [lambda: _model(data, dice)] * 4
    elif name.endswith((".json", ".yaml", ".yml")):
        ways += [lambda: _text(data, dice)] * 2 + [lambda: _tree(name, data, dice)] * 6
    else:
        ways += [lambda: _text(data, dice)] * 4
    return dice.choice(ways)()


def _bytes(data: bytes, dice: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        at = dice.randrange(len(made) + 1)
        match dice.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(made):
                made[at] = dice.randrange(256)
            case 2:
                del made[at : at + dice.choice((1, 2, 8, 64, 4096))]
            case 3:
                made[at:at] = dice.choice((b"\xff" * 10, b"\x00" * 4, b"\x80" * 12 + b"\x01", b"\x0a\xff\xff\xff\x7f"))
            case _:
                end = at + dice.randrange(64)
                made[at:at] = made[at:end] * dice.choice((1, 2, 50))
    return bytes(made)


def _spliced(data: bytes, dice: random.Random, others: list[Files]) -> bytes:
    donor = dice.choice(list(dice.choice(others).values()))
    cut, start = dice.randrange(len(data) + 1), dice.randrange(len(donor) + 1)
    return data[:cut] + donor[start : start + dice.choice((16, 256, 1 << 20))]


def _text(data: bytes, dice: random.Random) -> bytes:
    text = data.decode("utf-8", "replace")
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(text) + 1)
        text = text[:at] + dice.choice(PIECES) + text[at + dice.choice((0, 0, 1, 5, 40)) :]
    return text.encode("utf-8", "replace")


def _tree(name: str, data: bytes, dice: random.Random) -> bytes:
    """One value of a JSON or YAML file removed, doubled, moved, or made odd; its text where it is no tree."""
    try:
        return _of_tree(name, data, dice)
    except (ValueError, TypeError, RecursionError, yaml.YAMLError):  # too deep, or a value that holds itself
        return _text(data, dice)


def _of_tree(name: str, data: bytes, dice: random.Random) -> bytes:
    loaded = json.loads(data) if name.endswith(".json") else yaml.load(data, _loader())
    if not isinstance(loaded, dict | list):
        return _text(data, dice)
    if dice.randrange(2):
        loaded = damaged(loaded, dice, dice.choice((1, 1, 2, 3)))
    else:
        slots = list(_slots(loaded))
        for _ in range(dice.choice((1, 1, 2, 3)) if slots else 0):
            holder, key = dice.choice(slots)
            other, where = dice.choice(slots)
            holder[key] = dice.choice(ODD) if dice.randrange(3) else other[where]
    if name.endswith(".json"):
        return json.dumps(loaded, indent=dice.choice((None, 1))).encode("utf-8", "surrogatepass")
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return bytes(yaml.dump(loaded, Dumper=dumper, sort_keys=False).encode("utf-8", "replace"))


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _slots(node: Any) -> Any:
    for key, each in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(each, dict | list):
            yield from _slots(each)


def _model(data: bytes, dice: random.Random) -> bytes:
    """A model with fields of its messages cleared, doubled, exchanged or made odd; now and then as text."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:
        return _bytes(data, dice)
    for _ in range(dice.choice((1, 1, 2, 3))):
        messages = list(_messages(model))
        _change(dice.choice(messages), dice)
    if dice.randrange(8) == 0:
        return text_format.MessageToString(model).encode()
    try:
        return bytes(model.SerializeToString())
    except Exception:
        return _bytes(data, dice)


def _messages(message: Message) -> Any:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                yield from _messages(each)


def _change(message: Any, dice: random.Random) -> None:
    field = dice.choice(list(message.DESCRIPTOR.fields))
    repeated, kind = field.is_repeated, field.cpp_type
    if dice.randrange(4) == 0:
        message.ClearField(field.name)
        return
    value: Any
    if kind == field.CPPTYPE_MESSAGE:
        held = getattr(message, field.name)
        if not repeated:
            held.SetInParent()
        elif held and dice.randrange(2):
            held.add().CopyFrom(dice.choice(list(held)))
        else:
            held.add()
        return
    if kind == field.CPPTYPE_STRING:
        value = dice.choice(("", "x", "..", "../x", "/etc/passwd", "a" * 3000, "\0", "\n", "location", "é", "batch"))
        value = value.encode() if field.type == field.TYPE_BYTES else value
    elif kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        value = dice.choice((0.0, -1.0, float("nan"), float("inf")))
    elif kind == field.CPPTYPE_ENUM:
        value = dice.choice([each.number for each in field.enum_type.values])
    else:
        bits = 64 if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
        value = dice.choice(NUMBERS) % (1 << (bits - 1))
        value = -value if dice.randrange(5) == 0 and kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) else value
    if repeated:
        held = getattr(message, field.name)
        if held and dice.randrange(2):
            held[dice.randrange(len(held))] = value
        else:
            held.extend([value] * dice.choice((1, 1, 3, 2000)))
    else:
        setattr(message, field.name, value)
