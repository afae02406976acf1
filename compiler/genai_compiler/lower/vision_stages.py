"""A v1 vision model that is cut into stages (`model.vision.pipeline`): patches, attention by windows, merger.

    patch embedding -> rows by windows -> attention -> merger -> groups in the order of the grid again

The caller gives pixels, rows of patches, and a grid a picture; a run takes one picture. The three stages stand in the
order of the text, each giving the next its only result (onnxruntime-genai, the stage pipeline of its vision models).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from genai_compiler.lower.config_decoder import graph_file
from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.matching import listed, rank_of, spell_port
from genai_compiler.lower.stage_chain import stage_component
from genai_compiler.lower.stages import Stage, StageInput, WindowOrder
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.config_pipeline import StageConfig
from genai_compiler.read.genai_components import COMPONENTS, ComponentConfig
from genai_compiler.read.genai_config import GenaiConfig, StagedVision, named
from genai_compiler.read.places import DocPath
from genai_compiler.read.port_names import PortNames
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of

VISION = "vision"
_ORDER = ("patch_embed", "vision_attn", "patch_merger")
_PATCH, _MERGE = 14, 2
"""The reference's patch_size and spatial_merge_size where nobody states them (onnxruntime-genai, config.h)."""
_GRID = "image_grid_thw"


@dataclass(frozen=True)
class VisionStages:
    """config: the package's, whose component `vision` is the last stage. stages: all three; edges: between them."""

    config: GenaiConfig
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class _Loaded:
    """A stage with its graph. output: its only result."""

    config: StageConfig
    artifact: str
    signature: Signature
    output: Port


@dataclass
class _Joining:
    config: GenaiConfig
    staged: StagedVision
    problems: list[Problem] = field(default_factory=list[Problem])

    def problem(self, code: str, path: DocPath, what: str, help: str = "") -> None:
        self.problems.append(Problem(code, *named(self.config, path), what, help))

    @property
    def pipeline(self) -> DocPath:
        return (*self.staged.vision.path, "pipeline")

    def grid(self, stages: list[_Loaded]) -> str:
        """The name of the grids: what a graph calls them, else what the file does."""
        names = self.staged.vision.inputs
        stated = names[_GRID]
        taken = {each.name for stage in stages for each in stage.signature.inputs}
        return next((each for each in (stated, _GRID) if each in taken), stated if _GRID in names.stated else _GRID)


def vision_stages(root: Path, config: GenaiConfig, taken: Collection[str]) -> VisionStages | None:
    """The stages of the package's vision model, None where it has none. taken: names of other components.

    Raises CompileError with every problem: unsupported-package-class, bad-value, missing-input, missing-output,
    unclaimed-input, wrong-port, and those of files.
    """
    staged = config.staged_vision
    if staged is None:
        return None
    joining = _Joining(config, staged)
    edge = _edge(joining)
    _check_order(joining)
    loaded = [found for each in staged.stages if (found := _load(root, joining, each)) is not None]
    if joining.problems:
        raise CompileError(joining.problems)
    last = loaded[-1]
    component = ComponentConfig(
        last.config.path,
        last.config.filename,
        PortNames({}, frozenset()),
        PortNames({"image_features": last.output.name}, frozenset()),
        None,
    )
    components = {**config.components, VISION: component}
    config = replace(config, components={each: components[each] for each in COMPONENTS if each in components})
    names, used = list[str](), {*taken, VISION}
    for each in loaded[:-1]:
        names.append(stage_component(each.config.name, used))
        used.add(names[-1])
    stages, edges = _joined(joining, loaded, (*names, VISION), edge)
    if joining.problems:
        raise CompileError(joining.problems)
    return VisionStages(config, stages, edges)


def _edge(joining: _Joining) -> int:
    """A window's edge in groups of patches: window_size div spatial_merge_size div patch_size."""
    numbers = joining.config.vision_numbers
    patch, merge = numbers.get("patch_size", _PATCH), numbers.get("spatial_merge_size", _MERGE)
    window = joining.staged.window or patch * merge * 2
    if window // merge // patch < 1:
        path = (*joining.staged.vision.path, "window_size")
        what = f"a window of {window} pixels holds no group of {merge} x {merge} patches of {patch} pixels"
        joining.problem("bad-value", path, what, f"state {merge * patch} or more")
    return window // merge // patch


def _check_order(joining: _Joining) -> None:
    names = tuple(each.name for each in joining.staged.stages)
    if len(names) != len(_ORDER):
        what = f"the vision model is cut into {len(names)} stage{'s' * (len(names) != 1)}: {listed(names)}"
        help = "three are known: patch embedding, attention by windows, merger; what others do to the rows is not told"
        joining.problem("unsupported-package-class", joining.pipeline, what, help)
    elif names != _ORDER and sorted(names) == sorted(_ORDER):
        what = f"the stages stand as {listed(names)}: they run in the order of the text, and their names tell another"
        joining.problem("bad-value", joining.pipeline, what, f"write them as {listed(_ORDER)}")


def _load(root: Path, joining: _Joining, stage: StageConfig) -> _Loaded | None:
    """A stage's graph and its only result; None with a problem of them."""
    artifact, fault = graph_file(root, joining.config, (*stage.path, "filename"), stage.filename)
    if fault is not None:
        joining.problems.append(fault)
        return None
    try:
        signature = signature_of(load_graph(root / artifact, root), artifact, root)
    except CompileError as error:
        joining.problems += error.problems
        return None
    given = {each.name: each for each in signature.outputs}
    for name in (each for each in stage.outputs if each not in given):
        what = f"the graph of stage {stage.name!r} has no output {name!r}"
        joining.problem("missing-output", (*stage.path, "outputs"), what, f"it has {listed(given)}")
        return None
    result = joining.staged.vision.outputs["image_features"]
    chosen = [result] if stage is joining.staged.stages[-1] and result in stage.outputs else list(stage.outputs)
    if len(chosen) != 1:
        what = f"stage {stage.name!r} lists {len(chosen)} outputs, and it is not told which of them the next one takes"
        joining.problem("unsupported-package-class", (*stage.path, "outputs"), what, f"list one of {listed(given)}")
        return None
    output = given[chosen[0]]
    if rank_of(output) not in (2, 3) or "float" not in output.dtype:
        what = f"stage {stage.name!r} gives {output.name!r} as {spell_port(output)}; rows are floats [rows, features]"
        joining.problem("wrong-port", (*stage.path, "outputs"), what, "export it with rows of features")
    return _Loaded(stage, artifact, replace(signature, outputs=(output,)), output)


def _joined(
    joining: _Joining, loaded: list[_Loaded], names: tuple[str, ...], edge: int
) -> tuple[tuple[Stage, ...], tuple[Edge, ...]]:
    grid, merge = joining.grid(loaded), joining.config.vision_numbers.get("spatial_merge_size", _MERGE)
    stages, edges = list[Stage](), list[Edge]()
    for at, (stage, name) in enumerate(zip(loaded, names, strict=True)):
        before = (loaded[at - 1], names[at - 1]) if at else None
        inputs = tuple(_inputs(joining, stage, name, before, grid, edges))
        orders = {0: False, len(loaded) - 1: True}
        order = WindowOrder(stage.output.name, grid, edge, merge, orders[at]) if at in orders else None
        stages.append(Stage(name, stage.artifact, stage.signature, inputs, "", order))
    return tuple(stages), tuple(edges)


def _inputs(
    joining: _Joining, stage: _Loaded, name: str, before: tuple[_Loaded, str] | None, grid: str, edges: list[Edge]
) -> Iterator[StageInput]:
    """A stage's inputs: pixels and grids of the caller, rows of the stage before. edges: to which its own is added."""
    path, first = (*stage.config.path, "inputs"), before is None
    others: dict[str, Port] = {}
    own = None
    for port in stage.signature.inputs:
        if port.name not in stage.config.inputs:
            what = f"stage {stage.config.name!r} does not list the input {port.name!r} of its graph: nothing feeds it"
            joining.problem("unclaimed-input", path, what, "list it")
        elif port.name == grid:
            own = port
        else:
            others[port.name] = port
    if own is not None and (own.dtype != "int64" or rank_of(own) != 2):
        what = f"stage {stage.config.name!r} takes {grid!r} as {spell_port(own)}; grids are int64 [pictures, 3]"
        joining.problem("wrong-port", path, what, "export it with these")
    if own is not None or first or name == VISION:  # what orders rows reads the grid, whether the graph does or not
        port = own or Port(grid, "int64", ("grids", 3))
        yield StageInput(port, f"application.{grid}", first, optional=True, shared=not first, beside=own is None)
    rows = before[0].output.name if before is not None else joining.staged.vision.inputs["pixel_values"]
    taken = others.pop(rows) if rows in others else others.pop(next(iter(others), ""), None)
    for port in others.values():
        what = f"stage {stage.config.name!r} takes {port.name!r}, {spell_port(port)}, and nothing is told to form it"
        help = f"beside rows of patches there are the grids, {grid!r}; export the stage with it inside"
        joining.problem("missing-input", path, what, help)
    if taken is None:
        names = listed(each.name for each in stage.signature.inputs)
        what = f"stage {stage.config.name!r} takes no rows: its graph's inputs are {names}"
        joining.problem("missing-input", path, what, "list the input for them")
    else:
        yield _rows(joining, stage, name, before, taken, edges)


def _rows(
    joining: _Joining, stage: _Loaded, name: str, before: tuple[_Loaded, str] | None, port: Port, edges: list[Edge]
) -> StageInput:
    """The input of a stage that takes pixels, or what the stage before gives."""
    path = (*stage.config.path, "inputs")
    if before is None:
        if "float" not in port.dtype or rank_of(port) != 2:
            what = f"stage {stage.config.name!r} takes {port.name!r} as {spell_port(port)}"
            joining.problem("wrong-port", path, what, "export it with pixels as rows of patches, float [patches, n]")
        return StageInput(port, f"application.{port.name}", asked=True, optional=True)
    source, maker = before
    edges.append(Edge(maker, source.output, name, port))
    if rank_of(port) is None or contradict(source.output, port):
        what = f"{source.output.name!r} is {spell_port(source.output)}, and stage {stage.config.name!r} takes "
        joining.problem("wrong-port", path, f"{what}{spell_port(port)}", "export stages that fit each other")
    return StageInput(port, edges[-1].value)
