"""Cut the heavy graph of a loop in two, so that loading opens two sessions at once, each with half of the weights.

Before:  component decoder = model.onnx, edited
After:   component decoder = model.onnx, edited, in two sessions
           cut after norm.15: decoder_first (53.0 MB), then decoder_second (53.1 MB)
           from one to the other: norm.15.out[tokens 0, tokens 1, 576], norm.15.sum[tokens 0, tokens 1, 576]

Opening a session is rearranging its weights, on one core. Whoever runs the component sees one session as before: the
runtime runs the second graph behind the first, on what crosses. Every other port, and so the state, belongs to the side
that has it. Needs all of: weights that take long enough; one session run a token so far, and the CPU alone; nothing
that a request could put in the component's place, or change in it; a place where few values cross, made by operators
that ONNX Runtime's optimiser joins with nothing behind them, with extents that nothing but those of the inputs decides;
and no weight that both sides would rearrange. Of places that leave the sides as equal, the one with the least that
crosses is taken (docs/decisions/0042).
"""

from collections.abc import Iterator
from dataclasses import replace

from onnx import ModelProto, ValueInfoProto

from genai_compiler.passes.profile import Profile
from genai_compiler.plan.edited import carry_out
from genai_compiler.plan.edits import Edited, Parts, free_name
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.ir import Component, Decode, Fused, Invoke, Loop, Op, Plan, SpeculativeBlock
from genai_compiler.plan.on_demand import on_demand
from genai_compiler.plan.uses import walk
from genai_compiler.read.cuts import Cut, arranged_weights, cuts, halves
from genai_compiler.read.extents import Extents, output_extents
from genai_compiler.session_runs import runs_of

LEAST = 32 << 20
"""Bytes of weights from which it is worth it: they open in some 60 ms, of which a cut saves less than half, and both
sessions have allocators of their own, and a run more a token."""
RUNS = 2
"""Session runs a token at most."""
CROSSING = 4
"""Values that cross at most."""
EVEN = 0.02
"""Of the better balance that a place with less crossing may give up."""
LARGEST_SIDE = 2 / 3
"""Of the weights: beyond it the gain is little."""
TRIES = 16
"""Places that are looked at more closely, the best first."""


def split_opening(plan: Plan, profile: Profile) -> Plan:
    """The plan whose heavy component opens in two sessions, where that pays."""
    looped = set(_looped(plan))
    for each in plan.components:
        graph = profile.graphs.get(each.name)
        if each.name not in looped or graph is None or graph.absent or _arranged(graph.model) < LEAST:
            continue
        parts = _kept_whole(each, plan, profile) or _found(each, graph.model, plan)
        if isinstance(parts, str):
            note = f"split_opening: {each.name} opens in one session: {parts}"
            plan = replace(plan, decisions=(*plan.decisions, note))
        else:
            plan = _cut(plan, each, parts)
    return plan


def _arranged(model: ModelProto) -> int:
    return sum(size for size, _, _ in arranged_weights(model).values())


def _looped(plan: Plan) -> Iterator[str]:
    """Components that loops run."""
    for loop in (op for op in walk(plan.body) if isinstance(op, Loop)):
        for op in walk((*loop.body, *loop.advance)):
            yield from _run(op)


def _run(op: Op) -> Iterator[str]:
    match op:
        case Invoke() | Decode():
            yield op.component
        case Fused():
            yield op.run.component
        case SpeculativeBlock():
            yield op.decode.component
        case _:
            pass


def _kept_whole(component: Component, plan: Plan, profile: Profile) -> str:
    """Why a component is not to be cut, whatever its graph is; "" where it may be."""
    facts = plan.decoder
    if component.edit is not None and not isinstance(component.edit, Edited):
        return "it is linked of several graphs"
    if component.adapter is not None or not component.pure or component.form == "host":
        return "it is more than a graph"
    if component.overridable or any(component.name == r.component for c in plan.components for r in c.replacements):
        return "a request may put another component in its place, or it in another's"
    if any(isinstance(op, SpeculativeBlock) for op in walk(plan.body)):
        return "drafts are verified in runs of other lengths, and what crosses would be made anew for each"
    if any(isinstance(op, Invoke | Decode) and op.adapted and op.component == component.name for op in walk(plan.body)):
        return "adapters change it"
    if profile.preferred or any(each.component == component.name for each in plan.placements):
        return "it is to run elsewhere than on the CPU"
    if facts is not None and component.name == facts.component and (facts.prompt_component or facts.pages is not None):
        return "another graph runs with the prompt" if facts.prompt_component else "paged caches need a device"
    programs = (each.adapter.program for each in plan.components if each.adapter is not None)
    if any(isinstance(each, GraphProgram) and component.name in each.components for each in programs):
        return "an adapter runs its graph, too"
    if component.name in on_demand(plan):
        return "it opens when a request first comes to it, and not beside others"
    cut = _cut(plan, component, Parts((component.name, component.name), Cut(0, (), (0, 0), ""), ()))
    loops = [op for op in walk(cut.body) if isinstance(op, Loop)]
    counts = [runs_of((*loop.body, *loop.advance), cut) for loop in loops]
    if any(each.more or each.most > RUNS for each in counts):
        return f"a token would then take more than {RUNS} session runs"
    return ""


def _cut(plan: Plan, component: Component, parts: Parts) -> Plan:
    made = replace(component, parts=parts)
    first, second = (f"{size / 1e6:.1f} MB" for size in parts.cut.weights)
    where = f"they part after '{parts.cut.label}', and {len(parts.extents)} values go from one to the other"
    note = (
        f"split_opening: {component.name} opens in two sessions at once, which arrange {first} and {second} of weights:"
        f" {where}; a token takes one run more"
    )
    components = tuple(made if each is component else each for each in plan.components)
    return replace(plan, components=components, decisions=(*plan.decisions, note))


def _found(component: Component, artifact: ModelProto, plan: Plan) -> Parts | str:
    """Where the component's graph is cut, or why nowhere."""
    model = ModelProto()
    model.CopyFrom(artifact)
    if isinstance(component.edit, Edited):
        carry_out(model, component.edit)
    places = sorted(cuts(model, CROSSING), key=lambda each: (each.heavier, each.before))
    if not places:
        return "nowhere do few values cross that ONNX Runtime joins with nothing"
    if places[0].heavier > LARGEST_SIDE * sum(places[0].weights):
        return "no place leaves both sides a third of the weights"
    even = (1 + EVEN) * places[0].heavier
    ranked = sorted(places, key=lambda each: len(each.crossing) if each.heavier <= even else CROSSING + 1)
    for place in ranked[:TRIES]:
        extents = _extents(model, place)
        if extents is not None and place.heavier <= LARGEST_SIDE * sum(place.weights):
            taken = [each.name for each in plan.components]
            first = free_name(f"{component.name}_first", taken)
            return Parts((first, free_name(f"{component.name}_second", taken)), place, extents)
    return "nothing tells the extents of what would cross"


def _extents(model: ModelProto, place: Cut) -> tuple[tuple[str, tuple[int | str, ...]], ...] | None:
    """Extents of what crosses, where nothing but those of ports decides them: a run then writes where the last did."""
    first, _ = halves(model, place.before, [ValueInfoProto(name=name) for name, _ in place.crossing])
    ports: dict[str, Extents] = {
        each.name: tuple(
            int(dim.dim_value) if dim.HasField("dim_value") else f"{each.name} {axis}"
            for axis, dim in enumerate(each.type.tensor_type.shape.dim)
        )
        for each in first.graph.input
        if each.type.tensor_type.HasField("shape")
    }
    found = output_extents(first, ports)
    known = {name: found.get(name, (None,)) for name, _ in place.crossing}
    sure = {name: tuple(each for each in dims if each is not None) for name, dims in known.items()}
    return tuple(sure.items()) if all(len(sure[name]) == len(dims) for name, dims in known.items()) else None
