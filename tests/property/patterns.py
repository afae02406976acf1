"""Parts of workflows that come as a whole: state services, grammar, telemetry, overrides, state moved by a branch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.property.components import BY_NAME
from tests.property.emits import kind_of
from tests.property.kinds import FREE, Document, Kind, contract, mat, one, row, scalar
from tests.property.packages import Maker
from tests.property.scopes import Scope, Value
from tests.property.settling import settling

Made = tuple[list[Document], Document | None]


@dataclass(frozen=True)
class Pattern:
    """One part: its root steps, and its serving contract if any. rowwise: fit for packages whose rows stand alone."""

    name: str
    make: Callable[[Maker, Scope], Made]
    rowwise: bool = False


def _given(maker: Maker, scope: Scope, kind: Kind, literal: object = None) -> Value:
    value = maker.input(kind, scope, literal=literal is not None, default=literal)
    scope.values.append(value)
    return value


def _out(maker: Maker, kind: Kind, free: str | None = None) -> str:
    name = maker.name("out")
    maker.outputs[name] = {"contract": contract(kind, free), "role": "tensor", "stage": "pre_adapter", ".": None}
    return name


def _emit(value: str, output: str, mode: str = "replace", **more: Any) -> Document:
    return {"kind": "emit", "value": value, "output": output, "mode": mode, **more}


def _invoke(component: str, inputs: Document, outputs: Document) -> Document:
    return {"kind": "invoke", "component": component, "inputs": inputs, "outputs": outputs}


# ---- replaceable components ------------------------------------------------------------------------------------------


def replaceable(maker: Maker, scope: Scope) -> Made:
    """A component that a request may replace, one of its contract, and one of another."""
    kind = maker.dice.choice((row("int64"), mat("float32", 2), one("int32")))
    names = [maker.name("policy").replace(".", "_") for _ in range(3)]
    for at, (name, operation) in enumerate(zip(names, ("add", "max", "add"), strict=True)):
        artifact, _ = maker.library.graph(BY_NAME[operation], [kind, kind], at == 2)
        maker.components[name] = {
            "implementation": {"kind": "onnx", "artifact": artifact},
            "ports": {
                "inputs": {"x0": contract(kind), "x1": contract(kind)},
                "outputs": {"y0": contract(kind)},
            },
            "contract": {
                "id": "test.combine" if at < 2 else "test.other",
                "version": "1",
                "bindings": {"left": "x0", "right": "x1" if at < 2 or maker.chance(50) else "x0", "out": "y0"},
            },
            "application_overridable": at == 0,
        }
    maker.overrides += [(names[0], names[1]), (names[0], names[1]), (names[0], names[2]), (names[1], names[0])]
    given = [maker.find(kind, scope), maker.find(kind, scope)]
    made = Value(maker.name("v"), kind)
    scope.values.append(made)
    bound = {f"x{at}": each.name for at, each in enumerate(given)}
    return [_invoke(names[0], bound, {"y0": made.name}), _emit(made.name, _out(maker, kind))], None


# ---- optional ports --------------------------------------------------------------------------------------------------


def optional_port(maker: Maker, scope: Scope) -> Made:
    """A port that a step may leave out: the graph has a default for it."""
    kind, name, artifact = row("int64"), maker.name("optional").replace(".", "_"), "optional_port.onnx"
    if not (maker.library.folder / artifact).exists():
        ports = [helper.make_tensor_value_info(each, TensorProto.INT64, ["n"]) for each in ("x0", "y0")]
        extra = helper.make_tensor_value_info("more", TensorProto.INT64, [1])
        default = onnx.numpy_helper.from_array(np.array([5]), "more")
        node = helper.make_node("Add", ["x0", "more"], ["y0"])
        graph = helper.make_graph([node], "g", [ports[0], extra], [ports[1]], [default])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        (maker.library.folder / artifact).write_bytes(model.SerializeToString())
    port = {"dtype": "int64", "rank": 1, "shape": [1], "optional": True}
    maker.components[name] = {
        "implementation": {"kind": "onnx", "artifact": artifact},
        "ports": {"inputs": {"x0": contract(kind), "more": port}, "outputs": {"y0": contract(kind)}},
    }
    bound = {"x0": maker.find(kind, scope).name}
    if maker.chance(50):
        bound["more"] = maker.find(one("int64"), scope).name
    made = Value(maker.name("v"), kind)
    scope.values.append(made)
    return [_invoke(name, bound, {"y0": made.name}), _emit(made.name, _out(maker, kind))], None


# ---- adapters --------------------------------------------------------------------------------------------------------


def telemetry(maker: Maker, scope: Scope) -> Made:
    """A clock around some steps: its numbers differ from run to run, their types do not."""
    abi = "onnx-genai.telemetry"
    maker.pins[abi] = "1"
    clock = {"kind": "adapter", "abi": abi, "version": "1"}
    start, elapsed = {"dtype": "int64", "rank": 0, "shape": []}, {"dtype": "float32", "rank": 0, "shape": []}
    for name, inputs, outputs, bindings in (
        ("clock_start", {}, {"t": start}, {"timestamp": "t"}),
        ("clock_stop", {"t": start}, {"ms": elapsed}, {"timestamp": "t", "duration_ms": "ms"}),
    ):
        action = "start" if name == "clock_start" else "elapsed"
        maker.components[name] = {
            "implementation": clock,
            "ports": {"inputs": inputs, "outputs": outputs},
            "contract": {"id": abi, "version": "1", "bindings": bindings, "parameters": {"action": action}},
        }
    begun, took, output = maker.name("begun"), maker.name("took"), _out(maker, scalar("float32"))
    maker.timed.add(output)
    return [
        _invoke("clock_start", {}, {"t": begun}),
        *maker.invoke(scope),
        _invoke("clock_stop", {"t": begun}, {"ms": took}),
        _emit(took, output, maker.dice.choice(("replace", "event"))),
    ], None


def grammar(maker: Maker, scope: Scope) -> Made:
    """A grammar that walks its table over given tokens."""
    abi, action = "onnx-genai.grammar-guidance", maker.dice.choice(("clone", "lookahead", "commit"))
    maker.pins[abi] = "1"
    rows, tokens = row("int64"), mat("int64", 2)
    flags = mat("bool", 3)
    table = Kind("int64", (2, 3))
    column = mat("int64", 1)
    maker.effects["grammar"] = {"retry": "idempotent", "speculation_safety": {"kind": "rewindable", "max_depth": 4}}
    inputs = {"state": rows, "tokens": tokens, "valid_length": rows, "transition_table": table}
    outputs = {"next_state": rows, "consumed_length": rows, "logits_mask": flags, "forced_tokens": column,
               "forced_length": rows}  # fmt: skip
    name = maker.name("grammar").replace(".", "_")
    maker.components[name] = {
        "implementation": {"kind": "adapter", "abi": abi, "version": "1"},
        "ports": {
            "inputs": {port: contract(kind) for port, kind in inputs.items()},
            "outputs": {port: contract(kind) for port, kind in outputs.items()},
        },
        "contract": {
            "id": abi,
            "version": "1",
            "bindings": {each: each for each in (*inputs, *outputs)},
            "parameters": {"action": action},
        },
        "effects": ["grammar"],
        "row_scope": {"axis": 0, "stateful": True},
    }
    given = {
        "state": _given(maker, scope, rows, 0),
        "tokens": _given(maker, scope, tokens),
        "valid_length": _given(maker, scope, rows),
        "transition_table": _given(maker, scope, table, [1, 0, -1, -1, 1, 0]),
    }
    maker.small(given["valid_length"], 2)
    maker.small(given["tokens"], 3)
    made = {port: Value(maker.name("g"), kind) for port, kind in outputs.items()}
    scope.values += made.values()
    bound = ({port: each.name for port, each in side.items()} for side in (given, made))
    steps = [_invoke(name, *bound)]
    return [*steps, *(_emit(each.name, _out(maker, each.kind)) for each in made.values())], None


# ---- state services --------------------------------------------------------------------------------------------------


def _write_model(maker: Maker, artifact: str, nodes: list[Any], ports: dict[str, list[tuple[str, Kind]]]) -> None:
    if (maker.library.folder / artifact).exists():
        return
    sides = [
        [
            helper.make_tensor_value_info(
                name,
                {"int64": TensorProto.INT64, "bool": TensorProto.BOOL}[kind.dtype],
                [f"{name}_{at}" for at in range(kind.rank)],
            )
            for name, kind in ports[side]
        ]
        for side in ("inputs", "outputs")
    ]
    constants = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in (("zero", np.int64(0)), ("one", np.int64(1)), ("axis", np.array([1])), ("k", np.int64(7)))
    ]
    graph = helper.make_graph(nodes, "g", sides[0], sides[1], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (maker.library.folder / artifact).write_bytes(model.SerializeToString())


def _served(maker: Maker, scope: Scope, update: str) -> Made:
    """A loop with a cache that a state service holds: appended to, replaced, or written at per-row places."""
    maker.serving = True
    scatter = update == "indexed_scatter"
    width = 4 if update != "append" else FREE
    cache, cursor = mat("int64", width), row("int64")
    names = {each: maker.name(each) for each in ("cache", "cursor", "live", "done", "accepted")}
    start = _given(maker, scope, mat("int64", 4 if update != "append" else 1))
    cells: list[tuple[str, Kind, str, Document]] = [
        (names["cache"], cache, start.name, {"kind": "invariant"}),
        (names["cursor"], cursor, _given(maker, scope, cursor).name, {"kind": "invariant"}),
        (names["live"], row("bool"), _given(maker, scope, row("bool"), True).name, {"kind": "invariant"}),
    ]
    maker.limits[cells[1][2]] = 3
    limit, most = maker.control(scope, 4), _given(maker, scope, one("int64"), maker.dice.choice((2, 9, 9)))
    if update == "append":
        cells[0] = (*cells[0][:3], {"kind": "bounded", "axis": 1, "max": most.name})
    for name, kind, initializer, law in cells:
        maker.state[name] = {"contract": contract(kind, f"{names['cache']}.extent"), "scope": "invocation",
                             "initializer": initializer, "recurrence": law}  # fmt: skip
        maker.used(f"cell {law['kind']}")
    group = maker.name("group")
    maker.state[names["cache"]] |= {"management": "runtime", "release_boundary": "invocation", "service_group": group}
    artifact, nodes = f"served_{update}.onnx", _cache_nodes(update)
    ports = {
        "inputs": [("past", cache), ("at", cursor), ("new", mat("int64", 1))],
        "outputs": [("present", cache), ("next", cursor), ("sum", mat("int64", 1)), ("go", row("bool"))],
    }
    _write_model(maker, artifact, nodes, ports)
    component = maker.name("cache").replace(".", "_")
    maker.components[component] = {
        "implementation": {"kind": "onnx", "artifact": artifact},
        "ports": {side: {name: _port(kind, cache) for name, kind in listed} for side, listed in ports.items()},
    }
    service: Document = {"kind": "recurrent", "layout": "rows_by_place", "ports": {component: {names["cache"]: {
        "input": "past", "output": "present"}}}, "update": {"kind": update}}  # fmt: skip
    if update != "replace":
        service["sequence_axis"] = 1
    if scatter:
        service |= {"logical_lengths": names["cursor"]}
        service["update"] |= {
            "write_indices": names["cursor"],
            "capacity": _given(maker, scope, one("int64"), 4).name,
            "write_indices_ports": {component: "at"},
            "kv_length_ports": {},
        }
    service["aliasing"] = maker.dice.choice(("forbidden", "permitted"))
    serving = {
        "active": names["live"],
        "done": _given(maker, scope, row("bool"), False).name,
        "accepted_len": _given(maker, scope, row("int64"), 0).name,
        "state_service": {"groups": {group: service}},
    }
    outputs = {port: maker.name(port) for port in ("present", "next", "sum", "go")}
    carried = {names["cache"]: "present", names["cursor"]: "next", names["live"]: "go"}
    out = _out(maker, mat("int64", FREE), f"{names['cache']}.emitted")
    loop = {
        "kind": "loop",
        "steps": [
            _invoke(
                component,
                {"past": names["cache"], "at": names["cursor"], "new": _given(maker, scope, mat("int64", 1)).name},
                outputs,
            ),
            _emit(outputs["sum"], out, "append", axis=1, when=names["live"]),
        ],
        "continue_when": names["live"],
        "max_iterations": limit.name,
        "carried": [{"cell": cell, "next": outputs[port]} for cell, port in carried.items()],
    }
    scope.values += [Value(names["cursor"], cursor, cell=True), Value(names["live"], row("bool"), cell=True)]
    return [loop], serving


def _port(kind: Kind, cache: Kind) -> Document:
    made = contract(kind, "places")
    if kind == cache and cache.free:
        del made["shape"]
    return made


def _cache_nodes(update: str) -> list[Any]:
    node = helper.make_node
    match update:
        case "append":
            write = [node("Concat", ["past", "new"], ["present"], axis=1)]
        case "replace":
            write = [node("Add", ["past", "new"], ["present"])]
        case _:
            write = [
                node("Unsqueeze", ["at", "axis"], ["place"]),
                node("ScatterElements", ["past", "place", "new"], ["present"], axis=1),
            ]
    return [
        *write,
        node("Add", ["at", "one"], ["next"]),
        node("ReduceSum", ["present", "axis"], ["sum"], keepdims=1),
        node("ReduceSum", ["new", "axis"], ["flat"], keepdims=0),
        node("Add", ["flat", "at"], ["reach"]),
        node("Less", ["reach", "k"], ["go"]),
    ]


# ---- sessions and branches -------------------------------------------------------------------------------------------


def session_branch(maker: Maker, scope: Scope) -> Made:
    """A session cell that each case of a branch moves on, and the branch hands out (V260)."""
    kind = maker.dice.choice((row("int64"), one("int64"), mat("float32", 2)))
    start, cell, final = _given(maker, scope, kind), maker.name("turn"), maker.name("final")
    maker.state[cell] = {"contract": contract(kind), "scope": "session", "initializer": start.name,
                         "recurrence": {"kind": "invariant"}}  # fmt: skip
    always = _given(maker, scope, one("bool"), True)
    cases: Document = {}
    for key in ("true", "false"):
        region = scope.inner(branch=True)
        region.values.append(Value(cell, kind, cell=True))
        steps, following = maker.made_as(kind, region, Value(cell, kind))
        limit = maker.control(scope)
        cases[key] = {"kind": "loop", "steps": steps, "continue_when": always.name, "max_iterations": limit.name,
                      "carried": [{"cell": cell, "next": following.name}]}  # fmt: skip
    outputs = {final: {"cases": {"true": cell, "false": cell}}}
    predicate = _given(maker, scope, scalar("bool"))
    scope.values.append(Value(final, kind))
    maker.used("session cell")
    step = {"kind": "branch", "predicate": predicate.name, "cases": cases, "outputs": outputs}
    return [step, _emit(final, _out(maker, kind))], None


SETTLING = Pattern("settling", settling, rowwise=True)
PATTERNS: tuple[Pattern, ...] = (
    Pattern("override", replaceable, rowwise=True),
    Pattern("optional port", optional_port, rowwise=True),
    Pattern("telemetry", telemetry, rowwise=True),
    Pattern("grammar", grammar),
    Pattern("append group", lambda maker, scope: _served(maker, scope, "append")),
    Pattern("replace group", lambda maker, scope: _served(maker, scope, "replace")),
    Pattern("indexed_scatter", lambda maker, scope: _served(maker, scope, "indexed_scatter")),
    Pattern("session branch", session_branch),
    SETTLING,
)

__all__ = ["PATTERNS", "SETTLING", "Pattern", "kind_of"]
