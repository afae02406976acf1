"""Graphs that draw a row's next token: one for each way that the runtime's sampler has, for a vocabulary of any size.

A row is seen as blocks of WIDTH scores, so that it goes in where the decoder wrote it: `blocks` float32 [n, WIDTH] are
its whole blocks, `rest` float32 [1, WIDTH] what is behind them, filled up with -inf. The other inputs, each of one
element: `best`, the largest score (float64 [1], finite); `temperature`, `top_p`, `min_p` (float64 [1]); `count`
(int64 [1]), how many tokens top_k keeps; `uniform` (float64 [1], in [0, 1)), the number from the row's generator. Out
comes `token` (int64 [1]); -1 where `top_p` or `min_p` keeps more tokens than the CANDIDATES that their graphs look at.

What is computed is the definition in genai_runtime/truncate.py: of the tokens that survive the cuts, in ascending id
order, the first whose cumulative weight exceeds uniform * total; ties at a cut keep the lowest ids.

The k best scores are found without looking at each score twice: they lie in the k blocks with the largest maxima (of
equal maxima the first ones), because each block that stands before has a score that stands before.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from onnx import NodeProto, TensorProto, helper

from genai_compiler.plan.ir import Plan

FOLDER = "policy"
WIDTH = 64
CANDIDATES = 64
"""Tokens among which the graphs of `top_p` and `min_p` look for those to keep."""
OPSET = 17
"""Has all that is used here; every ONNX Runtime that this runtime supports has it, whatever the decoder's own is."""
IR_VERSION = 8
LEAST = 1e-300
"""A mass that the most likely token always exceeds: top_p of 0 keeps that one."""
STEP = 2.0**-53
"""A positive number less so much of itself is smaller: what is drawn has a weight, however sums round.

ONNX Runtime 1.32 takes a product with 1 - STEP for one with 1, and leaves it out."""

_ORDER = ("best", "temperature", "top_p", "min_p", "count", "uniform")
_TYPES = {"count": TensorProto.INT64}


class _Graph:
    """Nodes in the order in which they are added, and the inputs among _ORDER that these read."""

    def __init__(self) -> None:
        self.nodes, self.constants = list[NodeProto](), dict[str, Any]()

    def __call__(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> str:
        """Add a node; the name of its result, its last one where it has several: the others end in .0, .1, ..."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        made = [name] if results == 1 else [*(f"{name}.{at}" for at in range(results - 1)), name]
        self.nodes.append(helper.make_node(operator, inputs, made, name=name, **attributes))
        return name

    def once(self, operator: str, value: str, **attributes: Any) -> str:
        """The result of a node of one input that is there already, else of a new one."""
        found = (node.output[0] for node in self.nodes if node.op_type == operator and list(node.input) == [value])
        return next(found, "") or self(operator, value, **attributes)

    def constant(self, name: str, type: int, value: int | float, dims: Sequence[int] = (1,)) -> str:
        """The name of a constant of one element."""
        self.constants[name] = helper.make_tensor(name, type, dims, [value])
        return name

    def int64(self, value: int) -> str:
        """A constant int64 [1], named by its value."""
        return self.constant(f"int64_{value}".replace("-", "minus_"), TensorProto.INT64, value)

    def double(self, name: str, value: float) -> str:
        """A constant float64 [1]."""
        return self.constant(name, TensorProto.DOUBLE, value)

    def bytes(self, kind: str, token: str) -> bytes:
        """The model whose output is `token`; same graph, same bytes."""
        self.nodes.append(helper.make_node("Identity", [token], ["token"], name="token"))
        read = {name for node in self.nodes for name in node.input}
        inputs = [helper.make_tensor_value_info("blocks", TensorProto.FLOAT, ["n", WIDTH])]
        inputs.append(helper.make_tensor_value_info("rest", TensorProto.FLOAT, [1, WIDTH]))
        types = ((name, _TYPES.get(name, TensorProto.DOUBLE)) for name in _ORDER if name in read)
        inputs += [helper.make_tensor_value_info(name, type, [1]) for name, type in types]
        outputs = [helper.make_tensor_value_info("token", TensorProto.INT64, [1])]
        graph = helper.make_graph(self.nodes, f"token_policy_{kind}", inputs, outputs, list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="genai-compile")
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def policy_files(plan: Plan) -> dict[str, bytes]:
    """File of the compiled folder -> graph, by kind; none where only the host draws."""
    wanted = plan.decoder is not None and plan.decoder.by_graph is not None
    return {policy_file(kind): policy_graph(kind) for kind in KINDS} if wanted else {}


def policy_entry(plan: Plan) -> dict[str, Any] | None:
    """What the manifest says of them: kind -> file, ways that a graph draws by itself, tokens of top_k at most then."""
    if plan.decoder is None or plan.decoder.by_graph is None:
        return None
    graphs = {
        kind: {"file": policy_file(kind), "sha256": hashlib.sha256(policy_graph(kind)).hexdigest()} for kind in KINDS
    }
    return {"graphs": graphs, "by_graph": list(plan.decoder.by_graph), "most": CANDIDATES}


def policy_file(kind: str) -> str:
    """Where a kind's graph lies in the compiled folder."""
    return f"{FOLDER}/{kind}.onnx"


@cache
def policy_graph(kind: str) -> bytes:
    """The graph of a kind, in binary form. Raises KeyError for a kind that is none of KINDS."""
    add = _Graph()
    return add.bytes(kind, _KINDS[kind](add))


# ---- the ways to a token -------------------------------------------------------------------------------------------


def _top_k(add: _Graph) -> str:
    scores, places, starts = _largest(add, "count")
    weights = add("Exp", add("Div", add("Sub", _double(add, scores), "best"), "temperature"))
    kept = _cut(add, weights, add("Mul", add("ReduceSum", weights), "top_p"))
    return _token(add, _drawn(add, kept, places, "count"), starts)


def _top_p(add: _Graph) -> str:
    count = add.int64(CANDIDATES)
    scores, places, starts = _largest(add, count)
    weights = _double(add, _softened(add, scores))
    sums = _sums(add, _softened(add, "blocks"), _softened(add, "rest"))
    wanted = add("Mul", add("ReduceSum", _double(add, sums)), "top_p")
    token = _token(add, _drawn(add, _cut(add, weights, wanted), places, count), starts)
    return add("Where", add("GreaterOrEqual", add("ReduceSum", weights), wanted), token, add.int64(-1))


def _min_p(add: _Graph) -> str:
    count = add.int64(CANDIDATES)
    scores, places, starts = _largest(add, count)
    weights = _double(add, _softened(add, scores))
    least = _double(add, _float(add, "min_p"))
    kept = add("Where", add("GreaterOrEqual", weights, least), weights, add.double("none", 0.0))
    token = _token(add, _drawn(add, kept, places, count), starts)
    smallest = add("ReduceMin", weights)
    return add("Where", add("Less", smallest, least), token, add.int64(-1))


def _temperature(add: _Graph) -> str:
    """A token of the whole vocabulary: first its block, then its place in there, so that one block is summed up."""
    blocks, rest = _softened(add, "blocks"), _softened(add, "rest")
    sums = _double(add, _sums(add, blocks, rest))
    cumulative = add("CumSum", sums, _axis(add))
    target = add("Mul", add("ReduceMax", cumulative), "uniform")
    at = _first_above(add, cumulative, target)
    left = add("Sub", target, add("Gather", add("CumSum", sums, _axis(add), exclusive=1), at))
    whole = add("Sub", add("Shape", sums), add.int64(1))
    inside = add("Gather", blocks, add("Min", at, add("Sub", whole, add.int64(1))))
    weights = add("Reshape", add("Where", add("Less", at, whole), inside, rest), add.int64(-1))
    among = add("CumSum", _double(add, weights), _axis(add))
    total = add("ReduceMax", among)
    below = add("Sub", total, add("Mul", total, add.double("step", STEP)))
    return add("Add", add("Mul", at, add.int64(WIDTH)), _first_above(add, among, add("Min", left, below)))


_KINDS: Mapping[str, Callable[[_Graph], str]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "temperature": _temperature,
}
KINDS = tuple(_KINDS)
"""By the first option that is set, in this order."""


# ---- parts ---------------------------------------------------------------------------------------------------------


def _largest(add: _Graph, count: str) -> tuple[str, str, str]:
    """The `count` largest scores, falling; the place of each among those looked at; the id where each block starts."""
    maxima = add("ReduceMax", "blocks", axes=[1], keepdims=0)
    few = add("Min", count, add("Shape", maxima))
    found = add("TopK", maxima, few, results=2, sorted=0)
    chosen = f"{add('TopK', found, few, results=2, largest=0)}.0"
    near = add("Concat", add("Gather", "blocks", chosen), "rest", axis=0)
    places = add("TopK", add("Reshape", near, add.int64(-1)), count, results=2)
    starts = add("Mul", add("Concat", chosen, add("Shape", maxima), axis=0), add.int64(WIDTH))
    return f"{places}.0", places, starts


def _cut(add: _Graph, weights: str, wanted: str) -> str:
    """Falling weights with 0 in place of those that go: where enough stands before, and below min_p."""
    before = add("CumSum", weights, _axis(add), exclusive=1)
    needed = add("Less", before, add("Max", wanted, add.double("least", LEAST)))
    kept = add("And", needed, add("GreaterOrEqual", weights, "min_p"))
    return add("Where", kept, weights, add.double("none", 0.0))


def _drawn(add: _Graph, weights: str, places: str, count: str) -> str:
    """The place of the token that is drawn: places count up with ids, weights are in the order of `places`."""
    order = add("TopK", places, count, results=2, largest=0)
    cumulative = add("CumSum", add("Gather", weights, order), _axis(add))
    target = add("Mul", add("ReduceMax", cumulative), "uniform")
    return add("Gather", f"{order}.0", _first_above(add, cumulative, target))


def _token(add: _Graph, place: str, starts: str) -> str:
    width = add.int64(WIDTH)
    return add("Add", add("Gather", starts, add("Div", place, width)), add("Mod", place, width))


def _softened(add: _Graph, scores: str) -> str:
    """exp((score - best) / temperature) in float32, as the host has it: 1 for the best."""
    less = add("Sub", scores, _float(add, "best"))
    return add("Exp", add("Div", less, _float(add, "temperature")))


def _sums(add: _Graph, blocks: str, rest: str) -> str:
    """The sum of each block and of the rest, [n + 1]."""
    axis = add.int64(1)
    return add("Concat", add("ReduceSum", blocks, axis, keepdims=0), add("ReduceSum", rest, axis, keepdims=0), axis=0)


def _first_above(add: _Graph, cumulative: str, target: str) -> str:
    """The first place whose cumulative weight exceeds the target, [1]."""
    return add("ReduceSum", add("Cast", add("LessOrEqual", cumulative, target), to=TensorProto.INT64))


def _double(add: _Graph, value: str) -> str:
    return add("Cast", value, to=TensorProto.DOUBLE)


def _float(add: _Graph, value: str) -> str:
    return add.once("Cast", value, to=TensorProto.FLOAT)


def _axis(add: _Graph) -> str:
    return add.constant("axis", TensorProto.INT64, 0, ())
