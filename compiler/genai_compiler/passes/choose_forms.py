"""Choose how each light graph runs: fused with others, in a session of its own, or done by numpy on the host.

Before:  component greedy = greedy.onnx
         %t = invoke greedy(logits=%l)
After:   component greedy = greedy.onnx, on the host
         %t = invoke greedy(logits=%l)

The table of costs decides (docs/costs.md): for a graph that searches, each form is planned through, with what it does
to the runs around it, and the first one (fused, own, host) stays that no other is cheaper than by a tenth. For others
there is nothing to choose: linked they never cost more than apart. What a caller asks for goes first. Only a graph that
numpy does to the same bits can go to the host (read/host_graph.py), and only where the extent that it searches is
known. Nothing is measured here: the same plan and table give the same forms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from genai_compiler.passes.form_costs import FormCosts, in_form, runs
from genai_compiler.passes.joinable import Joinable
from genai_compiler.passes.profile import Profile
from genai_compiler.plan.ir import Form, Plan
from genai_compiler.read.host_graph import SEARCHES, Unhosted, host_program, searched
from genai_compiler.read.host_program import HostProgram
from genai_compiler.read.nodes import all_nodes, operator_of
from genai_compiler.read.package import Graph

SWEEPS = 3
"""How often each component is looked at again, at most."""
ALIKE = 0.1
"""Share of a sum by which another one must be less to count: no table says what a loop takes more exactly."""
WORDS: Mapping[Form, str] = {"fused": "fused", "own": "own session", "host": "host"}


def choose_forms(plan: Plan, profile: Profile) -> Plan:
    """The plan whose light components have a form each."""
    found = _candidates(plan, profile)
    if not found:
        return plan
    programs = {each.name: each.program for each in found if each.program is not None}
    costs = FormCosts(plan, profile, programs, {each.name: each.extent for each in found})
    forms = _chosen(found, costs)
    notes = tuple(_notes(found, forms, costs))
    return replace(in_form(plan, forms, programs), decisions=(*plan.decisions, *notes))


@dataclass(frozen=True)
class _Candidate:
    """A component that can run in several forms, the first one by default. asked: the form that is wanted, "" for none.

    program: what numpy does, extent: of the axis that it searches (0: not known). remark: why the host is no choice,
    where it searches.
    """

    name: str
    possible: tuple[Form, ...]
    asked: Form
    program: HostProgram | None
    extent: int
    remark: str


def possible_forms(plan: Plan, profile: Profile) -> Mapping[str, tuple[Form, ...]]:
    """The forms that each light component of a plan can have."""
    return {each.name: each.possible for each in _candidates(plan, profile)}


def form_bars(plan: Plan, profile: Profile, name: str) -> str:
    """Why a component has one form only: what holds it back from each other one."""
    component, uses = plan.component(name), [run for _, run in runs(plan.body) if run.component == name]
    if component.adapter is not None or name not in profile.graphs:
        return "it is no graph"
    if not uses:
        decodes = plan.decoder is not None and name in (plan.decoder.component, plan.decoder.prompt_component)
        return "it is the decoder, which the runtime's own loop runs" if decodes else "no step of its own runs it"
    judge = Joinable(plan, profile, {})
    fixed = next(filter(None, map(judge.fixed, uses)), "")
    if fixed or any(run.held for run in uses):
        return fixed or "it updates cells in place"
    joins = next(filter(None, map(judge.reason, uses)), "")
    try:
        host_program(profile.graphs[name])
        host = "its graph runs edited"
    except Unhosted as reason:
        host = str(reason.args[0])
    return f"not fused: {joins}; not on the host: {host}"


def _candidates(plan: Plan, profile: Profile) -> list[_Candidate]:
    used = dict.fromkeys(run.component for _, run in runs(plan.body))
    return [each for name in used if (each := _candidate(name, plan, profile)) is not None]


def _candidate(name: str, plan: Plan, profile: Profile) -> _Candidate | None:
    judge = Joinable(plan, profile, {})
    uses = [run for _, run in runs(plan.body) if run.component == name]
    if any(run.held or judge.fixed(run) for run in uses):
        return None
    joins = not any(map(judge.reason, uses))
    program, extent, remark = _on_host(name, plan, profile)
    possible: tuple[Form, ...] = (*(("fused",) if joins else ()), "own", *(("host",) if program is not None else ()))
    if len(possible) < 2:
        return None
    asked = profile.forms.get(name) or profile.forms.get("", "")
    return _Candidate(name, possible, asked if asked in possible else "", program, extent, remark)


def _on_host(name: str, plan: Plan, profile: Profile) -> tuple[HostProgram | None, int, str]:
    """(what numpy does, the extent that is searched, why not)."""
    try:
        if plan.component(name).edit is not None:
            raise Unhosted("its graph runs edited")
        program = host_program(profile.graphs[name])
    except Unhosted as reason:
        return None, 0, reason.args[0] if _searches(profile.graphs.get(name)) else ""
    ports = searched(program)
    values = [
        value for _, run in runs(plan.body) if run.component == name for port, value in run.inputs if port in ports
    ]
    extents = {plan.types[value].dims[-1] if plan.types[value].rank else None for value in values}
    known = [each for each in extents if isinstance(each, int)]
    extent = max(known) if known and len(known) == len(extents) else 0
    return program, extent, "" if extent else "the extent that it searches is not known"


def _searches(graph: Graph | None) -> bool:
    return graph is not None and any(
        operator_of(node) in (("", each) for each in SEARCHES) for node in all_nodes(graph.model)
    )


def _chosen(found: list[_Candidate], costs: FormCosts) -> Mapping[str, Form]:
    """The form of each: as asked, else the cheapest one, one search after another until nothing changes."""
    forms: dict[str, Form] = {each.name: each.asked or each.possible[0] for each in found}
    open_ones = [each for each in found if not each.asked and _open(each) != each.possible[:1]]
    for _ in range(SWEEPS):
        before = dict(forms)
        for each in open_ones:
            if each.program is not None:
                sums = _sums(each, forms, costs)
                least = min(sums.values())
                forms[each.name] = next(form for form, cost in sums.items() if (1 - ALIKE) * cost <= least)
        if forms == before:
            break
    return forms


def _sums(each: _Candidate, forms: Mapping[str, Form], costs: FormCosts) -> Mapping[Form, float]:
    """What the whole plan costs with each form of one component."""
    return {form: costs.whole({**forms, each.name: form}) for form in _open(each)}


def _open(each: _Candidate) -> tuple[Form, ...]:
    """The forms among which costs decide."""
    return each.possible if each.extent else tuple(form for form in each.possible if form != "host")


def _notes(found: list[_Candidate], forms: Mapping[str, Form], costs: FormCosts) -> Iterator[str]:
    """What was chosen, and what the runs of a turn of the innermost loop cost beside the other forms'."""
    for each in found:
        if each.asked:
            yield f"choose_forms: {each.name}: {WORDS[each.asked]}, as asked"
        elif each.program is not None or each.remark:
            yield _note(each, forms, costs)


def _note(each: _Candidate, forms: Mapping[str, Form], costs: FormCosts) -> str:
    depth, form = _depth(each.name, costs), forms[each.name]
    times = {form: costs.by_depth({**forms, each.name: form}).get(depth, 0.0) for form in _open(each)}
    shown = ", ".join(f"{WORDS[form]} {time:.1f}" for form, time in times.items())
    word = WORDS[form] if form != "fused" or each.name in costs.linked(forms) else "nothing to be fused with"
    extent = f", {each.extent} elements to search" if each.extent else ""
    remark = f"; not on the host: {each.remark}" if each.remark else ""
    sums = _sums(each, forms, costs)
    least = min(sums, key=lambda form: sums[form])
    why = "the only one" if len(times) == 1 else "the cheapest" if form == least else f"as cheap as {WORDS[least]}"
    return f"choose_forms: {each.name}: {word}, {why}: {shown} us {_turn(depth)}{extent}{remark}"


def _depth(name: str, costs: FormCosts) -> int:
    """How many loops stand around the innermost run of a component."""
    return max(depth for depth, run in runs(costs.plan.body) if run.component == name)


def _turn(depth: int) -> str:
    return "an iteration" if depth else "an invocation"
