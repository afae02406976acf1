"""The document of a decoder in two files: a branch runs the graph of prompts first and that of later tokens afterwards.

    loop { branch prompt_phase { true: invoke prompt(tokens); false: invoke step(tokens, caches) }; policy; emit }

Caches over what an encoder made come out of the first graph alone: later the cell is handed on as it is.
"""

from collections.abc import Mapping
from typing import Any

from genai_compiler.lower.plain_pair import Pair, takes_several
from genai_compiler.lower.staged_workflow import branch_on_phase
from genai_compiler.problem import sized
from genai_compiler.read.signature import Signature
from genai_compiler.read.weights import weight_bytes

Data = dict[str, Any]


def told_pair(pair: Pair) -> str:
    """What runs when, what it costs, and what it can't do."""
    first, later = (
        f"{each.artifact} ({sized(weight_bytes(each.model))} of weights)" for each in (pair.first, pair.later)
    )
    told = f"two graphs: {first} runs with the prompt, {later} with every later token; each has a session, so that "
    told += "weights which both hold are held twice"
    tokens = next(x for x in pair.later.signature.inputs if x.name == pair.later.ports.io["token_input"])
    return told if takes_several(pair.later, tokens) else f"{told}; behind a past one token goes in a run"


def two_graphs(document: Data, pair: Pair) -> Data:
    """The document with both graphs in the place of its component `decoder`."""
    workflow = document["pipeline"]["workflow"]
    decoder = workflow["components"].pop("decoder")
    loop = next(each for each in workflow["steps"] if each["kind"] == "loop")
    at = next(at for at, each in enumerate(loop["steps"]) if each.get("component") == "decoder")
    invoke = loop["steps"][at]
    sides = _sides(pair, workflow["components"])
    made = {name: _component(decoder, *side) for name, side in sides.items()}
    workflow["components"] = {**made, **workflow["components"]}
    cases, outputs = dict[str, Data](), dict[str, Data]()
    for case, (name, (_, signature, ports)) in zip(("true", "false"), sides.items(), strict=True):
        mine = {ports.get(port, port): value for port, value in invoke["inputs"].items()}
        inputs = {each.name: mine[each.name] for each in signature.inputs if each.name in mine}
        given = {port: value for port, value in invoke["outputs"].items() if _has(signature, ports.get(port, port))}
        results = {ports.get(port, port): f"step.{name}.{port}" for port in given}
        cases[case] = {"kind": "invoke", "component": name, "inputs": inputs, "outputs": results}
        for port, value in invoke["outputs"].items():
            kept = f"step.{name}.{port}" if port in given else value.removeprefix("body.")
            outputs.setdefault(value, {"cases": {}})["cases"][case] = kept
    flag = branch_on_phase(workflow, loop)
    loop["steps"][at] = {"kind": "branch", "predicate": flag, "cases": cases, "outputs": outputs}
    _, later = sides
    for group in workflow.get("serving", {}).get("state_service", {}).get("groups", {}).values():
        cells = group["ports"].pop("decoder")
        group["ports"] = {later: {cell: _alias(each, pair.later.signature) for cell, each in cells.items()}}
    return document


Side = tuple[str, Signature, Mapping[str, str]]


def _sides(pair: Pair, taken: Mapping[str, Any]) -> dict[str, Side]:
    """Component -> (file, its ports, port of the whole decoder -> its own), with the prompt and later."""
    found: dict[str, Side] = {}
    for name, graph, ports in (
        ("prompt_decoder", pair.first, {**pair.first_ports, **_absent(pair)}),
        ("step_decoder", pair.later, {}),
    ):
        while name in taken:
            name += "_"
        found[name] = graph.artifact, graph.signature, ports
    return found


def _absent(pair: Pair) -> dict[str, str]:
    """Ports of the second graph alone: in the first one a port of that name is another."""
    both = (*pair.signature.inputs, *pair.signature.outputs)
    return {each.name: "" for each in both if each.name not in pair.first_ports}


def _has(signature: Signature, port: str) -> bool:
    return any(each.name == port for each in signature.outputs)


def _component(decoder: Data, artifact: str, signature: Signature, ports: Mapping[str, str]) -> Data:
    """One graph with the decoder's contracts for those of its ports that it has."""
    inputs, outputs = {each.name for each in signature.inputs}, {each.name for each in signature.outputs}
    declared = decoder["ports"]
    mine = {port: ports.get(port, port) for port in (*declared["inputs"], *declared["outputs"])}
    return {
        "implementation": {"kind": "onnx", "artifact": artifact},
        "ports": {
            "inputs": {mine[port]: each for port, each in declared["inputs"].items() if mine[port] in inputs},
            "outputs": {mine[port]: each for port, each in declared["outputs"].items() if mine[port] in outputs},
            "roles": {mine[port]: role for port, role in declared["roles"].items() if mine[port] in inputs | outputs},
        },
        "contract": {**decoder["contract"]},
    }


def _alias(alias: Data, later: Signature) -> Data:
    """What a cell is to the second graph, which reads a cache over the encoder's output and gives none."""
    if _has(later, alias["output"]):
        return alias
    return {key: each for key, each in alias.items() if key != "output"} | {"access": "read_only"}
