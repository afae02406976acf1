"""Results that loops write over: which runs are marked, and that every value is the reference interpreter's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime as ort
import pytest
from genai_compiler import Compiled, Options, compile_package
from genai_compiler.passes.keep_results import keep_results
from genai_compiler.plan.ir import Invoke, Replacement
from genai_compiler.plan.uses import walk
from genai_runtime.steady import WORTH_BINDING, steady_session
from genai_runtime.values import to_array, to_value, view
from onnx import TensorProto, helper, save_model

from tests.reference.interpreter import interpret
from tools.fixtures.document import (
    Document,
    application,
    branch,
    cell,
    emit,
    invoke,
    literal,
    loop,
    onnx,
    output,
    package,
    tensor,
    write_document,
)
from tools.fixtures.graph import Sketch

WIDE, ONE, FLAG = tensor("float32", "width"), tensor("int64", 1), tensor("bool")
STEPS = 3 * WORTH_BINDING
INPUTS = {"x": np.array([1.0, -2.0, 0.5], np.float32), "limit": np.array([STEPS])}
FLOW = [
    "workflow_ssa",
    "linear_effects",
    "nested_control_flow",
    "typed_emit",
    "streaming_emit",
    "loop_induction_values",
]


def grown(folder: Path) -> Document:
    """y = 1.5 * x + 1 over float32 [width]."""
    sketch = Sketch("grow")
    x = sketch.input("x", "float32", "width")
    sketch.output(sketch.op.Add(sketch.op.Mul(x, 1.5), 1.0), "y", "float32", "width")
    sketch.save(folder / "grow.onnx")
    return onnx("grow.onnx", {"x": WIDE}, {"y": WIDE})


def longer(folder: Path) -> Document:
    """y is x and its first element again: float32 [width + 1]."""
    sketch = Sketch("longer")
    x = sketch.input("x", "float32", "n")
    sketch.output(sketch.op.Concat(x, sketch.op.Gather(x, [0], axis=0), axis=0), "y", "float32", "m")
    sketch.save(folder / "longer.onnx")
    return onnx("longer.onnx", {"x": tensor("float32", "n")}, {"y": tensor("float32", "m")})


def passed(folder: Path) -> Document:
    """The output x is the input x itself, which ONNX Runtime hands back as it is; y is x turned round."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["width"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "passed", ports[:1], ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save_model(model, folder / "passed.onnx")
    return onnx("passed.onnx", {"x": WIDE}, {"x": WIDE, "y": WIDE})


def write(folder: Path, body: Sequence[Document], carried: dict[str, str], more: Document | None = None) -> Path:
    """A loop of STEPS iterations over cells of the same contract that all start as x, each published in the end."""
    inputs = {
        "x": application(WIDE, "x"),
        "limit": application(ONE, "limit"),
        "yes": literal(FLAG, True),
        "none": literal(ONE, 0),
    }
    state = {name: cell(WIDE, "x") for name in carried} | (more or {})
    outputs = {"trace": output(tensor("float32", "long")), **{f"out {name}": output(WIDE) for name in carried}}
    components = {"grow": grown(folder), "longer": longer(folder), "passed": passed(folder)}
    around = loop(body, "yes", "limit", carried)
    ends = [emit(name, f"out {name}") for name in carried]
    used = {each["component"] for each in every(body) if each["kind"] == "invoke"}
    components = {name: each for name, each in components.items() if name in used}
    write_document(folder, package(FLOW, inputs, outputs, components, [around, *ends], state=state))
    return folder


def every(steps: Sequence[Document]) -> list[Document]:
    """The steps and those nested in them."""
    found = list(steps)
    for each in steps:
        found += every(each.get("steps", ()))
        found += every(list(each.get("cases", {}).values()))
    return found


def judged(root: Path, tmp_path: Path, without: tuple[str, ...] = ()) -> Compiled:
    """Compile, run, hold every output against the interpreter's, with the pass and without. without: other passes."""
    wanted = interpret(root, INPUTS).outputs
    made = compile_package(root, tmp_path / "compiled", Options(without=without))
    compile_package(root, tmp_path / "apart", Options(without=(*without, "keep_results")))
    for folder in ("compiled", "apart"):
        with genai_runtime.load(tmp_path / folder, threads=1) as model:
            for _ in range(2):
                result = model.run(INPUTS)
                for name, value in wanted.items():
                    np.testing.assert_array_equal(result[name], value, strict=True)
    return made


def steady(made: Compiled) -> list[str]:
    assert made.plan is not None
    return [op.component for op in walk(made.plan.body) if isinstance(op, Invoke) and op.steady]


GROW = invoke("grow", {"x": "a"}, {"y": "a.next"})
SEEN = emit("a", "trace", "append", axis=0)


def test_a_cell_that_a_run_makes_anew_is_written_over(tmp_path: Path) -> None:
    made = judged(write(tmp_path / "package", [GROW, SEEN], {"a": "a.next"}), tmp_path)
    assert steady(made) == ["grow"]
    assert "steady_grow = grow.steady(limit_2)" in made.executor


def test_cells_that_hand_a_value_on_need_it_longer(tmp_path: Path) -> None:
    """A shift register: what the run gives is read three iterations later."""
    shown = [emit(name, "trace", "append", axis=0) for name in ("a", "b", "c")]
    cells = {"a": "a.next", "b": "a", "c": "b"}
    assert steady(judged(write(tmp_path / "package", [GROW, *shown], cells), tmp_path)) == []


def test_a_branch_may_hand_a_result_on(tmp_path: Path) -> None:
    chosen = branch(
        "yes",
        {"true": emit("a.next", "trace", "append", axis=0), "false": emit("b", "trace", "append", axis=0)},
        outputs={"picked": {"cases": {"true": "a.next", "false": "b"}}},
    )
    made = judged(write(tmp_path / "package", [GROW, chosen], {"a": "a.next", "b": "picked", "c": "b"}), tmp_path)
    assert steady(made) == []


def test_a_nested_loop_may_hand_a_result_on(tmp_path: Path) -> None:
    """Without an iteration its cell is what it started as."""
    inner = loop([invoke("grow", {"x": "d"}, {"y": "d.next"})], "yes", "none", {"d": "d.next"})
    body, cells = [GROW, inner, SEEN, emit("d", "trace", "append", axis=0)], {"a": "a.next", "b": "d", "c": "b"}
    made = judged(write(tmp_path / "package", body, cells, {"d": cell(WIDE, "a.next")}), tmp_path)
    assert steady(made) == ["grow"], "only the inner one, whose results stay in its own loop"


def test_a_result_of_unknown_extents_keeps_its_run_from_it(tmp_path: Path) -> None:
    body = [GROW, invoke("longer", {"x": "a"}, {"y": "long"}), emit("long", "trace", "append", axis=0)]
    made = judged(write(tmp_path / "package", body, {"a": "a.next"}), tmp_path)
    assert steady(made) == []


PASSED = invoke("passed", {"x": "a"}, {"x": "same", "y": "turned"})


@pytest.mark.parametrize("without", [(), ("fuse_islands",)], ids=str)
def test_what_a_graph_hands_through_is_its_argument_still(without: tuple[str, ...], tmp_path: Path) -> None:
    """So who made the argument leaves it alone for as long; the values are read two iterations later."""
    shown = [emit(each, "trace", "append", axis=0) for each in ("a", "same", "turned", "b", "c")]
    root = write(tmp_path / "package", [GROW, PASSED, *shown], {"a": "a.next", "b": "same", "c": "b"})
    assert "grow" not in steady(judged(root, tmp_path, without))


@pytest.mark.parametrize("without", [(), ("fuse_islands",)], ids=str)
def test_a_graph_that_hands_through_makes_nothing_to_write_over(without: tuple[str, ...], tmp_path: Path) -> None:
    shown = [emit(each, "trace", "append", axis=0) for each in ("same", "b")]
    body = [PASSED, invoke("grow", {"x": "turned"}, {"y": "v"}), *shown]
    made = judged(write(tmp_path / "package", body, {"a": "v", "b": "same"}), tmp_path, without)
    assert "passed" not in steady(made)


@pytest.mark.parametrize("theirs", [("given", "given"), ("given", "made")])
def test_what_a_request_may_put_in_place_of_a_graph_may_hand_through(theirs: tuple[str, str], tmp_path: Path) -> None:
    body = [GROW, invoke("longer", {"x": "a"}, {"y": "long"}), emit("long", "trace", "append", axis=0)]
    root = write(tmp_path / "package", body, {"a": "a.next"})
    plan = compile_package(root, tmp_path / "made", Options(without=("fuse_islands", "keep_results"))).plan
    assert plan is not None
    other = Replacement("other", tuple(zip("xy", theirs, strict=True)))
    components = tuple(
        replace(each, overridable=True, replacements=(other,)) if each.name == "longer" else each
        for each in plan.components
    )
    nothing: Any = None
    kept = keep_results(replace(plan, components=components), nothing)
    marked = [op.component for op in walk(kept.body) if isinstance(op, Invoke) and op.steady]
    assert marked == ([] if theirs[0] == theirs[1] else ["grow"])


# ---- the runtime's part ----------------------------------------------------------------------------------------------


def doubling() -> Any:
    """A session of y = x + x over float32 [n], n open."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def plain(session: Any, value: Any) -> Any:
    made = session._sess.run_with_ort_values({"x": value}, ["y"], None)
    return [made[0]]


def test_two_sets_of_results_take_turns() -> None:
    session, most = doubling(), WORTH_BINDING
    run = steady_session(session, (("x",), ("y",)), lambda value: plain(session, value), most, "here")
    values = [to_value(np.array([each, -each], np.float32)) for each in range(WORTH_BINDING + 6)]
    made = [run(each)[0] for each in values]
    assert [id(each) for each in made[-4:]] == [id(each) for each in (made[-4], made[-3]) * 2]
    last = len(values) - 1
    assert to_array(made[-1]).tolist() == [2.0 * last, -2.0 * last]
    assert to_array(made[-2]).tolist() == [2.0 * (last - 1), -2.0 * (last - 1)], "the iteration before is still there"


def test_a_short_loop_binds_nothing() -> None:
    session, most = doubling(), WORTH_BINDING - 1
    run = steady_session(session, (("x",), ("y",)), lambda value: plain(session, value), most, "here")
    made = [run(to_value(np.ones(2, np.float32)))[0] for _ in range(most)]
    assert len({id(each) for each in made}) == most
    assert run.sets() == ()


@pytest.mark.parametrize("extents", [[2] * 8 + [3] * 4, [1, 2, 3] * 4, [4] * 12])
def test_other_extents_are_run_by_the_runner(extents: list[int]) -> None:
    """Should a proof be wrong, the values are not."""
    session, most = doubling(), len(extents)
    run = steady_session(session, (("x",), ("y",)), lambda value: plain(session, value), most, "here")
    for at, extent in enumerate(extents):
        array = np.arange(at, at + extent, dtype=np.float32)
        assert to_array(run(to_value(array))[0]).tolist() == (2 * array).tolist()


class _Elsewhere:
    """A session as of a provider with a device of its own: what is bound is copied then, and the copy is read."""

    def __init__(self, session: Any) -> None:
        self._session, self._sess = session, session._sess

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def io_binding(self) -> Any:
        bound = self._session.io_binding()
        return SimpleNamespace(_iobinding=_Copying(bound._iobinding))


class _Copying:
    def __init__(self, bound: Any) -> None:
        self.bound, self.kept = bound, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def bind_ortvalue_input(self, port: str, value: Any) -> None:
        self.kept[port] = to_value(to_array(value).copy())
        self.bound.bind_ortvalue_input(port, self.kept[port])


def test_a_device_that_copies_what_is_bound_reads_every_input_anew() -> None:
    """The input is one object that is written over, as the result of another steady run is."""
    session = _Elsewhere(doubling())
    session._sess = SimpleNamespace(
        run_with_iobinding=lambda bound, options: session._session._sess.run_with_iobinding(bound.bound, options)
    )
    run = steady_session(session, (("x",), ("y",)), lambda value: plain(session._session, value), 99, "here")
    array = np.zeros(2, np.float32)
    value, made = view(array), list[list[float]]()
    for at in range(WORTH_BINDING + 6):
        array[:] = at
        made.append(to_array(run(value)[0]).tolist())
    assert made == [[2.0 * at] * 2 for at in range(WORTH_BINDING + 6)]
