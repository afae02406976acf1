"""One change to a well-formed document, of the kinds that authors and exporters make by mistake."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.property.kinds import Document
from tests.read.mutations import damaged
from tests.reference.document import steps_below

Mutation = Callable[[Document, random.Random], bool]
"""Changes a workflow in place; False when it found nothing to change."""

NAMES = {
    "invoke": ("component",),
    "emit": ("value", "output", "when", "valid_length"),
    "branch": ("predicate",),
    "loop": ("continue_when", "max_iterations"),
}
"""The fields of each step that hold a name."""


def mutated(document: Document, dice: random.Random) -> tuple[Document, str]:
    """A changed copy and the name of the change."""
    while True:
        changed = copy.deepcopy(document)
        name, change = dice.choice(list(MUTATIONS.items()))
        if name == "anything":
            return damaged(changed, dice, 1 + dice.randrange(2)), name
        if change(changed["pipeline"]["workflow"], dice):
            return changed, name


def _slots(workflow: Document) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything that names a value."""
    for step in steps_below(workflow["steps"]):
        yield from (
            (step, key) for key in NAMES.get(step["kind"], ()) if step.get(key) and key not in ("component", "output")
        )
        if step["kind"] == "invoke":
            yield from ((step["inputs"], port) for port in step["inputs"])
            yield from ((step["outputs"], port) for port in step["outputs"])
        for carry in step.get("carried") or []:
            yield from ((carry, key) for key in ("next", "initial") if key in carry)
        if step["kind"] == "branch":
            for phi in (step.get("outputs") or {}).values():
                yield from ((phi["cases"], key) for key in phi["cases"])
                yield from ((phi, key) for key in ("default",) if key in phi)
    for cell in (workflow.get("state") or {}).values():
        yield cell, "initializer"
        yield from ((cell["recurrence"], key) for key in ("increment", "max") if key in cell["recurrence"])


def _contracts(node: Any) -> Iterator[Document]:
    if isinstance(node, dict):
        if "dtype" in node and "rank" in node:
            yield node
        for each in node.values():
            yield from _contracts(each)
    elif isinstance(node, list):
        for each in node:
            yield from _contracts(each)


def _lists(workflow: Document) -> list[list[Document]]:
    """Every list of steps."""
    found = [workflow["steps"]]
    for step in steps_below(workflow["steps"]):
        found += [step[key] for key in ("steps", "setup") if step.get(key)]
    return found


def _retarget(workflow: Document, dice: random.Random) -> bool:
    slots = list(_slots(workflow))
    holder, key = dice.choice(slots)
    other, where = dice.choice(slots)
    holder[key] = other[where]
    return True


def _rename(workflow: Document, dice: random.Random) -> bool:
    holder, key = dice.choice(list(_slots(workflow)))
    holder[key] = dice.choice(("nowhere", "", "step", "live", "x'2", "limit", "self", "in_1"))
    return True


def _dtype(workflow: Document, dice: random.Random) -> bool:
    dice.choice(list(_contracts(workflow)))["dtype"] = dice.choice(
        ("int64", "int32", "bool", "float32", "fp32", "bfloat16", "uint8", "string", "float8_e5m2")
    )
    return True


def _rank(workflow: Document, dice: random.Random) -> bool:
    contract = dice.choice(list(_contracts(workflow)))
    contract["rank"] = dice.choice((0, 1, 2, 3))
    if "shape" in contract and dice.randrange(2):
        contract["shape"] = (contract["shape"] + ["extra", 1, 2])[: contract["rank"]]
    return True


def _shape(workflow: Document, dice: random.Random) -> bool:
    contract = dice.choice([each for each in _contracts(workflow) if each["rank"]] or [{}])
    if not contract:
        return False
    if dice.randrange(3) == 0:
        contract.pop("shape", None)
        return True
    shape = list(contract.get("shape") or ["n"] * contract["rank"])
    shape[dice.randrange(len(shape))] = dice.choice((0, 1, 2, 3, "batch", "length", "rows", "other"))
    contract["shape"] = shape
    return True


def _layout(workflow: Document, dice: random.Random) -> bool:
    contract = dice.choice(list(_contracts(workflow)))
    contract["batch_layout"] = dice.choice(
        (
            {"kind": "shared"},
            {"kind": "request_aligned", "axis": 0},
            {"kind": "request_aligned", "axis": 1},
            {"kind": "request_expanded", "axis": 0, "factor": 2},
            {"kind": "request_expanded", "axis": 0, "factor": 3},
        )
    )
    return True


def _carry(workflow: Document, dice: random.Random) -> bool:
    loops = [step for step in steps_below(workflow["steps"]) if step.get("carried")]
    if not loops:
        return False
    carried = dice.choice(loops)["carried"]
    way = dice.randrange(3)
    if way == 0:
        del carried[dice.randrange(len(carried))]
    elif way == 1:
        carried.append(dict(dice.choice(carried)))
    else:
        dice.choice(carried)["cell"] = dice.choice(list(workflow["state"]))
    return True


def _move(workflow: Document, dice: random.Random) -> bool:
    lists = _lists(workflow)
    source, target = dice.choice(lists), dice.choice(lists)
    step = source.pop(dice.randrange(len(source)))
    if any(target is each for each in _lists({"steps": [step]})):
        return False
    target.insert(dice.randrange(len(target) + 1), step)
    return True


def _drop_step(workflow: Document, dice: random.Random) -> bool:
    steps = dice.choice(_lists(workflow))
    del steps[dice.randrange(len(steps))]
    return True


def _double(workflow: Document, dice: random.Random) -> bool:
    steps = dice.choice(_lists(workflow))
    steps.append(copy.deepcopy(dice.choice(steps)))
    return True


def _recurrence(workflow: Document, dice: random.Random) -> bool:
    if not workflow.get("state"):
        return False
    name = dice.choice(list(workflow["inputs"]))
    dice.choice(list(workflow["state"].values()))["recurrence"] = dice.choice(
        (
            {"kind": "invariant"},
            {"kind": "bounded", "axis": dice.randrange(3), "max": name},
            {
                "kind": "growing",
                "axis": dice.randrange(3),
                "max": name,
                "increment": dice.choice(list(workflow["inputs"])),
            },
        )
    )
    return True


def _cell_field(workflow: Document, dice: random.Random) -> bool:
    if not workflow.get("state"):
        return False
    cell = dice.choice(list(workflow["state"].values()))
    key, value = dice.choice(
        (
            ("scope", "session"),
            ("scope", "invocation"),
            ("class", "advisory"),
            ("management", "runtime"),
            ("release_boundary", "row"),
            ("service_group", "nobody"),
            ("session", {"policy": "exclusive"}),
        )
    )
    cell[key] = value
    return True


def _emit_field(workflow: Document, dice: random.Random) -> bool:
    emits = [step for step in steps_below(workflow["steps"]) if step["kind"] == "emit"]
    if not emits:
        return False
    step, values = dice.choice(emits), [holder[key] for holder, key in _slots(workflow)]
    key, value = dice.choice(
        (
            ("axis", dice.randrange(4)),
            ("mode", dice.choice(("append", "replace", "event"))),
            ("when", dice.choice(values)),
            ("valid_length", dice.choice(values)),
            ("output", dice.choice(list(workflow["outputs"]))),
            ("axis", None),
            ("when", None),
            ("valid_length", None),
        )
    )
    step[key] = value
    if value is None:
        del step[key]
    return True


def _loop_field(workflow: Document, dice: random.Random) -> bool:
    loops = [step for step in steps_below(workflow["steps"]) if step["kind"] == "loop"]
    if not loops:
        return False
    step, values = dice.choice(loops), [holder[key] for holder, key in _slots(workflow)]
    contract = {"dtype": "int64", "rank": 1, "shape": [dice.choice((1, 2, "batch", "length", "nobody"))]}
    key, value = dice.choice(
        (
            ("termination", "generation_eos"),
            ("continue_when", dice.choice(values)),
            ("max_iterations", dice.choice(values)),
            ("iteration", {"value": dice.choice(("i", values[0])), "contract": contract}),
            ("setup", []),
            ("setup", step["steps"][:1]),
            ("carried", []),
        )
    )
    step[key] = value
    return True


def _branch_field(workflow: Document, dice: random.Random) -> bool:
    branches = [step for step in steps_below(workflow["steps"]) if step["kind"] == "branch"]
    if not branches:
        return False
    step = dice.choice(branches)
    way = dice.randrange(4)
    keys = list(step["cases"])
    if way == 0:
        step["cases"][dice.choice(("true", "false", "0", "3", "odd"))] = step["cases"].pop(dice.choice(keys))
    elif way == 1:
        del step["cases"][dice.choice(keys)]
    elif way == 2:
        step.pop("default", None)
    else:
        step.setdefault("outputs", {})["joined.again"] = {"cases": dict.fromkeys(keys, next(iter(workflow["inputs"])))}
    return True


def _capability(workflow: Document, dice: random.Random) -> bool:
    capabilities = workflow["manifest"]["capabilities"]
    if dice.randrange(3) == 0:
        capabilities.append(dice.choice(("teleport", "prefix_cache", "loop_carried_state")))
    else:
        del capabilities[dice.randrange(len(capabilities))]
    return True


def _port(workflow: Document, dice: random.Random) -> bool:
    if not workflow["components"]:
        return False
    component = dice.choice(list(workflow["components"].values()))
    ports = component.get("ports")
    if not ports or dice.randrange(4) == 0:
        component.pop("ports", None)
        return True
    side = ports[dice.choice(("inputs", "outputs"))]
    if not side:
        return False
    name = dice.choice(list(side))
    way = dice.randrange(3)
    if way == 0:
        side["other"] = side.pop(name)
    elif way == 1:
        del side[name]
    else:
        side[name] = {**side[name], "optional": True}
    return True


def _input(workflow: Document, dice: random.Random) -> bool:
    name = dice.choice(list(workflow["inputs"]))
    spec = workflow["inputs"][name]
    key, value = dice.choice(
        (
            ("default", dice.choice((True, 1, 1.5, [1, 2], [], [True], -1, 2**40, "x"))),
            ("required", True),
            ("required", False),
            ("source", {"kind": "request"}),
            ("source", {"kind": "literal"}),
            ("source", {"kind": "application", "name": "shared.name"}),
            ("present_as", "there"),
            ("role", {"kind": "runtime", "version": "1.0", "role": "max_iterations"}),
            ("source", {"kind": "artifact", "path": "x.bin"}),
        )
    )
    spec[key] = value
    return True


def _drop_input(workflow: Document, dice: random.Random) -> bool:
    del workflow["inputs"][dice.choice(list(workflow["inputs"]))]
    return True


def _serving(workflow: Document, dice: random.Random) -> bool:
    serving = workflow.get("serving")
    if not serving:
        return False
    if dice.randrange(3) == 0:
        serving[dice.choice(("active", "done", "accepted_len"))] = dice.choice(list(workflow["inputs"]))
        return True
    workflow["serving"] = damaged(serving, dice)
    return True


def _component(workflow: Document, dice: random.Random) -> bool:
    if not workflow["components"]:
        return False
    component = dice.choice(list(workflow["components"].values()))
    component["implementation"] = copy.deepcopy(dice.choice(list(workflow["components"].values())))["implementation"]
    return True


MUTATIONS: dict[str, Mutation] = {
    "retarget a value": _retarget,
    "rename a value": _rename,
    "dtype": _dtype,
    "rank": _rank,
    "shape": _shape,
    "layout": _layout,
    "carry": _carry,
    "move a step": _move,
    "drop a step": _drop_step,
    "double a step": _double,
    "recurrence": _recurrence,
    "cell": _cell_field,
    "emit": _emit_field,
    "loop": _loop_field,
    "branch": _branch_field,
    "capability": _capability,
    "port": _port,
    "input": _input,
    "drop an input": _drop_input,
    "serving": _serving,
    "component": _component,
    "anything": lambda workflow, dice: True,
}
