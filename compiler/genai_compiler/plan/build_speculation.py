"""The `speculative` block of a document whose decoder the runtime drives -> how the proposer is driven, or why not.

Speculation changes no token, so a block that can't be driven refuses nothing: the workflow runs without it, the plan
and the manifest say why, and only a request that asks for it is refused (docs/decisions/0010).
"""

from collections.abc import Iterator

from genai_compiler.plan.build_budget import build_budget
from genai_compiler.plan.dtypes import FLOATS
from genai_compiler.plan.speculation import DraftSpec, Speculation, Typed
from genai_compiler.plan.state import GROWTH, ROWS, DecodeFacts, Slot
from genai_compiler.plan.unfit import Unfit
from genai_compiler.read.document import (
    ChainedProposal,
    Component,
    IdenticalVocabulary,
    MappedVocabulary,
    OnnxImplementation,
    ProposalRecurrence,
    Speculative,
    StatePortAlias,
    SubsetVocabulary,
)
from genai_compiler.read.document import StateGroup as DeclaredGroup
from genai_compiler.read.graph_facts import scale_of_all
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.signature import Port, dtype_name

ORIGIN = "speculative.proposer"
WHOLE = ("int64", "int32")


def build_speculation(package: Package, decoder: DecodeFacts | None) -> Speculation | None:
    """What the document's block comes to; None when it has none."""
    block = package.metadata.speculative
    if block is None:
        return None
    drafting, reason = None, ""
    try:
        drafting = _Drafts(package, block, decoder).drafting()
    except Unfit as why:
        reason = str(why)
    chained = isinstance(block.proposal_execution, ChainedProposal)
    width, alone = block.max_proposal_width, _by_itself(package, block)
    return Speculation(block.proposer, block.target, chained, width, alone, drafting, reason)


def draft_seeds(package: Package) -> set[str]:
    """Names of inputs that only a proposer's own state starts from, which the runtime forms itself."""
    block = package.metadata.speculative
    chain = block.proposal_execution if block is not None else None
    cells = [each.state for each in chain.recurrent] if isinstance(chain, ChainedProposal) else []
    return {package.workflow.state[each].initializer for each in cells if each in package.workflow.state}


def _by_itself(package: Package, block: Speculative) -> bool:
    """Whether the document promises that drafts change nothing: the block and every component of it (7.4)."""
    contracts = [each.contract for each in package.workflow.components.values()]
    kept = all(each is not None and each.equivalence in ("bitwise", "distribution_preserving") for each in contracts)
    return block.distribution_preserving and kept


class _Drafts:
    """Finds the facts of one proposer. Every method may raise Unfit with the reason why it can't be driven."""

    def __init__(self, package: Package, block: Speculative, decoder: DecodeFacts | None) -> None:
        self.package, self.block = package, block
        if decoder is None:
            raise Unfit("the workflow itself has the steps that draft, verify and publish")
        if block.target != decoder.component:
            raise Unfit(f"the target '{block.target}' is not the decoder that the runtime drives")
        self.decoder = decoder
        self.target, self.proposer = self._graph(block.target), self._graph(block.proposer)
        self.roles: dict[str, str] = {role: port for port, role in self._declared(block.proposer).ports.roles.items()}
        self.inputs = {each.name: each for each in self.proposer.signature.inputs}
        self.outputs = {each.name: each for each in self.proposer.signature.outputs}
        self.chain = block.proposal_execution if isinstance(block.proposal_execution, ChainedProposal) else None

    def drafting(self) -> DraftSpec:
        """The facts, when everything that a proposal needs is there."""
        self._target_fits()
        self._rolls_back()
        tokens, fused = self._takes()
        self._knows_all(tokens, fused)
        context, seed = self._context()
        drafts, logits = self._gives()
        made = DraftSpec(
            component=self.block.proposer,
            origin=ORIGIN,
            chained=self.chain is not None,
            width=self.block.max_proposal_width,
            vocabulary=self._vocabulary(drafts, logits),
            tokens=tokens,
            fused=fused,
            table=self._table(fused, seed),
            context=context,
            carry=(self.chain.folded_carry_output or "") if self.chain is not None else "",
            seed=seed,
            mask=self._role("attention_mask"),
            positions=self._role("position_ids"),
            drafts=drafts,
            logits=logits,
            recurrent=tuple(self._recurrent()),
            borrowed=tuple(self._borrowed()),
            one_position=self._one_position(tokens, fused),
            budget=build_budget(self.package),
        )
        self._all_fed(made)
        return made

    # ---- the target --------------------------------------------------------------------------------------------------

    def _target_fits(self) -> None:
        facts = self.decoder
        port = next(each for each in self.target.signature.outputs if each.name == facts.logits)
        last = facts.last_logits_only or bool(facts.last_position) or (port.shape is not None and len(port.shape) != 3)
        front = f"'{facts.front.component}'" if facts.front is not None else ""
        operator = scale_of_all(self.target.model)
        against = (
            (front, f"takes embeddings, which {front} makes of tokens: drafts are verified where tokens go in"),
            (facts.switched, "takes later tokens by another network than a prompt"),
            (facts.prompt_component, "takes later tokens by another graph than a prompt"),
            (facts.switch, "changes its tables by length, for all tokens of a run at once"),
            (operator, f"has {operator}, which rounds all tokens of a run by one scale"),
            (facts.one_token, "takes one token a run, so that it can't verify several"),
            (facts.window, "takes a prompt in parts of one length, and drafts are of any"),
            (facts.pages, "keeps its state in pages, of which none is given back within a request"),
            (facts.shift, "moves its caches by what a run adds, which can't be taken back"),
            (facts.counts, "is told where in its caches a run writes, and drafts may have to be taken back there"),
            (last, "gives logits of the last position only"),
            (facts.left, "hands over what its last run gave, and a run that verifies drafts gives more than that"),
        )
        reason = next((words for holds, words in against if holds), "")
        if reason:
            raise Unfit(f"the target '{facts.component}' {reason}")
        for name in (self.block.target, self.block.proposer):
            if self._declared(name).effects:
                raise Unfit(f"component '{name}' has effects, and the runtime undoes none")

    def _rolls_back(self) -> None:
        cells = [cell for cell, (_, alias) in self._aliases(self.block.target).items() if alias.access != "read_only"]
        if any(group.kind == "cross_attention" for group, _ in self._aliases(self.block.target).values()):
            raise Unfit(f"the first run of '{self.block.target}' gives state that no later one gives")
        left = next((each for each in cells if each not in self.block.rollback_state), "")
        if left:
            raise Unfit(f"the target's state cell '{left}' is not in rollback_state")

    # ---- the proposer's ports ----------------------------------------------------------------------------------------

    def _takes(self) -> tuple[Typed | None, Typed | None]:
        """Ports for token ids and for embedded tokens."""
        tokens = self._role("token_ids")
        if self.chain is None:
            if tokens is None and "target_hidden_context" not in self.block.port_bindings:
                raise Unfit(f"the proposer '{self.block.proposer}' has no input with the role token_ids")
            return tokens, None
        wanted = self.chain.token_embedding_input
        if self.chain.folded_carry_output is None and wanted in self.block.port_bindings.values():
            raise Unfit(f"'{wanted}' takes the token and, without a carry to fold in, something else as well")
        port = self.inputs.get(wanted)
        if port is None:
            raise Unfit(f"its graph has no input '{self.chain.token_embedding_input}'")
        if port.dtype in WHOLE and self.chain.folded_carry_output is None:
            return (port.name, port.dtype), None
        if port.dtype not in FLOATS:
            raise Unfit(f"'{port.name}' takes {port.dtype}, which is no embedding")
        if self.chain.token_embedding is None:
            raise Unfit(f"nothing says which table embeds the tokens that '{port.name}' takes")
        self._of_three_axes(port.name)
        return tokens, (port.name, port.dtype)

    def _knows_all(self, tokens: Typed | None, fused: Typed | None) -> None:
        """Every token of the target can be fed: the proposer's own tables of tokens, and the one named, have it."""
        known = dict(self.proposer.signature.entries)
        rows = [known[tokens[0]]] if tokens is not None and tokens[0] in known else []
        name = self.chain.token_embedding.table if fused and self.chain and self.chain.token_embedding else ""
        rows += [int(each.dims[0]) for each in self.target.model.graph.initializer if each.name == name and each.dims]
        least = min(rows, default=0)
        if rows and least < self.decoder.vocab_size:
            what = f"it embeds the ids 0 to {least - 1}, and the target's tokens end at {self.decoder.vocab_size - 1}"
            raise Unfit(what)

    def _context(self) -> tuple[Typed | None, str]:
        """The port that takes the target's hidden context as it is, and the target's output that is that context."""
        wanted = self.block.port_bindings.get("target_hidden_context")
        folded = self.chain is not None and self.chain.folded_carry_output is not None
        if wanted is None and not folded:
            return None, ""
        seed = self.chain.folded_carry_seed if self.chain is not None else None
        roles: dict[str, str] = {role: port for port, role in self._declared(self.block.target).ports.roles.items()}
        name = seed.output if seed is not None else roles.get("hidden_states", "")
        output = next((each for each in self.target.signature.outputs if each.name == name), None)
        if output is None or output.dtype not in FLOATS:
            raise Unfit("no output of the target has the role hidden_states, or is named as the seed, and is a float")
        if output.shape is None or len(output.shape) != 3 or output.shape[1] == 1:
            raise Unfit(f"the target's '{name}' has not one entry a position: [rows, positions, width]")
        if folded:
            return None, name
        self._of_three_axes(wanted or "")
        return self._typed(wanted or ""), name

    def _gives(self) -> tuple[str, bool]:
        """The output that says what is proposed, and whether that is logits."""
        if self.chain is not None:
            return self.chain.logits_output, True
        logits = self.roles.get("logits")
        if logits in self.outputs:
            return logits, True
        whole = [each.name for each in self.outputs.values() if each.dtype in WHOLE and len(each.shape or ()) == 2]
        if len(whole) != 1:
            raise Unfit(f"which output of '{self.block.proposer}' are its drafts? it has {len(whole)} of ids [rows, n]")
        return whole[0], False

    def _vocabulary(self, drafts: str, logits: bool) -> int:
        known = self.block.vocabulary
        if isinstance(known, MappedVocabulary):
            raise Unfit("its ids are mapped by a file, whose form the standard does not say")
        if drafts not in self.outputs:
            raise Unfit(f"its graph has no output '{drafts}'")
        shape = self.outputs[drafts].shape
        size = shape[-1] if logits and shape and isinstance(shape[-1], int) else None
        wanted = known.proposer_vocab_size if isinstance(known, SubsetVocabulary) else self.decoder.vocab_size
        if isinstance(known, IdenticalVocabulary) and size is not None and wanted and size != wanted:
            raise Unfit(
                f"its vocabulary is called identical, and '{drafts}' has {size} ids where the target has {wanted}"
            )
        return wanted

    def _table(self, fused: Typed | None, seed: str) -> str:
        """The initializer that embeds tokens; "" where ids go in."""
        if fused is None or self.chain is None or self.chain.token_embedding is None:
            return ""
        name = self.chain.token_embedding.table
        table = next((each for each in self.target.model.graph.initializer if each.name == name), None)
        if table is None or len(table.dims) != 2 or dtype_name(table.data_type) not in FLOATS:
            raise Unfit(f"the table '{name}' is no float initializer [ids, width] of the target")
        hidden = next((each.shape for each in self.target.signature.outputs if each.name == seed), None)
        carried = hidden[-1] if self.chain.folded_carry_output is not None and hidden else 0
        width = (self.inputs[fused[0]].shape or (None,))[-1]
        if isinstance(width, int) and isinstance(carried, int) and int(table.dims[1]) + carried != width:
            what = f"'{fused[0]}' takes {width} numbers, a row of '{name}' has {table.dims[1]}"
            raise Unfit(what + (f" and the carry {carried}" if carried else ""))
        return name

    # ---- state -------------------------------------------------------------------------------------------------------

    def _recurrent(self) -> Iterator[Slot]:
        aliases = self._aliases(self.block.proposer)
        bindings = self.chain.recurrent if self.chain is not None else ()
        claimed = {each.state for each in bindings}
        for name, (_, alias) in aliases.items():
            if alias.access != "read_only" and name not in claimed:
                raise Unfit(f"the proposer's state '{name}' is no recurrence of the chain")
        for each in bindings:
            group = aliases[each.state][0] if each.state in aliases else None
            yield self._slot(each, group.sequence_axis if group is not None else None)

    def _slot(self, each: ProposalRecurrence, growth: int | None) -> Slot:
        port = self.inputs.get(each.input)
        if port is None or port.shape is None or each.output not in self.outputs:
            raise Unfit(f"its graph does not say the shape of its state '{each.state}'")
        dims: list[int] = []
        for axis, dim in enumerate(port.shape):
            if not isinstance(dim, int) and axis != growth and axis != 0:
                raise Unfit(f"the extent of '{port.name}' on axis {axis} is not known")
            dims.append(GROWTH if axis == growth else dim if isinstance(dim, int) else ROWS)
        return Slot(each.input, each.output, port.dtype, tuple(dims))

    def _borrowed(self) -> Iterator[tuple[str, str]]:
        target = self._aliases(self.block.target)
        windows = {
            name for op in self.target.signature.cache_ops if op.bounded for name in (op.past_key, op.past_value)
        }
        for cell, (_, alias) in self._aliases(self.block.proposer).items():
            if alias.access == "read_only":
                if cell not in target:
                    raise Unfit(f"'{alias.input}' borrows the cell '{cell}', which is none of the target's")
                if target[cell][1].input in windows:
                    raise Unfit(f"'{alias.input}' borrows the cell '{cell}', whose operator drops what left its window")
                yield alias.input, target[cell][1].input

    def _one_position(self, tokens: Typed | None, fused: Typed | None) -> bool:
        port = self.inputs[(fused or tokens or ("", ""))[0]] if fused or tokens else None
        return port is not None and port.shape is not None and len(port.shape) > 1 and port.shape[1] == 1

    # ---- the package -------------------------------------------------------------------------------------------------

    def _all_fed(self, made: DraftSpec) -> None:
        typed = (made.tokens, made.fused, made.context, made.mask, made.positions)
        fed = {each[0] for each in typed if each is not None}
        fed |= {slot.past for slot in made.recurrent} | {port for port, _ in made.borrowed}
        left = sorted(set(self.inputs) - fed)
        if left:
            names = ", ".join(f"'{each}'" for each in left)
            raise Unfit(f"nothing feeds the input{'s' * (len(left) > 1)} {names} of the proposer")
        if made.positions is not None and len(self.inputs[made.positions[0]].shape or (0, 0)) != 2:
            raise Unfit(f"the positions '{made.positions[0]}' are not [rows, tokens]")

    def _role(self, role: str) -> Typed | None:
        port: Port | None = self.inputs.get(self.roles.get(role, ""))
        return (port.name, port.dtype) if port is not None else None

    def _typed(self, name: str) -> Typed:
        if name not in self.inputs:
            raise Unfit(f"its graph has no input '{name}'")
        return name, self.inputs[name].dtype

    def _of_three_axes(self, name: str) -> None:
        shape = self.inputs[name].shape if name in self.inputs else None
        if shape is not None and len(shape) != 3:
            raise Unfit(f"'{name}' is not [rows, positions, width]")

    def _graph(self, component: str) -> Graph:
        graph = self.package.graphs.get(component)
        if graph is None or not isinstance(self._declared(component).implementation, OnnxImplementation):
            raise Unfit(f"component '{component}' is no graph")
        return graph

    def _declared(self, component: str) -> Component:
        return self.package.workflow.components[component]

    def _groups(self) -> dict[str, DeclaredGroup]:
        serving = self.package.workflow.serving
        return dict(serving.state_service.groups) if serving is not None else {}

    def _aliases(self, component: str) -> dict[str, tuple[DeclaredGroup, StatePortAlias]]:
        """Cell -> its group and its ports on a component."""
        return {
            cell: (group, alias)
            for group in self._groups().values()
            for cell, alias in group.ports.get(component, {}).items()
        }
