"""Hints -> what is taken of them and why not of the rest (standard, section 9). No hint changes a result.

What this executor can place is a component: one session, one list of execution providers. A hint that speaks of some
of a component's nodes is named and left alone. Strength first, then the source: a `force` beats a `prefer` of any
source, two that contradict each other refuse the package; among equals the stronger source counts, and in one source
the earlier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from genai_compiler.plan.hint_actions import memory_advice
from genai_compiler.plan.hint_reach import Reach, reach
from genai_compiler.plan.placement import Placement
from genai_compiler.problem import Problem
from genai_compiler.read.graph_hints import GraphAdvice, graph_hints
from genai_compiler.read.hint_sources import FILE, Hint, SourcedHints
from genai_compiler.read.hints import DeviceTarget
from genai_compiler.read.package import Package

OF_PACKAGE = "execution_hints.json"
MAX_DECISIONS = 100
"""How many decisions about hints a plan lists, and how many contradictions are told."""


@dataclass(frozen=True)
class Advice:
    """What came of the hints. problems: contradictions, all errors."""

    placements: tuple[Placement, ...]
    decisions: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Said:
    """A hint, and what it selects of each component that it speaks of."""

    hint: Hint
    reaches: dict[str, Reach]


def resolve_hints(package: Package, sources: Sequence[SourcedHints]) -> Advice:
    """The advice for a package: hints of the sources given, and those that its graphs carry."""
    graphs = {name: graph_hints(name, each) for name, each in package.graphs.items()}
    hints = [
        *(hint for source in sources for hint in source.hints),
        *package.hints,
        *(h for g in graphs.values() for h in g.hints),
    ]
    hints.sort(key=lambda each: each.rank)
    said = [Said(each, _reaches(each, package, graphs)) for each in hints]
    placing = [each for each in said if each.hint.action == "placement"]
    decisions = [note for each in graphs.values() for note in each.notes]
    if not any(hint.rank == FILE for hint in hints) and (package.root / OF_PACKAGE).is_file():
        decisions.append(f"{OF_PACKAGE} of the package is not read: it counts when a user names it, with --hints")
    placements = {name: Placement(name, "") for name in package.graphs}
    for name in package.graphs:
        placements[name] = _placed(name, placing, decisions)
    decisions += [text for each in placing for text in _unused(each, package)]
    others = [each for each in said if each.hint.action != "placement"]
    for each in others:
        decisions += memory_advice(each.hint, each.reaches, placements)
    listed = tuple(f"hints: {each}" for each in dict.fromkeys(decisions))
    more = (f"hints: {len(listed) - MAX_DECISIONS} more are not listed",) if len(listed) > MAX_DECISIONS else ()
    made = tuple(each for name, each in placements.items() if each != Placement(name, ""))
    return Advice(made, (*listed[:MAX_DECISIONS], *more), tuple(islice(_contradictions(placing), MAX_DECISIONS)))


def _reaches(hint: Hint, package: Package, graphs: dict[str, GraphAdvice]) -> dict[str, Reach]:
    found = {
        name: reach(hint, name, None if name not in graphs or package.graphs[name].absent else graphs[name])
        for name in (package.workflow.components if hint.selector is not None else package.graphs)
    }
    return {name: each for name, each in found.items() if each is not None}


def _placed(name: str, placing: Sequence[Said], decisions: list[str]) -> Placement:
    """Where one component goes; what was decided on the way is appended."""
    whole = [each.hint for each in placing if name in each.reaches and each.reaches[name].whole]
    whole.sort(key=lambda each: not each.force)  # stable: sources keep their order
    for each in placing:
        if name in each.reaches and not each.reaches[name].whole:
            part = each.reaches[name]
            what = f"it speaks of {len(part.nodes)} of {part.of} nodes, and a component is one session"
            decisions.append(f"{each.hint.name} is left alone for '{name}': {what}")
    if not whole:
        return Placement(name, "")
    first = whole[0]
    device = _numbered(_device(first), whole)
    for other in whole[1:]:
        if _differ(device, _device(other)):
            why = f"{first.name} is {_stronger(first, other)}"
            decisions.append(f"{other.name} ({shown(_device(other))}) is left alone for '{name}': {why}")
    if device.type == "any":
        decisions.append(f"{first.name}: '{name}' may run anywhere")
        return Placement(name, "")
    decisions.append(f"{first.name}: '{name}' prefers {shown(device)}")
    return Placement(name, device.type, device.index)


def _numbered(device: DeviceTarget, hints: Sequence[Hint]) -> DeviceTarget:
    """The device with the number that the first hint of its kind gives, where it has none itself."""
    numbers = (each.index for each in map(_device, hints) if each.type == device.type and each.index is not None)
    return device if device.index is not None else device.model_copy(update={"index": next(numbers, None)})


def _unused(said: Said, package: Package) -> Iterator[str]:
    """Why a placement came to nothing: it selects nothing, or what has no session."""
    if not said.reaches:
        yield f"{said.hint.name} is left alone: it selects nothing in this package{_layerless(said.hint)}"
    for name in said.reaches:
        if name not in package.graphs:
            yield f"{said.hint.name} is left alone for '{name}': it is no graph and has no session"


def _layerless(hint: Hint) -> str:
    ranged = hint.selector is not None and hint.selector.layer_range is not None
    return " (layers are those that nodes tell by onnx_runtime.layer or layer_pattern)" if ranged else ""


def _contradictions(placing: Sequence[Said]) -> Iterator[Problem]:
    """Pairs of forced placements that no placement of their common nodes can satisfy, by component.

    Hints of one component only are compared: a package may have many components, each with many hints.
    """
    forced: dict[str, list[Said]] = {}
    seen: set[tuple[int, int]] = set()
    for one in (each for each in placing if each.hint.force):
        for name, part in one.reaches.items():
            for other in forced.get(name, ()):
                differ = _differ(_device(one.hint), _device(other.hint)) and part.meets(other.reaches[name])
                if differ and (id(one), id(other)) not in seen:
                    seen.add((id(one), id(other)))
                    yield _contradiction(name, one.hint, other.hint)
            forced.setdefault(name, []).append(one)


def _contradiction(name: str, one: Hint, other: Hint) -> Problem:
    what = f"'{name}' is forced onto {shown(_device(one))} here, and by {other.name} onto {shown(_device(other))}"
    return Problem("conflicting-hints", one.where, one.path, what, "drop one of the two, or let it say prefer")


def _device(hint: Hint) -> DeviceTarget:
    assert hint.device is not None
    return hint.device


def _differ(one: DeviceTarget, other: DeviceTarget) -> bool:
    if "any" in (one.type, other.type):
        return False
    numbers = (one.index, other.index)
    return one.type != other.type or (None not in numbers and numbers[0] != numbers[1])


def _stronger(first: Hint, other: Hint) -> str:
    if first.force != other.force:
        return "forced"
    return "of a stronger source" if first.rank < other.rank else "said before it"


def shown(device: DeviceTarget) -> str:
    """`gpu:1`, `cpu`."""
    return device.type if device.index is None else f"{device.type}:{device.index}"
