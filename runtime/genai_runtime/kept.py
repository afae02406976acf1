"""The sessions of a loaded package: begun, reset, and written out as data that another process can take up (3.8)."""

import io
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from genai_runtime.problem import RequestError
from genai_runtime.request import SessionStore
from genai_runtime.values import NUMPY, Array, Value, to_bits, to_value

FORMAT = "genai-session-1"


class KeptSessions:
    """Session stores by name. cells: the manifest's semantic session cells; tokens: the package emits tokens."""

    def __init__(self, cells: list[Mapping[str, Any]], tokens: bool) -> None:
        self._cells = {str(each["name"]): each for each in cells}
        self._tokens = tokens
        self._stores: dict[str, SessionStore] = {}

    def store(self, name: str | None) -> SessionStore | None:
        """A session's store, made at first use; None without a name. Raises RequestError `no-session-state` (V346)."""
        if name is None:
            return None
        if self._tokens and not self._cells and name not in self._stores:
            what = "the package emits tokens and declares no session state that could carry a conversation"
            raise RequestError(
                "no-session-state", what, help="give the whole conversation as the prompt, without a session"
            )
        return self._stores.setdefault(name, SessionStore())

    def reset(self, name: str | None) -> None:
        """Forget a session."""
        self._stores.pop(name or "", None)

    def clear(self) -> None:
        """Forget every session."""
        self._stores.clear()

    def checkpoint(self, name: str | None) -> bytes:
        """A session's semantic state as bytes: arrays and their contracts. Raises `no-session`, `session-busy`."""
        store = self._stores.get(name or "")
        if store is None:
            raise RequestError("no-session", f"there is no session '{name}'", help="run with it first")
        with store.leased(str(name)):
            cells = {each: value for each, value in store.cells.items() if each in self._cells}
        return _packed(cells, self._cells)

    def restore(self, name: str | None, data: bytes) -> None:
        """Put a checkpoint in the place of a session's state. Raises RequestError `bad-checkpoint` (V344)."""
        cells = _unpacked(data, self._cells)
        store = self.store(name)
        if store is None:
            raise RequestError("bad-session", "name the session that takes the checkpoint up")
        with store.leased(str(name)):
            store.cells.clear()
            store.pending.update(cells)


def _packed(cells: Mapping[str, Value], contracts: Mapping[str, Mapping[str, Any]]) -> bytes:
    """An .npz: `header`, JSON as bytes, and one array a cell (bits where numpy lacks the type)."""
    stated = [
        {"name": name, "dtype": contracts[name]["dtype"], "shape": contracts[name]["shape"]} for name in sorted(cells)
    ]
    header = np.frombuffer(json.dumps({"format": FORMAT, "cells": stated}).encode(), dtype=np.uint8)
    arrays: dict[str, Any] = {f"cell{at}": to_bits(cells[each["name"]]) for at, each in enumerate(stated)}
    held = io.BytesIO()
    np.savez(held, header=header, **arrays)
    return held.getvalue()


def _unpacked(data: bytes, contracts: Mapping[str, Mapping[str, Any]]) -> dict[str, Value]:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise _bad(f"a checkpoint is bytes, got {type(data).__name__}")
    try:
        arrays = _arrays(bytes(data))
        header = json.loads(arrays.pop("header").tobytes())
        stated = cast(list[dict[str, Any]], header["cells"])
        known = header["format"] == FORMAT and [f"cell{at}" for at in range(len(stated))] == sorted(
            arrays, key=lambda each: int(each.removeprefix("cell"))
        )
        pairs = [(each["name"], each["dtype"], each["shape"], arrays[f"cell{at}"]) for at, each in enumerate(stated)]
        if not all(isinstance(name, str) for name, *_ in pairs):
            raise ValueError("a cell has no name")
    except Exception as fault:  # what bytes of any origin make of zip, numpy's headers and JSON
        raise _bad(f"these bytes are no checkpoint: {fault}") from fault
    if not known:
        raise _bad(f"these bytes are no checkpoint of format {FORMAT}")
    return {name: _value(name, (dtype, shape), array, contracts) for name, dtype, shape, array in pairs}


def _arrays(data: bytes) -> dict[str, Array]:
    """The arrays of an .npz whose members lie in it uncompressed, so that they are no larger than it."""
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as members:
        listed = members.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED for each in listed):
            raise ValueError("its members are compressed")
        if sum(each.file_size for each in listed) > len(data):
            raise ValueError("its members overlap")
        return {each.removesuffix(".npy"): _array(members.read(each)) for each in members.namelist()}


def _array(content: bytes) -> Array:
    """The array of an .npy file, which is as long as its header says: nothing is made for what is not there."""
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is of another version")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    data = stream.read()
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} has {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C").copy()


def _value(name: str, form: tuple[Any, Any], array: Array, contracts: Mapping[str, Mapping[str, Any]]) -> Value:
    contract = contracts.get(name)
    if contract is None:
        raise _bad(f"the package has no semantic session cell '{name}'")
    dtype, dims = str(contract["dtype"]), list(contract["shape"])
    if form != (dtype, dims):
        raise _bad(f"cell '{name}' was {form[0]}{form[1]}, here it is {dtype}{dims}")
    fits = array.dtype == NUMPY[dtype] and array.ndim == len(dims)
    if not fits or any(isinstance(dim, int) and dim != found for dim, found in zip(dims, array.shape, strict=True)):
        raise _bad(f"cell '{name}' is {dtype}{dims}, and its array {array.dtype}{list(array.shape)}")
    return to_value(array, dtype)


def _bad(what: str) -> RequestError:
    return RequestError("bad-checkpoint", what, help="take one that this package's checkpoint() gave")
