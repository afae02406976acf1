"""Graphs linked by the values that flow between them: the nodes of all in order, every name behind a prefix of its own.

Claims of the members about shapes are left out: fixed extents of inputs stay, and the rank of results that leave, which
ONNX's checker asks for.
"""

from collections.abc import Iterator, Mapping

import onnx_ir as ir
from onnx import ModelProto

from genai_compiler.read.link_graphs import Member


class Link:
    """The graph under construction. values: the plan's value -> what carries it inside. ranks: of members' results, by
    the plan's value, None where a member's graph says none.
    """

    def __init__(self) -> None:
        self.values: dict[str, ir.Value] = {}
        self.ranks: dict[str, int | None] = {}
        self.inputs: list[ir.Value] = []
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self.functions: list[ir.Function] = []
        self.opsets: dict[str, int] = {}
        self.version = 0

    def add(self, member: Member, proto: ModelProto, prefix: str) -> None:
        """Take a member's nodes over and connect them."""
        model = ir.from_proto(proto)
        graph = model.graph
        ports, results = {each.name: each for each in graph.inputs}, {each.name: each for each in graph.outputs}
        self._rename(model, prefix)
        graph.outputs.clear()
        graph.inputs.clear()
        sources = {ports[port]: self._source(value, ports[port]) for port, value in member.inputs}
        for port, source in sources.items():
            ir.convenience.replace_all_uses_with(port, source)
        made = list(graph)
        graph.remove(made)
        self.nodes.extend(made)
        self._keep_initializers(graph, set(sources))
        for port, value in member.outputs:
            result = results[port]
            self.ranks[value] = None if result.shape is None else result.shape.rank()
            if result.producer() is not None:
                result.shape = None
            result = sources.get(result, result)
            # An input or a weight that is an output as it is, or a value that has a name of the plan already.
            if result.producer() is None or result in self.values.values():
                result = self._same(result, f"{prefix}{port}")
            self.values[value] = result
        for domain, number in _imports(model.opset_imports).items():
            self.opsets[domain] = max(number, self.opsets.get(domain, 0))
        self.version = max(self.version, model.ir_version)

    def model(self, outputs: tuple[str, ...], name: str = "island") -> ir.Model:
        """The whole, of the highest version of each operator set. outputs: the plan's values that go outside.

        Their extents stay open: what inference finds of one is then known by the name that it has inside.
        """
        for value in outputs:
            rank = self.ranks[value]
            self.values[value].name = value
            self.values[value].shape = None if rank is None else ir.Shape([None] * rank)
        for function in self.functions:
            own = _imports(function.opset_imports)
            function.opset_imports.clear()
            function.opset_imports.update({each: self.opsets.get(each, own[each]) for each in own})
        graph = ir.Graph(
            self.inputs,
            [self.values[value] for value in outputs],
            nodes=self.nodes,
            initializers=self.initializers,
            opset_imports=self.opsets,
            name=name,
        )
        return ir.Model(graph, ir_version=max(self.version, 4), functions=self.functions)

    def _source(self, value: str, port: ir.Value) -> ir.Value:
        if value not in self.values:
            shape = None
            if port.shape is not None:
                dims = [dim if isinstance(dim, int) else f"{value}[{axis}]" for axis, dim in enumerate(port.shape)]
                shape = ir.Shape(dims)
            self.values[value] = ir.Value(name=value, type=port.type, shape=shape)
            self.inputs.append(self.values[value])
        elif self.values[value] in self.inputs:
            self._narrow(self.values[value], port)
        return self.values[value]

    def _narrow(self, taken: ir.Value, port: ir.Value) -> None:
        """An input that several ports take keeps the fixed extents of all of them."""
        if port.shape is None:
            return
        known = taken.shape or [f"{taken.name}[{axis}]" for axis in range(len(port.shape))]
        pairs = zip(known, port.shape, strict=True)
        taken.shape = ir.Shape(
            [mine if isinstance(mine, int) or not isinstance(dim, int) else dim for mine, dim in pairs]
        )

    def _same(self, value: ir.Value, name: str) -> ir.Value:
        """Another value equal to `value`."""
        count = len(self.nodes)
        node = ir.Node("", "Identity", [value], num_outputs=1, name=f"{name}.{count}")
        node.outputs[0].name, node.outputs[0].type = f"{name}/{count}", value.type
        self.nodes.append(node)
        return node.outputs[0]

    def _keep_initializers(self, graph: ir.Graph, bound: set[ir.Value]) -> None:
        for each in list(graph.initializers.values()):
            if each not in bound:
                graph.initializers.pop(each.name)
                self.initializers.append(each)

    def _rename(self, model: ir.Model, prefix: str) -> None:
        """Names of values, nodes and local functions get the prefix."""
        local = {each.identifier() for each in model.functions.values()}
        for at, node in enumerate(_all_nodes(model.graph)):
            node.name = f"{prefix}{node.name or node.op_type}.{at}"
            if node.op_identifier() in local:
                node.op_type = f"{prefix}{node.op_type}"
            for each in node.outputs:
                if each.name:
                    each.name = f"{prefix}{each.name}"
        for graph in _all_graphs(model.graph):
            held = list(graph.initializers.values())
            for each in held:
                graph.initializers.pop(each.name)
                each.name = f"{prefix}{each.name}"
            graph.initializers.update({each.name: each for each in held})
            if graph is not model.graph:
                for each in graph.inputs:
                    each.name = f"{prefix}{each.name}"
        for function in model.functions.values():
            for node in _all_nodes(function):
                if node.op_identifier() in local:
                    node.op_type = f"{prefix}{node.op_type}"
            function.name = f"{prefix}{function.name}"
            self.functions.append(function)


def _imports(opsets: Mapping[str, int]) -> dict[str, int]:
    """Version by domain; ONNX's own has two spellings, of which nodes have this one here."""
    return {"" if domain == "ai.onnx" else domain: version for domain, version in opsets.items()}


def _all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(graph)


def _all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in ir.traversal.RecursiveGraphIterator(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                yield from attribute.as_graphs()
