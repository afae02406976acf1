"""Plans of a few ops, written by hand."""

from dataclasses import replace

from genai_compiler.plan.ir import (
    Branch,
    Carry,
    Cell,
    Component,
    Decode,
    Emit,
    Input,
    Invoke,
    Join,
    Keep,
    Loop,
    Op,
    Output,
    Plan,
    SelectToken,
    StartPolicy,
    Type,
)
from genai_compiler.plan.state import DecodeFacts, Mask, Slot, StateGroup
from genai_compiler.plan.uses import all_reads, defines, walk

ONE = Type("int64", 1, (1,))
FLAG = Type("bool", 1, (1,))


def component(name: str, inputs: str = "x", outputs: str = "y", pure: bool = True) -> Component:
    """A component with one-letter ports of int64 [1]."""
    return Component(
        name,
        f"{name}.onnx",
        tuple((p, ONE) for p in inputs),
        tuple((p, ONE) for p in outputs),
        pure,
        False,
        f"c.{name}",
    )


def invoke(name: str, inputs: str, outputs: str, origin: str = "steps[0]") -> Invoke:
    """`invoke("f", "a b", "c")`: ports x y z ... take the inputs, ports y z ... give the outputs."""
    return Invoke(
        name, tuple(zip("xyz", inputs.split(), strict=False)), tuple(zip("yzw", outputs.split(), strict=False)), origin
    )


def emit(value: str, when: str = "") -> Emit:
    """Replace the output `out`."""
    return Emit(value, "out", "replace", when, "", 0, False, "steps[9]")


def loop(body: tuple[Op, ...], carried: tuple[Carry, ...] = (), live: str = "go", limit: str = "n") -> Loop:
    """A counted loop."""
    return Loop(live, limit, body, carried, "predicate", "", "steps[1]")


def carry(cell: str, initial: str, following: str) -> Carry:
    """A cell's way through a loop."""
    return Carry(cell, initial, following, False, declared=cell)


def branch(true: tuple[Op, ...], false: tuple[Op, ...], *joins: Join) -> Branch:
    """Two cases over `go`."""
    return Branch("go", (("true", true), ("false", false)), None, joins, "steps[2]")


def join(name: str, true: str, false: str) -> Join:
    """A join of both cases."""
    return Join(name, (("true", true), ("false", false)), "")


def cell(name: str) -> Cell:
    """An invariant cell that starts as `a`."""
    return Cell(name, ONE, "invocation", "a", "invariant", -1, "", "", "", f"state.{name}")


def keep(cell: str, value: str) -> Keep:
    """What a session's cell holds."""
    return Keep(cell, value, "steps[3]")


def plan(*body: Op, inputs: str = "a b n go", cells: str = "s t") -> Plan:
    """A plan of these ops over components f, g (pure) and effect; every value that occurs is int64 [1]."""
    names = [*inputs.split(), *(value for op in walk(body) for value in (*defines(op), *all_reads(op)))]
    return Plan(
        name="small",
        dialect="workflow",
        inputs=tuple(
            Input(name, ONE, "", "application", name, True, None, "", f"inputs.{name}") for name in inputs.split()
        ),
        outputs=(Output("out", ONE, "tensor", False, "outputs.out"),),
        components=(component("f", "x", "yz"), component("g", "xy", "y"), component("effect", "x", "y", pure=False)),
        cells=tuple(cell(name) for name in cells.split()),
        groups=(),
        decoder=None,
        body=body,
        types=dict.fromkeys(names, ONE),
        capabilities=("typed_emit", "workflow_ssa"),
    )


GROUP = StateGroup(
    "kv", "decoder", "growing", (Slot("past", "present", "float16", (-1, 2, -2, 8)),), None, "", "groups.kv"
)
FACTS = DecodeFacts(
    "decoder", "tokens", "int64", Mask("mask", "int64", "lengths", True), ("positions", "int64", 2), "logits",
    "float32", False, True, 32, False,
)  # fmt: skip


def decoder_plan(extras: tuple[tuple[str, str], ...] = ()) -> Plan:
    """A decoder loop as it is built: the decoder leads, the policy selects, a token is published."""
    body: tuple[Op, ...] = (
        Decode("decoder", "step", "sequence", "logits", "steps[0].steps[0]", extras),
        SelectToken("logits", "token", "active.next", "done.next", "accepted.next", "steps[0].steps[1]"),
        Emit("token", "out", "append", "active", "", 1, True, "steps[0].steps[2]"),
    )
    carried = (Carry("active", "active.0", "active.next", False), Carry("sequence", "a", "token", False))
    start = StartPolicy("active.0", "done.0", "accepted.0", "steps[0].steps[1]")
    whole = plan(start, Loop("active", "n", body, carried, "generation_eos", "", "steps[0]"))
    decoder = Component("decoder", "model.onnx", (("tokens", ONE),), (("logits", ONE),), True, False, "c.decoder")
    return replace(whole, components=(*whole.components, decoder), groups=(GROUP,), decoder=FACTS)
