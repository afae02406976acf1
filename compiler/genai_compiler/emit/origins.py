"""What a package's own document says of each step of the workflow, for messages of a run and for traces.

    pipeline.workflow.steps[0].steps[0]  ->  genai_config.json:16 model.decoder.filename

An authored workflow's steps stand where they are written. Of a lowered one a step that runs a graph stands where the
document names the graph's file; one of the runtime's own at the section that speaks of it, or at the section of the
graph beside it; what nobody speaks of is told as the file that it was found in.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile

from genai_compiler.emit.own_places import (
    ADAPTED,
    COMPONENT,
    SECTIONS,
    Kind,
    own_document,
    sampling_place,
)
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Decode, Emit, Fused, Hold, Invoke, Op, Plan, SelectToken, SpeculativeBlock
from genai_compiler.plan.ir import StartPolicy as Start
from genai_compiler.plan.uses import walk
from genai_compiler.read.package import Package
from genai_compiler.read.places import DocPath, Spot, format_path


def origins(plan: Plan, package: Package) -> dict[str, str]:
    """Path of a step -> its place in the package's own document: file, line and path.

    A component that runs within the step of another one has an entry of its own: `<path> (component 'front')`. So has
    a linked graph, `<path> (component 'island_1')`, with the places of all its members in order, ", " between them.
    """
    found = _Lowered(plan, package).found() if package.lowered else _authored(plan, package)
    return dict(sorted(found.items()))


def text_origin(plan: Plan) -> str:
    """The path of the step that publishes the tokens which text is made of, "" where no step does."""
    tokens = {each.name for each in plan.outputs if each.role == "tokens"}
    return next((op.origin for op in walk(plan.body) if isinstance(op, Emit) and op.output in tokens), "")


def _members(plan: Plan, name: str, path: str) -> Iterator[tuple[str, str]]:
    """(component, path of its step) of all that a component's graph was linked of, in order; itself, if of nothing."""
    edit = plan.component(name).edit
    if not isinstance(edit, Linked):
        yield name, path
        return
    own = {component for component, _ in edit.own}
    for each in edit.members:
        step = dict(zip(edit.members[0].origins, each.origins, strict=False)).get(path, path)
        if each.component == name:  # a graph with one of the compiler's own behind it
            yield name, step
        elif each.component not in own:
            yield from _members(plan, each.component, step)


def _authored(plan: Plan, package: Package) -> dict[str, str]:
    steps = {each[:2]: each[2] for each in _linked_steps(plan)}
    wanted = {path for op in walk(plan.body) for path, _, _ in _steps(op)} | {path for path, _ in _proposer(plan)}
    wanted |= {path for places in steps.values() for _, path in places}
    wanted.discard("")  # what stands at no step: else it would be told to be the whole document
    spots = package.places.root
    known = _paths(spots, ()) if spots is not None else ()
    found = {text: f"{package.places.find(path)} {text}" for path in known if (text := format_path(path)) in wanted}
    return found | dict(_entries(steps, lambda _, path: found.get(path, "")))


def _linked_steps(plan: Plan) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """(path, component, its members) wherever a linked graph runs; with the prompt another one may run."""
    steps = [(path, name) for op in walk(plan.body) for path, _, name in _steps(op)]
    facts = plan.decoder
    prompts = [(path, facts.prompt_component) for path, name in steps if facts is not None and name == facts.component]
    for path, name in dict.fromkeys((*steps, *prompts, *_proposer(plan))):
        if name and path and isinstance(plan.component(name).edit, Linked):
            for session in plan.component(name).sessions:
                yield path, session, list(_members(plan, name, path))


def _entries(
    steps: Mapping[tuple[str, str], list[tuple[str, str]]], told: Callable[[str, str], str]
) -> Iterator[tuple[str, str]]:
    """Linked graphs' own entries. told: the place of a component and its path, "" for none."""
    for (path, session), linked in steps.items():
        if places := ", ".join(dict.fromkeys(filter(None, (told(*each) for each in linked)))):
            yield f"{path} (component '{session}')", places


def _paths(spot: Spot, path: DocPath) -> Iterator[DocPath]:
    yield path
    for key, (_, _, inner) in (spot.entries or {}).items():
        yield from _paths(inner, (*path, key))
    for at, inner in enumerate(spot.items or ()):
        yield from _paths(inner, (*path, at))


def _steps(op: Op) -> Iterator[tuple[str, Op, str]]:
    """(path, op, component that it runs, "" for none) of the steps that an op is."""
    match op:
        case SpeculativeBlock():
            yield op.decode.origin, op, op.decode.component
            yield op.select.origin, op.select, ""
        case Fused() | Hold():
            yield op.origin, op, op.run.component
        case Invoke() | Decode():
            yield op.origin, op, op.component
        case _:
            yield op.origin, op, ""


def _proposer(plan: Plan) -> Iterator[tuple[str, str]]:
    """(path, component) of what drafts tokens."""
    if plan.speculation is not None and plan.speculation.drafting is not None:
        yield plan.speculation.drafting.origin, plan.speculation.proposer


class _Lowered:
    """Places of the steps of a workflow that was made of `own`."""

    def __init__(self, plan: Plan, package: Package) -> None:
        self.plan, self.package, self.own = plan, package, own_document(package)
        self.named = self.own.files()
        self.sections = SECTIONS.get(package.dialect, {})
        self.tokens = text_origin(plan)

    def found(self) -> dict[str, str]:
        steps = [each for op in walk(self.plan.body) for each in _steps(op) if each[0]]
        graphs = {path: name for path, _, name in reversed(steps) if self.artifact(name)}
        order = {path: at for at, path in enumerate(dict.fromkeys(path for path, _, _ in steps))}
        made: dict[str, str] = {}
        for path, op, name in steps:
            if path in graphs:
                made[path] = self.of_graph(graphs[path])
            elif path not in made or name:
                made[path] = self.of_step(op, name, path) or self.beside(path, graphs, order)
        made |= {path: self.of_graph(name) for path, name in _proposer(self.plan)}
        linked = {each[:2]: each[2] for each in _linked_steps(self.plan)}
        return made | dict(self.within(steps)) | dict(_entries(linked, lambda name, _: self.of_graph(name)))

    def within(self, steps: list[tuple[str, Op, str]]) -> Iterator[tuple[str, str]]:
        """Components that run within the decoder's step."""
        facts = self.plan.decoder
        if facts is not None and facts.front is not None:
            for path in {path for path, _, name in steps if name == facts.component}:
                yield f"{path} (component '{facts.front.component}')", self.of_graph(facts.front.component)

    def artifact(self, name: str) -> str:
        """The file of the graph that a component is, "" for none; of linked ones the first."""
        if not name:
            return ""
        component = self.plan.component(name)
        if isinstance(component.edit, Linked) and component.edit.members:
            return self.plan.component(component.edit.members[0].component).artifact
        return component.artifact

    def path_of(self, name: str) -> DocPath:
        """Where the document names the graph's file, () where it does not."""
        return self.named.get(posixpath.normpath(self.artifact(name)), ())

    def of_graph(self, name: str) -> str:
        path = self.path_of(name)
        if path:
            return self.own.told(path)
        return self.section("graph", name) or self.artifact(name)

    def section(self, kind: Kind, name: str = "") -> str:
        """The first section that speaks of such a step, "" in a dialect that has none."""
        wanted = [tuple(name if each == COMPONENT else each for each in path) for path in self.sections.get(kind, ())]
        return self.own.first(wanted) if wanted else ""

    def of_step(self, op: Op, name: str, path: str) -> str:
        """A step without a graph, where the document speaks of it."""
        if isinstance(op, SelectToken | Start):
            return self.section("choose") or sampling_place(self.package) or self.own.file
        if path == self.tokens:
            return self.section("emit") or self.package.text.tokenizer or ""
        adapter = self.plan.component(name).adapter if name else None
        wanted = ADAPTED.get(adapter.abi) if adapter is not None else None
        return self.own.told(wanted) if wanted and self.own.holds(wanted) else ""

    def beside(self, path: str, graphs: Mapping[str, str], order: Mapping[str, int]) -> str:
        """The section of the graph that runs within the step or nearest to it: in its block, and rather behind it."""
        if not graphs:
            return self.own.file
        away = {each: order[each] - order[path] for each in graphs}
        nearest = max(graphs, key=lambda each: (_shared(path, each), away[each] > 0, -abs(away[each])))
        named = self.path_of(graphs[nearest])
        return self.own.told(named[:-1]) if len(named) > 1 else self.of_graph(graphs[nearest])


def _shared(one: str, other: str) -> int:
    """How many parts of two paths are the same from the start."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
