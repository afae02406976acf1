"""The canonical workflow of a decoder that is cut into stages (metadata standard, section 10.3): the decoder's invoke
becomes one of every stage.

Stages that run only with the prompt, or only with later tokens, stand in a branch on a cell that says which it is:

    invoke embeddings; branch prompt_phase { true: invoke context; false: invoke iterator }; invoke head; policy; emit
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from genai_compiler.lower.decoder_components import row_wise
from genai_compiler.lower.stage_chain import Chain, StageGraph
from genai_compiler.read.link_graphs import Member
from genai_compiler.read.signature import Port

Data = dict[str, Any]
PHASE, WITH_PROMPT, LATER = "prompt_phase", "package.prompt_phase", "package.later_phase"
_FLAG = {"dtype": "bool", "rank": 1, "shape": [1]}
_CASES = ("true", "false")
ONE_TOKEN = "prompt_of_one_token"
"""The contract's parameter: such a prompt takes the stages of "later" tokens, as in onnxruntime-genai, which tells the
phases by how many tokens a call has; not where prompts are filled up to a window, which comes before that.
"""


@dataclass(frozen=True)
class _Staged:
    """members: of both phases, by component. bound: value of the chains -> value of the workflow, for ports that the
    decoder's invoke had. limited: components that run in one phase only.
    """

    stages: tuple[StageGraph, ...]
    members: tuple[dict[str, Member], dict[str, Member]]
    bound: dict[str, str]
    limited: frozenset[str]

    def name(self, case: int, value: str) -> str:
        """The workflow's name of what a member takes or gives. case: 0 with the prompt, 1 later."""
        maker = self.maker(case, value)
        if maker is None or (value in self.bound and maker not in self.limited):
            return self.bound[value]
        return f"step.{maker}.{value.removeprefix(f'{maker}.')}"

    def maker(self, case: int, value: str) -> str | None:
        """The component that gives a value, None for what comes from outside."""
        members = self.members[case].values()
        return next((each.component for each in members if value in dict(each.outputs).values()), None)


def staged_document(document: Data, stages: Sequence[StageGraph], prompt: Chain | None, step: Chain) -> Data:
    """The document with the stages in the place of its component `decoder`. prompt: None where it is the step's."""
    workflow = document["pipeline"]["workflow"]
    decoder, loop = workflow["components"].pop("decoder"), workflow["steps"][0]
    at = next(at for at, each in enumerate(loop["steps"]) if each.get("component") == "decoder")
    invoke = loop["steps"][at]
    later = {each.component: each for each in step.members}
    first = later if prompt is None else {each.component: each for each in prompt.members}
    used = tuple(each for each in stages if each.component in {**first, **later})
    limited = frozenset(each.component for each in used if (each.component in first) != (each.component in later))
    staged = _Staged(used, (first, later), {**invoke["inputs"], **invoke["outputs"]}, limited)
    components = {each.component: _component(each, staged, decoder) for each in used}
    if limited:
        for each in components.values():
            told = each["contract"].get("parameters", {})
            if "prompt_window" not in told:
                each["contract"]["parameters"] = {**told, ONE_TOKEN: "later"}
    workflow["components"] = {**components, **workflow["components"]}
    loop["steps"][at : at + 1] = list(_steps(staged, decoder["ports"]["outputs"]))
    for group in workflow.get("serving", {}).get("state_service", {}).get("groups", {}).values():
        group["ports"] = _aliases(group["ports"].pop("decoder"), staged)
    if limited:
        branch_on_phase(workflow, loop)
    return document


def branch_on_phase(workflow: Data, loop: Data) -> str:
    """Add the cell that is true with the prompt and false later; returns its name."""
    literal = {"contract": _FLAG, "role": {"kind": "opaque"}, "source": {"kind": "literal"}}
    workflow["inputs"] |= {WITH_PROMPT: {**literal, "default": True}, LATER: {**literal, "default": False}}
    plain = {"scope": "invocation", "recurrence": {"kind": "invariant"}, "management": "workflow"}
    workflow["state"][PHASE] = {"contract": _FLAG, "initializer": WITH_PROMPT, **plain}
    loop["carried"].append({"cell": PHASE, "next": LATER})
    return PHASE


def _component(stage: StageGraph, staged: _Staged, decoder: Data) -> Data:
    """A stage: contracts of the decoder's own ports, and of what goes from stage to stage."""
    inputs, outputs = decoder["ports"]["inputs"], decoder["ports"]["outputs"]
    member = next(each[stage.component] for each in staged.members if stage.component in each)
    named = {each.name: each for each in (*stage.signature.inputs, *stage.signature.outputs)}
    limited = stage.component in staged.limited
    taken = {port: inputs.get(port) or _between(named[port], limited) for port, _ in member.inputs}
    given = {port: outputs.get(port) or _between(named[port], limited) for port, _ in member.outputs}
    ports = {*taken, *given}
    contract = {**decoder["contract"]}
    if "bindings" in contract:
        contract["bindings"] = {role: port for role, port in contract["bindings"].items() if port in ports}
    return {
        "implementation": {"kind": "onnx", "artifact": stage.artifact},
        "ports": {
            "inputs": taken,
            "outputs": given,
            "roles": {port: role for port, role in decoder["ports"]["roles"].items() if port in ports},
        },
        "contract": contract,
    }


def _between(port: Port, limited: bool) -> Data:
    """A tensor that one stage gives another: its own extents, whatever their symbols mean elsewhere.

    limited: of a stage of one phase; of those the last extent alone is that of the other phase too.
    """
    if port.shape is None:
        return {"dtype": port.dtype, "rank": 3}
    if not port.shape:
        return {"dtype": port.dtype, "rank": 0, "shape": []}
    contract = row_wise(port)
    if limited:
        inner = [f"{port.name}.{axis}" for axis in range(1, len(port.shape) - 1)]
        contract["shape"] = [contract["shape"][0], *inner, *contract["shape"][1:][-1:]]
    return contract


def _aliases(aliases: Data, staged: _Staged) -> Data:
    """Cell -> alias of every stage that takes the cell."""
    found: Data = {}
    for stage in staged.stages:
        for members in staged.members:
            taken = dict(members[stage.component].inputs) if stage.component in members else {}
            mine = {cell: alias for cell, alias in aliases.items() if alias["input"] in taken}
            if mine:
                found[stage.component] = mine
    return found


def _steps(staged: _Staged, results: Data) -> Iterator[Data]:
    """The stages in order, those of one phase in branches. results: ports of the decoder that are read outside."""
    grouped = groupby(staged.stages, lambda stage: stage.component in staged.limited)
    groups = [(limited, list(each)) for limited, each in grouped]
    for place, (limited, group) in enumerate(groups):
        if not limited:
            yield from (_invoke(staged, each.component, 1) for each in group)
            continue
        cases = {
            key: {
                "kind": "sequence",
                "steps": [
                    _invoke(staged, each.component, case) for each in group if each.component in staged.members[case]
                ],
            }
            for case, key in enumerate(_CASES)
        }
        after = [each.component for _, later in groups[place + 1 :] for each in later]
        outputs = dict(_joins(staged, [each.component for each in group], after, results))
        yield {"kind": "branch", "predicate": PHASE, "cases": cases, "outputs": outputs}


def _invoke(staged: _Staged, component: str, case: int) -> Data:
    member = staged.members[case][component]
    inputs = {port: _taken(staged, component, port, value, case) for port, value in member.inputs}
    outputs = {port: staged.name(case, value) for port, value in member.outputs}
    return {"kind": "invoke", "component": component, "inputs": inputs, "outputs": outputs}


def _taken(staged: _Staged, component: str, port: str, value: str, case: int) -> str:
    """What an input takes: of a stage in both phases, the join of what each phase has for it."""
    if component in staged.limited or not staged.limited:
        return staged.name(case, value)
    other = dict(staged.members[1 - case][component].inputs)[port]
    here, there = staged.name(case, value), staged.name(1 - case, other)
    return here if here == there else f"step.{component}.in.{port}"


def _joins(staged: _Staged, group: list[str], after: list[str], results: Data) -> Iterator[tuple[str, Data]]:
    """What a branch hands on: inputs of later stages of both phases, and results that each phase has from its own."""
    for component in after:
        if component in staged.limited:
            continue
        for port, value in staged.members[1][component].inputs:
            first = dict(staged.members[0][component].inputs)[port]
            joined = _taken(staged, component, port, value, 1)
            makers = {staged.maker(0, first), staged.maker(1, value)}
            if joined == f"step.{component}.in.{port}" and makers & set(group):
                yield joined, {"cases": _pair(staged, first, value)}
    for port in results:
        if {staged.maker(0, port), staged.maker(1, port)} & set(group):
            yield staged.bound[port], {"cases": _pair(staged, port, port)}


def _pair(staged: _Staged, first: str, later: str) -> Data:
    return {key: staged.name(case, value) for case, (key, value) in enumerate(zip(_CASES, (first, later), strict=True))}
