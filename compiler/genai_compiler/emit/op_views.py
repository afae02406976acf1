"""Ops -> flat views: every name chosen, every argument spelled. A view is a template's name and the text it places."""

from collections.abc import Iterator

from genai_compiler.emit.adapter_views import adapted_argument, selection_call
from genai_compiler.emit.decoder_views import DecoderViews
from genai_compiler.emit.names import Names, comment, literal, tuple_of
from genai_compiler.emit.op_view import OpView, Writing
from genai_compiler.emit.settled_views import Pairs, Promises, SettledViews
from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.ir import (
    Branch,
    CapacityCheck,
    Carry,
    Cell,
    Check,
    CheckHeld,
    Copy,
    Decode,
    Emit,
    ExtentCheck,
    FormCheck,
    Fused,
    Hold,
    Invoke,
    Keep,
    LastRun,
    Loop,
    Op,
    Plan,
    Release,
    SelectToken,
    SpeculativeBlock,
    StartPolicy,
)
from genai_compiler.plan.of_request import made_of_files
from genai_compiler.plan.readers import Readers
from genai_compiler.plan.settled_loops import Surroundings, has_shorter_way, run_of
from genai_compiler.plan.uses import all_reads, checked_values, defines, walk
from genai_compiler.read.signature import UNDEFINED


class OpViews:
    """Turns the ops of one plan into views."""

    def __init__(self, plan: Plan, names: Names) -> None:
        self.plan, self.names = plan, names
        self._writing = writing = Writing(plan, names)
        self.uses, self._call = writing.uses, writing.call
        self._decoder = DecoderViews(writing)
        self._steady: dict[tuple[tuple[str, str], ...], tuple[str, str]] = {}
        self._counted: set[str] = set()
        self._entering: list[str] = []
        self._limit = ""
        self._files = made_of_files(plan)
        self._readers, self._around = Readers(plan), Surroundings(plan)

    def region(self, ops: tuple[Op, ...], step: str) -> tuple[OpView, ...]:
        """The views of one region. step: the name of the innermost iteration counter, "0" outside loops."""
        views: list[OpView] = []
        for at, op in enumerate(ops):
            if isinstance(op, Decode) and op.phase == "prompt":
                loop = next(each for each in ops[at:] if isinstance(each, Loop))
                views.append(self._decoder.prompt(op, loop))
            elif not isinstance(op, StartPolicy):  # the runtime's TokenPolicy, which begins with the prompt
                views.append(self._view(op, step))
        return tuple(views)

    def _view(self, op: Op, step: str) -> OpView:
        match op:
            case Invoke():
                return self._invoke(op)
            case Fused():
                return self._fused(op)
            case SelectAdapters():
                return self._select_adapters(op)
            case Copy():
                pairs = tuple(f"{self.names.of(target)} = {self._copied(op, source)}" for source, target in op.pairs)
                return OpView("_copy.py.j2", {"origin": comment(op.origin), "lines": pairs})
            case LastRun():
                lines = tuple(f"{self.names.of(value)} = decoding.left[{literal(port)}]" for port, value in op.pairs)
                return OpView("_copy.py.j2", {"origin": comment(op.origin), "lines": lines})
            case Emit():
                return self._emit(op, step)
            case Release():
                return OpView("_release.py.j2", {"names": ", ".join(map(self.names.of, op.values))})
            case Hold():
                return self._hold(op)
            case CheckHeld():
                name = self.uses.held[op.group][0]
                call = f"{name}.bounded({self.names.of(op.maximum)}, {literal(op.origin)})"
                return OpView("_check_held.py.j2", {"call": call})
            case Keep():
                call = f"request.keep({literal(op.cell)}, {self.names.of(op.value)})"
                return OpView("_keep.py.j2", {"origin": comment(op.origin), "cell": comment(op.cell), "call": call})
            case Loop():
                if isinstance(op.body[0] if op.body else None, SpeculativeBlock):
                    return self._decoder.block_loop(op)
                return self._decoder.loop(op) if op.advance else self._loop(op)
            case Branch():
                return self._branch(op, step)
            case Decode() | StartPolicy() | SelectToken() | SpeculativeBlock():
                raise TypeError(f"{type(op).__name__} stands outside a decoder loop")

    # ---- invoke and emit -------------------------------------------------------------------------------------------

    def _invoke(self, op: Invoke) -> OpView:
        runner = self.uses.held[op.held][0] if op.held else self._runner(op)
        if op.steady and not op.held:
            steady = self.names.fresh(f"steady_{op.component}")
            self._entering.append(f"{steady} = {runner}.steady({self._limit})")
            self._steady[op.outputs] = steady, runner
            runner = steady
        given = (self.names.of(value) for _, value in op.inputs)
        args = ", ".join((*given, *adapted_argument(op, self.plan, self.names)))
        targets = [self.names.of(value) for _, value in op.outputs]
        run = f"{runner}({args})"
        call = f"{', '.join(targets)} = {run}{'[0]' if len(targets) == 1 else ''}"
        fields: dict[str, str | tuple[str, ...]] = {
            "origin": comment(op.origin),
            "component": comment(op.component),
            "before": tuple(self._check(each, op) for each in op.before),
            "after": tuple(self._check(each, op) for each in op.after),
            "call": call if targets else run,
        }
        return OpView("_invoke.py.j2", fields)

    def _fused(self, op: Fused) -> OpView:
        """One run, or its members where the request puts another component in the place of one."""
        whole = self._arm("if not request.overrides:", (self._invoke(op.run),), ())
        known = set(self.uses.runners)
        members = tuple(self._invoke(each) for each in op.members)
        self.uses.spare |= set(self.uses.runners) - known
        return OpView("_arms.py.j2", {}, {"arms": (whole, self._arm("else:", members, ()))})

    def _select_adapters(self, op: SelectAdapters) -> OpView:
        name = self.names.fresh("select_adapters")
        self.uses.selector = (name, op)
        fields = {"origin": comment(op.origin), "call": selection_call(op, name, self.names)}
        return OpView("_select_adapters.py.j2", fields)

    def _runner(self, op: Invoke) -> str:
        """A runner of this step's own."""
        runner = self.names.fresh(op.component)
        inputs = tuple(port for port, _ in op.inputs)
        outputs = tuple(port for port, _ in op.outputs)
        outputs = outputs or (self.plan.component(op.component).outputs[0][0],)  # a session runs for one at least
        self.uses.runners[runner] = (op.component, inputs, outputs, op.origin)
        return runner

    def _hold(self, op: Hold) -> OpView:
        name = self.names.fresh(op.group)
        self.uses.held[op.group] = (name, self.names.constant(op.group), op)
        self.uses.imports.update(("HeldSpec", "Holder"))
        values = tuple_of(self.names.of(value) for _, value in op.cells)
        limit = self._call("iteration_limit", self.names.of(op.max_iterations), literal(op.origin))
        for cell, _ in op.cells:
            self._cell_table(self.plan.cell(cell))
        adapted = f", {self.names.of(op.run.adapted)}" if op.run.adapted else ""
        call = f"{name} = self.{name}.hold({values}, {limit}, inputs.symbols{adapted})"
        return OpView("_hold.py.j2", {"origin": comment(op.origin), "group": comment(op.group), "call": call})

    def _check(self, check: Check, op: Invoke) -> str:
        if isinstance(check, ExtentCheck):
            what = literal(f"'{check.value}'")
            args = [self.names.of(check.value), str(check.axis), str(check.extent), what, literal(op.origin)]
            files = self._files.get(check.value)
            return self._call("has_extent", *args, *([literal(files), "inputs"] if files else []))
        if isinstance(check, FormCheck):
            form = (literal(check.dtype), str(check.rank), literal(f"'{check.value}'"))
            return self._call("has_form", self.names.of(check.value), *form, literal(op.origin))
        if isinstance(check, CapacityCheck):
            lengths = self.names.of(check.lengths) if check.lengths else "None"
            states = [f"({self.names.of(value)}, {axis})" for value, axis in check.states]
            held = (self.names.of(check.destinations), self.names.of(check.capacity), lengths)
            return self._call("within_capacity", literal(check.group), literal(op.origin), *held, *states)
        places = [f"({self.names.of(value)}, {axis}, {factor})" for value, axis, factor in check.places]
        return self._call("agree", literal(check.symbol), literal(op.origin), *places)

    def _emit(self, op: Emit, step: str) -> OpView:
        self.uses.publishes = True
        args = [literal(op.output), literal(op.mode), self.names.of(op.value), str(op.axis), step, literal(op.origin)]
        if op.rowwise and op.when:
            args.append(f"when={self.names.of(op.when)}")
        if op.valid_length:
            args.append(f"length={self.names.of(op.valid_length)}")
        call = f"yield from out.emit_rows({', '.join(args)})" if op.rowwise else f"yield out.emit({', '.join(args)})"
        self._counted.add(step)
        return OpView("_emit.py.j2", {"origin": comment(op.origin), "call": call})

    # ---- loops -----------------------------------------------------------------------------------------------------

    def _loop(self, op: Loop) -> OpView:
        step, limit = self.names.fresh("step"), self.names.fresh("limit")
        live, going = self.names.fresh("live"), self.names.fresh("going")
        enter = tuple(self._enter(carry, op) for carry in op.carried)
        if op.released_on_entry:
            enter += (f"del {', '.join(map(self.names.of, op.released_on_entry))}",)
        outside, self._entering, self._limit = (self._entering, self._limit), [], limit
        body = self.region(op.body, step)
        enter = (*enter, *self._entering)
        self._entering, self._limit = outside
        shorter = has_shorter_way(op, self._around)
        settled = (
            (SettledViews(self._writing, op, self._steady, (step, limit), self._promises(op)).view(),)
            if shorter
            else ()
        )
        counts = bool(op.iteration) or step in self._counted or shorter
        fields: dict[str, str | tuple[str, ...]] = {
            "origin": comment(op.origin),
            "bound": f"{limit} = "
            + self._call("iteration_limit", self.names.of(op.max_iterations), literal(op.origin)),
            "head": f"for {step if counts else '_'} in range({limit}):",
            "enter": enter,
            "live": self._count_live(op, live, going),
            "stop": f"if not {going}:",
            "count": self._counter(op, step),
            "laws": tuple(law for carry in op.carried for law in self._laws(carry, op)),
            "carry": self._carry(op, live, going),
        }
        return OpView("_loop.py.j2", fields, {"body": body, "settled": settled})

    def _count_live(self, op: Loop, live: str, going: str) -> str:
        """The mask of live rows, where a cell keeps the others' entries, and how many there are."""
        heed = ["request.stop_on_eos"] if op.termination == "generation_eos" else []
        args = (self.names.of(op.continue_when), *heed, f"origin={literal(op.origin)}")
        counted = self._call("live_rows", *args)
        keeps = any(carry.merge for carry in self._moving(op))
        return f"{live}, {going} = {counted}" if keeps else f"{going} = {counted}[1]"

    def _counter(self, op: Loop, step: str) -> tuple[str, ...]:
        if not op.iteration:
            return ()
        type = self.plan.types[op.iteration]
        extent = type.dims[0] if type.rank else 1
        args = [step, str(type.rank)] + ([str(extent)] if isinstance(extent, int) and extent != 1 else [])
        if isinstance(extent, str):
            times = f" * {type.row_factor}" if type.row_axis == 0 and type.row_factor != 1 else ""
            args.append(f"inputs.symbols.get({literal(extent)}, 1){times}")
        return (f"{self.names.of(op.iteration)} = " + self._call("iteration_value", *args),)

    def _enter(self, carry: Carry, op: Loop) -> str:
        cell = self._cell(carry)
        initial = self.names.of(carry.initial)
        if cell.scope == "session":
            initial = f"request.kept({literal(cell.name)}, {initial})"
        entered = self._call("enter", self._cell_table(cell), initial, "inputs.symbols", literal(op.origin))
        return f"{self.names.of(carry.cell)} = {entered}" if self._is_read(carry, op) else entered

    def _is_read(self, carry: Carry, op: Loop) -> bool:
        """Whether anything asks for a cell but its own way round the loop."""
        others = {each.next for each in op.carried if each is not carry} | {op.continue_when}
        others |= {value for each in op.carried for value in (each.increment, each.maximum)}
        read = carry.cell in others | self._readers.released or self._readers.beside(carry.cell, op)
        return read or carry in self._moving(op) or any(self._laws(carry, op))

    def _cell_table(self, cell: Cell) -> str:
        known = self.uses.tables.get(cell.name)
        if known is None:
            known = self.uses.tables[cell.name] = self.names.constant(f"{cell.name}_cell")
            self.uses.cells[known] = cell
        return known

    def _cell(self, carry: Carry) -> Cell:
        return self.plan.cell(carry.declared)

    def _laws(self, carry: Carry, op: Loop) -> Iterator[str]:
        """What holds a next value: the cell's dtype where no graph says the value's, and its recurrence."""
        if self.plan.types[carry.next].dtype == UNDEFINED:
            cell = self._cell(carry)
            form = (literal(cell.type.dtype), "-1", literal(f"cell '{cell.name}'"))
            yield self._call("has_form", self.names.of(carry.next), *form, literal(op.origin))
        if self._has_law(carry):
            yield self._law(carry, op)

    def _has_law(self, carry: Carry) -> bool:
        """Whether anything is to be held against a law: a cell that becomes itself, or is proved to, is invariant."""
        return not carry.proved and (carry.next != carry.cell or self._cell(carry).recurrence != "invariant")

    def _promises(self, op: Loop) -> dict[Pairs, Promises]:
        """What a run defines -> what the extents of its results are held against.

        Extents of other values may be asked for, which are what they were; not of values that are released.
        """
        gone = {value for each in op.body if isinstance(each, Release) for value in each.values}
        found: dict[Pairs, Promises] = {}
        for run in filter(None, map(run_of, op.body)):
            made = set(defines(run))
            checks = (each for each in run.after if not checked_values(each) & (gone - made))
            laws = (law for carry in op.carried if carry.next in made for law in self._laws(carry, op))
            found[run.outputs] = tuple(self._check(each, run) for each in checks), tuple(laws)
        return found

    def _law(self, carry: Carry, op: Loop) -> str:
        cell, origin = self._cell(carry), literal(op.origin)
        current, following = self.names.of(carry.cell), self.names.of(carry.next)
        name = literal(cell.name)
        if cell.recurrence == "invariant":
            return self._call("invariant", name, current, following, origin)
        maximum = self.names.of(carry.maximum)
        if cell.recurrence == "bounded":
            return self._call("bounded", name, current, following, str(cell.axis), maximum, origin)
        increment = self.names.of(carry.increment)
        grouped = ("grouped=True",) if cell.group else ()
        return self._call("growing", name, current, following, str(cell.axis), increment, maximum, origin, *grouped)

    def _carry(self, op: Loop, live: str, going: str) -> tuple[str, ...]:
        """Lines that turn next values into current ones, all at once; inactive rows keep theirs."""
        moving = self._moving(op)
        if not moving:
            return ()
        cells = [self.names.of(carry.cell) for carry in moving]
        kept = tuple(carry for carry in moving if carry.merge)
        if not kept:
            return _assignments(cells, [self.names.of(carry.next) for carry in moving])
        merged = [
            self.names.fresh(f"next_{carry.cell}") if carry.merge else self.names.of(carry.next) for carry in moving
        ]
        starts = [f"{name} = {self.names.of(c.next)}" for name, c in zip(merged, moving, strict=True) if c.merge]
        return (
            *starts,
            f"if {going} < {live}.size:",
            *(f"    {name} = {self._keep(c, live, op)}" for name, c in zip(merged, moving, strict=True) if c.merge),
            *_assignments(cells, merged),
        )

    def _moving(self, op: Loop) -> list[Carry]:
        return [carry for carry in op.carried if carry.next != carry.cell or self._may_not_merge(carry, op)]

    def _may_not_merge(self, carry: Carry, op: Loop) -> bool:
        """Whether a cell that becomes itself may lack an entry for each row: inactive rows can't keep theirs then."""
        if not carry.merge:
            return False
        type, live = self.plan.types[carry.cell], self.plan.types[op.continue_when]
        known = type.row_axis is not None and isinstance(type.dims[type.row_axis], str)
        fits = known and type.dims[type.row_axis or 0] == live.dims[0]
        return not (fits and any(each.cell == op.continue_when for each in op.carried))

    def _keep(self, carry: Carry, live: str, op: Loop) -> str:
        cell = self._cell(carry)
        axis = cell.type.row_axis if cell.type.row_axis is not None else -1
        grows = cell.axis if cell.recurrence == "growing" else -1
        current, following = self.names.of(carry.cell), self.names.of(carry.next)
        shape = (str(axis), str(cell.type.row_factor), str(grows))
        return self._call("keep_rows", literal(cell.name), live, current, following, *shape, literal(op.origin))

    def _copied(self, op: Copy, source: str) -> str:
        return self._call("merge_axes", self.names.of(source)) if op.merges else self.names.of(source)

    # ---- branch ----------------------------------------------------------------------------------------------------

    def _branch(self, op: Branch, step: str) -> OpView:
        key = self.names.fresh("chosen_case")
        fields: dict[str, str | tuple[str, ...]] = {
            "origin": comment(op.origin),
            "key": f"{key} = " + self._call("branch_key", self.names.of(op.predicate), literal(op.origin)),
        }
        arms = tuple(self._arms(op, key, step))
        return OpView("_branch.py.j2", fields, {"arms": arms})

    def _arms(self, op: Branch, key: str, step: str) -> Iterator[OpView]:
        for at, (case, ops) in enumerate(op.cases):
            joins = tuple(
                f"{self.names.of(join.name)} = {self.names.of(value)}"
                for join in op.joins
                for name, value in join.cases
                if name == case
            )
            word = "if" if at == 0 else "elif"
            yield self._arm(f"{word} {key} == {literal(case)}:", self.region(ops, step), joins)
        if op.default is None:
            inputs = (each for each in self.plan.inputs if each.present_as == op.predicate)
            asked = (literal(each.application_name or each.name) for each in inputs)
            yield self._arm("else:", (), ("raise " + self._call("unmatched_case", key, literal(op.origin), *asked),))
        else:
            joins = tuple(f"{self.names.of(join.name)} = {self.names.of(join.default)}" for join in op.joins)
            yield self._arm("else:", self.region(op.default, step), joins)

    @staticmethod
    def _arm(head: str, body: tuple[OpView, ...], joins: tuple[str, ...]) -> OpView:
        lines = joins if body or joins else ("pass",)
        return OpView("_arm.py.j2", {"head": head, "joins": lines}, {"body": body})


def read_values(plan: Plan) -> frozenset[str]:
    """Values that something reads: an op or a check."""
    read = {value for op in plan.body for value in all_reads(op)}
    checks = (each for op in walk(plan.body) if isinstance(op, Invoke) for each in (*op.before, *op.after))
    return frozenset(read.union(*map(checked_values, checks)))


def _assignments(targets: list[str], sources: list[str]) -> tuple[str, ...]:
    """Lines that assign all at once: one by one where no source is a target, else as one tuple."""
    if set(sources).isdisjoint(targets):
        return tuple(f"{target} = {source}" for target, source in zip(targets, sources, strict=True))
    return (f"{', '.join(targets)} = {', '.join(sources)}",)
