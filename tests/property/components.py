"""Tiny ONNX graphs of exact arithmetic, one operation each, written once and shared by all packages of a folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.property.kinds import FREE, Dim, Kind, expanded

ELEMENT = {
    "bool": TensorProto.BOOL, "int8": TensorProto.INT8, "int16": TensorProto.INT16, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64, "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT, "bfloat16": TensorProto.BFLOAT16, "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
}  # fmt: skip
EXACT = ("int64", "int32", "float32")
"""Types that every arithmetic operation below has a kernel for."""

Nodes = list[onnx.NodeProto]
Made = tuple[Nodes, dict[str, Any], tuple[Kind, ...]]
"""Nodes from x0, x1, ... to y0, y1, ...; constants by name; what comes out."""


@dataclass(frozen=True)
class Operation:
    """One operation. takes: whether it applies to inputs of these kinds; local: row by row; make: its graph."""

    name: str
    arity: int
    takes: Callable[..., bool]
    make: Callable[..., Made]
    local: bool = True


def _node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def _same(*kinds: Kind) -> bool:
    return len(set(kinds)) == 1 and not kinds[0].free


def _exact(*kinds: Kind) -> bool:
    return all(each.dtype in EXACT for each in kinds)


def _matrix(kind: Kind) -> bool:
    return kind.rank == 2 and kind.rows is not None and kind.rows[0] == 0


def _affine(x: Kind) -> Made:
    if x.dtype == "float32":
        return (
            [_node("Mul", "x0 k", "t"), _node("Add", "t c", "y0")],
            {"k": np.float32(0.5), "c": np.float32(1)},
            (x,),
        )
    dtype = np.dtype(x.dtype).type
    nodes = [_node("Mul", "x0 k", "t"), _node("Add", "t c", "u"), _node("Mod", "u m", "y0")]
    return nodes, {"k": dtype(3), "c": dtype(1), "m": dtype(97)}, (x,)


def _cast(to: str) -> Callable[[Kind], Made]:
    return lambda x: ([_node("Cast", "x0", "y0", to=ELEMENT[to])], {}, (x.of(to),))


def _binary(kind: str, dtype: str = "") -> Callable[..., Made]:
    return lambda x, *_: ([_node(kind, "x0 x1", "y0")], {}, (x.of(dtype) if dtype else x,))


def _extent(axis: int, rank: int) -> Callable[[Kind], Made]:
    def make(x: Kind) -> Made:
        nodes = [_node("Shape", "x0", "s"), _node("Gather", "s i", "y0")]
        index = np.int64(axis) if rank == 0 else np.array([axis])
        return nodes, {"i": index}, (Kind("int64", (1,) * rank),)

    return make


def _reshape(dims: tuple[int, ...], *out: Dim, rows: tuple[int, int] | None = None) -> Callable[[Kind], Made]:
    return lambda x: ([_node("Reshape", "x0 s", "y0")], {"s": np.array(dims, np.int64)}, (Kind(x.dtype, out, rows),))


def _fold(keep: int) -> Callable[[Kind], Made]:
    def make(x: Kind) -> Made:
        out = Kind(x.dtype, (x.dims[0], 1)[: 1 + keep], x.rows)
        return [_node("ReduceSum", "x0 a", "y0", keepdims=keep)], {"a": np.array([1])}, (out,)

    return make


def _any(rank: int) -> Callable[[Kind], Made]:
    def make(x: Kind) -> Made:
        nodes = [
            _node("Cast", "x0", "t", to=TensorProto.INT64),
            _node("ReduceSum", "t", "u", keepdims=0),
            _node("Greater", "u z", "v"),
            _node("Reshape", "v s", "y0"),
        ]
        return nodes, {"z": np.int64(0), "s": np.array([1] * rank, np.int64)}, (Kind("bool", (1,) * rank),)

    return make


def _expand(x: Kind) -> Made:
    nodes = [
        _node("Unsqueeze", "x0 a", "t"),
        _node("Concat", "t t", "u", axis=1),
        _node("Reshape", "u s", "y0"),
    ]
    shape = np.array([-1, *(x.dims[1:])], np.int64)
    return nodes, {"a": np.array([1]), "s": shape}, (expanded(x, 2),)


def _narrow(x: Kind) -> Made:
    nodes = [_node("Reshape", "x0 s", "t"), _node("ReduceSum", "t a", "y0", keepdims=0)]
    return nodes, {"s": np.array([-1, 2]), "a": np.array([1])}, (Kind(x.dtype, x.dims, (0, 1)),)


def _less(x: Kind) -> Made:
    dtype = np.dtype(x.dtype).type
    return [_node("Less", "x0 k", "y0")], {"k": dtype(6)}, (x.of("bool"),)


def _small(x: Kind) -> Made:
    return [_node("Abs", "x0", "t"), _node("Mod", "t k", "y0")], {"k": np.dtype(x.dtype).type(3)}, (x,)


def _concat(x: Kind, y: Kind) -> Made:
    numbers = [each.dims[1] for each in (x, y)]
    width: Dim = sum(n for n in numbers if isinstance(n, int)) if all(isinstance(n, int) for n in numbers) else FREE
    return [_node("Concat", "x0 x1", "y0", axis=1)], {}, (Kind(x.dtype, (x.dims[0], width), x.rows),)


def _pick(x: Kind) -> Made:
    return [_node("ArgMax", "x0", "y0", axis=-1)], {}, (Kind("int64", (x.dims[0], 1), x.rows),)


def _keep(count: int) -> Callable[[Kind], Made]:
    def make(x: Kind) -> Made:
        constants = {"b": np.array([0]), "e": np.array([count]), "a": np.array([1])}
        return [_node("Slice", "x0 b e a", "y0")], constants, (Kind(x.dtype, (x.dims[0], FREE), x.rows),)

    return make


def _flip(x: Kind) -> Made:
    axis, factor = x.rows or (0, 1)
    return (
        [_node("Transpose", "x0", "y0", perm=[1, 0])],
        {},
        (Kind(x.dtype, x.dims[::-1], (1 - axis, factor) if x.rows else None),),
    )


def _both(x: Kind, _: Kind) -> Made:
    return [_node("Add", "x0 x1", "y0"), _node("Sub", "x0 x1", "y1")], {}, (x, x)


def _where(_: Kind, x: Kind, __: Kind) -> Made:
    return [_node("Where", "x0 x1 x2", "y0")], {}, (x,)


def _spread(x: Kind, y: Kind) -> Made:
    return [_node("Add", "x0 x1", "y0")], {}, (x,)


def _reverse(x: Kind) -> Made:
    constants = {"b": np.array([-1]), "e": np.array([-(2**31)]), "a": np.array([0]), "p": np.array([-1])}
    return [_node("Slice", "x0 b e a p", "y0")], constants, (x,)


def _plain(x: Kind) -> bool:
    return not x.free


OPERATIONS: tuple[Operation, ...] = (
    Operation("identity", 1, lambda x: True, lambda x: ([_node("Identity", "x0", "y0")], {}, (x,))),
    Operation("affine", 1, _exact, _affine),
    Operation("not", 1, lambda x: x.dtype == "bool", lambda x: ([_node("Not", "x0", "y0")], {}, (x,))),
    Operation("neg", 1, _exact, lambda x: ([_node("Neg", "x0", "y0")], {}, (x,))),
    Operation("less", 1, _exact, _less),
    Operation("small", 1, lambda x: x.dtype in ("int64", "int32"), _small),
    *(
        Operation(f"cast_{to}", 1, lambda x, to=to: x.dtype != to and "float8" not in x.dtype, _cast(to))
        for to in ("int64", "float32", "bool", "int32", "int8", "uint8", "float16")
    ),
    Operation("add", 2, lambda x, y: _same(x, y) and _exact(x), _binary("Add")),
    Operation("max", 2, lambda x, y: _same(x, y) and _exact(x), _binary("Max")),
    Operation("equal", 2, lambda x, y: _same(x, y) and _exact(x), _binary("Equal", "bool")),
    Operation("and", 2, lambda x, y: _same(x, y) and x.dtype == "bool", _binary("And")),
    Operation("xor", 2, lambda x, y: _same(x, y) and x.dtype == "bool", _binary("Xor")),
    Operation("both", 2, lambda x, y: _same(x, y) and _exact(x), _both),
    Operation("where", 3, lambda p, x, y: _same(p, x.of("bool")) and _same(x, y) and _exact(x), _where),
    Operation("spread", 2, lambda x, y: x.dtype == y.dtype and y.single and x.rank > 0 and _exact(x), _spread),
    Operation("concat", 2, lambda x, y: _matrix(x) and _matrix(y) and (x.dtype, x.dims[0], x.rows) ==
              (y.dtype, y.dims[0], y.rows) and x.dtype in EXACT, _concat),
    Operation("keep2", 1, lambda x: _matrix(x) and "float8" not in x.dtype, _keep(2)),
    Operation("pick", 1, lambda x: _matrix(x) and x.dtype == "float32", _pick),
    Operation("fold", 1, lambda x: _matrix(x) and _exact(x), _fold(0)),
    Operation("fold_keep", 1, lambda x: _matrix(x) and _exact(x), _fold(1)),
    Operation("flip", 1, lambda x: x.rank == 2 and x.dtype in EXACT, _flip),
    Operation("column", 1, lambda x: "float8" not in x.dtype and x == Kind(x.dtype, ("batch",), (0, 1)),
              _reshape((-1, 1), "batch", 1, rows=(0, 1))),
    Operation("entries", 1, lambda x: "float8" not in x.dtype and x == Kind(x.dtype, ("batch", 1), (0, 1)),
              _reshape((-1,), "batch", rows=(0, 1))),
    Operation("to_one", 1, lambda x: x.dims == () and "float8" not in x.dtype, _reshape((1,), 1)),
    Operation("to_scalar", 1, lambda x: x.dims == (1,) and x.rows is None and "float8" not in x.dtype, _reshape(())),
    Operation("expand", 1, lambda x: x.rows == (0, 1) and x.rank in (1, 2) and x.dims[0] == "batch" and
              all(isinstance(dim, int) for dim in x.dims[1:]) and x.dtype in EXACT, _expand),
    Operation("narrow", 1, lambda x: x.rows == (0, 2) and x.rank == 1 and _exact(x), _narrow),
    Operation("extent", 1, lambda x: x.rank > 0 and "float8" not in x.dtype, _extent(0, 0), local=False),
    Operation("extent_one", 1, lambda x: x.rank > 0 and "float8" not in x.dtype, _extent(-1, 1), local=False),
    Operation("any", 1, lambda x: x.rank > 0 and _plain(x) and "float8" not in x.dtype, _any(1), local=False),
    Operation("any_scalar", 1, lambda x: x.rank > 0 and _plain(x) and "float8" not in x.dtype, _any(0), local=False),
    Operation("reverse", 1, lambda x: x.rank > 0 and x.dtype in EXACT, _reverse, local=False),
)  # fmt: skip
BY_NAME = {each.name: each for each in OPERATIONS}


class Library:
    """Graphs in one folder, each written at its first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._outputs: dict[str, tuple[Kind, ...]] = {}

    def graph(self, operation: Operation, kinds: Sequence[Kind], fixed: bool) -> tuple[str, tuple[Kind, ...]]:
        """The artifact of an operation on inputs of these kinds, and what it gives. fixed: numbers in its signature."""
        name = "-".join([operation.name, *(map(_spelling, kinds)), *(["fixed"] if fixed else [])]) + ".onnx"
        if name not in self._outputs:
            nodes, constants, outputs = operation.make(*kinds)
            self._write(name, nodes, constants, (kinds, outputs), fixed)
            self._outputs[name] = outputs
        return name, self._outputs[name]

    def _write(
        self,
        name: str,
        nodes: Nodes,
        constants: dict[str, Any],
        sides: tuple[Sequence[Kind], Sequence[Kind]],
        fixed: bool,
    ) -> None:
        inputs, outputs = (
            [_port(f"{letter}{at}", kind, fixed) for at, kind in enumerate(kinds)]
            for letter, kinds in zip("xy", sides, strict=True)
        )
        initializers = [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
        graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        (self.folder / name).write_bytes(model.SerializeToString())


def _spelling(kind: Kind) -> str:
    dims = "x".join({FREE: "f"}.get(str(dim), str(dim)) for dim in kind.dims)
    return f"{kind.dtype}_{dims}" + (f"_r{kind.rows[0]}_{kind.rows[1]}" if kind.rows else "")


def _port(name: str, kind: Kind, fixed: bool) -> onnx.ValueInfoProto:
    dims = [dim if isinstance(dim, int) and fixed else f"{name}_{at}" for at, dim in enumerate(kind.dims)]
    return helper.make_tensor_value_info(name, ELEMENT[kind.dtype], dims)
