"""A workflow's loop body authored as one graph, and the loop around it as an expert would write it.

Only for documents with one loop whose body is invokes and one emit. Setup runs component by component; then every
iteration is one session run on bindings made once: two, since what a step reads must not be what it writes. Caches are
written in place. It shares no code with the compiler: nodes are copied as the document says.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import yaml

from tools.bench.bound_loop import open_session
from tools.bench.run_clock import RunClock, Trace

WEIGHTS = "session.model_external_initializers_file_folder_path"


@dataclass(frozen=True)
class Body:
    """The one loop of a document. carried: cell -> next value; iteration: the name of the counter's value."""

    workflow: dict[str, Any]
    setup: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    carried: dict[str, str]
    iteration: str
    emitted: str
    predicate: str

    def artifact(self, component: str) -> str:
        """The file of a component, relative to the package."""
        return str(self.workflow["components"][component]["implementation"]["artifact"])


def read_body(package: Path) -> Body:
    """The loop of the package's document."""
    document = yaml.safe_load((package / "inference_metadata.yaml").read_text(encoding="utf-8"))
    workflow = document["pipeline"]["workflow"]
    (step,) = workflow["steps"]
    (emit,) = (each for each in step["steps"] if each["kind"] == "emit")
    return Body(
        workflow,
        step["setup"],
        [each for each in step["steps"] if each["kind"] == "invoke"],
        {each["cell"]: each["next"] for each in step["carried"]},
        step["iteration"]["value"],
        emit["value"],
        step["continue_when"],
    )


def author(package: Path, body: Body, out: Path) -> None:
    """Write the one graph: the body's nodes after one another, values named as in the document."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    known: dict[str, onnx.ValueInfoProto] = {}
    domains: dict[str, int] = {}
    made: set[str] = set()
    for at, step in enumerate(body.steps):
        model = onnx.load(package / body.artifact(step["component"]), load_external_data=False)
        for each in model.opset_import:
            domains[each.domain] = max(domains.get(each.domain, 0), each.version)
        outer = {**step["inputs"], **step["outputs"]}
        graph = model.graph
        for info in (*graph.input, *graph.output):
            if info.name in outer:
                known.setdefault(outer[info.name], info)
        tensors += [renamed(each, at, outer) for each in graph.initializer]
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"node_{len(nodes)}"
            copy.input[:] = [value_name(name, at, outer) for name in node.input]
            copy.output[:] = [value_name(name, at, outer) for name in node.output]
            nodes.append(copy)
        made |= set(step["outputs"].values())
    read = {name for step in body.steps for name in step["inputs"].values()} - made
    wanted = dict.fromkeys(value for cell, value in body.carried.items() if value != cell)
    if body.emitted in made:
        wanted[body.emitted] = None
    infos = [[port(known[name], name) for name in names] for names in (sorted(read), wanted)]
    graph = onnx.helper.make_graph(nodes, "one_graph", infos[0], infos[1], tensors)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in domains.items()]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), out)


def value_name(name: str, at: int, outer: dict[str, str]) -> str:
    """A graph's own value in the one graph: what the document calls it at a port, else behind its step's number."""
    return outer.get(name) or (f"{at}/{name}" if name else "")


def renamed(tensor: onnx.TensorProto, at: int, outer: dict[str, str]) -> onnx.TensorProto:
    """A constant of a step's graph."""
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = value_name(tensor.name, at, outer)
    return copy


def port(info: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """A port of the type of `info`, of any extents."""
    tensor = info.type.tensor_type
    return onnx.helper.make_tensor_value_info(name, tensor.elem_type, [None] * len(tensor.shape.dim))


class OneGraphLoop:
    """The loop around the one graph."""

    def __init__(self, package: Path, work: Path, threads: int, clock: RunClock) -> None:
        self.body, self._package, self._threads = read_body(package), package, threads
        work.mkdir(parents=True, exist_ok=True)
        author(package, self.body, work / "step.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry(WEIGHTS, str(package))
        self.session = onnxruntime.InferenceSession(str(work / "step.onnx"), options, ["CPUExecutionProvider"])
        self._run = clock.timed(self.session, self.session._sess.run_with_iobinding)
        self._clock, self._opened = clock, dict[str, Any]()
        self._ports = {each.name for each in self.session.get_inputs()}

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """Greedy tokens after the only row, as the document makes them. The first token's time is not comparable."""
        now = time.perf_counter
        self._clock.take()
        start = now()
        values = self._set_up(rows, new)
        bound, emitted, active, held = self._bind(values)
        counter = values[self.body.iteration]
        before = self.body.emitted in self.body.workflow["state"]
        run, tokens, first = self._run, list[int](), now()
        for step in range(new):
            counter[0] = step
            reads, writes = step % 2, 1 - step % 2
            if before:
                tokens.append(emitted[reads].item())
                if step == new - 1:
                    break
                run(bound[reads], None)
            else:
                run(bound[reads], None)
                tokens.append(emitted[writes].item())
            if not active[writes].item():
                break
        del held
        return Trace(tokens, first - start, now() - start, self._clock.take())

    def _set_up(self, rows: Sequence[list[int]], new: int) -> dict[str, Any]:
        """Every value that exists before the loop, by name: inputs, results of setup, cells, the counter."""
        values = {name: default(facts) for name, facts in self.body.workflow["inputs"].items() if "default" in facts}
        for name, facts in self.body.workflow["inputs"].items():
            role = facts["role"].get("role")
            if role == "prompt_tokens":
                values[name] = np.array(rows, np.int64)
            elif role == "max_output_tokens":
                values[name] = np.array([new], np.int64)
        for step in self.body.setup:
            session = self._component(step["component"])
            made = session.run(list(step["outputs"]), {port: values[name] for port, name in step["inputs"].items()})
            values |= dict(zip(step["outputs"].values(), made, strict=True))
        values |= {cell: values[facts["initializer"]] for cell, facts in self.body.workflow["state"].items()}
        return {**values, self.body.iteration: np.zeros(1, np.int64)}

    def _component(self, name: str) -> Any:
        if name not in self._opened:
            self._opened[name] = open_session(self._package / self.body.artifact(name), self._threads)
        return self._opened[name]

    def _bind(self, values: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Bindings of even and odd steps; what is emitted and whether to go on, by side; and what must stay alive.

        Cells have two buffers, which take turns; caches (bounded cells) and what no step writes have one.
        """
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        state, carried = self.body.workflow["state"], self.body.carried
        arrays = [{name: np.array(array) for name, array in values.items()} for _ in range(2)]
        caches = {name for name, facts in state.items() if facts["recurrence"]["kind"] == "bounded"}
        steady = set(values) - (
            set(state) - caches - {name for name, following in carried.items() if name == following}
        )
        for name in steady:
            arrays[1][name] = arrays[0][name] = values[name] if name == self.body.iteration else arrays[0][name]
        held = [{name: value(array) for name, array in side.items()} for side in arrays]
        bound = []
        for reads in range(2):
            binding = self.session.io_binding()
            for name in self._ports:
                binding.bind_ortvalue_input(name, held[reads][name])
            for cell, following in carried.items():
                if following != cell:
                    binding.bind_ortvalue_output(following, held[1 - reads][cell])
            bound.append(binding)
        cell = next((name for name, following in carried.items() if following == self.body.emitted), self.body.emitted)
        emitted, active = [side[cell] for side in arrays], [side[self.body.predicate] for side in arrays]
        return [each._iobinding for each in bound], emitted, active, [arrays, held, bound]


def default(facts: dict[str, Any]) -> Any:
    """An input's default for one row: every axis that has no number has one entry."""
    shape = [each if isinstance(each, int) else 1 for each in facts["contract"]["shape"]]
    given = np.array(facts["default"], facts["contract"]["dtype"])
    return np.ascontiguousarray(np.broadcast_to(given, given.shape if given.ndim else shape))
