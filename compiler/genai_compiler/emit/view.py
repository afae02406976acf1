"""Plan -> the flat view of one executor module: every decision taken, every string a template places."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from genai_compiler.emit.adapter_views import selector_of
from genai_compiler.emit.decoder_table import decoder_table, open_decoder
from genai_compiler.emit.decoder_views import has_one_row_loop
from genai_compiler.emit.draft_table import draft_imports, draft_table
from genai_compiler.emit.names import Names, comment, literal, tuple_of
from genai_compiler.emit.op_view import OpView, Uses
from genai_compiler.emit.op_views import OpViews, read_values
from genai_compiler.emit.opened import opened_sessions
from genai_compiler.emit.port_tables import cell_table, interface_tables
from genai_compiler.emit.programs import program_kinds, program_literal
from genai_compiler.emit.tidy import MARGIN
from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.image_program import ImageProgram
from genai_compiler.plan.ir import Component, Input, Output, Plan
from genai_compiler.plan.on_demand import on_demand
from genai_compiler.read.host_program import HostProgram

ABI_VERSION = 4
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
        "AudioFeatures",
        "HostConstant",
        "HostInput",
        "HostProgram",
        "HostStep",
        "AudioProgram",
        "ImageOutput",
        "ImagePatches",
        "ImageProgram",
        "ImageResize",
        "ImageTiles",
        "ImageViews",
        "Mask",
        "Pages",
        "RUN_FAILURES",
        "SETTLED",
        "Slot",
        "SpeculativeDecoder",
        "TokenPolicy",
        "agree",
        "bounded",
        "branch_key",
        "counter",
        "enter",
        "entries",
        "growing",
        "has_extent",
        "has_form",
        "invariant",
        "iteration_limit",
        "iteration_value",
        "keep_rows",
        "live_rows",
        "merge_axes",
        "number",
        "open_adapter",
        "settled",
        "summed",
        "unmatched_case",
        "within_capacity",
        "Lengths",
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
        "score",
        "scores",
        "ends",
        "stopped",
        "ids",
        "audience",
        "note",
        "first",
        "listens",
        "bound",
        "mask",
        "room",
        "place",
        "chosen",
        "failure",
        "written",
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


Program = AudioProgram | HostProgram | ImageProgram
Programs = dict[str, tuple[str, Program]]
"""Runner -> the constant that holds its program, and the program."""


@dataclass(frozen=True)
class ExecutorView:
    """What `executor.py.j2` places. sessions: components whose sessions it opens when it is made; for the manifest."""

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
    sessions: tuple[str, ...]


def executor_view(plan: Plan, provenance: str) -> ExecutorView:
    """The view of a plan's executor. provenance: the sentence that says what it was made from."""
    names = Names(_taken(plan))
    for value in filter(read_values(plan).__contains__, plan.types):
        names.of(value)  # values take the plain names; what the emitter adds takes what is left
    bindings = tuple(_locals(plan, names))
    views = OpViews(plan, names)
    body = views.region(plan.body, "0")
    programs = {name: (names.constant(f"{name}_program"), each) for name, each in _programs(views.uses, plan)}
    tables = (
        *interface_tables(plan),
        *(cell_table(name, cell) for name, cell in views.uses.cells.items()),
        *decoder_table(plan),
        *draft_table(plan),
        *_held_tables(views.uses),
        *(f"{constant} = {program_literal(each)}" for constant, each in programs.values()),
    )
    runners = (_runner_local(name, plan.component(uses[0])) for name, uses in views.uses.runners.items())
    return ExecutorView(
        title=_title(plan),
        provenance=provenance,
        summary=f"{comment(plan.name)}, compiled: one `run` is one invocation of the workflow.",
        abi=ABI_VERSION,
        imports=tuple(sorted({*ALWAYS, *views.uses.imports, *_table_imports(views.uses, plan, programs)}, key=_isort)),
        tables=tables,
        opens=(*_opens(views.uses, plan, programs), *open_decoder(plan)) or ("pass",),
        locals=(*runners, *bindings),
        body=body,
        silent=() if views.uses.publishes else ("yield from ()",),
        sessions=opened_sessions(views.uses, plan),
    )


def _taken(plan: Plan) -> frozenset[str]:
    """Names that no value of the workflow may have in this executor."""
    rows = ONE_ROW if has_one_row_loop(plan) else frozenset[str]()
    return RESERVED | MODULE | SOMETIMES | rows | (BLOCKS if draft_imports(plan) else frozenset[str]())


def _table_imports(uses: Uses, plan: Plan, programs: Programs) -> Iterator[str]:
    """Names of the runtime that the tables and the opening of adapters need."""
    if uses.cells:
        yield "Cell"
    if plan.decoder is not None and any(group.slots for group in plan.groups):
        yield "Slot"
    if plan.decoder is not None and plan.decoder.mask is not None:
        yield "Mask"
    if plan.decoder is not None and plan.decoder.lengths is not None:
        yield "Lengths"
    if plan.decoder is not None and plan.decoder.pages is not None:
        yield "Pages"
    if any(_is_opened(plan.component(runner[0])) for runner in uses.runners.values()):
        yield "open_adapter"
    for _, each in programs.values():
        yield from program_kinds(each)
    yield from draft_imports(plan)


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


def _opens(uses: Uses, plan: Plan, programs: Programs) -> Iterator[str]:
    seldom = on_demand(plan)
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
        host = plan.component(component).host is not None
        lazy = name in uses.spare or component in seldom
        args += [f"program={programs[name][0]}"] if host else ["lazy=True"] if lazy else []
        legal = plan.component(component).replacements
        if legal:
            pairs = (f"{literal(each.component)}: {literal(each.ports)}" for each in legal)
            args.append(f"replacements={{{', '.join(pairs)}}}")
        yield f"self.{name} = sessions.{'host_runner' if host else 'runner'}({', '.join(args)})"
    if uses.selector is not None:
        name, op = uses.selector
        yield selector_of(op, name)
    for name, constant, _ in uses.held.values():
        yield f"self.{name} = Holder(sessions, {constant})"


def _programs(uses: Uses, plan: Plan) -> Iterator[tuple[str, Program]]:
    """The programs that adapters run, and numpy, by the runner that runs them."""
    for name, (component, *_) in uses.runners.items():
        adapter, host = plan.component(component).adapter, plan.component(component).host
        if host is not None:
            yield name, host
        if adapter is not None and isinstance(adapter.program, AudioProgram | ImageProgram):
            yield name, adapter.program


def _held_tables(uses: Uses) -> Iterator[str]:
    tables = uses.tables
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
            *(["steady=True"] if run.steady else []),
        ]
        yield f"{constant} = HeldSpec({', '.join(args)})"


def _runner_local(name: str, component: Component) -> str:
    """The local that a run calls: the runner itself, or what the request puts in its place."""
    return f"{name} = self.{name}.chosen(request.overrides)" if component.overridable else f"{name} = self.{name}"
