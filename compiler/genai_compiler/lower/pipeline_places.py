"""Features that no graph of a version 2 pipeline takes, beside an embedding of token ids alone: they go over its rows.

    vision(pixels) -> features;  embedding(tokens) -> rows;  rows of the token for an entry <- features, in order

Exporters write such graphs where the model's own code puts features among embeddings between two of them.
"""

from dataclasses import dataclass, replace

from genai_compiler.lower.dataflow import Edge, contradict
from genai_compiler.lower.front_model import FrontModel
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.pipeline_edges import SessionGraphs
from genai_compiler.lower.placed_features import FLOATS, SINCE
from genai_compiler.problem import CompileError, Problem
from genai_compiler.read.pipeline_form import SESSIONS, PipelineForm
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.signature import Port


@dataclass(frozen=True)
class Placed:
    """edge: from the features to what takes them beside the tokens; token: the id that stands for an entry."""

    edge: Edge
    token: int

    def beside(self, front: FrontModel) -> FrontModel:
        """The embedding as a model that takes the features, too."""
        port = self.edge.input
        media, entries = ((port, f"media.{port.name}.given"),), ((port.name, self.token),)
        return replace(front, facts=replace(front.facts, media=media, entries=entries))


def placed_over(
    form: PipelineForm,
    graphs: SessionGraphs,
    edges: tuple[Edge, ...],
    decoder: str,
    front: FrontModel | None,
    kept: frozenset[str] = frozenset(),
) -> Placed | None:
    """What goes over the embedding's rows; None where it takes more than token ids, or not one session is left over.

    kept: sessions that are read behind the loop. Raises CompileError missing-key, bad-value, unsupported-package-class.
    """
    if front is None or len(graphs.signatures[front.facts.name].inputs) != 1:
        return None
    feeding = {*kept, *(each.source for each in edges)}
    loose = [each for each in form.running if each != decoder and each not in feeding]
    rows = front.facts.streams[0][0]
    outputs = graphs.signatures[loose[0]].outputs if len(loose) == 1 else ()
    found = [edge for made in outputs if (edge := over_rows(loose[0], made, front, rows)) is not None]
    if len(found) != 1:
        return None
    told = f"{found[0].output.name!r} of {loose[0]!r} goes over rows of '{front.facts.name}'"
    _hold(form, graphs, found[0], rows, told)
    return Placed(found[0], _token(form, told))


def over_rows(source: str, made: Port, front: FrontModel, rows: Port) -> Edge | None:
    """The edge of features that are as wide as rows, None where they are not."""
    taken = as_wide(made, rows)
    if taken is None:
        return None
    name = made.name if made.name != front.tokens.name else f"{made.name}.entries"
    return Edge(source, made, front.facts.name, replace(taken, name=name))


def as_wide(made: Port, rows: Port) -> Port | None:
    """What takes features [entries, width], or with an axis more, that could go over rows; None for other ports."""
    widths = [(each.shape or (None,))[-1] for each in (rows, made)]
    taken = Port(made.name, rows.dtype, ("entries", next((each for each in widths if isinstance(each, int)), None)))
    return taken if Edge("", made, "", taken).merges or not contradict(made, taken) else None


def _hold(form: PipelineForm, graphs: SessionGraphs, edge: Edge, rows: Port, told: str) -> None:
    path: DocPath = (*SESSIONS, edge.target)
    if rows.dtype not in FLOATS or not isinstance((edge.input.shape or (None,))[-1], int):
        what = f"{told}, {spell_port(rows)}, of which nothing says how wide a row is, or which are of no known type"
        raise _refused(form, "unsupported-package-class", path, what, f"export {' or '.join(FLOATS)} of a stated width")
    version = next((number for domain, number in graphs.signatures[edge.target].opsets if domain in ("", "ai.onnx")), 0)
    if version < SINCE:
        what = f"{told}, and its graph is of version {version} of ONNX's operators: entries are counted by CumSum"
        raise _refused(form, "unsupported-package-class", path, what, f"export it with version {SINCE} or later")


def _token(form: PipelineForm, told: str) -> int:
    """The id that stands for an entry: the file's only one."""
    stated = {
        "image_token": form.text.document.tokens.image_token,
        "audio_token": form.text.document.tokens.audio_token,
    }
    found = {key: each for key, each in stated.items() if each is not None}
    what = f"{told}, where a token stands for an entry, and "
    if len(found) != 1:
        what += "nobody says which token" if not found else "the file names one for pictures and one for sounds"
        help = 'state its id as "tokens": {"image_token": ID}, or as "audio_token" for sounds'
        raise _refused(form, "missing-key" if not found else "bad-value", ("tokens",), what, help)
    ((key, token),) = found.items()
    if token < 0:
        raise _refused(form, "bad-value", ("tokens", key), f"{what}{token} is none: ids count from 0", "correct it")
    return token


def _refused(form: PipelineForm, code: str, path: DocPath, what: str, help: str) -> CompileError:
    return CompileError([Problem(code, form.text.places.find(path), format_path(path), what, help)])
