"""Workflows that read what each iteration feeds to an attention component from a script: any lengths, any masks.

Inputs: tokens int64 [steps, rows, width], masks int64 [steps, rows, context], and for each step how much of them is
used: news and totals, int64 [steps]; k, v [rows, 2, past, 16]: the caches; most int64 [1]: their bound. The output
`logits` is an event a step. The component is one layer of GroupQueryAttention over an embedding of 32 entries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package, driver
from genai_compiler.passes import PASSES
from genai_compiler.passes.hold_state import hold_state
from onnx import NodeProto, TensorProto, helper

from tools.fixtures.document import (
    Document,
    application,
    cell,
    emit,
    invoke,
    literal,
    loop,
    output,
    package,
    tensor,
    write_document,
)
from tools.fixtures.document import (
    onnx as component,
)

ONE, ROWS, FLAGS = tensor("int64", 1), tensor("int64", "batch", rows=True), tensor("bool", "batch", rows=True)
HEADS, KV_HEADS, HEAD, ENTRIES = 4, 2, 16, 32
NUMPY = {"float32": np.float32, "float16": np.float16}
CAPABILITIES = ["workflow_ssa", "linear_effects", "nested_control_flow", "typed_emit", "streaming_emit",
                "loop_induction_values", "serving_service_contract", "bounded_state_recurrence"]  # fmt: skip


Port = tuple[int, list[int | str]]
"""ONNX element type and extents."""


@dataclass
class Attention:
    """The graph of the attention component.

    total: `width` of the mask, its largest row `sum`, or of `other` origin; valid: row `sums`, or `other`. attributes:
    of the operator. before, after: nodes of a test's own, and the outputs they make; ids: what the embedding looks up.
    """

    dtype: str = "float32"
    total: str = "width"
    valid: str = "sums"
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    before: Sequence[NodeProto] = ()
    after: Sequence[NodeProto] = ()
    ids: str = "input_ids"
    outputs: dict[str, tuple[str, list[int | str]]] = field(default_factory=dict[str, tuple[str, list[int | str]]])

    def save(self, file: Path) -> None:
        """Write the graph."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(NUMPY[self.dtype]))
        cache: list[int | str] = ["batch", KV_HEADS, "past", HEAD]
        ports: dict[str, Port] = {
            "input_ids": (TensorProto.INT64, ["batch", "sequence"]),
            "mask": (TensorProto.INT64, ["batch", "all"]),
        }
        ports |= {"past.k": (kind, cache), "past.v": (kind, cache)}
        made: dict[str, Port] = {"logits": (kind, ["batch", "sequence", HEADS * HEAD])}
        made |= {f"present.{part}": (kind, ["batch", KV_HEADS, "now", HEAD]) for part in "kv"}
        made |= {name: (helper.np_dtype_to_tensor_dtype(np.dtype(d)), dims) for name, (d, dims) in self.outputs.items()}
        sides = [[helper.make_tensor_value_info(n, *each) for n, each in side.items()] for side in (ports, made)]
        graph = helper.make_graph([*self.before, *self._nodes(), *self.after], "attention", *sides, self._weights())
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=opsets), file)

    def _nodes(self) -> list[NodeProto]:
        node = helper.make_node
        totals = {
            "width": [node("Shape", ["mask"], ["wide"], start=1, end=2)],
            "sum": [node("ReduceMax", ["sums"], ["wide"], keepdims=1)],
            "other": [
                node("Shape", ["mask"], ["wide.1"], start=1, end=2),
                node("Add", ["wide.1", "zero"], ["wide"]),
            ],
        }
        return [
            node("ReduceSum", ["mask", "one"], ["sums"], keepdims=0),
            node("Sub", ["sums", "one" if self.valid == "sums" else "two"], ["last"]),
            node("Cast", ["last"], ["last.32"], to=TensorProto.INT32),
            *totals[self.total],
            node("Cast", ["wide"], ["total"], to=TensorProto.INT32),
            node("Gather", ["table", self.ids], ["x"]),
            *(node("MatMul", ["x", f"w.{part}"], [part]) for part in "qkv"),
            node("GroupQueryAttention", ["q", "k", "v", "past.k", "past.v", "last.32", "total", "cos", "sin"],
                 ["logits", "present.k", "present.v"], domain="com.microsoft", num_heads=HEADS,
                 kv_num_heads=KV_HEADS, **{"do_rotary": 1, **self.attributes}),
        ]  # fmt: skip

    def _weights(self) -> list[TensorProto]:
        draw, dtype = np.random.default_rng(5), NUMPY[self.dtype]
        angles = np.outer(np.arange(256), 100.0 ** (-np.arange(0, HEAD, 2) / HEAD))
        held = {"cos": np.cos(angles), "sin": np.sin(angles), "table": draw.standard_normal((ENTRIES, 8))}
        held |= {
            f"w.{part}": draw.standard_normal((8, heads * HEAD)) for part, heads in zip("qkv", (4, 2, 2), strict=True)
        }
        made = [onnx.numpy_helper.from_array(array.astype(dtype), name) for name, array in held.items()]
        whole = {"zero": 0, "one": 1, "two": 2}
        return [*made, *(onnx.numpy_helper.from_array(np.array([value]), name) for name, value in whole.items())]


def _script(file: Path) -> None:
    """at -> this step's tokens and mask, and whether another step follows."""
    node, whole = helper.make_node, TensorProto.INT64
    nodes = [
        *(node("Gather", [name, "at"], [f"{name}.1"]) for name in ("tokens", "masks", "news", "totals")),
        *(node("Squeeze", [f"{name}.1", "zero"], [f"{name}.2"]) for name in ("tokens", "masks")),
        node("Slice", ["tokens.2", "zero", "news.1", "one"], ["ids"]),
        node("Slice", ["masks.2", "zero", "totals.1", "one"], ["mask"]),
        node("Add", ["at", "one"], ["next"]),
        node("Shape", ["news"], ["steps"]),
        node("Less", ["next", "steps"], ["more.1"]),
        node("Shape", ["ids"], ["rows"], start=0, end=1),
        node("Expand", ["more.1", "rows"], ["more"]),
    ]
    ports = {"tokens": ["s", "b", "w"], "masks": ["s", "b", "c"], "news": ["s"], "totals": ["s"], "at": [1]}
    ins = [helper.make_tensor_value_info(name, whole, dims) for name, dims in ports.items()]
    outs = [helper.make_tensor_value_info(name, whole, ["b", name]) for name in ("ids", "mask")]
    outs.append(helper.make_tensor_value_info("more", TensorProto.BOOL, ["b"]))
    held = [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in (("zero", 0), ("one", 1))]
    graph = helper.make_graph(nodes, "script", ins, outs, held)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), file)


def _cache(dtype: str, length: str) -> Document:
    return tensor(dtype, "batch", KV_HEADS, length, HEAD, rows=True)


def _components(dtype: str) -> Document:
    ids, mask = tensor("int64", "batch", "sequence", rows=True), tensor("int64", "batch", "all", rows=True)
    ports = {"tokens": tensor("int64", "s", "b", "w"), "masks": tensor("int64", "s", "b", "c")}
    ports |= {"news": tensor("int64", "s"), "totals": tensor("int64", "s"), "at": ONE}
    past = {f"past.{part}": _cache(dtype, "past") for part in "kv"}
    present = {f"present.{part}": _cache(dtype, "now") for part in "kv"}
    logits = {"logits": tensor(dtype, "batch", "sequence", HEADS * HEAD, rows=True)}
    made = {each: tensor("int64", "batch", each, rows=True) for each in ("ids", "mask")} | {"more": FLAGS}
    return {
        "script": component("script.onnx", ports, made),
        "model": component("model.onnx", {"input_ids": ids, "mask": mask, **past}, {**logits, **present}),
    }


def scripted_document(dtype: str = "float32") -> Document:
    """The document of a scripted package."""
    script = {"tokens": "tokens", "masks": "masks", "news": "news", "totals": "totals", "at": "at"}
    takes = {"input_ids": "ids", "mask": "mask", "past.k": "cell.k", "past.v": "cell.v"}
    gives = {"logits": "seen", "present.k": "next.k", "present.v": "next.v"}
    steps = [
        invoke("script", script, {"ids": "ids", "mask": "mask", "more": "live.next"}),
        invoke("model", takes, gives),
        emit("seen", "logits", "event"),
    ]
    whole = {"tokens": tensor("int64", "s", "b", "w"), "masks": tensor("int64", "s", "b", "c")}
    whole |= {"news": tensor("int64", "s"), "totals": tensor("int64", "s"), "most": ONE, "turns": ONE}
    inputs = {name: application(each, name) for name, each in whole.items()}
    inputs |= {part: application(_cache(dtype, f"first_{part}"), part) for part in "kv"}
    inputs |= {"package.live": literal(FLAGS, True), "package.zero": literal(ROWS, 0)}
    law = {"kind": "bounded", "axis": 2, "max": "most"}
    more = {"management": "runtime", "release_boundary": "invocation", "service_group": "caches"}
    state = {f"cell.{part}": cell(_cache(dtype, "kept"), part, law, **more) for part in "kv"}
    state |= {
        "live": cell(FLAGS, "package.live"),
        "done": cell(FLAGS, "package.live"),
        "count": cell(ROWS, "package.zero"),
    }
    ports = {f"cell.{part}": {"input": f"past.{part}", "output": f"present.{part}"} for part in "kv"}
    group = {"kind": "full_attention", "sequence_axis": 2, "layout": "bnsh", "aliasing": "permitted",
             "update": {"kind": "append"},
             "ports": {"model": ports}}  # fmt: skip
    serving = {
        "active": "live",
        "done": "done",
        "accepted_len": "count",
        "state_service": {"groups": {"caches": group}},
    }
    carried = {"live": "live.next", "done": "done", "count": "count", "cell.k": "next.k", "cell.v": "next.v"}
    main = loop(steps, "live", "turns", carried, iteration={"value": "at", "contract": ONE})
    logits = {"logits": output({"dtype": dtype, "rank": 3}, "event")}
    return package(CAPABILITIES, inputs, logits, _components(dtype), [main], state=state, serving=serving)


def scripted_package(
    folder: Path, graph: Attention | None = None, edit: Callable[[Document], object] | None = None
) -> Path:
    """A scripted package; `edit` changes the workflow of its document."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = graph or Attention()
    graph.save(folder / "model.onnx")
    _script(folder / "script.onnx")
    document = scripted_document(graph.dtype)
    if edit is not None:
        edit(document["pipeline"]["workflow"])
    write_document(folder, document)
    return folder


def decision(package: Path) -> str:
    """What hold_state says of the package's only group."""
    plan = compile_package(package, options=driver.Options(stop_after="hold_state")).plan
    assert plan is not None
    return next((each for each in plan.decisions if each.startswith("hold_state: ")), "")


def compile_both(package: Path, out: Path) -> tuple[genai_runtime.Model, genai_runtime.Model]:
    """The package with and without the pass."""
    with pytest.MonkeyPatch.context() as patch:
        compile_package(package, out=out / "held")
        patch.setattr(driver, "PASSES", tuple(each for each in PASSES if each is not hold_state))
        compile_package(package, out=out / "carried")
    models = [genai_runtime.load(out / name, threads=1) for name in ("held", "carried")]
    return models[0], models[1]
