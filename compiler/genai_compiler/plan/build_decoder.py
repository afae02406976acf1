"""The loop of a decoder whose token policy the runtime supplies (standard, 10.3): its state, mask and positions.

The document binds the decoder's sequence port to the prompt on every iteration and calls its state invariant; what is
meant is that the prompt is processed once and each later step takes one token. Here that meaning becomes ops.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genai_compiler.plan.decoder_form import HELP, OWNED, control_ports, form_faults, placed_by_grids, roles_of
from genai_compiler.plan.decoder_front import FrontStep, front_of, switch_cells
from genai_compiler.plan.decoder_pages import page_dims, pages_of, positions_rank
from genai_compiler.plan.decoder_traits import (
    mask_of,
    one_by_step,
    runs_token_by_token,
    shift_of,
    slot_dim,
    state_group,
    switch_of,
    tells_rows_apart,
    window_of,
)
from genai_compiler.plan.ir import (
    Carry,
    Decode,
    Emit,
    Loop,
    Op,
    SelectToken,
    StartPolicy,
    Type,
)
from genai_compiler.plan.last_run import last_run, left_ports
from genai_compiler.plan.link_stages import PROMPT_COMPONENT
from genai_compiler.plan.report import WORKFLOW, Path
from genai_compiler.plan.scope import Scope
from genai_compiler.plan.state import (
    LENGTHS_OF_ALL_ROWS,
    LENGTHS_OF_ONE_ROW,
    Count,
    DecodeFacts,
    Front,
    Slot,
    StateGroup,
)
from genai_compiler.read.document import Bounded, Component, EmitStep, IndexedScatter, InvokeStep, LoopStep
from genai_compiler.read.document import StateGroup as DeclaredGroup
from genai_compiler.read.graph_facts import last_token_only
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.places import format_path
from genai_compiler.read.signature import Port

if TYPE_CHECKING:
    from genai_compiler.plan.build_steps import StepBuilder

DECODE, POLICY = "onnx-genai.autoregressive-decode", "onnx-genai.token-policy"
OWNED_ROLES = ("token_ids", *OWNED)
Pairs = tuple[tuple[str, str], ...]
Built = tuple[tuple[Op, ...], tuple[StateGroup, ...], DecodeFacts | None]


@dataclass(frozen=True)
class DecoderLoop:
    """A recognised loop: which steps decode, select and publish."""

    package: Package
    loop: LoopStep
    decode: tuple[int, InvokeStep]
    policy: tuple[int, InvokeStep]
    front: FrontStep | None = None

    @classmethod
    def recognise(cls, package: Package, loop: LoopStep) -> "DecoderLoop | None":
        """The loop's decoder and policy, or None when the loop has no policy that the runtime must supply."""
        invokes = [(at, step) for at, step in enumerate(loop.steps) if isinstance(step, InvokeStep)]
        policy = [each for each in invokes if _contract(package, each[1]) == POLICY and _is_binding(package, each[1])]
        decode = [
            each for each in invokes if _contract(package, each[1]) == DECODE and not _is_binding(package, each[1])
        ]
        if not len(policy) == len(decode) == 1:
            return None
        return cls(package, loop, decode[0], policy[0], front_of(package.workflow, loop, decode[0][1]))

    def build(self, steps: "StepBuilder", path: Path, scope: Scope) -> Built:
        """The loop as ops, the decoder's state groups, and the facts that drive it."""
        graph = self.package.graphs.get(self.decode[1].component)
        if graph is None:
            return (), (), None
        limit = steps.read(self.loop.max_iterations, (*path, "max_iterations"), scope)
        groups = tuple(self._groups(steps, graph))
        extras = tuple(self._extras(steps, path, scope))
        facts = self._facts(steps, graph, groups, extras)
        if facts is None or limit is None or self._deviates(steps, facts, path):
            return (), (), None
        return self._ops(steps, facts, extras, limit, path, scope), groups, facts

    def _deviates(self, steps: "StepBuilder", facts: DecodeFacts, path: Path) -> bool:
        """Whether the loop is not exactly what the runtime's own decoding does; reported at every deviation."""
        roles = self._roles()
        tokens = facts.tokens if self.front is None else self.front.tokens
        faults = tuple(form_faults(self.package.workflow, self.loop, roles, facts.logits, tokens, self.front))
        for place, what in faults:
            steps.report.error("decoder-loop-form", (*path, *place), what, HELP)
        return bool(faults)

    # ---- ops ---------------------------------------------------------------------------------------------------------

    def _ops(
        self, steps: "StepBuilder", facts: DecodeFacts, extras: Pairs, limit: str, path: Path, scope: Scope
    ) -> tuple[Op, ...]:
        at, decode = self.decode
        taker, place = (decode, at) if self.front is None else (self.front.step, 0)
        port = facts.tokens if self.front is None else self.front.tokens
        prompt = steps.read(taker.inputs.get(port, ""), (*path, "steps", place, "inputs", port), scope)
        if prompt is None:
            return ()
        inner = scope.inner()
        flags = {"active": Type("bool", 1, ("batch",), 0), "done": Type("bool", 1, ("batch",), 0)}
        flags["accepted_len"] = Type("int64", 1, ("batch",), 0)
        token = Type("int64", 2, ("batch", 1), 0)
        sequence = inner.define("sequence", Type("int64", 2, ("batch", None), 0))
        cells = {port: inner.define(port, type) for port, type in flags.items()}
        logits = inner.define("step.logits", Type("float32", 2, ("batch", facts.vocab_size), 0))
        policy_at, policy = self.policy
        selects = format_path((*path, "steps", policy_at))
        first = {port: scope.values.define(f"{cells[port]}.0", type) for port, type in flags.items()}
        owned = {**flags, "token": token}
        made = {port: inner.define(name, owned[port]) for port, name in policy.outputs.items() if port in owned}
        chosen = SelectToken(logits, made["token"], made["active"], made["done"], made["accepted_len"], selects)
        media, fed = self._media(steps, path, scope, inner)
        passed = Decode(
            component=facts.component,
            phase="step",
            tokens=sequence,
            logits=logits,
            origin=format_path((*path, "steps", at)),
            extras=extras,
            media=media,
            positions=self._given_positions(steps, path, scope),
            adapted=steps.adaptation.of(facts.component),
        )
        carried = [Carry(cells[port], first[port], made[port], False) for port in flags]
        loop = Loop(
            continue_when=cells["active"],
            max_iterations=limit,
            body=(passed, chosen, *self._emits(made["token"], cells["active"], path)),
            carried=(*carried, *fed, Carry(sequence, prompt, made["token"], False, "", self._longest(scope))),
            termination=self.loop.termination,
            iteration="",
            origin=format_path(path),
        )
        left = last_run(steps, self.loop, decode, (*path, "steps", at), scope)
        return StartPolicy(first["active"], first["done"], first["accepted_len"], selects), loop, *left

    def _media(self, steps: "StepBuilder", path: Path, scope: Scope, inner: Scope) -> tuple[Pairs, tuple[Carry, ...]]:
        """What goes in beside the tokens: (port, cell), and how each cell goes on."""
        taker = self.decode[1] if self.front is None else self.front.step
        types = dict(steps.components[taker.component].inputs)
        pairs: list[tuple[str, str]] = []
        carried: list[Carry] = []
        for port, name in self._beside().items():
            at, carry = next((at, each) for at, each in enumerate(self.loop.carried) if each.cell == name)
            declared = self.package.workflow.state[name]
            initial = steps.read(carry.initial or declared.initializer, (*path, "carried", at), scope)
            later = steps.read(carry.next, (*path, "carried", at, "next"), scope)
            cell = inner.define(name, types[port])
            pairs.append((port, cell))
            carried.append(Carry(cell, initial or "", later or "", False))
        return tuple(pairs), tuple(carried)

    def _beside(self) -> Mapping[str, str]:
        """Port -> cell of what takes the tokens: one value with the prompt, a literal with later ones."""
        if self.front is not None:
            return self.front.media
        return switch_cells(self.package.workflow, self.loop, self.decode[1])

    def _given_positions(self, steps: "StepBuilder", path: Path, scope: Scope) -> str:
        """The value of positions that may be given: an input with a negative default, or made of grids; "" for none."""
        at, decode = self.decode
        for port, role in self._roles().items():
            name = decode.inputs.get(port, "") if role == "position_ids" else ""
            given = self.package.workflow.inputs.get(name)
            optional = given is not None and not given.required and isinstance(given.default, int) and given.default < 0
            if optional or placed_by_grids(self.package.workflow, name):
                return steps.read(decode.inputs[port], (*path, "steps", at, "inputs", port), scope) or ""
        return ""

    def _longest(self, scope: Scope) -> str:
        """The value that bounds the sequence cell, "" when nothing does."""
        name = next(each.cell for each in self.loop.carried if each.next == self.policy[1].outputs["token"])
        rule = self.package.workflow.state[name].recurrence
        return (scope.find(rule.max) or "") if isinstance(rule, Bounded) else ""

    def _emits(self, token: str, active: str, path: Path) -> Iterator[Emit]:
        for at, step in enumerate(self.loop.steps):
            if isinstance(step, EmitStep):
                yield Emit(token, step.output, "append", active, "", 1, True, format_path((*path, "steps", at)))

    # ---- state -------------------------------------------------------------------------------------------------------

    def _groups(self, steps: "StepBuilder", graph: Graph) -> Iterator[StateGroup]:
        serving, component = self.package.workflow.serving, self.decode[1].component
        shift = shift_of(self._parameters())
        for name, group in (serving.state_service.groups if serving else {}).items():
            path = (*WORKFLOW, "serving", "state_service", "groups", name)
            slots = tuple(self._slots(steps, graph, group, path))
            if slots:
                yield state_group((name, component, format_path(path)), group, slots, graph, shift)

    def _slots(self, steps: "StepBuilder", graph: Graph, group: DeclaredGroup, path: Path) -> Iterator[Slot]:
        types = dict(steps.components[self.decode[1].component].inputs)
        ops = graph.signature.cache_ops
        for cell, alias in group.ports.get(self.decode[1].component, {}).items():
            place = (*path, "ports", self.decode[1].component, cell)
            type = types.get(alias.input)
            if type is None or not type.ranked or alias.output is None:
                what = f"state port '{alias.input}' is no ranked input of {graph.artifact}, or nothing writes it back"
                steps.report.error("state-port", place, what)
                continue
            growth = None if isinstance(group.update, IndexedScatter) else group.sequence_axis
            if growth is not None and any(op.bounded and alias.input in (op.past_key, op.past_value) for op in ops):
                what = f"the operator of '{alias.input}' drops what left its window, and the cell grows"
                steps.report.error("state-port", place, what, "give its group update: {kind: replace}")
            paged = page_dims(self.package.workflow, cell, self._roles(), type.dims)
            dims = paged or [slot_dim(axis, dim, growth, type.row_axis or 0) for axis, dim in enumerate(type.dims)]
            unknown = [axis for axis, dim in enumerate(dims) if dim is None]
            if unknown:
                what = f"the extent of '{alias.input}' on axis {unknown[0]} is neither in the graph nor declared"
                help = "declare the port's shape with numbers for every axis but rows and sequence"
                steps.report.error("unknown-state-extent", place, what, help)
            known = tuple(dim for dim in dims if dim is not None)
            yield Slot(alias.input, alias.output, type.dtype, known, group.kind == "cross_attention")

    # ---- facts -------------------------------------------------------------------------------------------------------

    def _facts(
        self, steps: "StepBuilder", graph: Graph, groups: tuple[StateGroup, ...], extras: Pairs
    ) -> DecodeFacts | None:
        component = self.decode[1].component
        ports = {role: port for port, role in self._roles().items()}
        prompt = str(self._parameters().get(PROMPT_COMPONENT, ""))
        tokens, logits = ports.get("token_ids"), ports.get("logits")
        inputs = {each.name: each for each in graph.signature.inputs}
        takers = inputs
        binds = self.front is not None and self.front.packs
        flat = binds and tokens is not None and self._rows_alone(steps, tokens)
        packs = binds and not flat
        if self.front is not None and not binds:
            taker = self.package.graphs.get(self.front.step.component)
            tokens, takers = self.front.tokens, {each.name: each for each in taker.signature.inputs} if taker else {}
        outputs = {each.name: each for each in graph.signature.outputs}
        if tokens not in takers or logits not in outputs:
            what = f"component '{component}' needs a port with role token_ids and one with role logits"
            steps.report.error("decoder-roles", (*WORKFLOW, "components", component, "ports", "roles"), what)
            return None
        mask = mask_of(graph, ports.get("attention_mask"))
        positions = ports.get("position_ids")
        counts = tuple(self._counts(inputs))
        fed = {tokens if self.front is None else None, *(port for role, port in ports.items() if role in OWNED)}
        fed |= {port for port, _ in extras} | {each.port for each in counts} | {port for _, port in self._streams()}
        pages = pages_of(steps.report, component, ports, graph.signature, groups) if packs else None
        if packs and pages is None:
            return None
        fed |= (switches := frozenset(self._beside() if self.front is None else ()))
        self._unfed(steps, graph, fed, groups)
        first = self.package.graphs.get(prompt, graph)
        one_token = flat or runs_token_by_token(first, takers[tokens])
        cut = not packs and any(last_token_only(each.model, logits) for each in (graph, first))
        even = one_token or cut or bool(self.front and self.front.media)  # padding might stand for an entry of media
        return DecodeFacts(
            component=component,
            tokens=tokens,
            token_dtype=takers[tokens].dtype,
            mask=mask,
            positions=self._positions(steps, inputs.get(positions or ""), binds),
            logits=logits,
            logits_dtype=outputs[logits].dtype,
            last_logits_only=cut,
            ragged=packs or (not even and tells_rows_apart(graph, mask, positions in inputs, groups)),
            vocab_size=self._vocabulary(graph, logits),
            one_token=one_token,
            logits_rank=self._logits_rank(steps, outputs[logits]),
            counts=counts,
            front=Front(self.front.step.component, self.front.streams) if self.front and not binds else None,
            pages=pages,
            prompt_component=prompt,
            one_by_step=bool(prompt) and one_by_step(self._parameters()),
            window=(window := window_of(self._parameters())),
            left=(left := left_ports(steps, self.loop, self.decode[1])),
            alone=bool(left) or window is not None or any(each.kind in LENGTHS_OF_ONE_ROW.values() for each in counts),
            shift=shift_of(self._parameters()),
            switched=bool(switches),
            switch=switch_of(graph, mask),
            flat=flat,
        )

    def _rows_alone(self, steps: "StepBuilder", port: str) -> bool:
        """Whether tokens of one axis are one of each row: it is the axis of rows, and not of tokens of all rows."""
        type = dict(steps.components[self.decode[1].component].inputs).get(port)
        return type is not None and type.row_axis == 0

    def _streams(self) -> Pairs:
        """(output of the front, input of the decoder), () without a front."""
        return self.front.streams if self.front is not None else ()

    def _counts(self, inputs: dict[str, Port]) -> Iterator[Count]:
        """The ports of caches of fixed capacity that the graph has."""
        for port, _, kind in control_ports(self.package.workflow, self.decode[1].component):
            if port in inputs:
                yield Count(port, inputs[port].dtype, "written" if kind == "written" else "valid")
        for port, role in self._roles().items():
            of_all = {**LENGTHS_OF_ALL_ROWS, **LENGTHS_OF_ONE_ROW}.get(role)
            if of_all is not None and port in inputs:
                yield Count(port, inputs[port].dtype, of_all)

    def _extras(self, steps: "StepBuilder", path: Path, scope: Scope) -> Iterator[tuple[str, str]]:
        """Ports that the document binds to values of its own which are not the runtime's to form."""
        at, decode = self.decode
        roles = self._roles()
        state = {
            alias.input for group in self._declared_groups() for alias in group.ports.get(decode.component, {}).values()
        }
        state |= {port for _, port in self._streams()}
        state |= {port for port, _, _ in control_ports(self.package.workflow, decode.component)}
        state |= set(self._beside()) if self.front is None else set()
        for port, name in decode.inputs.items():
            if roles.get(port) not in OWNED_ROLES and port not in state:
                value = steps.read(name, (*path, "steps", at, "inputs", port), scope)
                if value is not None:
                    yield port, value

    def _declared_groups(self) -> tuple[DeclaredGroup, ...]:
        serving = self.package.workflow.serving
        return tuple(serving.state_service.groups.values()) if serving else ()

    def superseded(self) -> set[str]:
        """Names of inputs whose values the runtime forms itself: masks, positions, empty state, the first flags."""
        _, decode = self.decode
        roles, workflow = self._roles(), self.package.workflow
        names = {name for port, name in decode.inputs.items() if roles.get(port) in OWNED}
        return names | {
            workflow.state[each.cell].initializer for each in self.loop.carried if each.cell in workflow.state
        }

    def _parameters(self) -> Mapping[str, object]:
        contract = self._declared().contract
        return contract.parameters if contract is not None else {}

    def _roles(self) -> dict[str, str]:
        return roles_of(self._declared())

    def _declared(self) -> Component:
        return self.package.workflow.components[self.decode[1].component]

    def _positions(self, steps: "StepBuilder", port: Port | None, packs: bool) -> tuple[str, str, int] | None:
        if port is None:
            return None
        rank = positions_rank(port, packs)
        if rank not in (2, 3) or (rank == 3 and port.shape is not None and port.shape[0] != 3):
            what = f"the positions '{port.name}' are neither [rows, tokens] nor three copies of that"
            place = (*WORKFLOW, "components", self.decode[1].component, "ports", "inputs", port.name)
            steps.report.error("decoder-roles", place, what, "export the decoder with one of these forms")
        return port.name, port.dtype, rank

    def _logits_rank(self, steps: "StepBuilder", port: Port) -> int:
        rank = len(port.shape) if port.shape is not None else 3
        if rank not in (2, 3):
            what = f"the logits '{port.name}' have rank {rank}: neither [rows, positions, vocab] nor [rows, vocab]"
            place = (*WORKFLOW, "components", self.decode[1].component, "ports", "outputs", port.name)
            steps.report.error("decoder-roles", place, what, "export the decoder with one of these forms")
        return rank

    def _vocabulary(self, graph: Graph, logits: str) -> int:
        port = next(each for each in graph.signature.outputs if each.name == logits)
        last = port.shape[-1] if port.shape else None
        model = self.package.metadata.model
        return last if isinstance(last, int) else (model.vocab_size if model and model.vocab_size else 0)

    def _unfed(
        self, steps: "StepBuilder", graph: Graph, claimed: set[str | None], groups: tuple[StateGroup, ...]
    ) -> None:
        fed = claimed | {slot.past for group in groups for slot in group.slots}
        left = [each.name for each in graph.signature.inputs if each.name not in fed]
        if left:
            names = ", ".join(f"'{each}'" for each in left)
            what = f"nothing feeds the input{'s' * (len(left) > 1)} {names} of {graph.artifact}"
            place = (*WORKFLOW, "components", self.decode[1].component, "ports", "inputs")
            steps.report.error("unfed-input", place, what, "give the port a role, or a place in a state group")


def _contract(package: Package, step: InvokeStep) -> str:
    component = package.workflow.components.get(step.component)
    return component.contract.id if component is not None and component.contract is not None else ""


def _is_binding(package: Package, step: InvokeStep) -> bool:
    return package.workflow.components[step.component].implementation.kind == "binding"
