"""Requests for a made package: valid ones, and ones that are odd in one way."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from tests.property.kinds import Kind
from tests.property.packages import Package
from tests.reference.document import steps_below
from tests.reference.values import Array

NUMPY = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


@dataclass(frozen=True)
class Request:
    """One call. odd: what is wrong with it, "" for nothing."""

    inputs: Mapping[str, Array]
    rows: int
    stop_on_eos: bool = True
    session: str | None = None
    overrides: Mapping[str, str] | None = None
    odd: str = ""


def valid_request(package: Package, dice: random.Random, rows: int | None = None, length: int | None = None) -> Request:
    """A request with everything that is required, and some of what is not."""
    rows = dice.randrange(1, 5) if rows is None else rows
    extents = {"batch": rows, "length": dice.randrange(4)}
    if dice.randrange(10) and rows:
        extents |= package.extents
    if length is not None:
        extents["length"] = length
    given: dict[str, Array] = {}
    for name, spec in package.workflow["inputs"].items():
        if name not in package.inputs:
            continue
        source, optional = spec["source"], not spec.get("required", True) or spec.get("default") is not None
        fallback = spec["role"].get("role") in ("seed", "sampling_temperature", "sampling_top_k")
        if (source["kind"] == "literal" and dice.randrange(12)) or ((optional or fallback) and dice.randrange(2)):
            continue
        alias = source["name"] if source["kind"] == "application" and dice.randrange(2) else name
        given[alias] = tensor(package.inputs[name], extents, dice, most=package.limits.get(name))
    session = dice.choice(("a", "a", "b", None)) if package.sessions else None
    invoked = {step["component"] for step in steps_below(package.workflow["steps"]) if step["kind"] == "invoke"}
    known = [pair for pair in package.overrides if pair[0] in invoked]  # nobody judges what is never run
    overrides = dict([dice.choice(known)]) if known and dice.randrange(2) else None
    return Request(given, extents["batch"], dice.randrange(4) != 0, session, overrides)


def tensor(kind: Kind, extents: Mapping[str, int], dice: random.Random, most: int | None = None) -> Array:
    """A tensor of a kind, its numbers small enough for exact arithmetic."""
    shape = [
        (dim if isinstance(dim, int) else extents[dim]) * (kind.rows[1] if kind.rows and kind.rows[0] == axis else 1)
        for axis, dim in enumerate(kind.dims)
    ]
    count = int(np.prod(shape, dtype=np.int64))
    dtype = NUMPY.get(kind.dtype) or np.dtype(kind.dtype)
    low, high = (
        (0, most + 1 + (dice.randrange(10) == 0))
        if most is not None
        else (0, 2)
        if dtype.kind == "b"
        else (0, 12)
        if dtype.kind == "u"
        else (-5, 12)
    )
    numbers = [dice.randrange(low, high) for _ in range(count)] if count <= 64 else [low] * count
    return np.array(numbers, np.int64).astype(dtype).reshape(shape)


ODD = (
    "dtype", "rank", "extent", "missing", "unknown", "rows", "zero rows", "zero trips", "negative", "two limits",
    "not finite", "big-endian", "strided", "zero length",
)  # fmt: skip


def odd_request(package: Package, dice: random.Random, valid: Request | None = None) -> Request:
    """A request that is odd in one way, `valid` otherwise; it need not be wrong."""
    odd = dice.choice(ODD)
    base = valid if valid is not None and odd not in ("zero rows", "zero length") else valid_request(
        package, dice, 0 if odd == "zero rows" else None, 0 if odd == "zero length" else None
    )  # fmt: skip
    given = dict(base.inputs)
    names = {spec["source"]["name"]: name for name, spec in package.workflow["inputs"].items()
             if spec["source"]["kind"] == "application"}  # fmt: skip
    limits = [name for name in given if names.get(name, name) in package.limits]
    name = dice.choice(sorted(given)) if given else ""
    match odd:
        case "unknown":
            given["nobody.knows"] = np.zeros(1, np.int64)
        case "zero trips" | "negative" if limits:
            for each in limits:
                if odd == "zero trips" or given[each].dtype.kind == "i":
                    given[each] = np.full_like(given[each], 0 if odd == "zero trips" else -1)
        case "two limits" if limits:
            given[limits[0]] = np.resize(given[limits[0]], 2)
        case _ if given:
            given = _changed(given, name, odd)
    return replace(base, inputs=given, odd=odd)


def _changed(given: dict[str, Array], name: str, odd: str) -> dict[str, Array]:
    value = given[name]
    match odd:
        case "dtype":
            value = value.astype(np.int16 if value.dtype != np.int16 else np.float64)
        case "rank":
            value = value[None]
        case "extent" if value.ndim:
            value = np.concatenate([value, value], -1) if value.size else value
        case "rows" if value.ndim:
            value = np.concatenate([value, value, value], 0)
        case "missing":
            return {each: array for each, array in given.items() if each != name}
        case "not finite" if value.dtype == np.float32 and value.size:
            value = np.full_like(value, np.nan)
        case "big-endian":
            value = value.astype(value.dtype.newbyteorder(">")) if value.dtype.kind in "iuf" else value
        case "strided" if value.ndim == 2:
            value = np.asfortranarray(value)
        case _:
            pass
    return {**given, name: value}
