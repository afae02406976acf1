"""`pipeline.dataflow` of a document from before workflows, resolved against the graphs that it joins.

An end that the graph lacks is found where exactly one port fits; the false name is reported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_compiler.lower.decoder_facts import component_of
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.composite import CompositePipeline
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port, Signature
from genai_compiler.read.suggest import did_you_mean

DATAFLOW: DocPath = ("pipeline", "dataflow")


@dataclass(frozen=True)
class Edge:
    """One model's output that is another's input."""

    source: str
    output: Port
    target: str
    input: Port

    @property
    def merges(self) -> bool:
        """Whether the output has one axis more: its first two go in as one, in order."""
        return _one_more_axis(self.output, self.input)

    @property
    def value(self) -> str:
        """The workflow value of the output."""
        return f"{component_of(self.source)}.{self.output.name}"


@dataclass
class _Resolving:
    pipeline: CompositePipeline
    signatures: Mapping[str, Signature]
    places: Places
    problems: list[Problem]
    apart: frozenset[int] = frozenset()

    def report(self, code: str, key: tuple[str | int, ...], what: str, help: str, warning: bool = False) -> None:
        path = (*DATAFLOW, *key)
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Problem(code, self.places.find(path), format_path(path), what, help, severity))


def resolve_dataflow(
    pipeline: CompositePipeline,
    signatures: Mapping[str, Signature],
    places: Places,
    apart: frozenset[int] = frozenset(),
) -> tuple[tuple[Edge, ...], tuple[Problem, ...]]:
    """Every edge whose ends are in the graphs. apart: entries of `dataflow` that are a loop's own, and no edges here.

    Problems: unknown-component, missing-output, missing-input, wrong-port, cyclic-dataflow; config-contradicts-graph
    (a warning) for an output that goes by another name.
    """
    resolving = _Resolving(pipeline, signatures, places, [], apart)
    edges = tuple(_edges(resolving))
    if loop := _cycle(edges):
        what = f"the models feed each other in a circle: {' -> '.join(loop)}"
        resolving.report("cyclic-dataflow", (), what, "a value can't be needed before it is made: leave one edge out")
    fed = [(each.target, each.input.name) for each in edges]
    for target, port in sorted(each for each, count in Counter(fed).items() if count > 1):
        what = f"two values are joined to '{target}.{port}'"
        resolving.report("wrong-port", (), what, "keep one")
    return edges, tuple(resolving.problems)


def _edges(resolving: _Resolving) -> Iterator[Edge]:
    for at, flow in enumerate(resolving.pipeline.dataflow):
        if at in resolving.apart:
            continue
        source, _, output = flow.source.partition(".")
        target, _, name = flow.target.partition(".")
        known = True
        for key, model in (("from", source), ("to", target)):
            if model not in resolving.signatures:
                what = f"'{model}' is no model of pipeline.models"
                resolving.report("unknown-component", (at, key), what, did_you_mean(model, resolving.signatures))
                known = False
        if not known:
            continue
        inputs = {each.name: each for each in resolving.signatures[target].inputs}
        if name not in inputs:
            what = f"the graph of '{target}' has no input '{name}'"
            help = did_you_mean(name, inputs) or f"its inputs are {listed(inputs)}"
            resolving.report("missing-input", (at, "to"), what, help)
            continue
        made = _output(resolving, at, source, output, inputs[name])
        if made is None:
            continue
        spelled = f"'{source}.{made.name}' is {spell_port(made)}, '{target}.{name}' takes {spell_port(inputs[name])}"
        if _one_more_axis(made, inputs[name]):
            what = f"{spelled}; its first two axes go in as one, in order"
            resolving.report("config-contradicts-graph", (at,), what, "export both with one rank", True)
        elif contradict(made, inputs[name]):
            resolving.report("wrong-port", (at,), spelled, "join ports of one dtype and rank")
            continue
        yield Edge(source, made, target, inputs[name])


def _output(resolving: _Resolving, at: int, source: str, name: str, target: Port) -> Port | None:
    """The output that an edge starts from: by its name, else the only one that fits its other end and is not taken."""
    outputs = {each.name: each for each in resolving.signatures[source].outputs}
    if name in outputs:
        return outputs[name]
    ends = [each.source.partition(".") for each in resolving.pipeline.dataflow]
    taken = {output for model, _, output in ends if model == source}
    fits = [each for each in outputs.values() if each.name not in taken and not contradict(each, target)]
    if len(fits) == 1:
        what = f"the graph of '{source}' has no output '{name}'; its only output that fits, '{fits[0].name}', is taken"
        resolving.report("config-contradicts-graph", (at, "from"), what, "correct the document", True)
        return fits[0]
    what = f"the graph of '{source}' has no output '{name}'"
    help = did_you_mean(name, outputs) or f"its outputs are {listed(outputs)}"
    resolving.report("missing-output", (at, "from"), what, help)
    return None


def contradict(output: Port, input: Port) -> bool:
    """Whether dtype, rank or a fixed extent differ, as far as both graphs say them."""
    if "undefined" not in output.dtype and output.dtype != input.dtype:
        return True
    if rank_of(output) is None or rank_of(input) is None:
        return False
    pairs = list(zip(output.shape or (), input.shape or (), strict=False))
    return rank_of(output) != rank_of(input) or any(
        isinstance(made, int) and isinstance(taken, int) and made != taken for made, taken in pairs
    )


def _one_more_axis(output: Port, input: Port) -> bool:
    """Whether [a, b, ...] goes where [entries, ...] is taken, as far as both graphs say them."""
    if output.dtype != input.dtype or not output.shape or not input.shape or len(output.shape) != len(input.shape) + 1:
        return False
    inner = list(zip(output.shape[2:], input.shape[1:], strict=True))
    open_axis = not isinstance(input.shape[0], int)
    return open_axis and all(made == taken for made, taken in inner if isinstance(made, int) or isinstance(taken, int))


def _cycle(edges: tuple[Edge, ...]) -> tuple[str, ...]:
    """Models that need each other, () when there is an order in which all can run."""
    needs: dict[str, set[str]] = {}
    for each in edges:
        needs.setdefault(each.target, set()).add(each.source)
        needs.setdefault(each.source, set())
    while free := [name for name, sources in needs.items() if not sources]:
        needs = {name: sources - set(free) for name, sources in needs.items() if name not in free}
    return tuple(sorted(needs))


def in_order(models: tuple[str, ...], edges: tuple[Edge, ...]) -> tuple[str, ...]:
    """The models, each behind those that feed it; else as the document lists them. Without circles."""
    done: list[str] = []
    while left := [name for name in models if name not in done]:
        sources = {name: {each.source for each in edges if each.target == name} & set(left) for name in left}
        done.append(next((name for name in left if not sources[name]), left[0]))
    return tuple(done)
