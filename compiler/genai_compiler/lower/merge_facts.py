"""Numbers of the configuration and of the graph brought together; where they contradict each other the graph wins.

Each contradiction is one warning that says who said what and which was taken.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from genai_compiler.lower.decoder_facts import Aliasing, CrossState, PagedState, StatePort
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.matching import spell_port
from genai_compiler.lower.row_forms import rows_axis
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.attention import CacheOp, writes_in_place
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.signature import Port, Signature

FALLBACK_LENGTH = 4096  # the standard's, where nobody says (section 10.3)


@dataclass
class Merge:
    """The two sources, and the problems found so far."""

    stated: Stated
    signature: Signature
    problems: list[Problem] = field(default_factory=list)

    def report(self, code: str, path: DocPath, what: str, help: str = "", error: bool = False) -> None:
        severity = Severity.ERROR if error else Severity.WARNING
        self.problems.append(Problem(code, self.stated.place(path), format_path(path), what, help, severity))

    def path(self, fact: Fact) -> DocPath:
        """Where the document states, or would state, a fact."""
        return self.stated.paths[fact]

    def proven_head_size(self, past: str) -> int | None:
        """The head size of a cache by the weights behind its operator, None where they do not tell."""
        for op in self.signature.cache_ops:
            if past in (op.past_key, op.past_value):
                return op.head_sizes[past == op.past_value]
        return None

    def contradiction(self, path: DocPath, stated: object, graph: str) -> None:
        """The configuration states one thing, the graph another."""
        what = f"{path[-1]} is {stated} here, but {graph}; the graph is taken"
        self.report("config-contradicts-graph", path, what, "correct the configuration")


def merge_states(ports: MatchedPorts, merge: Merge) -> tuple[StatePort, ...]:
    """The caches in (layer, key before value) order, every extent a number.

    Reports: contradictions of num_key_value_heads, head_size and num_hidden_layers; wrong-port; unknown-state-shape;
    mixed-capacity.
    """
    found = [_state("key", each, merge) for each in ports.keys] + [
        _state("value", each, merge) for each in ports.values
    ]
    states = tuple(sorted((each for each in found if each is not None), key=lambda each: (each.layer, each.role)))
    if states and len(states) == len(found):
        check_sizes(states, merge)
        check_layers(ports, merge)
        bounded = {name for op in merge.signature.cache_ops if op.bounded for name in (op.past_key, op.past_value)}
        _check_capacities(tuple(each for each in states if each.input not in bounded), merge)
    elif not found and ports.fixed:
        check_layers(ports, merge)
    return states


def merge_crossed(ports: tuple[LayerPorts, ...], merge: Merge) -> tuple[CrossState, ...]:
    """Caches over what an encoder made, every extent but their length a number. ports: key and value in turns."""
    found = (_state("value" if at % 2 else "key", each, merge) for at, each in enumerate(ports))
    return tuple(CrossState(**vars(each)) for each in found if each is not None)


def _state(role: Literal["key", "value"], ports: LayerPorts, merge: Merge) -> StatePort | None:
    past, present = ports.past, ports.present
    path = merge.path(role)
    if past.shape is None or len(past.shape) != 4 or past.dtype != present.dtype:
        what = f"cache {past.name!r} is {spell_port(past)}, its output {present.name!r} {spell_port(present)}"
        merge.report("wrong-port", path, what, "a cache is [batch, heads, positions, head size], in and out", True)
        return None
    heads = _extent(past, present, 1, merge.stated.kv_heads)
    head_dim = _extent(past, present, 3, merge.proven_head_size(past.name) or merge.stated.head_size)
    if heads is None or head_dim is None:
        missing = merge.path("kv_heads" if heads is None else "head_size")
        what = f"cache {past.name!r} is {spell_port(past)} and nobody says what {missing[-1]} is"
        merge.report("unknown-state-shape", missing, what, f"state {format_path(missing)}", True)
        return None
    length = past.shape[2]
    capacity = length if isinstance(length, int) else None
    return StatePort(role, ports.layer, past.name, present.name, past.dtype, heads, head_dim, capacity)


def _extent(past: Port, present: Port, axis: int, stated: int | None) -> int | None:
    """A cache extent: the graph's number (of the past, else of the present), else what is known beside its ports."""
    for port in (past, present):
        extent = port.shape[axis] if port.shape is not None and len(port.shape) == 4 else None
        if isinstance(extent, int):
            return extent
    return stated


def check_sizes(states: tuple[StatePort, ...] | tuple[PagedState, ...], merge: Merge) -> None:
    """Hold heads and head size of the configuration against the caches. Reports config-contradicts-graph."""
    numbers: tuple[tuple[Fact, int | None, set[int]], ...] = (
        ("kv_heads", merge.stated.kv_heads, {each.heads for each in states}),
        ("head_size", merge.stated.head_size, {each.head_dim for each in states}),
    )
    for fact, stated, found in numbers:
        if stated is not None and found != {stated}:
            merge.contradiction(merge.path(fact), stated, f"the graph's caches have {_either(found)}")


def check_layers(ports: MatchedPorts, merge: Merge) -> None:
    """Hold the number of layers against those that have state. Reports config-contradicts-graph."""
    own = [each for each in ports.fixed if rows_axis(each.past) != 1]  # with the rows second it holds several layers
    layers = sorted({each.layer for each in (*ports.keys, *own, *ports.combined)})
    if not layers:
        return
    counted = layers == list(range(len(layers))) and len(layers) == merge.stated.layers
    if merge.stated.layers is not None and not counted:
        graph = f"the graph has caches for {len(layers)} layers, numbered {ranges(layers)}"
        merge.contradiction(merge.path("layers"), merge.stated.layers, graph)


def _check_capacities(states: tuple[StatePort, ...], merge: Merge) -> None:
    capacities = {each.capacity for each in states}
    if len(capacities) > 1:
        spelled = ", ".join(f"{each.input!r} {each.capacity or 'grows'}" for each in states[:6])
        what = f"the graph's caches differ in length ({spelled}); mixed caches are not compiled yet"
        merge.report("unsupported-package-class", merge.path("key"), what, error=True)


def choose_aliasing(states: tuple[StatePort, ...], ports: MatchedPorts, merge: Merge) -> Aliasing:
    """Whether past and present may be one buffer: only what the cache operators prove, never what a flag says.

    Reports: share-buffer-refused (the flag asks, the operators append), shared-symbol (past and present declared with
    one length symbol), fixed-cache-appends.
    """
    ops = {name: op for op in merge.signature.cache_ops for name in (op.past_key, op.past_value)}
    in_place = bool(states) and all(_writes_in_place(ops.get(each.input), each) for each in states)
    shared = _shared_symbols(ports)
    fixed = any(each.capacity is not None for each in states)
    if not in_place:
        _refuse_growth(states, shared, fixed, merge)
        return "forbidden"
    if shared:
        past, present, symbol = shared[0]
        what = f"{past!r} and {present!r} share the length symbol {symbol!r}, so the cache is kept in one buffer"
        merge.report("shared-symbol", merge.path("key"), what)
    return "required" if shared or fixed else "permitted"


def _writes_in_place(op: CacheOp | None, state: StatePort) -> bool:
    return op is not None and writes_in_place(op) and state.output in (op.present_key, op.present_value)


def _shared_symbols(ports: MatchedPorts) -> list[tuple[str, str, str]]:
    """(past, present, symbol) of caches whose two lengths are declared with one symbol."""
    found: list[tuple[str, str, str]] = []
    for each in (*ports.keys, *ports.values):
        lengths = [port.shape[2] for port in (each.past, each.present) if port.shape and len(port.shape) == 4]
        if len(lengths) == 2 and isinstance(lengths[0], str) and lengths[0] == lengths[1]:
            found.append((each.past.name, each.present.name, lengths[0]))
    return found


def _refuse_growth(
    states: tuple[StatePort, ...], shared: list[tuple[str, str, str]], fixed: bool, merge: Merge
) -> None:
    if states and merge.stated.share_buffer:
        asked = merge.path("share_buffer")[-1]
        what = f"{asked} asks for one buffer, but the graph appends to its cache; a growing cache is used"
        merge.report("share-buffer-refused", merge.path("share_buffer"), what, "leave it out")
    path = merge.path("key")
    if shared:
        past, present, symbol = shared[0]
        what = f"{past!r} and {present!r} declare their length with one symbol, {symbol!r}, but the graph appends to it"
        help = "ONNX Runtime reuses buffers by symbol and fails at the second step: give the output a symbol of its own"
        merge.report("shared-symbol", path, what, help, True)
    elif fixed:
        what = (
            f"{states[0].input!r} has the fixed length {states[0].capacity}, but its operator appends and can't fill it"
        )
        merge.report("fixed-cache-appends", path, what, "export with a symbolic past length", True)


def merge_vocabulary(logits: Port, merge: Merge) -> tuple[int | None, int | None]:
    """(width of a row of logits, ids that may be sampled): the graph's last extent, and the configuration's limit."""
    stated = merge.stated.vocab_size
    width = logits.shape[-1] if logits.shape else None
    if not isinstance(width, int):
        return stated, stated
    if stated is not None and stated != width:
        graph = f"{logits.name!r} has {width} columns"
        merge.contradiction(merge.path("vocab_size"), stated, graph)
    return width, width if stated is None else min(stated, width)


def merge_length(
    capacities: Iterable[int | None], table: int | None, merge: Merge, elsewhere: tuple[str, int] | None
) -> int:
    """Positions that prompt and output may have together.

    The stated length, limited by what the graph can do at all: the cache lengths that it fixes (`capacities`), and the
    rows of its shortest `table` of positions. elsewhere: (file, length) of another configuration file that states it,
    used when the document states none. Where nobody does, what the graph can do is the length.
    """
    path = merge.path("context_length")
    stated, key, help = merge.stated.context_length, path[-1], f"state {format_path(path)}"
    bounds = [(each, f"the graph's caches hold {each} positions") for each in capacities if each is not None]
    if table is not None:
        bounds.append((table, f"the graph's table of positions has {table} rows, and no run gets beyond them"))
    most, reason = min(bounds, default=(None, ""))
    if stated is not None:
        if most is None or stated <= most:
            return stated
        what = f"{key} is {stated}, but {reason}; {most} is taken"
        merge.report("config-contradicts-graph", path, what, f"set it to {most}, or export the graph for more")
        return most
    if elsewhere is not None:
        file, length = elsewhere
        said, length = f"{file} says {length}", length if most is None else min(length, most)
        but = f", but {reason}; {length} is taken" if length < elsewhere[1] else ", which is taken"
        merge.report("missing-context-length", path, f"{key} is not stated; {said}{but}", help)
        return length
    if table is not None and most == table:
        merge.report("missing-context-length", path, f"nobody states the model's context length; {reason}", help)
    elif most is None:
        what = f"nobody states the model's context length; {FALLBACK_LENGTH} is taken"
        merge.report("missing-context-length", path, what, help)
    return FALLBACK_LENGTH if most is None else most


def _either(found: set[int]) -> str:
    return " and ".join(str(each) for each in sorted(found))


def ranges(layers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5"."""
    parts: list[list[int]] = []
    for each in layers:
        if parts and parts[-1][-1] == each - 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts) or "none"
