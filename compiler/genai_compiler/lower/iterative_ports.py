"""The loop of an iterative strategy in the graphs that it names: what is carried, what is estimated, what decodes.

An edge of the denoiser to itself is the loop; one from it to another model hands on the latents that the loop ends
with, whichever of the two ports it names.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from genai_compiler.lower.dataflow import Edge, resolve_dataflow
from genai_compiler.lower.denoising_loop import FLOATS
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.model_graphs import MODELS, ModelGraphs
from genai_compiler.problem import CompileError, Problem, Severity, errors
from genai_compiler.read.composite import CompositeDocument, Strategy
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port
from genai_compiler.read.suggest import did_you_mean
from genai_compiler.read.weight_width import weight_width

STRATEGY: DocPath = ("pipeline", "strategy")
_DATAFLOW: DocPath = ("pipeline", "dataflow")
_TIMES = (*FLOATS, "int64", "int32")


@dataclass(frozen=True)
class LoopPorts:
    """sample: the denoiser's input for latents; estimate: its output; timestep: its input for the timestep.

    latents: model -> the input that takes the latents at the end. edges: between models, apart from all these.
    """

    denoiser: str
    sample: Port
    estimate: Port
    timestep: Port
    latents: dict[str, Port]
    edges: tuple[Edge, ...]


@dataclass
class Finding:
    """The reading under way, and its problems."""

    document: CompositeDocument
    graphs: ModelGraphs
    places: Places
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def strategy(self) -> Strategy:
        return self.document.pipeline.strategy

    def report(self, code: str, path: DocPath, what: str, help: str, warning: bool = False) -> None:
        """Note a problem of the value at `path`."""
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Problem(code, self.places.find(path), format_path(path), what, help, severity))

    def of_strategy(self, code: str, keys: tuple[str, ...], what: str, help: str, warning: bool = False) -> None:
        """Note a problem of a value below `pipeline.strategy`."""
        self.report(code, (*STRATEGY, *keys), what, help, warning)

    def ports(self, model: str, side: str) -> dict[str, Port]:
        signature = self.graphs.signatures[model]
        return {each.name: each for each in (signature.inputs if side == "input" else signature.outputs)}


def find_ports(finding: Finding) -> LoopPorts | None:
    """The loop's ports, None after a report. Raises CompileError where nothing else can be looked at.

    Reports missing-field, unknown-component, missing-input, missing-output, wrong-port, untyped-port,
    config-contradicts-graph, and those of other edges.
    """
    denoiser = finding.strategy.denoiser
    if denoiser is None or denoiser not in finding.graphs.signatures:
        known = finding.graphs.signatures
        what, help = "'denoiser' is missing: nothing says which model the loop runs", f"name one of {listed(known)}"
        if denoiser is not None:
            what, help = f"the denoiser '{denoiser}' is no model of pipeline.models", did_you_mean(denoiser, known)
        code = "missing-field" if denoiser is None else "unknown-component"
        finding.of_strategy(code, () if denoiser is None else ("denoiser",), what, help)
        raise CompileError(finding.problems)
    loops, ends = _own_edges(finding, denoiser)
    edges, found = resolve_dataflow(
        finding.document.pipeline, finding.graphs.signatures, finding.places, frozenset((*loops, *ends))
    )
    finding.problems.extend(found)
    carried = _carried(finding, denoiser, loops)
    timestep = _timestep(finding, denoiser)
    _widths(finding, denoiser)
    if carried is None:
        return None
    sample, estimate = carried
    _alike(finding, loops[0], denoiser, sample, estimate)
    latents = dict(_decoders(finding, denoiser, ends, sample, estimate))
    if timestep is None or errors(finding.problems):
        return None
    return LoopPorts(denoiser, sample, estimate, timestep, latents, edges)


def _own_edges(finding: Finding, denoiser: str) -> tuple[list[int], list[int]]:
    """Entries of dataflow: from the denoiser to itself, and from it to others."""
    models = [
        (flow.source.partition(".")[0], flow.target.partition(".")[0]) for flow in finding.document.pipeline.dataflow
    ]
    loops = [at for at, (source, target) in enumerate(models) if source == target == denoiser]
    return loops, [at for at, (source, target) in enumerate(models) if source == denoiser != target]


def _carried(finding: Finding, denoiser: str, loops: list[int]) -> tuple[Port, Port] | None:
    if len(loops) != 1:
        what = f"{len(loops) or 'no'} edges lead from '{denoiser}' to itself: one says what it takes and estimates"
        help = f"write one, from {denoiser}.<its estimate> to {denoiser}.<its latents>"
        finding.report("missing-field" if not loops else "wrong-port", _DATAFLOW, what, help)
        return None
    flow = finding.document.pipeline.dataflow[loops[0]]
    estimate = _named(finding, (loops[0], "from"), flow.source, "output")
    sample = _named(finding, (loops[0], "to"), flow.target, "input")
    return (sample, estimate) if sample is not None and estimate is not None else None


def _named(finding: Finding, key: tuple[int, str], end: str, side: str) -> Port | None:
    """The port that an end of an edge names."""
    model, _, name = end.partition(".")
    if model not in finding.graphs.signatures:
        known = finding.graphs.signatures
        finding.report(
            "unknown-component", (*_DATAFLOW, *key), f"'{model}' is no model of pipeline.models",
            did_you_mean(model, known),
        )  # fmt: skip
        return None
    ports = finding.ports(model, side)
    if name not in ports:
        help = did_you_mean(name, ports) or f"its {side}s are {listed(ports)}"
        what = f"the graph of '{model}' has no {side} '{name}'"
        finding.report(f"missing-{side}", (*_DATAFLOW, *key), what, help)
    return ports.get(name)


def _timestep(finding: Finding, denoiser: str) -> Port | None:
    """The input for the timestep: named, or else the denoiser's only one with one number a row."""
    inputs, name = finding.ports(denoiser, "input"), finding.strategy.timestep_input
    if name is None:
        found = [each for each in inputs.values() if rank_of(each) in (0, 1) and each.dtype in _TIMES]
        if len(found) == 1:
            return found[0]
        what = f"'timestep_input' is missing, and {len(found) or 'no'} inputs of '{denoiser}' could take the timestep"
        finding.of_strategy("missing-field", (), what, f"name one of {listed(inputs)}")
        return None
    if name not in inputs:
        help = did_you_mean(name, inputs) or f"its inputs are {listed(inputs)}"
        what = f"the graph of '{denoiser}' has no input '{name}'"
        finding.of_strategy("missing-input", ("timestep_input",), what, help)
        return None
    port = inputs[name]
    fixed = port.shape[0] if port.shape else None
    if port.dtype not in _TIMES or rank_of(port) not in (0, 1) or (isinstance(fixed, int) and fixed != 1):
        what = f"'{name}' is {spell_port(port)}; a timestep is one number, or one a row"
        finding.of_strategy("wrong-port", ("timestep_input",), what, "name the input that takes it")
        return None
    return port


def _alike(finding: Finding, at: int, denoiser: str, sample: Port, estimate: Port) -> None:
    """Hold what is estimated against what is carried: their types, ranks and channels."""
    path, sound = (*_DATAFLOW, at), True
    for port in (sample, estimate):
        if "undefined" in port.dtype or port.shape is None:
            lacks = "neither type nor shape" if "undefined" in port.dtype else "no shape"
            what = f"the graph of '{denoiser}' gives '{port.name}' {lacks}: nothing tells whether a step fits"
            finding.report("untyped-port", path, what, "export it with its type and its axes")
            sound = False
        elif port.dtype not in FLOATS or len(port.shape) < 2:
            what = f"'{port.name}' is {spell_port(port)}, and latents are numbers [rows, ...]"
            finding.report("wrong-port", path, what, "name the port of the latents")
            sound = False
    if sound and _differ(sample, estimate):
        what = f"'{estimate.name}' is {spell_port(estimate)} for latents {spell_port(sample)}: a step needs one of each"
        finding.report("wrong-port", path, what, "export the estimate alone, without a learned variance")


def _differ(one: Port, other: Port) -> bool:
    """Whether two ports for latents can't be of one shape; their types may differ."""
    first, second = one.shape or (), other.shape or ()
    pairs = zip(first, second, strict=False)
    return len(first) != len(second) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _decoders(
    finding: Finding, denoiser: str, ends: list[int], sample: Port, estimate: Port
) -> Iterator[tuple[str, Port]]:
    """(model, input) of every edge that hands on the latents."""
    taken: set[str] = set()
    for at in ends:
        flow = finding.document.pipeline.dataflow[at]
        port = _named(finding, (at, "to"), flow.target, "input")
        name, model = flow.source.partition(".")[2], flow.target.partition(".")[0]
        if name not in (sample.name, estimate.name):
            what = f"'{denoiser}.{name}' is not what the loop carries"
            help = f"write {denoiser}.{sample.name}: the latents that it ends with"
            finding.report("missing-output", (*_DATAFLOW, at, "from"), what, help)
        elif port is not None and (port.dtype not in FLOATS or _differ(sample, port)):
            what = f"'{model}.{port.name}' takes {spell_port(port)}, and the latents are {spell_port(sample)}"
            finding.report("wrong-port", (*_DATAFLOW, at), what, "export both for one kind of latents")
        elif port is not None and model in taken:
            finding.report("wrong-port", (*_DATAFLOW, at), f"'{model}' takes the latents twice", "keep one edge")
        elif port is not None:
            taken.add(model)
            yield model, port


def _widths(finding: Finding, denoiser: str) -> None:
    """Report inputs of fixed width whose weights take another: such a graph can't run, whatever feeds it."""
    for port in finding.ports(denoiser, "input").values():
        width = port.shape[-1] if port.shape and len(port.shape) > 1 else None
        wanted = weight_width(finding.graphs.models[denoiser].graph, port.name)
        if isinstance(width, int) and wanted is not None and wanted[1] not in (0, width):
            what = (
                f"the graph of '{denoiser}' declares '{port.name}' {width} wide, and multiplies it with "
                f"'{wanted[0]}', which takes {wanted[1]}"
            )
            help = "export it again, with the width that its weights were made for"
            finding.report("config-contradicts-graph", (*MODELS, denoiser, "filename"), what, help)
