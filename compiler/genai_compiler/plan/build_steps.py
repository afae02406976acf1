"""Workflow steps -> ops. Names are resolved lexically; one that fails is reported once and poisons what hangs on it."""

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
from genai_compiler.plan.scope import Scope, did_you_mean
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
    Step,
)
from genai_compiler.read.document import Carry as DeclaredCarry
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path

POISON = Type("unknown", 0)
"""The type of a value whose definition was already reported: nothing further is said about it."""


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
        component = self.components.get(step.component)
        if component is None:
            self._unknown_component(step, path)
            self._poison(step, path, scope)
            return ()
        inputs = self._bound_inputs(step, component, path, scope)
        outputs = self._bound_outputs(step, component, path, scope)
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

    def _unknown_component(self, step: InvokeStep, path: Path) -> None:
        known = self.package.workflow.components
        if step.component not in known:  # a declared one without a graph was reported when its artifact was read
            what = f"no component '{step.component}' is declared"
            self.report.error("unknown-component", (*path, "component"), what, did_you_mean(step.component, known))

    def _bound_inputs(
        self, step: InvokeStep, component: Component, path: Path, scope: Scope
    ) -> tuple[tuple[str, str], ...]:
        ports, bound = dict(component.inputs), list[tuple[str, str]]()
        for port, name in step.inputs.items():
            place = (*path, "inputs", port)
            if port not in ports:
                what = f"component '{component.name}' has no input '{port}'"
                self.report.error("unknown-port", place, what, did_you_mean(port, ports))
                continue
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

    def _bound_outputs(
        self, step: InvokeStep, component: Component, path: Path, scope: Scope
    ) -> tuple[tuple[str, str], ...]:
        ports, bound = dict(component.outputs), list[tuple[str, str]]()
        for port, name in step.outputs.items():
            place = (*path, "outputs", port)
            if port not in ports:
                what = f"component '{component.name}' has no output '{port}'"
                self.report.error("unknown-port", place, what, did_you_mean(port, ports))
            value = self.define(name, ports.get(port, POISON), place, scope)
            bound.append((port, value))
        return tuple(bound)

    def _optional(self, component: Component) -> set[str]:
        declared = self.package.workflow.components[component.name].ports.inputs
        graph = self.package.graphs.get(component.name)
        defaulted = {each.name for each in graph.signature.defaulted} if graph is not None else set[str]()
        return {port for port, contract in declared.items() if contract.optional} | defaulted

    def _poison(self, step: InvokeStep, path: Path, scope: Scope) -> None:
        for port, name in step.outputs.items():
            self.define(name, POISON, (*path, "outputs", port), scope)

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
        """The value of a name, or None after reporting that nothing visible defines it."""
        value = scope.find(name)
        if value is None:
            what = f"nothing before this step defines '{name}'"
            self.report.error("unknown-value", path, what, did_you_mean(name, scope.visible()))
        return value

    def define(self, name: str, type: Type, path: Path, scope: Scope) -> str:
        """A fresh value of that name; reported when the name is already visible here."""
        if scope.find(name) is not None:
            what = f"'{name}' is already defined; every definition needs a name of its own"
            self.report.error("value-defined-twice", path, what)
        return scope.define(name, type)

    def _fits(self, name: str, source: Type, target: Type, what: str, path: Path) -> None:
        if "unknown" in (source.dtype, target.dtype):
            return
        fault = mismatch(source, target)
        if fault:
            self.report.error("type-mismatch", path, f"'{name}' can't feed {what}: {fault}")

    # ---- loop --------------------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        setup = self.ops(step.setup, (*path, "setup"), scope)
        decoder = DecoderLoop.recognise(self.package, step)
        if decoder is not None:
            decoding, self.groups, self.decoder = decoder.build(self, path, scope)
            self.superseded |= decoder.superseded() - {step.max_iterations, "request.input_ids"}
            return (*setup, *decoding)
        limit = self.read(step.max_iterations, (*path, "max_iterations"), scope)
        inner = scope.inner()
        initials = [self._enter(each, (*path, "carried", at), scope, inner) for at, each in enumerate(step.carried)]
        live = self.read(step.continue_when, (*path, "continue_when"), inner)
        counter = ""
        if step.iteration is not None:
            counter = self.define(step.iteration.value, type_of(step.iteration.contract), (*path, "iteration"), inner)
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
        return type.rank == 1 and type.dims[0] != 1

    def _enter(self, carry: DeclaredCarry, path: Path, scope: Scope, inner: Scope) -> str | None:
        cell = self._state.get(carry.cell)
        if cell is None:
            what = f"no state cell '{carry.cell}' is declared"
            self.report.error("unknown-cell", (*path, "cell"), what, did_you_mean(carry.cell, self._state))
            inner.define(carry.cell, POISON)
            return None
        name = carry.initial or cell.initializer
        place = (*path, "initial") if carry.initial else path
        initial = self.read(name, place, scope)
        type = type_of(cell.contract)
        if initial is not None:
            self._fits(name, scope.type(initial), type, f"cell '{carry.cell}'", place)
        self.define(carry.cell, type, (*path, "cell"), inner)
        return initial

    def _carry(self, carry: DeclaredCarry, initial: str | None, rows: bool, path: Path, inner: Scope) -> Carry | None:
        following = self.read(carry.next, (*path, "next"), inner)
        cell = self._state.get(carry.cell)
        if following is None or cell is None or initial is None:
            return None
        self._fits(carry.next, inner.type(following), type_of(cell.contract), f"cell '{carry.cell}'", (*path, "next"))
        merge = rows and cell.service_group is None
        rule, law = cell.recurrence, (*WORKFLOW, "state", carry.cell, "recurrence")
        increment = self.read(rule.increment, (*law, "increment"), inner) if isinstance(rule, Growing) else ""
        maximum = self.read(rule.max, (*law, "max"), inner) if isinstance(rule, Growing | Bounded) else ""
        value = inner.find(carry.cell) or ""
        return Carry(value, initial, following, merge, increment or "", maximum or "", carry.cell)

    def _leave(self, carry: DeclaredCarry, path: Path, scope: Scope, inner: Scope) -> Iterator[Keep]:
        value = inner.find(carry.cell)
        if value is not None and scope.find(carry.cell) is None:
            scope.bind(carry.cell, value)
        if carry.cell in self._state:
            self._final[carry.cell] = carry.cell
            if self._state[carry.cell].scope == "session" and value is not None:
                yield Keep(carry.cell, value, format_path(path))

    # ---- branch and emit ---------------------------------------------------------------------------------------------

    def _branch(self, step: BranchStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        predicate = self.read(step.predicate, (*path, "predicate"), scope)
        if predicate is not None and scope.type(predicate).rank > 1:
            what = f"predicate '{step.predicate}' has rank {scope.type(predicate).rank}; a branch needs one element"
            self.report.error("branch-predicate", (*path, "predicate"), what)
        scopes = {key: scope.inner() for key in step.cases}
        cases = tuple((key, self._step(case, (*path, "cases", key), scopes[key])) for key, case in step.cases.items())
        other = scope.inner()
        default = self._step(step.default, (*path, "default"), other) if step.default is not None else None
        joins = [
            self._join(name, output, step, (*path, "outputs", name), scope, scopes, other)
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
        step: BranchStep,
        path: Path,
        scope: Scope,
        scopes: Mapping[str, Scope],
        other: Scope,
    ) -> Join:
        for key in sorted(set(scopes) - set(output.cases)):
            self.report.error("join-lacks-case", path, f"branch output '{name}' has no value for case '{key}'")
        for key in sorted(set(output.cases) - set(scopes)):
            self.report.error("unknown-case", (*path, "cases", key), f"the branch has no case '{key}'")
        sources = [
            (key, self.read(value, (*path, "cases", key), scopes[key]))
            for key, value in output.cases.items()
            if key in scopes
        ]
        fallback = self.read(output.default, (*path, "default"), other) if output.default else None
        if step.default is not None and output.default is None:
            self.report.error("join-lacks-case", path, f"branch output '{name}' has no value for the default case")
        found = [value for _, value in sources if value] + ([fallback] if fallback else [])
        types = [scope.type(value) for value in found]
        for type in types[1:]:
            self._fits(name, type, types[0], "this branch output", path)
        origins = {*output.cases.values(), output.default}
        for cell in [cell for cell, final in self._final.items() if final in origins]:
            self._final[cell] = name
        joined = self.define(name, types[0].joined(types[1:]) if types else POISON, path, scope)
        return Join(joined, tuple((key, value) for key, value in sources if value), fallback or "")

    def _emit(self, step: EmitStep, path: Path, scope: Scope) -> tuple[Op, ...]:
        value = self.read(step.value, (*path, "value"), scope)
        guard = self.read(step.when, (*path, "when"), scope) if step.when else ""
        length = self.read(step.valid_length, (*path, "valid_length"), scope) if step.valid_length else ""
        output = self._outputs.get(step.output)
        if output is None:
            what = f"no output '{step.output}' is declared"
            self.report.error("undeclared-output", (*path, "output"), what, did_you_mean(step.output, self._outputs))
        if value is None or output is None or guard is None or length is None:
            return ()
        type = scope.type(value)
        self._emit_fits(step, type, output, path)
        axis = step.axis if step.axis is not None else max(type.rank - 1, 0)
        return (Emit(value, output.name, step.mode, guard, length, axis, output.rowwise, format_path(path)),)

    def _emit_fits(self, step: EmitStep, type: Type, output: Output, path: Path) -> None:
        if type.dtype == "unknown":
            return
        wanted = output.type
        if step.mode == "append" or step.valid_length:
            axis = step.axis if step.axis is not None else max(type.rank - 1, 0)
            wanted = wanted.with_dim(axis, None) if axis < wanted.rank else wanted
        self._fits(step.value, type, wanted, f"output '{output.name}'", (*path, "value"))
