"""Names and extents inside graphs that a document relies on: embedding tables, LoRA targets (standard, 12.13)."""

from onnx import GraphProto, NodeProto

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules
from genai_compiler.read.document import AdapterTarget, ChainedProposal
from genai_compiler.read.package import Graph, Package
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V322": Rule("unknown-initializer", "The token-embedding table is an initializer of its graph."),
    "V323": Rule("target-not-in-graph", "A LoRA target's initializer, node, output and extents are in its graph."),
}


def check_geometry(package: Package) -> Faults:
    """The embedding table of a chained proposal, and every LoRA target."""
    speculative, adapters = package.metadata.speculative, package.metadata.adapters
    chain = speculative.proposal_execution if speculative is not None else None
    if isinstance(chain, ChainedProposal) and chain.token_embedding is not None:
        graph, table = package.graphs.get(chain.token_embedding.component), chain.token_embedding.table
        known = _initializers(graph.model.graph) if graph is not None and not graph.absent else {table: ()}
        if table not in known:
            path = ("speculative", "proposal_execution", "token_embedding", "table")
            what = f"component '{chain.token_embedding.component}' has no initializer '{table}'"
            yield Fault("V322", path, what, did_you_mean(table, known))
    for at, target in enumerate(adapters.target_manifest.targets if adapters is not None else ()):
        graph = package.graphs.get(target.component)
        place = ("adapters", "target_manifest", "targets", at)
        if graph is None:
            what = f"component '{target.component}' has no graph whose weights could be adapted"
            yield Fault("V323", (*place, "component"), what, "name an ONNX component")
        elif not graph.absent:
            yield from _target(target, graph, place)


def _initializers(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    return {str(each.name): tuple(int(dim) for dim in each.dims) for each in graph.initializer}


def _target(target: AdapterTarget, graph: Graph, path: Path) -> Faults:
    model, where = graph.model.graph, f"graph {graph.artifact}"
    weights = _initializers(model)
    nodes = {str(each.name): each for each in model.node}
    node = nodes.get(target.node_name)
    if target.initializer not in weights:
        what = f"{where} has no initializer '{target.initializer}'"
        yield Fault("V323", (*path, "initializer"), what, did_you_mean(target.initializer, weights))
    if node is None:
        what = f"{where} has no node '{target.node_name}'"
        yield Fault("V323", (*path, "node_name"), what, did_you_mean(target.node_name, nodes))
    elif target.output_name not in node.output:
        what = f"node '{target.node_name}' has no output '{target.output_name}'"
        yield Fault("V323", (*path, "output_name"), what, did_you_mean(target.output_name, node.output))
    elif target.initializer in weights:
        yield from _extents(target, node, weights[target.initializer], path)


def _extents(target: AdapterTarget, node: NodeProto, dims: tuple[int, ...], path: Path) -> Faults:
    if target.initializer not in node.input:
        what = f"node '{target.node_name}' does not read initializer '{target.initializer}'"
        yield Fault("V323", (*path, "node_name"), what, "name the node that multiplies by it")
        return
    found, wanted = _features(node, dims), (target.input_features, target.output_features)
    if found is not None and found != wanted:
        what = f"the weight takes {found[0]} features to {found[1]}, not {wanted[0]} to {wanted[1]}"
        yield Fault("V323", (*path, "input_features"), what, "write the graph's own extents")


def _features(node: NodeProto, dims: tuple[int, ...]) -> tuple[int, int] | None:
    """(input features, output features) of a projection; None when the operator is another."""
    numbers = {str(each.name): int(each.i) for each in node.attribute}
    if node.op_type == "MatMulNBits" and {"K", "N"} <= numbers.keys():
        return numbers["K"], numbers["N"]
    if node.op_type not in ("MatMul", "Gemm") or len(dims) != 2:
        return None
    return (dims[1], dims[0]) if numbers.get("transB") else (dims[0], dims[1])
