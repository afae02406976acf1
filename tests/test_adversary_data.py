"""Data of others that no program made well: checkpoints, adapters' files, empty and infinite outputs."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from genai_runtime import RequestError
from genai_runtime.kept import FORMAT, _packed, _unpacked
from genai_runtime.lora.fault import AdapterFault
from genai_runtime.lora.json_text import parse_json
from genai_runtime.lora.peft import _of_module
from genai_runtime.media import Media, encode
from genai_runtime.pictures import as_pictures
from genai_runtime.pooling import pool
from genai_runtime.values import to_value

CONTRACTS = {"c": {"name": "c", "dtype": "int64", "shape": [None, 3]}}
CELL = np.arange(6).reshape(2, 3)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def with_header(text: str) -> bytes:
    """An .npy file of version 1.0 with this header and nothing behind it."""
    head = text.encode()
    head += b" " * ((54 - len(head) - 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def checkpoint(header: object, cell: bytes = npy(CELL)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as members:
        members.writestr("header.npy", npy(np.frombuffer(text, np.uint8)))
        members.writestr("cell0.npy", cell)
    return held.getvalue()


def stated(**change: object) -> dict[str, object]:
    return {"format": FORMAT, "cells": [{"name": "c", "dtype": "int64", "shape": [None, 3], **change}]}


SHAPE = "{'descr': '<i8', 'fortran_order': False, 'shape': %s, }"
BAD = {
    "deep JSON": checkpoint(b"[" * 100_000),
    "a name that is a list": checkpoint(stated(name=[])),
    "an array as large as a disk": checkpoint(stated(), with_header(SHAPE % "(1000000000000, 3)")),
    "an array of less than nothing": checkpoint(stated(), with_header(SHAPE % "(-1, 3)")),
    "a header without an end": checkpoint(stated(), with_header("{'descr': '<i8', 'shape': ((((")),
    "a deep header": checkpoint(stated(), with_header("(" * 9000)),
    "objects": checkpoint(stated(), with_header(SHAPE.replace("<i8", "|O") % "(0, 3)")),
    "fewer numbers than stated": checkpoint(stated(), npy(CELL)[:-8]),
    "cells that are none": checkpoint({"format": FORMAT, "cells": None}),
    "a list": checkpoint([1]),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bytes_that_are_no_checkpoint(data: bytes) -> None:
    with pytest.raises(RequestError, match="bad-checkpoint"):
        _unpacked(data, CONTRACTS)


def test_a_checkpoint_with_broken_bytes_is_refused_or_one() -> None:
    good, chance = _packed({"c": to_value(CELL)}, CONTRACTS), random.Random(7)
    assert _unpacked(good, CONTRACTS)["c"].numpy().tolist() == CELL.tolist()
    refused = 0
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(chance.choice([1, 2, 4])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            _unpacked(bytes(data), CONTRACTS)
        except RequestError as fault:
            refused += fault.code == "bad-checkpoint"
    assert refused > 500


def test_arrays_by_columns_keep_their_places() -> None:
    data = checkpoint(stated(), npy(np.asfortranarray(CELL)))
    assert _unpacked(data, CONTRACTS)["c"].numpy().tolist() == CELL.tolist()


def test_a_million_keys_and_one_twice() -> None:
    """Found in one go over the keys: with one more over all of them for each, this would take hours."""
    text = "{" + ",".join(f'"{at}":0' for at in range(300_000)) + ',"299999":0}'
    with pytest.raises(AdapterFault, match="'299999' stands there twice"):
        parse_json(text.encode(), "adapter.json")


@pytest.mark.parametrize("value", [10**400, float("nan"), float("inf"), -1, 0, True, "8", None])
def test_numbers_of_a_peft_configuration(value: object) -> None:
    with pytest.raises(AdapterFault, match="no usable r"):
        _of_module({"r": value}, "adapter_config.json", "rank_pattern", "r", "model.q_proj")


# ---- outputs that are empty, infinite, or no numbers -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mean", "max", "cls", "last_token"])
@pytest.mark.parametrize("normalize", [False, True])
def test_no_rows_are_pooled_to_no_rows(kind: str, normalize: bool) -> None:
    for positions in (0, 3):
        assert pool(np.zeros((0, positions, 4), np.float32), kind, 1, 0, normalize, None).shape == (0, 4)


@pytest.mark.parametrize("value", [3e38, np.inf, np.nan])
def test_what_is_too_large_is_said_by_the_values_alone(value: float) -> None:
    """Warnings are errors in these tests."""
    array = np.full((1, 2, 3), value, np.float32)
    for kind in ("mean", "max", "cls"):
        assert pool(array, kind, 1, 0, True, None).shape == (1, 3)


SOUND = Media("o", "pre_adapter", "wav", "pcm_s16_le", 16000, 16000, 1, "buffered")
LAST = np.array([1e300, -1e300, 0.0])
TOO_LARGE: list[tuple[Callable[[], Any], list[int]]] = [
    (lambda: np.frombuffer(encode(SOUND, LAST[None]).content[44:], "<i2"), [32767, -32768, 0]),
    (lambda: as_pictures(LAST.reshape(1, 1, 3), "zero_to_one")[0].reshape(-1), [255, 0, 0]),
]


@pytest.mark.parametrize(("made", "wanted"), TOO_LARGE, ids=["sound", "picture"])
def test_doubles_that_no_float_holds_are_clipped(made: Callable[[], Any], wanted: list[int]) -> None:
    assert made().tolist() == wanted
