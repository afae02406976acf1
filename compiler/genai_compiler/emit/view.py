"""Plan -> the flat view of one executor module: every decision taken, every string a template places."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from genai_compiler.emit.adapter_views import selector_of
from genai_compiler.emit.decoder_views import has_one_row_loop
from genai_compiler.emit.draft_table import decoder_class, draft_imports, draft_table
from genai_compiler.emit.names import Names, comment, literal, tuple_of
from genai_compiler.emit.op_view import OpView, Uses
from genai_compiler.emit.op_views import OpViews, read_values
from genai_compiler.emit.programs import program_kinds, program_literal
from genai_compiler.emit.tidy import MARGIN
from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.image_program import ImageProgram
from genai_compiler.plan.ir import Cell, Component, Decode, Input, Output, Plan, Type
from genai_compiler.plan.state import Pages, StateGroup
from genai_compiler.plan.uses import walk

ABI_VERSION = 2
"""The runtime interface that generated code is written against; genai_runtime.abi has the same number."""

ALWAYS = ("Event", "Input", "Output", "Publisher", "Request", "Result", "Sessions", "bind_inputs")
SOMETIMES = frozenset(
    [
        "BudgetSpec",
        "Cell",
        "Decoder",
        "DecoderSpec",
        "DraftSpec",
        "HeldSpec",
        "Holder",
        "AudioProgram",
        "ImageOutput",
        "ImagePatches",
        "ImageProgram",
        "ImageResize",
        "ImageTiles",
        "Mask",
        "Pages",
        "RUN_FAILURES",
        "Slot",
        "SpeculativeDecoder",
        "TokenPolicy",
        "agree",
        "bounded",
        "branch_key",
        "enter",
        "growing",
        "has_extent",
        "invariant",
        "iteration_limit",
        "iteration_value",
        "keep_rows",
        "live_rows",
        "merge_axes",
        "open_adapter",
        "unmatched_case",
        "within_capacity",
    ]
)
"""Names of the runtime interface that an executor imports always, and when it needs them."""
RESERVED = frozenset(
    [
        "self",
        "request",
        "inputs",
        "out",
        "decoding",
        "policy",
        "tokens",
        "choose",
        "advance",
        "last",
        "row",
        "run",
        "decoder",
        "sessions",
    ]
)
ONE_ROW = frozenset(
    [
        "token",
        "select",
        "ends",
        "stopped",
        "ids",
        "audience",
        "note",
        "first",
        "bound",
        "mask",
        "room",
        "place",
        "chosen",
        "failure",
    ]
)
"""Further locals of an executor that has a loop for one row."""
BLOCKS = frozenset({"block", "accepted", "DRAFTS"})
"""Further names of an executor that has a loop of blocks."""
MODULE = frozenset({"INPUTS", "OUTPUTS", "ABI_VERSION", "DECODER", "Executor", "Generator", *ALWAYS})

OVERLAY = "onnx-genai.parameter-overlay@1"
"""An adapter of the LoRA service, not of the registry."""

_GLUE = "\0"
"""A space at which the title does not break."""


@dataclass(frozen=True)
class ExecutorView:
    """What `executor.py.j2` places."""

    title: str
    provenance: str
    summary: str
    abi: int
    imports: tuple[str, ...]
    tables: tuple[str, ...]
    opens: tuple[str, ...]
    locals: tuple[str, ...]
    body: tuple[OpView, ...]
    silent: tuple[str, ...]


def executor_view(plan: Plan, provenance: str) -> ExecutorView:
    """The view of a plan's executor. provenance: the sentence that says what it was made from."""
    names = Names(
        RESERVED
        | MODULE
        | SOMETIMES
        | (ONE_ROW if has_one_row_loop(plan) else frozenset[str]())
        | (BLOCKS if draft_imports(plan) else frozenset[str]())
    )
    for value in filter(read_values(plan).__contains__, plan.types):
        names.of(value)  # values take the plain names; what the emitter adds takes what is left
    bindings = tuple(_locals(plan, names))
    views = OpViews(plan, names)
    body = views.region(plan.body, "0")
    programs = {name: (names.constant(f"{name}_program"), each) for name, each in _adapter_programs(views.uses, plan)}
    tables = (
        *(_cell_table(name, cell) for name, cell in views.uses.cells.items()),
        *_decoder_table(plan),
        *draft_table(plan),
        *_held_tables(views.uses),
        *(f"{constant} = {program_literal(each)}" for constant, each in programs.values()),
    )
    runners = tuple(_runner_local(name, plan.component(uses[0])) for name, uses in views.uses.runners.items())
    extra = {"Cell"} if views.uses.cells else set[str]()
    extra |= {"Slot"} if plan.decoder is not None and any(group.slots for group in plan.groups) else set()
    extra |= {kind for _, each in programs.values() for kind in program_kinds(each)}
    extra |= (
        {"open_adapter"} if any(_is_opened(plan.component(uses[0])) for uses in views.uses.runners.values()) else set()
    )
    extra |= draft_imports(plan)
    extra |= {"Pages"} if plan.decoder is not None and plan.decoder.pages is not None else set()
    extra |= {"Mask"} if plan.decoder is not None and plan.decoder.mask is not None else set()
    return ExecutorView(
        title=_title(plan),
        provenance=provenance,
        summary=f"{comment(plan.name)}, compiled: one `run` is one invocation of the workflow.",
        abi=ABI_VERSION,
        imports=tuple(sorted({*ALWAYS, *views.uses.imports, *extra}, key=_isort)),
        tables=(
            *_table("INPUTS", "Input", [_input(each) for each in plan.inputs]),
            *_table("OUTPUTS", "Output", [_output(each) for each in plan.outputs]),
            *tables,
        ),
        opens=(*_opens(views.uses, plan, programs), *_open_decoder(plan)) or ("pass",),
        locals=(*runners, *bindings),
        body=body,
        silent=() if views.uses.publishes else ("yield from ()",),
    )


def _is_opened(component: Component) -> bool:
    """Whether a component is an adapter that the registry knows."""
    return component.adapter is not None and component.adapter.abi != OVERLAY


def _isort(name: str) -> tuple[int, str]:
    """The order that import sorting gives names: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _title(plan: Plan) -> str:
    """The docstring's first lines: what goes in and what comes out."""
    text = f"Executor for {comment(plan.name)}: {_port_list(plan.inputs)} -> {_port_list(plan.outputs)}"
    lines = textwrap.wrap(text, MARGIN - 3, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_GLUE, " ")


def _table(name: str, kind: str, items: list[str]) -> tuple[str, ...]:
    """Lines of a module-level tuple, one item a line."""
    if not items:
        return (f"{name}: tuple[{kind}, ...] = ()",)
    if len(items) == 1:
        return (f"{name} = ({items[0]},)",)
    return (f"{name} = (", *(f"    {item}," for item in items), ")")


def _port_list(ports: tuple[Input, ...] | tuple[Output, ...]) -> str:
    shown = [each for each in ports if isinstance(each, Output) or (each.required and each.source != "literal")]
    return ", ".join(comment(f"{each.name} {each.type}").replace(" ", _GLUE) for each in shown) or "nothing"


def _locals(plan: Plan, names: Names) -> Iterator[str]:
    read = read_values(plan)
    for each in plan.inputs:
        if each.name in read:
            absent = not each.required and each.default is None
            fetch = f"inputs.optional({literal(each.name)})" if absent else f"inputs[{literal(each.name)}]"
            fetch = f"request.kept({literal(each.held)}, {fetch})" if each.held else fetch
            yield f"{names.of(each.name)} = {fetch}"
        if each.present_as in read and each.present_as:
            yield f"{names.of(each.present_as)} = inputs[{literal(each.present_as)}]"


def _input(each: Input) -> str:
    args = [literal(each.name), literal(each.type.dtype), literal(tuple(each.type.dims))]
    args += _rows(each.type)
    args += [f"role={literal(each.role)}"] if each.role else []
    args += [f"source={literal(each.source)}"] if each.source != "request" else []
    args += [f"application={literal(each.application_name)}"] if each.application_name else []
    args += [] if each.required else ["required=False"]
    args += [f"default={literal(each.default)}"] if each.default is not None else []
    args += [f"present_as={literal(each.present_as)}"] if each.present_as else []
    return f"Input({', '.join(args)})"


def _output(each: Output) -> str:
    args = [literal(each.name), literal(each.type.dtype), literal(tuple(each.type.dims))]
    args += ["rowwise=True"] if each.rowwise else []
    args += _rows(each.type)
    args += [f"value_range={literal(each.value_range)}"] if each.value_range else []
    return f"Output({', '.join(args)})"


def _rows(type: Type) -> list[str]:
    if type.row_axis is None:
        return []
    factor = [f"row_factor={type.row_factor}"] if type.row_factor != 1 else []
    return [f"row_axis={type.row_axis}", *factor]


def _cell_table(name: str, cell: Cell) -> str:
    args = [literal(cell.name), literal(cell.type.dtype), literal(tuple(cell.type.dims)), *_rows(cell.type)]
    return f"{name} = Cell({', '.join(args)})"


Programs = dict[str, tuple[str, AudioProgram | ImageProgram]]
"""Runner -> the constant that holds its program, and the program."""


def _opens(uses: Uses, plan: Plan, programs: Programs) -> Iterator[str]:
    for name, (component, inputs, outputs, origin) in uses.runners.items():
        adapter = plan.component(component).adapter
        if adapter is not None and adapter.abi == OVERLAY:
            named = dict(adapter.parameters)
            target = ", ".join(literal(each) for each in (named["component"], named["parameter"], origin))
            yield f"self.{name} = sessions.lora.overlay({target})"
            continue
        if adapter is not None:
            parameters = ", ".join(f"{literal(key)}: {literal(value)}" for key, value in adapter.parameters)
            roles = [literal(tuple((port, adapter.role(port)) for port in ports)) for ports in (inputs, outputs)]
            types = dict(plan.component(component).outputs)
            forms = literal(tuple((types[port].dtype, types[port].rank) for port in outputs))
            given = [literal(adapter.abi), f"{{{parameters}}}", *roles, literal(origin)]
            given += [f"program={programs[name][0]}"] if name in programs else []
            if isinstance(adapter.program, GraphProgram):
                given += [f"program=sessions.graphs({literal(adapter.program.components)}, {literal(origin)})"]
            given += [f"forms={forms}"]
            yield f"self.{name} = open_adapter({', '.join(given)})"
            continue
        args = [literal(component), literal(inputs), literal(outputs), literal(origin)]
        args += ["lazy=True"] if name in uses.spare else []
        legal = plan.component(component).replacements
        if legal:
            pairs = (f"{literal(each.component)}: {literal(each.ports)}" for each in legal)
            args.append(f"replacements={{{', '.join(pairs)}}}")
        yield f"self.{name} = sessions.runner({', '.join(args)})"
    if uses.selector is not None:
        name, op = uses.selector
        yield selector_of(op, name)
    for name, constant, _ in uses.held.values():
        yield f"self.{name} = Holder(sessions, {constant})"


def _adapter_programs(uses: Uses, plan: Plan) -> Iterator[tuple[str, AudioProgram | ImageProgram]]:
    """The programs that adapters run, by the runner that runs them."""
    for name, (component, *_) in uses.runners.items():
        adapter = plan.component(component).adapter
        if adapter is not None and isinstance(adapter.program, AudioProgram | ImageProgram):
            yield name, adapter.program


def _held_tables(uses: Uses) -> Iterator[str]:
    tables = {cell.name: name for name, cell in uses.cells.items()}
    for _, constant, hold in uses.held.values():
        run, others = hold.run, [port for port, _ in hold.run.inputs]
        args = [
            f"name={literal(hold.group)}",
            f"component={literal(run.component)}",
            f"cells={tuple_of(tables[cell] for cell, _ in hold.cells)}",
            f"pairs={literal(hold.pairs)}",
            f"axis={hold.axis}",
            f"lengths={literal(tuple((kind, others.index(port)) for kind, port in hold.lengths))}",
            f"inputs={literal(tuple(others))}",
            f"outputs={literal(tuple(port for port, _ in run.outputs))}",
            f"origin={literal(run.origin)}",
        ]
        yield f"{constant} = HeldSpec({', '.join(args)})"


def _runner_local(name: str, component: Component) -> str:
    """The local that a run calls: the runner itself, or what the request puts in its place."""
    return f"{name} = self.{name}.chosen(request.overrides)" if component.overridable else f"{name} = self.{name}"


def _open_decoder(plan: Plan) -> Iterator[str]:
    if plan.decoder is not None:
        drafts = ", DRAFTS" if draft_imports(plan) else ""
        yield f"self.decoder = {decoder_class(plan)}(sessions, DECODER{drafts})"


def _decoder_table(plan: Plan) -> Iterator[str]:
    facts = plan.decoder
    if facts is None:
        return
    mask = facts.mask
    flags = () if mask is None else (literal(mask.port), literal(mask.dtype), f"columns={mask.use == 'columns'}")
    slots = ", ".join(_slot(group) for group in plan.groups)
    counts = tuple((each.port, each.dtype, each.kind) for each in facts.counts)
    args = [
        f"component={literal(facts.component)}",
        f"origin={literal(_decode_origin(plan))}",
        f"tokens={literal(facts.tokens)}",
        f"token_dtype={literal(facts.token_dtype)}",
        f"logits={literal(facts.logits)}",
        f"logits_dtype={literal(facts.logits_dtype)}",
        f"mask=Mask({', '.join(flags)}, fixed={mask.constant_width})" if mask else "mask=None",
        f"positions={literal(facts.positions)}",
        f"slots=({slots}{',' if slots else ''})",
        f"shared={bool(plan.groups) and all(group.storage == 'shared-buffer' for group in plan.groups)}",
        f"capacity={literal(min((g.capacity for g in plan.groups if g.capacity), default=None))}",
        f"ragged={facts.ragged}",
        f"vocab_size={facts.vocab_size}",
        f"one_token={facts.one_token}",
        *([f"last_position={literal(facts.last_position)}"] if facts.last_position else []),
        *([f"logits_rank={facts.logits_rank}"] if facts.logits_rank != 3 else []),
        *([f"counts={literal(counts)}"] if counts else []),
        *_pages(facts.pages),
        *([f"prompt_component={literal(facts.prompt_component)}"] if facts.prompt_component else []),
        *([f"window=({facts.window.size}, {facts.window.pad})"] if facts.window is not None else []),
        *([f"alone={facts.alone}"] if facts.alone else []),
        *([f"front=({literal(facts.front.component)}, {literal(facts.front.streams)})"] if facts.front else []),
    ]
    yield f"DECODER = DecoderSpec({', '.join(args)})"


def _pages(pages: Pages | None) -> Iterator[str]:
    if pages is not None:
        ports = ", ".join(
            f"{name}={literal(getattr(pages, name))}" for name in ("cumulative", "past", "table", "bounds")
        )
        yield f"pages=Pages({ports}, block={pages.block}, per_token={pages.per_token})"


def _decode_origin(plan: Plan) -> str:
    return next(op.origin for op in walk(plan.body) if isinstance(op, Decode))


def _slot(group: StateGroup) -> str:
    return ", ".join(
        f"Slot({literal(each.past)}, {literal(each.present)}, {literal(each.dtype)}, {literal(each.dims)})"
        for each in group.slots
    )
