"""A folder -> a Package: which dialect it speaks, its document as the one Workflow, its graphs' signatures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from genai_compiler.check.document import check_document
from genai_compiler.lower.bare_decoder import lower_bare
from genai_compiler.lower.composite import lower_composite
from genai_compiler.lower.config_encoder import lower_encoder
from genai_compiler.lower.config_plugin import lower_plugin
from genai_compiler.lower.config_transducer import lower_transducer
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.lower.iterative import is_iterative, lower_iterative
from genai_compiler.lower.lowered import LoweredGraph
from genai_compiler.lower.plain_folder import CONFIG, is_plain_folder, lower_plain
from genai_compiler.lower.single_front import processor_notes
from genai_compiler.problem import CompileError, Place, Problem, Severity, errors
from genai_compiler.read.absent import NOT_RUNNABLE, assumption, stand_in, with_flag
from genai_compiler.read.artifacts import ArtifactFault, find_artifact
from genai_compiler.read.below import hold_package_name, near_folder, not_a_package
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.document import Metadata, OnnxImplementation
from genai_compiler.read.files import METADATA_NAMES, find_metadata, read_document
from genai_compiler.read.genai_config import CONFIG_NAME, genai_config_of
from genai_compiler.read.identity import semantic_identity
from genai_compiler.read.negotiate import missing_of
from genai_compiler.read.ort_format import ort_files, ort_format
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.pipeline_text import speaks_pipeline
from genai_compiler.read.places import Places, format_path
from genai_compiler.read.prompt_chunk import stated_chunk, with_chunk
from genai_compiler.read.signature import load_graph, signature_of
from genai_compiler.read.text_facts import TextFacts, read_text_facts
from genai_compiler.read.textproto import is_textproto
from genai_compiler.read.validate import parse_bare, parse_composite, parse_metadata
from genai_compiler.read.wording import value_at

DOCUMENT_HELP = "--no-artifacts plans a document alone"
ALONE_HELP = f"only {METADATA_NAMES[0]} can be planned without its graphs, because it declares the ports"
WORKFLOW, GENAI_CONFIG, BARE, COMPOSITE = "workflow", "genai_config v1", "model.io", "pipeline.models"
GENAI_CONFIG_V2 = "genai_config v2"
PLAIN = "plain folder"


def load_package(root: Path, complete: bool = True, graph: str | Sequence[str] | None = None) -> Package:
    """Read the package in the folder `root`. Raises CompileError with everything that is wrong with it so far.

    complete: False stands in for files that are absent; `root` may then be a document alone. graph: the file (or
    files) to take of a folder that declares none.
    """
    hold_package_name(root)
    try:
        if not complete and _is_document(root):
            return _from_metadata(root.parent, root, complete)
        return _loaded(root, complete, (graph,) if isinstance(graph, str) else tuple(graph or ()))
    except CompileError as refused:
        if complete:
            raise
        raise CompileError(map(_needs_graphs, refused.problems)) from refused
    except PermissionError as refused:  # of a folder: files are asked for one by one
        what = f"'{refused.filename}' can't be read: {refused.strerror}"
        problem = Problem("unreadable-file", Place(root.name), "", what, "give yourself permission to read it")
        raise CompileError([problem]) from refused


def _is_document(root: Path) -> bool:
    """Whether a path is a document that may declare ports; a model's configuration and a graph are files of another."""
    return root.is_file() and root.name not in (CONFIG_NAME, CONFIG) and root.suffix != ".onnx"


def _needs_graphs(problem: Problem) -> Problem:
    """A file that is lacking although files may be absent: the dialect says nothing of its ports."""
    lacks = problem.code == "missing-file" and problem.severity is Severity.ERROR and not problem.help
    return replace(problem, help=f"copy the file in; {ALONE_HELP}") if lacks else problem


def _no_folder(root: Path) -> Problem:
    what = "is a file, not a folder" if root.exists() else "does not exist"
    help = "name the folder that holds inference_metadata.yaml or genai_config.json"
    if root.is_file():
        alone = f"give the folder, '{root.parent.as_posix()}'; {ALONE_HELP}"
        help = f"{help}; {DOCUMENT_HELP}" if _is_document(root) else alone
    near = near_folder(root)
    help = f"did you mean {near}? else {help}" if near else help
    return Problem("no-package", Place(root.name), "", f"the package '{root.as_posix()}' {what}", help)


def _loaded(root: Path, complete: bool, graphs: tuple[str, ...]) -> Package:
    if not root.is_dir():
        raise CompileError([_no_folder(root)])
    file = find_metadata(root)
    if file is None and not (root / CONFIG_NAME).exists() and (told := not_a_package(root)) is not None:
        raise CompileError([told])
    if (
        file is None
        and not (root / CONFIG_NAME).exists()
        and not any(any(root.glob(each)) for each in ("*.onnx*", "*/*.onnx*"))
    ):
        if others := ort_files(root):
            raise CompileError([ort_format(each) for each in others])
        what = f"'{root.resolve().name}' holds neither inference_metadata.yaml nor genai_config.json, nor any graph"
        raise CompileError([Problem("no-package", Place(root.resolve().name), "", what, "name the package's folder")])
    if file is None and not (root / CONFIG_NAME).exists() and is_plain_folder(root):
        places = Places(CONFIG)
        return _lowered(root, PLAIN, CONFIG, places, lower_plain(root, graphs))
    if graphs and (file is not None or (root / CONFIG_NAME).exists()):
        named = file.name if file is not None else CONFIG_NAME
        what = f"--graph {graphs[0]} chooses among graphs that nothing declares; {named} says which graphs there are"
        raise CompileError([Problem("graph-declared", Place(named), "", what, "leave --graph out")])
    return _from_metadata(root, file, complete) if file is not None else _from_genai_config(root)


def _from_metadata(root: Path, file: Path, complete: bool = True) -> Package:
    data, places = read_document(file, root)
    if value_at(data, ("pipeline",)) is None and value_at(data, ("model", "io")) and not (root / CONFIG_NAME).is_file():
        made = lower_bare(root, parse_bare(data, places), places)
        return _lowered(root, BARE, file.name, places, replace(made, chunk=stated_chunk(data, places)))
    if value_at(data, ("pipeline", "models")) and value_at(data, ("pipeline", "workflow")) is None:
        joined = parse_composite(data, places)
        lower = lower_iterative if is_iterative(joined.pipeline) else lower_composite
        parts = lower(root, joined, places)
        return _lowered(root, COMPOSITE, file.name, places, replace(parts, chunk=stated_chunk(data, places)))
    metadata = parse_metadata(data, places)
    if metadata.pipeline is None:
        if (root / CONFIG_NAME).is_file():
            return _from_genai_config(root)
        what = "the document has neither pipeline.workflow nor the ports of a decoder (model.io)"
        help = "declare pipeline.workflow, name the ports in model.io, or ship a genai_config.json beside the graph"
        raise CompileError([Problem("no-workflow", places.find(()), "", what, help)])
    try:
        graphs = _graphs(root, metadata, places, complete)
    except CompileError as unreadable:
        problems = (*check_document(metadata, places), *map(with_flag, unreadable.problems))
        raise CompileError((*problems, *missing_of(metadata, places))) from unreadable
    text, doubts = _text_facts(root, _vocabulary(graphs, metadata))
    if errors(doubts):
        raise CompileError((*check_document(metadata, places), *doubts, *missing_of(metadata, places)))
    return Package(
        root,
        WORKFLOW,
        file.name,
        metadata,
        places,
        graphs,
        text,
        warnings=doubts,
        identity=semantic_identity(data),
        title="" if file.name in METADATA_NAMES else file.stem,
        complete=complete,
        assumptions=tuple(_assumptions(graphs, metadata, complete)),
        chunk=stated_chunk(data, places),
    )


def _from_genai_config(root: Path) -> Package:
    if (root / CONFIG_NAME).is_file() and speaks_pipeline(root):
        made = lower_plugin(root) or lower_pipeline_config(root)
        return _lowered(root, GENAI_CONFIG_V2, CONFIG_NAME, Places(CONFIG_NAME), made)
    lowered = lower_encoder(root) or lower_transducer(root) or lower_genai_config(root)
    return _lowered(root, GENAI_CONFIG, CONFIG_NAME, Places(CONFIG_NAME), lowered)


def _lowered(root: Path, dialect: str, file: str, places: Places, lowered: LoweredGraph) -> Package:
    """The package whose document was made from another dialect's; places: where that one's values stand."""
    document = with_chunk(lowered.document, lowered.chunk)
    metadata = parse_metadata(document, places)
    return Package(
        root=root,
        dialect=dialect,
        document_file=file,
        metadata=metadata,
        places=places,
        graphs=_graphs(root, metadata, places),
        text=lowered.text,
        session=lowered.session_options,
        sampled_ids=lowered.sampled_ids,
        notes=(*lowered.notes, *processor_notes(root, lowered.document)),
        warnings=lowered.problems,
        hints=lowered.hints,
        lowered=document,
        chunk=lowered.chunk,
    )


def _text_facts(root: Path, vocabulary: int | None) -> tuple[TextFacts, tuple[Problem, ...]]:
    """Facts of the text files alone, and what is wrong with those that are there but can't be used.

    An authored workflow says itself what ends a row, and may do without text: neither is a problem.
    """
    empty, _ = genai_config_of(parse_config(b'{"model": {}}', CONFIG_NAME))
    facts, problems = read_text_facts(root, empty, vocabulary)
    files = tuple(each for each in problems if each.where.file != CONFIG_NAME)
    unreadable = tuple(each for each in files if each.code == "unreadable-file")
    ids = tuple(each for each in files if each.code == "bad-token-id")
    links = tuple(
        replace(each, severity=Severity.WARNING) for each in files if each.code in ("missing-file", "outside-package")
    )
    return facts, (*unreadable, *links, *ids)


def _vocabulary(graphs: Mapping[str, Graph], metadata: Metadata) -> int | None:
    """How many ids may be chosen from: the most that a decoder's logits have, else what the document states."""
    assert metadata.pipeline is not None
    widths = list[int]()
    for name, declared in metadata.pipeline.workflow.components.items():
        outputs = graphs[name].signature.outputs if name in graphs else ()
        last = [each.shape[-1] for each in outputs if declared.ports.roles.get(each.name) == "logits" and each.shape]
        widths += [each for each in last if isinstance(each, int)]
    stated = metadata.model.vocab_size if metadata.model is not None else None
    return max(widths, default=stated)


def _assumptions(graphs: Mapping[str, Graph], metadata: Metadata, complete: bool) -> Iterator[str]:
    assert metadata.pipeline is not None
    if not complete:
        yield NOT_RUNNABLE
    for name, graph in graphs.items():
        if graph.absent:
            yield assumption(name, graph, metadata.pipeline.workflow)


def _graphs(root: Path, metadata: Metadata, places: Places, complete: bool = True) -> dict[str, Graph]:
    """The graph of every ONNX component; each file is read once. Raises CompileError with every unreadable one.

    complete: False stands in for files that are absent.
    """
    assert metadata.pipeline is not None
    graphs: dict[str, Graph] = {}
    problems: list[Problem] = []
    files: dict[str, Graph] = {}
    for name, artifact in _artifacts(metadata):
        path = ("pipeline", "workflow", "components", name, "implementation", "artifact")
        try:
            found = find_artifact(root, artifact)
            if found.name not in files:
                files[found.name] = _graph(root, found.name, complete)
            graphs[name] = files[found.name]
        except ArtifactFault as fault:
            if fault.code == "missing-file" and not complete:
                graphs[name] = stand_in(name, artifact, metadata.pipeline.workflow)
            else:
                problems.append(fault.problem(places.find(path), format_path(path)))
        except CompileError as error:
            problems.extend(error.problems)
    if problems:
        raise CompileError(problems)
    return graphs


def _graph(root: Path, name: str, complete: bool) -> Graph:
    model = load_graph(root / name, root)
    return Graph(name, signature_of(model, name, root, weights=complete), model, is_textproto(name))


def _artifacts(metadata: Metadata) -> Iterator[tuple[str, str]]:
    assert metadata.pipeline is not None
    for name, component in metadata.pipeline.workflow.components.items():
        if isinstance(component.implementation, OnnxImplementation):
            yield name, component.implementation.artifact
