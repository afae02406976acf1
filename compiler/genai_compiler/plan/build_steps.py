"""Workflow steps -> ops. Names are resolved lexically.

The document has passed `check`: what it names is declared, and each name is defined once. Left to say here is what only
graphs and the runtime's own decoding show.
"""

from collections.abc import Iterator, Mapping

from genai_compiler.lower.packed_rows import MERGE_AXES
from genai_compiler.plan.build_decoder import DecoderLoop
from genai_compiler.plan.capacity import capacity_checks
from genai_compiler.plan.checks import input_checks, output_checks
from genai_compiler.plan.ir import (
    Branch,
    Carry,
    Component,
    Copy,
    Emit,
    Invoke,
    Join,
    Keep,
    Loop,
    Op,
    Output,
    Type,
)
from genai_compiler.plan.lora import Adaptation
from genai_compiler.plan.report import WORKFLOW, Path, Report
from genai_compiler.plan.runtime_steps import refuse_runtime_step
from genai_compiler.plan.scope import Scope
from genai_compiler.plan.session_reads import group_writes
from genai_compiler.plan.state import DecodeFacts, StateGroup
from genai_compiler.plan.types import mismatch, type_of
from genai_compiler.read.document import (
    BindingImplementation,
    Bounded,
    BranchOutput,
    BranchStep,
    EmitStep,
    Growing,
    InvokeStep,
    LoopStep,
    SequenceStep,
    StateCell,
    Step,
)
from genai_compiler.read.document import Carry as DeclaredCarry
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path


class StepBuilder:
    """Builds the ops of one workflow and remembers what the loops found out about its decoder and its session cells."""

    def __init__(
        self,
        package: Package,
        report: Report,
        components: Mapping[str, Component],
        outputs: tuple[Output, ...],
        adaptation: Adaptation,
    ) -> None:
        self.package, self.report, self.components = package, report, components
        self.adaptation = adaptation
        self._outputs = {each.name: each for each in outputs}
        self._state = package.workflow.state
        self.groups: tuple[StateGroup, ...] = ()
        self.decoder: DecodeFacts | None = None
        self.superseded: set[str] = set()
        self._final: dict[str, str] = {}
        self._inside: set[str] = set()

    def ops(self, steps: tuple[Step, ...], path: Path, scope: Scope) -> tuple[Op, ...]:
        """The ops of a list of steps, in order."""
        return tuple(op for index, step in enumerate(steps) for op in self._step(step, (*path, index), scope))

    def unchanged_cells(self, scope: Scope) -> tuple[Keep, ...]:
        """What session cells that no loop carries hold after the run: what their group gave back, or initializers.

        A conversation (3.8, continuation) is the runtime's to keep: it holds the prompt and the tokens published.
        """
        written = group_writes(self.package.workflow)
        for name in sorted(set(written) - set(self._final)):
            if scope.find(written[name]) is None:
                what = f"session cell '{name}' takes '{written[name]}', which is made inside a loop or branch"
                self.report.error("unknown-value", (*WORKFLOW, "state", name), what, "carry the cell in a loop")
        cells = [(name, cell, scope.find(written.get(name, cell.initializer))) for name, cell in self._state.items()]
        return tuple(
            Keep(name, value, format_path((*WORKFLOW, "state", name)))
            for name, cell, value in cells
            if cell.scope == "session" and name not in self._final and value is not None
            if cell.session is None or cell.session.continuation is None
        )

    def _step(self, step: Step, path: Path, scope: Scope) -> tuple[Op, ...]:
        match step:
            case SequenceStep():
                return self.ops(step.steps, (*path, "steps"), scope)
            case InvokeStep():
                return self._invoke(step, path, scope)
            case LoopStep():
                return self._loop(step, path, scope)
            case BranchStep():
                return self._branch(step, path, scope)
            case EmitStep():
                return self._emit(step, path, scope)

    # ---- invoke ------------------------------------------------------------------------------------------------------

    def _invoke(self, step: InvokeStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        component = self.components[step.component]
        inputs = self._bound_inputs(step, component, path, scope)
        ports = dict(component.outputs)
        outputs = tuple((port, scope.define(name, ports[port])) for port, name in step.outputs.items())
        declared = self.package.workflow.components[step.component]
        if refuse_runtime_step(component.name, declared, path, self.report):
            return ()
        if isinstance(declared.implementation, BindingImplementation):
            return (self._copy(step, component, path, scope),)
        before = (
            *input_checks(component, inputs, scope, self.package),
            *capacity_checks(component, inputs, scope, self.package),
        )
        after = output_checks(component, outputs, self.package)
        adapted = self.adaptation.of(component.name)
        return (Invoke(component.name, inputs, outputs, format_path(path), before, after, adapted=adapted),)

    def _bound_inputs(
        self, step: InvokeStep, component: Component, path: Path, scope: Scope
    ) -> tuple[tuple[str, str], ...]:
        ports, bound = dict(component.inputs), list[tuple[str, str]]()
        for port, name in step.inputs.items():
            place = (*path, "inputs", port)
            value = self.read(name, place, scope)
            if value is not None:
                self._fits(name, scope.type(value), ports[port], f"input '{port}' of '{component.name}'", place)
                bound.append((port, value))
        missing = sorted(set(ports) - set(step.inputs) - self._optional(component))
        if missing:
            names = ", ".join(f"'{each}'" for each in missing)
            what = f"component '{component.name}' needs its input{'s' * (len(missing) > 1)} {names}, not bound here"
            self.report.error("missing-port", (*path, "inputs"), what, "bind every input that is not optional")
        return tuple(bound)

    def _optional(self, component: Component) -> set[str]:
        declared = self.package.workflow.components[component.name].ports.inputs
        graph = self.package.graphs.get(component.name)
        defaulted = {each.name for each in graph.signature.defaulted} if graph is not None else set[str]()
        return {port for port, contract in declared.items() if contract.optional} | defaulted

    def _copy(self, step: InvokeStep, component: Component, path: Path, scope: Scope) -> Op:
        pairs: list[tuple[str, str]] = []
        for port, name in step.outputs.items():
            source = scope.find(step.inputs.get(port, ""))
            if source is None:
                what = (
                    f"binding component '{component.name}' copies '{port}' from an input of that name, not bound here"
                )
                self.report.error("binding-without-source", (*path, "outputs", port), what)
            else:
                pairs.append((source, scope.find(name) or name))
        contract = self.package.workflow.components[step.component].contract
        merges = contract is not None and contract.id == MERGE_AXES
        return Copy(component.name, tuple(pairs), format_path(path), merges)

    # ---- names -------------------------------------------------------------------------------------------------------

    def read(self, name: str, path: Path, scope: Scope) -> str | None:
        """The value of a name, or None after reporting that the runtime's own decoding keeps it to itself."""
        value = scope.find(name)
        if value is None:
            kept = f"'{name}' is a value of a loop that the runtime drives as a whole: only its emits leave it"
            what = kept if name in self._inside else f"nothing before this step defines '{name}'"
            self.report.error("unknown-value", path, what, "read what the loop emits" if name in self._inside else "")
        return value

    def _fits(self, name: str, source: Type, target: Type, what: str, path: Path) -> None:
        fault = mismatch(source, target)
        if fault:
            self.report.error("type-mismatch", path, f"'{name}' can't feed {what}: {fault}")

    # ---- loop --------------------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        setup = self.ops(step.setup, (*path, "setup"), scope)
        decoder = DecoderLoop.recognise(self.package, step)
        if decoder is not None:
            decoding, self.groups, self.decoder = decoder.build(self, path, scope)
            self.superseded |= decoder.superseded()
            self._inside |= {each.cell for each in step.carried}
            return (*setup, *decoding)
        limit = self.read(step.max_iterations, (*path, "max_iterations"), scope)
        inner = scope.inner()
        initials = [self._enter(each, (*path, "carried", at), scope, inner) for at, each in enumerate(step.carried)]
        live = self.read(step.continue_when, (*path, "continue_when"), inner)
        counter = ""
        if step.iteration is not None:
            counter = inner.define(step.iteration.value, type_of(step.iteration.contract))
        body = self.ops(step.steps, (*path, "steps"), inner)
        rows = live is not None and self._is_row_mask(inner.type(live))
        carried = [
            self._carry(each, initial, rows, (*path, "carried", at), inner)
            for at, (each, initial) in enumerate(zip(step.carried, initials, strict=True))
        ]
        keeps = tuple(keep for each in step.carried for keep in self._leave(each, path, scope, inner))
        loop = Loop(
            continue_when=live or "",
            max_iterations=limit or "",
            body=body,
            carried=tuple(each for each in carried if each is not None),
            termination=step.termination,
            iteration=counter,
            origin=format_path(path),
        )
        return (*setup, loop, *keeps)

    @staticmethod
    def _is_row_mask(type: Type) -> bool:
        return not type.ranked or (type.rank == 1 and type.dims[0] != 1)

    def _enter(self, carry: DeclaredCarry, path: Path, scope: Scope, inner: Scope) -> str | None:
        cell = self._state[carry.cell]
        name = carry.initial or cell.initializer
        place = (*path, "initial") if carry.initial else path
        initial = self.read(name, place, scope)
        if initial is not None:
            self._fits(name, scope.type(initial), type_of(cell.contract), f"cell '{carry.cell}'", place)
        inner.define(carry.cell, _inside(cell))
        return initial

    def _carry(self, carry: DeclaredCarry, initial: str | None, rows: bool, path: Path, inner: Scope) -> Carry | None:
        following = self.read(carry.next, (*path, "next"), inner)
        if following is None or initial is None:
            return None
        cell = self._state[carry.cell]
        self._fits(carry.next, inner.type(following), _inside(cell), f"cell '{carry.cell}'", (*path, "next"))
        merge = rows and cell.service_group is None
        rule, law = cell.recurrence, (*WORKFLOW, "state", carry.cell, "recurrence")
        increment = self.read(rule.increment, (*law, "increment"), inner) if isinstance(rule, Growing) else ""
        maximum = self.read(rule.max, (*law, "max"), inner) if isinstance(rule, Growing | Bounded) else ""
        value = inner.find(carry.cell) or ""
        return Carry(value, initial, following, merge, increment or "", maximum or "", carry.cell)

    def _leave(self, carry: DeclaredCarry, path: Path, scope: Scope, inner: Scope) -> Iterator[Keep]:
        value = inner.find(carry.cell) or ""
        scope.bind(carry.cell, value)
        self._final[carry.cell] = carry.cell
        if self._state[carry.cell].scope == "session":
            yield Keep(carry.cell, value, format_path(path))

    # ---- branch and emit ---------------------------------------------------------------------------------------------

    def _branch(self, step: BranchStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        predicate = self.read(step.predicate, (*path, "predicate"), scope)
        scopes = {key: scope.inner() for key in step.cases}
        cases = tuple((key, self._step(case, (*path, "cases", key), scopes[key])) for key, case in step.cases.items())
        other = scope.inner()
        default = self._step(step.default, (*path, "default"), other) if step.default is not None else None
        joins = [
            self._join(name, output, (*path, "outputs", name), scope, scopes, other)
            for name, output in step.outputs.items()
        ]
        keeps = tuple(keep for name in step.outputs for keep in self._joined_cells(name, path, scope))
        return (Branch(predicate or "", cases, default, tuple(joins), format_path(path)), *keeps)

    def _joined_cells(self, name: str, path: Path, scope: Scope) -> Iterator[Keep]:
        """Session cells whose final value a branch output has become."""
        for cell, final in self._final.items():
            if final == name and self._state[cell].scope == "session":
                yield Keep(cell, scope.find(name) or name, format_path(path))

    def _join(
        self,
        name: str,
        output: BranchOutput,
        path: Path,
        scope: Scope,
        scopes: Mapping[str, Scope],
        other: Scope,
    ) -> Join:
        sources = [(key, self.read(value, (*path, "cases", key), scopes[key])) for key, value in output.cases.items()]
        fallback = self.read(output.default, (*path, "default"), other) if output.default else None
        found = [value for _, value in sources if value] + ([fallback] if fallback else [])
        types = [scope.type(value) for value in found]
        for type in types[1:]:
            self._fits(name, type, types[0], "this branch output", path)
        origins = {*output.cases.values(), output.default}
        for cell in [cell for cell, final in self._final.items() if final in origins]:
            self._final[cell] = name
        joined = scope.define(name, types[0].joined(types[1:]) if types else Type("", 0, (), ranked=False))
        return Join(joined, tuple((key, value) for key, value in sources if value), fallback or "")

    def _emit(self, step: EmitStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        value = self.read(step.value, (*path, "value"), scope)
        guard = self.read(step.when, (*path, "when"), scope) if step.when else ""
        length = self.read(step.valid_length, (*path, "valid_length"), scope) if step.valid_length else ""
        if value is None or guard is None or length is None:
            return ()
        output = self._outputs[step.output]
        type = scope.type(value)
        self._emit_fits(step, type, output, path)
        axis = step.axis if step.axis is not None else max((type if type.ranked else output.type).rank - 1, 0)
        return (Emit(value, output.name, step.mode, guard, length, axis, output.rowwise, format_path(path)),)

    def _emit_fits(self, step: EmitStep, type: Type, output: Output, path: Path) -> None:
        wanted = output.type
        if step.mode == "append" or step.valid_length:
            axis = step.axis if step.axis is not None else max(type.rank - 1, 0)
            wanted = wanted.with_dim(axis, None) if axis < wanted.rank else wanted
        self._fits(step.value, type, wanted, f"output '{output.name}'", (*path, "value"))


def _inside(cell: StateCell) -> Type:
    """The type of a cell's values from iteration to iteration: a number on its varying axis holds at the entry only."""
    type, rule = type_of(cell.contract), cell.recurrence
    if isinstance(rule, Growing | Bounded) and rule.axis < type.rank and isinstance(type.dims[rule.axis], int):
        return type.with_dim(rule.axis, None)
    return type
