"""The session runs of a plan, with numbers for the extents of what they take: what each needs of memory.

What nothing but the request decides is taken as the largest that it can be: an extent that inference leaves open is the
batch on an axis of rows, else the context.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from onnx import ModelProto, ValueInfoProto
from onnx.helper import tensor_dtype_to_np_dtype

from genai_compiler.plan.dtypes import SIZE
from genai_compiler.plan.ir import (
    Branch,
    Carry,
    Copy,
    Decode,
    Fused,
    Hold,
    Input,
    Invoke,
    Loop,
    Op,
    Plan,
    SpeculativeBlock,
    Type,
)
from genai_compiler.plan.state import GROWTH, PAGES, ROWS, DecodeFacts, Pages, Slot, StateGroup
from genai_compiler.plan.uses import walk
from genai_compiler.read.activations import Extents, Workspace, workspace
from genai_compiler.read.nodes import CONTRIB, operator_of

FIRST_ROOM = 512
"""Tokens of room that the runtime gives a shared buffer beyond the prompt (genai_runtime.state)."""

REGION = 6_000_000
"""What an arena keeps beside that which is in use when it gives back what it can: regions that have both. Estimated."""


@dataclass(frozen=True)
class Lengths:
    """Rows of a request, tokens of its prompt, tokens of prompt and output together.

    chunk: tokens of the prompt that one run of a decoder takes, 0: all.
    """

    batch: int
    prompt: int
    context: int
    chunk: int = 0

    @property
    def at_once(self) -> int:
        """Tokens of the prompt that one run of a decoder takes; several rows go in as a whole."""
        return min(self.chunk, self.prompt) if self.chunk and self.batch == 1 else self.prompt

    @property
    def first_room(self) -> int:
        """Tokens that a shared buffer first has room for."""
        return max(self.prompt + 1, min(self.context, self.prompt + FIRST_ROOM))


@dataclass(frozen=True)
class Run:
    """One run of a component's session. phase: `before` the steps of a loop, or a `step`."""

    component: str
    phase: str
    workspace: Workspace


def runs_of(
    plan: Plan, models: Mapping[str, ModelProto], lengths: Lengths
) -> tuple[tuple[Run, ...], Mapping[str, Extents]]:
    """Every session run of the plan whose graph is among the models, in the order of the text; extents of values."""
    found = _Runs(plan, models, lengths)
    found.visit(plan.body, "before")
    return tuple(found.runs), found.values


class _Runs:
    """values: extents of the plan's values so far."""

    def __init__(self, plan: Plan, models: Mapping[str, ModelProto], lengths: Lengths) -> None:
        self._plan, self._models, self._lengths = plan, models, lengths
        self.runs: list[Run] = []
        self._holds = {op.group: op for op in walk(plan.body) if isinstance(op, Hold)}
        self.values = {each.name: _input_extents(each, lengths) for each in plan.inputs}

    def visit(self, ops: tuple[Op, ...], phase: str) -> None:
        """Note the runs of these ops, nested regions included."""
        for op in ops:
            match op:
                case Invoke():
                    self._invoke(op, phase)
                case Fused():
                    self._invoke(op.run, phase)
                case Decode():
                    self._decode(op, phase)
                case SpeculativeBlock():
                    self._decode(op.decode, "step")
                case Copy():
                    self.values.update((made, self._of(taken)) for taken, made in op.pairs)
                case Loop():
                    self.values.update((each.cell, self._at_context(each)) for each in op.carried)
                    self.visit((*op.body, *op.advance), "step")
                case Branch():
                    for region in (*(body for _, body in op.cases), *((op.default,) if op.default else ())):
                        self.visit(region, phase)
                case _:
                    pass

    def _at_context(self, carry: Carry) -> Extents:
        """A cell at its longest: from its first value on, the axis on which it grows comes to the context."""
        extents = list(self._of(carry.initial))
        law = next((each for each in self._plan.cells if each.name == (carry.declared or carry.cell)), None)
        if law is not None and law.recurrence != "invariant" and 0 <= law.axis < len(extents):
            extents[law.axis] = max(extents[law.axis], self._lengths.context)
        return tuple(extents)

    def _invoke(self, op: Invoke, phase: str) -> None:
        if not self._known(op.component):
            return
        given = {port: self._of(value) for port, value in op.inputs}
        bound = dict[str, Extents]()
        hold = self._holds.get(op.held)
        if hold is not None:
            for (past, present), (_, initial) in zip(hold.pairs, hold.cells, strict=True):
                extents = list(self._of(initial))
                extents[hold.axis] = max(extents[hold.axis], self._lengths.context)
                given[past] = bound[present] = tuple(extents)
        done = self._run(op.component, phase, given, bound)
        for port, value in op.outputs:
            self.values[value] = _closed(done.get(port), self._plan.types.get(value), self._lengths)

    def _decode(self, op: Decode, phase: str) -> None:
        facts, lengths = self._plan.decoder, self._lengths
        if facts is None or not self._known(op.component):
            return
        prompt = op.phase == "prompt" and not facts.one_token
        new = _new(facts, lengths) if prompt else 1
        tokens = (lengths.batch, new) if facts.pages is None and not facts.flat else (lengths.batch * new,)
        groups = [each for each in self._plan.groups if each.component == op.component]
        given = {port: self._of(value) for port, value in (*op.extras, *op.media)}
        bound = dict[str, Extents]()
        pasts = 0
        for group, slot in [(each, slot) for each in groups for slot in each.slots]:
            room = lengths.prompt if slot.once else _room(group, lengths, prompt, new)
            given[slot.past] = slot_extents(slot, lengths.batch, room)
            if group.storage == "shared-buffer" or PAGES in slot.dims:
                bound[slot.present] = given[slot.past]
            elif group.storage != "shifted":
                pasts += prod(given[slot.past]) * SIZE[slot.dtype]
        if facts.pages is not None:
            given |= _packed(facts.pages, lengths)
        if facts.mask is not None:
            wide = lengths.first_room if facts.mask.constant_width else lengths.context
            wide = facts.shift.columns if facts.shift is not None else lengths.prompt if prompt else wide
            given[facts.mask.port] = (lengths.batch, wide)
        if facts.lengths is not None:
            given |= {facts.lengths.last: (lengths.batch,), facts.lengths.width: (1,)}
        if facts.positions is not None:
            port, _, rank = facts.positions
            given[port] = (*((3,) if rank == 3 else ()), *tokens)
        if facts.last_position:
            given[facts.last_position] = (lengths.batch, 1, 1)
        given.update((each.port, (1 if each.kind == "past" else lengths.batch,)) for each in facts.counts)
        if facts.front is not None:
            made = self._run(facts.front.component, phase, {**given, facts.tokens: tokens}, {})
            for port, taken in facts.front.streams:
                given[taken] = tokens if port == facts.tokens else _closed(made.get(port), None, lengths)
        else:
            given[facts.tokens] = tokens
        runs = (
            facts.prompt_component if op.phase == "prompt" and facts.prompt_component in self._models else op.component
        )
        self._run(runs, "before" if op.phase == "prompt" else phase, given, bound, pasts)

    def _known(self, component: str) -> bool:
        """Whether the graphs that run for a component are among the models."""
        return self._models.keys() >= set(self._plan.component(component).sessions)

    def _run(
        self, component: str, phase: str, given: Mapping[str, Extents], bound: Mapping[str, Extents], pasts: int = 0
    ) -> Mapping[str, tuple[int | None, ...]]:
        """Note a run. pasts: bytes that the run before it made and this one takes, in the session's own memory."""
        parts = self._plan.component(component).parts
        if parts is None:
            return self._session(component, phase, given, bound, pasts)
        first, second = parts.names
        crossing = self._session(first, phase, given, bound, 0)
        handed = {name: _closed(extents, None, self._lengths) for name, extents in crossing.items()}
        made = self._session(second, phase, {**given, **handed}, bound, pasts)
        if phase == "before":
            size = sum(
                prod(handed[name]) * tensor_dtype_to_np_dtype(kind).itemsize for name, kind in parts.cut.crossing
            )
            self._give_back(size)
        return {**crossing, **made}

    def _give_back(self, handed: int) -> None:
        """Of the last two runs: the first leaves what it hands on; most else goes before the second takes its own."""
        first, second = self.runs[-2:]
        own = first.workspace.peak
        left = max(own - second.workspace.peak, min(own, handed + REGION))
        kept = replace(first.workspace, peak=left, scratch=0, at="what it hands on")
        self.runs[-2] = replace(first, workspace=kept)

    def _session(
        self, component: str, phase: str, given: Mapping[str, Extents], bound: Mapping[str, Extents], pasts: int
    ) -> dict[str, tuple[int | None, ...]]:
        model = self._models[component]
        ports = {each.name: given[each.name] for each in model.graph.input if _fits(each, given.get(each.name))}
        new = self._lengths.prompt if phase == "before" else 1
        found = workspace(model, ports, bound, _presents(model, given, new, self._lengths.context))
        made = {each.name: found.shapes[each.name] for each in model.graph.output if each.name in found.shapes}
        self.runs.append(Run(component, phase, replace(found, peak=found.peak + pasts)))
        return made

    def _of(self, value: str) -> Extents:
        known = self.values.get(value)
        return known if known is not None else _closed(None, self._plan.types.get(value), self._lengths)


def _new(facts: DecodeFacts, lengths: Lengths) -> int:
    """Tokens of the prompt that one run takes."""
    return lengths.at_once if facts.window is None else facts.window.size


def _fits(port: ValueInfoProto, extents: Extents | None) -> bool:
    """Whether there are extents for a port, as many as it has axes where the graph says how many."""
    kind = port.type.tensor_type
    return extents is not None and (not kind.HasField("shape") or len(kind.shape.dim) == len(extents))


def _presents(model: ModelProto, given: Mapping[str, Extents], new: int, context: int) -> dict[str, Extents]:
    """Extents of what attention gives as present: the past's, longer where that has no room for the new tokens."""
    found = dict[str, Extents]()
    for node in model.graph.node:
        if operator_of(node) == (CONTRIB, "GroupQueryAttention"):
            for taken, made in zip(node.input[3:5], node.output[1:3], strict=False):
                past = given.get(taken, ())
                if len(past) == 4 and made:
                    found[made] = (*past[:2], max(past[2], min(past[2] + new, context)), past[3])
    return found


def _input_extents(given: Input, lengths: Lengths) -> Extents:
    """A prompt is as long as one asks; what nothing says of another input is one."""
    open_axis = lengths.prompt if given.role == "prompt_tokens" else 1
    return _with(given.type, lengths, open_axis)


def _with(type: Type, lengths: Lengths, open_axis: int) -> Extents:
    rows = lengths.batch * type.row_factor
    return tuple(
        rows if axis == type.row_axis else dim if isinstance(dim, int) else open_axis
        for axis, dim in enumerate(type.dims)
    )


def _closed(found: tuple[int | None, ...] | None, type: Type | None, lengths: Lengths) -> Extents:
    """What inference found of a value, what is open filled from its type."""
    filled = _with(type, lengths, lengths.context) if type is not None else ()
    if found is None or (filled and len(found) != len(filled)):
        return filled
    filled = filled or (lengths.context,) * len(found)
    return tuple(theirs if mine is None else mine for mine, theirs in zip(found, filled, strict=True))


def _packed(pages: Pages, lengths: Lengths) -> dict[str, Extents]:
    """Extents of what tells rows and pages apart, by port."""
    rows = lengths.batch
    found: dict[str, Extents] = {pages.cumulative[0]: (rows + 1,), pages.past[0]: (rows,)}
    found[pages.table[0]] = (rows, _pages(lengths.context, pages.block))
    return found if pages.bounds is None else {**found, pages.bounds[0]: (pages.bounds[2],)}


def _room(group: StateGroup, lengths: Lengths, prompt: bool, new: int) -> int:
    """Entries on the growing axis of what a run takes as past."""
    if group.storage == "pages":
        return lengths.context
    if group.storage == "shifted":
        return (group.capacity or 1) - new
    if group.storage == "shared-buffer":
        return group.capacity or (lengths.first_room if prompt else lengths.context)
    return lengths.prompt - lengths.at_once if prompt else lengths.context - 1


def slot_extents(slot: Slot, rows: int, length: int) -> Extents:
    """A slot's extents with so many rows and tokens; of pages, so many that each row has room for the tokens."""
    block = slot.dims[1] if PAGES in slot.dims else 1
    extents = {ROWS: rows, GROWTH: length, PAGES: rows * _pages(length, block)}
    return tuple(extents.get(dim, dim) for dim in slot.dims)


def _pages(length: int, block: int) -> int:
    return max(1, -(-length // block))
