"""The proposer/target contract: who proposes, how drafts chain, what rolls back (standard, 12.11)."""

from collections.abc import Mapping

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.check.state_cells import groups_of
from genai_compiler.check.walk import inputs_of, outputs_of
from genai_compiler.read.document import (
    ChainedProposal,
    ComponentOutput,
    OnnxImplementation,
    ProposalRecurrence,
    Speculative,
    StatePortAlias,
    TokenEmbedding,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V275": Rule("speculation-without-workflow", "`speculative` stands beside a workflow."),
    "V276": Rule("unknown-component", "The proposer is a declared component."),
    "V277": Rule("unknown-component", "The target is a declared component."),
    "V278": Rule("unknown-port", "`token_embedding_input` is an input of the proposer."),
    "V279": Rule("unknown-port", "`logits_output` is an output of the proposer."),
    "V280": Rule("chain-without-carry", "A chained proposal has a recurrence or a folded carry."),
    "V281": Rule("unknown-port", "`folded_carry_output` is an output of the proposer."),
    "V282": Rule("folded-carry", "A folded carry goes with `port_bindings.target_hidden_context`."),
    "V283": Rule("unknown-port", "`target_hidden_context` is an input of the proposer."),
    "V284": Rule("folded-carry", "`target_hidden_context` is the port of `token_embedding_input`."),
    "V285": Rule("folded-carry", "A folded carry goes with a seed."),
    "V286": Rule("unknown-component", "The seed's component is declared."),
    "V287": Rule("unknown-port", "The seed is an output of its component."),
    "V288": Rule("carry-seed", "The seed is an output of the target."),
    "V289": Rule("folded-carry", "A folded carry goes with a token embedding."),
    "V290": Rule("unknown-component", "The embedding's component is declared."),
    "V291": Rule("token-embedding", "The embedding is of the target."),
    "V292": Rule("token-embedding", "The embedding is in an ONNX graph."),
    "V293": Rule("blank-name", "The embedding's table has a name."),
    "V294": Rule("duplicate-recurrence", "Each state has one recurrence."),
    "V295": Rule("unknown-cell", "A recurrence's state is a declared cell."),
    "V296": Rule("not-rolled-back", "A recurrence's state is rolled back."),
    "V297": Rule("unknown-port", "A recurrence's input is one of the proposer."),
    "V298": Rule("unknown-port", "A recurrence's output is one of the proposer."),
    "V299": Rule("recurrence-alias", "A recurrence's state has ports on the proposer in its group."),
    "V300": Rule("recurrence-alias", "The ports of a recurrence's state are written."),
    "V301": Rule("recurrence-alias", "A recurrence and its state's ports name the same input."),
    "V302": Rule("recurrence-alias", "A recurrence and its state's ports name the same output."),
}


def check_speculative(speculative: Speculative, workflow: Workflow | None) -> Faults:
    """Components and chained proposals."""
    if workflow is None:
        what = "speculation is between components of a workflow, and the document has none"
        yield Fault("V275", ("speculative",), what, "declare pipeline.workflow, or remove speculative")
        return
    for rule, field, name in (("V276", "proposer", speculative.proposer), ("V277", "target", speculative.target)):
        yield from _component(rule, name, workflow, ("speculative", field))
    yield from _hidden_context(speculative, workflow)
    if isinstance(speculative.proposal_execution, ChainedProposal):
        yield from _chained(speculative, speculative.proposal_execution, workflow)


def _component(rule: str, name: str, workflow: Workflow, path: Path) -> Faults:
    if name not in workflow.components:
        help = did_you_mean(name, workflow.components)
        yield Fault(rule, path, f"no component '{name}' is declared", help)


def _port(rule: str, port: str, name: str, side: str, workflow: Workflow, path: Path) -> Faults:
    """A port of a component, when the component is declared and says itself which ports it has."""
    component = workflow.components.get(name)
    if component is None:
        return
    ports: Mapping[str, object] | None = inputs_of(component) if side == "input" else outputs_of(component)
    if ports is not None and port not in ports:
        what = f"component '{name}' declares no {side} '{port}'"
        yield Fault(rule, path, what, did_you_mean(port, ports))


def _chained(speculative: Speculative, chain: ChainedProposal, workflow: Workflow) -> Faults:
    path, proposer = ("speculative", "proposal_execution"), speculative.proposer
    embedding = (*path, "token_embedding_input")
    yield from _port("V278", chain.token_embedding_input, proposer, "input", workflow, embedding)
    yield from _port("V279", chain.logits_output, proposer, "output", workflow, (*path, "logits_output"))
    if not chain.recurrent and chain.folded_carry_output is None:
        what = "a chain of drafts hands nothing from one to the next"
        yield Fault("V280", path, what, "add recurrent or folded_carry_output")
    if chain.folded_carry_output is not None:
        place = (*path, "folded_carry_output")
        yield from _port("V281", chain.folded_carry_output, proposer, "output", workflow, place)
        yield from _folded(speculative, chain, path)
    if chain.folded_carry_seed is not None:
        yield from _seed(speculative, chain.folded_carry_seed, workflow, (*path, "folded_carry_seed"))
    if chain.token_embedding is not None:
        yield from _embedding(speculative, chain.token_embedding, workflow, (*path, "token_embedding"))
    yield from _recurrences(speculative, chain, workflow, (*path, "recurrent"))


def _folded(speculative: Speculative, chain: ChainedProposal, path: Path) -> Faults:
    if "target_hidden_context" not in speculative.port_bindings:
        what = "a folded carry enters with the token embedding, and no port is bound to target_hidden_context"
        help = f"add target_hidden_context: {chain.token_embedding_input}"
        yield Fault("V282", ("speculative", "port_bindings"), what, help)
    if chain.folded_carry_seed is None:
        yield Fault("V285", path, "a folded carry starts from an output of the target", "add folded_carry_seed")
    if chain.token_embedding is None:
        yield Fault("V289", path, "a folded carry goes with the embedding of the last token", "add token_embedding")


def _hidden_context(speculative: Speculative, workflow: Workflow) -> Faults:
    """Where the target's context enters the proposer: an input of it, whatever the way in which it drafts (7.1)."""
    port, chain = speculative.port_bindings.get("target_hidden_context"), speculative.proposal_execution
    if port is None:
        return
    place = ("speculative", "port_bindings", "target_hidden_context")
    faults = list(_port("V283", port, speculative.proposer, "input", workflow, place))
    yield from faults
    if faults or not isinstance(chain, ChainedProposal) or chain.folded_carry_output is None:
        return
    if port != chain.token_embedding_input:
        what = f"the folded carry enters at '{port}' and the token embedding at '{chain.token_embedding_input}'"
        yield Fault("V284", place, what, "write the same port for both")


def _seed(speculative: Speculative, seed: ComponentOutput, workflow: Workflow, path: Path) -> Faults:
    faults = list(_component("V286", seed.component, workflow, (*path, "component")))
    yield from faults
    if faults:
        return
    yield from _port("V287", seed.output, seed.component, "output", workflow, (*path, "output"))
    if seed.component != speculative.target:
        what = f"the seed comes from '{seed.component}' and the target is '{speculative.target}'"
        yield Fault("V288", (*path, "component"), what, "seed the carry from an output of the target")


def _embedding(speculative: Speculative, embedding: TokenEmbedding, workflow: Workflow, path: Path) -> Faults:
    if blank(embedding.table):
        yield Fault("V293", (*path, "table"), "the embedding table has no name", "name the initializer")
    faults = list(_component("V290", embedding.component, workflow, (*path, "component")))
    yield from faults
    if faults:
        return
    if embedding.component != speculative.target:
        what = f"the embedding is of '{embedding.component}' and the target is '{speculative.target}'"
        yield Fault("V291", (*path, "component"), what, "take the embedding of the target")
    how = workflow.components[embedding.component].implementation
    if not isinstance(how, OnnxImplementation) or blank(how.artifact):
        what = f"component '{embedding.component}' has no ONNX graph that could hold the table"
        yield Fault("V292", (*path, "component"), what, "name a component with a graph")


def _recurrences(speculative: Speculative, chain: ChainedProposal, workflow: Workflow, path: Path) -> Faults:
    seen: dict[str, int] = {}
    for at, each in enumerate(chain.recurrent):
        place = (*path, at)
        if each.state in seen:
            what = f"recurrence {seen[each.state]} already is of state '{each.state}'"
            yield Fault("V294", (*place, "state"), what, "keep one of them")
            continue
        seen[each.state] = at
        proposer = speculative.proposer
        yield from _port("V297", each.input, proposer, "input", workflow, (*place, "input"))
        yield from _port("V298", each.output, proposer, "output", workflow, (*place, "output"))
        if each.state not in workflow.state:
            what = f"no state cell '{each.state}' is declared"
            yield Fault("V295", (*place, "state"), what, did_you_mean(each.state, workflow.state))
            continue
        if each.state not in speculative.rollback_state:
            what = f"the drafts change '{each.state}', and a rejection does not roll it back"
            yield Fault("V296", (*place, "state"), what, f"add '{each.state}' to rollback_state")
        yield from _alias(speculative, each, workflow, place)


def _alias(speculative: Speculative, each: ProposalRecurrence, workflow: Workflow, path: Path) -> Faults:
    aliases = [group.ports.get(speculative.proposer, {}).get(each.state) for group in groups_of(workflow).values()]
    alias: StatePortAlias | None = next((found for found in aliases if found is not None), None)
    if alias is None:
        what = f"no group has ports of '{speculative.proposer}' for cell '{each.state}'"
        yield Fault("V299", (*path, "state"), what, "add them below the group's ports")
        return
    if alias.access == "read_only":
        what = f"the group only reads cell '{each.state}' on '{speculative.proposer}'"
        yield Fault("V300", (*path, "state"), what, "write access: read_write on its alias")
    if alias.input != each.input:
        what = f"the group reads cell '{each.state}' on '{alias.input}', not on '{each.input}'"
        yield Fault("V301", (*path, "input"), what, "name the same port")
    if alias.output != each.output and (alias.output is not None or alias.access != "read_only"):
        what = f"the group writes cell '{each.state}' on '{alias.output}', not on '{each.output}'"
        yield Fault("V302", (*path, "output"), what, "name the same port")
