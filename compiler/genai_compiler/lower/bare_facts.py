"""What a `model.io` document says beside the names of ports, held against the graph: every false word is a warning.

Nothing here decides anything: the graph is what runs.
"""

from collections.abc import Iterator

from genai_compiler.lower.match_io import IoPorts
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.bare import BareDocument, BareIo, PortNote
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port, Signature

_SPELLED = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp64": "float64"}
_OF_CACHES = frozenset({"kv_cache", "grouped_query_attention", "multi_head_attention"})
_DIGITS = 12
Document = BareDocument | CompositeDocument
Doubt = tuple[DocPath, str, str]


def document_doubts(
    document: Document, io: BareIo, path: DocPath, signature: Signature, ports: IoPorts, places: Places
) -> tuple[Problem, ...]:
    """Warnings config-contradicts-graph: notes on ports, the caches' dtype, capabilities without a use."""
    return tuple(
        Problem("config-contradicts-graph", places.find(place), format_path(place), what, help, Severity.WARNING)
        for place, what, help in (
            *note_doubts(io.inputs, signature.inputs, (*path, "inputs")),
            *note_doubts(io.outputs, signature.outputs, (*path, "outputs")),
            *_dtype(document, ports),
            *_capabilities(document, ports),
        )
    )


def note_doubts(notes: tuple[PortNote, ...], ports: tuple[Port, ...], path: DocPath) -> Iterator[Doubt]:
    """Where notes on ports (under `path`) differ from the ports that a graph has."""
    found = {each.name: each for each in ports}
    for at, note in enumerate(notes):
        port = found.get(note.name)
        if port is None:
            yield (*path, at), f"the graph has no port {note.name!r}", "correct the document"
        elif fault := _difference(note, port):
            yield (*path, at), f"{note.name!r} is said to have {fault}; the graph is taken", "correct the document"


def _difference(note: PortNote, port: Port) -> str:
    """What the note says that the port has not, "" when they agree as far as both speak."""
    dtype = _SPELLED.get(note.dtype or "", note.dtype)
    if dtype is not None and port.dtype != "undefined" and dtype != port.dtype:
        return f"dtype {note.dtype}, but the graph has {port.dtype}"
    rank = len(note.shape) if note.shape is not None else note.rank
    if rank is not None and port.shape is not None and rank != len(port.shape):
        return f"rank {rank}, but the graph has {len(port.shape)}"
    for axis, (said, real) in enumerate(zip(note.shape or (), port.shape or (), strict=False)):
        number = int(said) if isinstance(said, str) and said.isdecimal() and len(said) < _DIGITS else said
        if isinstance(number, int) and isinstance(real, int) and number != real:
            return f"extent {number} on axis {axis}, but the graph has {real}"
    return ""


def _dtype(document: Document, ports: IoPorts) -> Iterator[Doubt]:
    said = document.kv_cache.native_dtype if document.kv_cache is not None else None
    caches = {each.past.dtype for each in (*ports.decoder.keys, *ports.decoder.values)}
    caches |= {each.dtype for each in (ports.static.states if ports.static is not None else ())}
    if said is not None and caches and caches != {_SPELLED.get(said, said)}:
        what = f"native_dtype is {said}, but the graph's caches are {' and '.join(sorted(caches))}; the graph is taken"
        yield ("kv_cache", "native_dtype"), what, "correct the document"


def _capabilities(document: Document, ports: IoPorts) -> Iterator[Doubt]:
    """A document that asks for caches or for an attention, over a graph that has neither."""
    if ports.decoder.keys or ports.decoder.values or ports.static is not None:
        return
    for at, each in enumerate(document.required_capabilities):
        if each in _OF_CACHES:
            what = f"{each!r} is required, but the graph has no attention cache; it asks for nothing"
            yield ("required_capabilities", at), what, "leave it out"
