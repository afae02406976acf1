"""Small decoders merged of two networks behind one flag, as exporters write them, and the plain loop that drives them.

One branch takes a prompt and, beside an encoder, gives the caches over what that made; the other takes all caches and
new tokens. What it declares as those caches then are constants without meaning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, HEADS, HEAD, LAYERS = 24, 8, 2, 4, 2
STRIDE = 4
"""Samples of sound that one entry of the encoder stands for."""
FLAG = "use_past"
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Net:
    """Nodes under way. weights: shared by both branches."""

    prefix: str
    weights: dict[str, Array]
    nodes: list[NodeProto] = field(default_factory=list)

    def op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node; the name of what it makes."""
        name = out or f"{self.prefix}/{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A random constant, the same for the same name."""
        seed = sum(map(ord, name))
        self.weights[name] = np.random.default_rng(seed).normal(0, 0.6, shape).astype(np.float32)
        return name

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant."""
        array = np.array(value, dtype)
        name = f"const_{array.dtype}_{'_'.join(map(str, array.shape))}_{array.tobytes().hex()}"
        self.weights[name] = array
        return name

    def heads(self, x: str, weight: str, out: str = "") -> str:
        """[b, s, 8] -> [b, 2, s, 4]."""
        made = self.op("MatMul", x, self.weight(weight, HIDDEN, HIDDEN))
        split = self.op("Reshape", made, self.const([0, 0, HEADS, HEAD]))
        return self.op("Transpose", split, out=out, perm=[0, 2, 1, 3])

    def attend(self, x: str, query: str, keys: str, values: str, bias: str, weight: str) -> str:
        """x and what it finds among keys and values [b, 2, t, 4]. bias: added to the scores, "" for none."""
        scores = self.op("MatMul", self.heads(x, query), self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Add", scores, bias) if bias else scores
        found = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        joined = self.op("Reshape", self.op("Transpose", found, perm=[0, 2, 1, 3]), self.const([0, 0, HIDDEN]))
        return self.op("Add", x, self.op("MatMul", joined, self.weight(weight, HIDDEN, HIDDEN)))

    def extent(self, value: str, axis: int) -> str:
        """[1]: how long an axis is."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def hides(self, mask: str) -> str:
        """int64 mask [b, t] -> float32 [b, 1, 1, t] to add to scores."""
        taken = self.op("Sub", self.const(1, np.float32), self.op("Cast", mask, to=TensorProto.FLOAT))
        return self.op("Unsqueeze", self.op("Mul", taken, self.const(-1e4, np.float32)), self.const([1, 2]))

    def causal(self, new: str, total: str) -> str:
        """[new, total]: a large negative number where an entry comes after the token."""
        ones = self.op("Expand", self.const(-1e4, np.float32), self.op("Concat", new, total, axis=0))
        behind = self.op("Add", self.op("Squeeze", self.op("Sub", total, new)), self.const(1))
        return self.op("Trilu", ones, behind, upper=1)


@dataclass(frozen=True)
class Form:
    """beside: "tokens" or "sound" that an encoder takes, "" for a decoder alone. later: the flag's value there.

    handed: the second network hands the encoder's caches on, where others give constants. alike: branches call results
    as the graph's outputs are called. names: how ports are called.
    """

    beside: str = "sound"
    later: bool = True
    handed: bool = False
    alike: bool = False
    names: Mapping[str, str] = field(default_factory=dict[str, str])

    def name(self, port: str) -> str:
        """A port's name."""
        return self.names.get(port, port)


def merged_decoder(form: Form) -> ModelProto:
    """The graph. Ports: ids [b, s], past.L.key ..., with an encoder also states [b, e, 8] and mask [b, samples]."""
    weights: dict[str, Array] = {}
    branches = {side: _network(form, side, weights) for side in ("first", "later")}
    then, other = ("later", "first") if form.later else ("first", "later")
    outputs = [form.name(each) for each in output_names(form)]
    node = helper.make_node("If", [form.name(FLAG)], outputs, then_branch=branches[then], else_branch=branches[other])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "merged", _inputs(form), _values(form, lambda each: form.name(each)), held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def output_names(form: Form) -> list[str]:
    """Logits, then the presents, as they are called without `names`."""
    return ["logits", *(each.replace("past", "present") for each in past_names(form))]


def past_names(form: Form) -> list[str]:
    """The caches, layer by layer."""
    kinds = ("own", "source") if form.beside else ("own",)
    return [f"past.{at}.{kind}.{half}" for at in range(LAYERS) for kind in kinds for half in ("key", "value")]


def _inputs(form: Form) -> list[Any]:
    def value(name: str, dtype: int, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(form.name(name), dtype, list(shape))

    made = [value("ids", TensorProto.INT64, "b", "s"), value(FLAG, TensorProto.BOOL, 1)]
    if form.beside:
        made.append(value("states", TensorProto.FLOAT, "b", "source", HIDDEN))
        made.append(value("mask", TensorProto.INT64, "b", "source"))
    lengths = {"own": "past", "source": "source"}
    made += [value(each, TensorProto.FLOAT, "b", HEADS, lengths[each.split(".")[2]], HEAD) for each in past_names(form)]
    return made


def _values(form: Form, name: Any) -> list[Any]:
    shapes: dict[str, list[int | str]] = {"logits": ["b", "s", VOCABULARY]}
    lengths = {"own": "past + s", "source": "source"}
    names = output_names(form)
    shapes |= {each: ["b", HEADS, lengths[each.split(".")[2]], HEAD] for each in names if each not in shapes}
    return [helper.make_tensor_value_info(name(each), TensorProto.FLOAT, shapes[each]) for each in names]


def _network(form: Form, side: str, weights: dict[str, Array]) -> GraphProto:
    """One branch: all tokens at once without caches, or new tokens with them."""
    net, later = Net(side, weights), side == "later"
    out = {each: form.name(each) if form.alike else f"{side}.{each}" for each in output_names(form)}
    ids = form.name("ids")
    x = net.op("Gather", net.weight("embedding", VOCABULARY, HIDDEN), ids)
    bias = net.hides(_heard(net, form)) if form.beside else ""
    for at in range(LAYERS):
        keys, values = (net.heads(x, f"{at}.{half}") for half in ("key", "value"))
        own = []
        for half, new in (("key", keys), ("value", values)):
            present = out[f"present.{at}.own.{half}"]
            past = form.name(f"past.{at}.own.{half}")
            made = net.op("Concat", past, new, out=present, axis=2) if later else net.op("Identity", new, out=present)
            own.append(made)
        seen = net.causal(net.extent(ids, 1), net.extent(own[0], 2))
        x = net.attend(x, f"{at}.query", own[0], own[1], seen, f"{at}.output")
        if form.beside:
            source = [_source(net, form, later, f"{at}.source.{half}", out) for half in ("key", "value")]
            x = net.attend(x, f"{at}.source.query", source[0], source[1], bias, f"{at}.source.output")
    net.op("MatMul", x, net.op("Transpose", "embedding", perm=[1, 0]), out=out["logits"])
    return helper.make_graph(net.nodes, side, [], _values(form, out.get))


def _heard(net: Net, form: Form) -> str:
    """The mask over the encoder's entries: of sound, every fourth sample's."""
    if form.beside != "sound":
        return form.name("mask")
    return net.op(
        "Slice", form.name("mask"), net.const([STRIDE - 1]), net.const([1 << 40]), net.const([1]), net.const([STRIDE])
    )


def _source(net: Net, form: Form, later: bool, part: str, out: Mapping[str, str]) -> str:
    """Keys or values over the encoder's entries: made here, or taken."""
    if not later:
        return net.heads(form.name("states"), part, out=out[f"present.{part}"])
    past = form.name(f"past.{part}")
    if form.handed:
        net.op("Identity", past, out=out[f"present.{part}"])
    else:
        nothing = numpy_helper.from_array(np.zeros((0, HEADS, 1, HEAD), np.float32))
        net.op("Constant", out=out[f"present.{part}"], value=nothing)
    return past


def apart(form: Form, later: bool) -> ModelProto:
    """One network of the merged decoder as a graph of its own; a later one gives its own caches alone."""
    model = merged_decoder(form)
    branches = {each.name: each.g for each in model.graph.node[0].attribute}
    chosen = branches["then_branch" if form.later == later else "else_branch"]
    read = {name for node in chosen.node for name in node.input}
    ends = [
        helper.make_node("Identity", [inner.name], [outer.name])
        for inner, outer in zip(chosen.output, model.graph.output, strict=True)
    ]
    kept = [each for each in model.graph.output if not later or "source" not in each.name]
    graph = helper.make_graph(
        [*chosen.node, *ends],
        "apart",
        [each for each in model.graph.input if each.name in read],
        kept,
        [*model.graph.initializer, *chosen.initializer],
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def encoder(form: Form) -> ModelProto:
    """Sound: samples float32 [b, n] and mask -> [b, n // 4, 8]; tokens: source ids [b, e] and mask -> [b, e, 8]."""
    weights: dict[str, Array] = {}
    net = Net("encoder", weights)
    if form.beside == "sound":
        wave = net.op("Unsqueeze", "samples", net.const([1]))
        cut = net.op("Conv", wave, net.weight("cut", HIDDEN, 1, STRIDE), strides=[STRIDE])
        x, entries = net.op("Transpose", cut, perm=[0, 2, 1]), "n / 4"
        first = helper.make_tensor_value_info("samples", TensorProto.FLOAT, ["b", "n"])
    else:
        found = net.op("Gather", net.weight("source", VOCABULARY, HIDDEN), "source_ids")
        x, entries = net.op("MatMul", found, net.weight("mixed", HIDDEN, HIDDEN)), "n"
        first = helper.make_tensor_value_info("source_ids", TensorProto.INT64, ["b", "n"])
    weighed = net.op("Unsqueeze", net.op("Cast", "mask", to=TensorProto.FLOAT), net.const([2]))
    if form.beside == "sound":
        weighed = net.op(
            "Slice", weighed, net.const([0]), net.const([-STRIDE + 1]), net.const([1]), net.const([STRIDE])
        )
    kept = net.op("Mul", x, weighed)
    net.op("Add", kept, net.op("ReduceMean", kept, axes=[1]), out="made")
    mask = helper.make_tensor_value_info("mask", TensorProto.INT64, ["b", "n"])
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, ["b", entries, HIDDEN])
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(net.nodes, "encoder", [first, mask], [made], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain_loop(
    form: Form, decoder: ModelProto, prompt: Sequence[int], count: int, source: Mapping[str, Array] | None = None
) -> list[int]:
    """Greedy tokens of one row: the flag's one value with the whole prompt, its other with each token after it.

    source: what the encoder takes, by its ports, without the mask.
    """
    session = onnxruntime.InferenceSession(decoder.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds: dict[str, Array] = {}
    if source is not None:
        (given,) = source.values()
        everything = {**source, "mask": np.ones(given.shape, np.int64)}
        running = onnxruntime.InferenceSession(encoder(form).SerializeToString(), providers=["CPUExecutionProvider"])
        (states,) = running.run(["made"], everything)
        feeds = {form.name("states"): states, form.name("mask"): everything["mask"]}
    caches = {each: np.zeros((1, HEADS, 0, HEAD), np.float32) for each in past_names(form)}
    fresh, later, tokens = list(prompt), not form.later, list[int]()
    names = output_names(form)
    while len(tokens) < count:
        given = {form.name("ids"): np.array([fresh]), form.name(FLAG): np.array([later])}
        given |= {form.name(each): value for each, value in caches.items()}
        results = session.run([form.name(each) for each in names], {**feeds, **given})
        fresh = [int(results[0][0, -1].argmax())]
        tokens += fresh
        for present, value in zip(names[1:], results[1:], strict=True):
            if ".own." in present or later != form.later:  # the encoder's caches are those of the first run
                caches[present.replace("present", "past")] = value
        later = form.later
    return tokens
