"""What made packages and mistakes have found, one small document each; the standard says who was right."""

import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from genai_compiler import CompileError
from genai_runtime import GenaiError
from genai_runtime.adapters.grammar_guidance import grammar_guidance

from tests.property.capabilities import derived
from tests.property.components import BY_NAME, Library
from tests.property.judge import Bench, Subject
from tests.property.kinds import FREE, Kind, mat, one, row, scalar
from tests.property.kinds import contract as of
from tests.property.packages import Maker
from tests.property.patterns import optional_port
from tests.property.requests import Request
from tests.property.scopes import Scope
from tests.reference.values import RowEvents, Rows
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
    request,
    sequence,
)

ONE, FLAG, ROW, LIVE = one("int64"), one("bool"), row("int64"), row("bool")
TRUE, TWO = literal(of(FLAG), True), literal(of(ONE), 2)


class Made:
    """Makes subjects of small documents."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.library = Library(self.bench.package)

    def onnx(self, operation: str, *kinds: Kind, **more: Any) -> Document:
        artifact, outputs = self.library.graph(BY_NAME[operation], kinds, False)
        ports = (
            {f"x{at}": of(each) for at, each in enumerate(kinds)},
            {f"y{at}": of(k) for at, k in enumerate(outputs)},
        )
        return onnx(artifact, *ports, **more)

    def subject(
        self, inputs: Document, outputs: dict[str, Kind], components: Document, steps: list[Document], **more: Any
    ) -> Subject:
        declared = {name: output(of(kind, f"{name}.any")) for name, kind in outputs.items()}
        document = package([], inputs, declared, components, steps, state=more.pop("state", None))
        workflow = document["pipeline"]["workflow"]
        workflow |= more
        workflow["manifest"]["capabilities"] = sorted(derived(workflow))
        return self.bench.compiled(document)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def given(**values: Any) -> Request:
    return Request({name: np.asarray(value) for name, value in values.items()}, 1)


def refused(subject: Subject, request: Request, code: str) -> GenaiError:
    """Both routes refuse; ours with this code."""
    assert subject.judge(request) is None
    with pytest.raises(GenaiError) as failure:
        subject.model.run(request.inputs, session=request.session, overrides=request.overrides)
    assert failure.value.code == code
    return failure.value


def rows_loop(made: Made, termination: str | None = None, axis: bool = True) -> Subject:
    """A loop that rows leave one by one: `x` goes on by itself, `kept` stays as it is."""
    kept = ROW if axis else ONE
    inputs = {"x": application(of(ROW), "x"), "live": application(of(LIVE), "live"), "n": TWO,
              "k": application(of(kept), "k")}  # fmt: skip
    state = {"cell": cell(of(ROW), "x"), "go": cell(of(LIVE), "live"), "kept": cell(of(kept), "k")}
    steps = [
        loop(
            [invoke("step", {"x0": "cell"}, {"y0": "next"}), invoke("less", {"x0": "next"}, {"y0": "on"})],
            "go",
            "n",
            {"cell": "next", "go": "on", "kept": "kept"},
            termination=termination,
        ),
        emit("cell", "out"),
        emit("kept", "same"),
    ]
    components = {"step": made.onnx("affine", ROW), "less": made.onnx("less", ROW)}
    return made.subject(inputs, {"out": ROW, "same": kept}, components, steps, state=state)


NONE = {"x": np.zeros(0, np.int64), "live": np.zeros(0, np.bool_), "k": np.zeros(0, np.int64)}


def test_a_predicate_without_rows_is_refused(made: Made) -> None:
    """V330: `continue_when` empty. The executor ended the loop instead."""
    failure = refused(rows_loop(made), Request(NONE, 0), "loop-predicate")
    assert failure.origin.endswith(" pipeline.workflow.steps[0]")


def test_a_predicate_that_is_not_looked_at_may_have_no_rows(made: Made) -> None:
    """3.4: when end tokens are disregarded, exactly `max_iterations` iterations run."""
    subject = rows_loop(made, "generation_eos")
    found = subject.judge(Request(NONE, 0, stop_on_eos=False))
    assert found is not None
    assert found.iterations == 2


def test_a_cell_that_stays_as_it_is_needs_a_request_axis_too(made: Made) -> None:
    """3.4: while rows are inactive a cell needs a request axis, else it is an error. The executor looked at none."""
    subject = rows_loop(made, axis=False)
    assert subject.judge(given(x=[0, 0], live=[True, True], k=[7])) is not None
    refused(subject, given(x=[1, 2], live=[True, False], k=[7]), "inactive-rows")


def test_a_tensor_in_the_other_byte_order_keeps_its_numbers(made: Made) -> None:
    """A contract speaks of numbers: int64 in big-endian order is an int64. The executor took its bytes as they lay."""
    subject = made.subject({"x": application(of(ONE), "x")}, {"out": ONE}, {}, [emit("x", "out")])
    assert subject.model.run({"x": np.array([7], ">i8")})["out"].tolist() == [7]
    assert subject.judge(Request({"x": np.array([7], ">i8")}, 1)) is not None


def test_a_bfloat16_of_rank_0_is_an_array(made: Made) -> None:
    kind = scalar("bfloat16")
    subject = made.subject({"x": application(of(kind), "x")}, {"out": kind}, {}, [emit("x", "out")])
    found = subject.model.run({"x": np.asarray(1.5, ml_dtypes.bfloat16)})["out"]
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape, found.item()) == (np.float32, (), 1.5)


@pytest.mark.parametrize("more", [None, [40]])
@pytest.mark.parametrize("declared", [True, False])
def test_a_graph_input_with_a_default_may_be_bound(made: Made, more: list[int] | None, declared: bool) -> None:
    """V317 asks for graph inputs that have no initializer default; the compiler knew no others (V312)."""
    optional_port(Maker(random.Random(1), made.library, rowwise=False), Scope())
    more_port = {"dtype": "int64", "rank": 1, "shape": [1], "optional": True}
    ports = {"inputs": {"x0": of(ROW), "more": more_port}, "outputs": {"y0": of(ROW)}} if declared else {}
    component = {"implementation": {"kind": "onnx", "artifact": "optional_port.onnx"}, "ports": ports}
    bound = {"x0": "x"} if more is None else {"x0": "x", "more": "m"}
    inputs = {"x": application(of(ROW), "x"), "m": literal(of(ONE), 40)}
    steps = [invoke("opt", bound, {"y0": "y"}), loop([invoke("one", {"x0": "c"}, {"y0": "d"})], "t", "n", {"c": "d"}),
             emit("c", "out")]  # fmt: skip
    state = {"c": cell(of(ROW), "y")}
    components = {"opt": component, "one": made.onnx("identity", ROW)}
    subject = made.subject({**inputs, "t": TRUE, "n": TWO}, {"out": ROW}, components, steps, state=state)
    found = subject.judge(given(x=[1, 2]))
    assert found is not None
    assert np.asarray(found.outputs["out"]).tolist() == ([6, 7] if more is None else [41, 42])


@pytest.mark.parametrize("dtype", ["fp8_e4m3fn", "float8_e4m3", "fp8_e4m3", "fp8_e5m2"])
def test_fp8_spellings_are_one_storage_type(made: Made, dtype: str) -> None:
    """1.4. The check of a package against its graphs knew that, the plan did not."""
    stored = "float8_e5m2" if "e5m2" in dtype else "float8_e4m3fn"
    kind = Kind(stored, (2,))
    component = made.onnx("identity", kind)
    for side in component["ports"].values():
        for port in side.values():
            port["dtype"] = dtype
    steps = [invoke("id", {"x0": "x"}, {"y0": "y"}), emit("y", "out"), emit("x", "in")]
    inputs, outputs = (
        {"x": application({**of(kind), "dtype": dtype}, "x")},
        {"out": kind.of(dtype), "in": kind.of(dtype)},
    )
    subject = made.subject(inputs, outputs, {"id": component}, steps)
    assert subject.judge(Request({"x": np.array([1, 2], getattr(ml_dtypes, stored))}, 1)) is not None


TELEMETRY = "onnx-genai.telemetry"


@pytest.mark.parametrize("declared", [one("int64"), scalar("float32")])
def test_an_adapter_keeps_to_its_contract(made: Made, declared: Kind) -> None:
    """V327. A wrong rank was an IndexError, a wrong element type went on into the workflow."""
    component = {
        "implementation": {"kind": "adapter", "abi": TELEMETRY, "version": "1"},
        "ports": {"inputs": {}, "outputs": {"t": of(declared)}},
        "contract": {
            "id": TELEMETRY,
            "version": "1",
            "bindings": {"timestamp": "t"},
            "parameters": {"action": "start"},
        },
    }
    steps = [invoke("clock", {}, {"t": "now"}), emit("now", "out")]
    manifest = {"adapter_abis": {TELEMETRY: "1"}}
    subject = made.subject({}, {"out": declared}, {"clock": component}, steps, manifest=manifest)
    failure = refused(subject, given(), "adapter")
    assert "port 't' is int64 of rank 0" in failure.what


def test_a_grammar_looks_at_its_tokens_whatever_the_action() -> None:
    """5.1: tokens must be >= 0, else an error, whatever the action; only `valid_length` is not looked at by `clone`."""
    inputs = {"state": np.array([0]), "transition_table": np.array([[0, 0]]), "valid_length": np.array([9])}
    clone = grammar_guidance({"action": "clone"})
    assert clone({**inputs, "tokens": np.array([[1]])})["consumed_length"].tolist() == [0]
    with pytest.raises(ValueError, match="negative"):
        clone({**inputs, "tokens": np.array([[-1]])})


# ---- where the interpreter was wrong ---------------------------------------------------------------------------------


def test_a_request_that_asks_for_nothing_is_greedy(made: Made) -> None:
    """3.1: a greedy request forces temperature 0, top_k 1; 1.8: greedy is what a runtime falls back to."""
    inputs = {"t": request(of(one("float32")), "sampling_temperature"), "k": request(of(ONE), "sampling_top_k")}
    subject = made.subject(inputs, {"a": one("float32"), "b": ONE}, {}, [emit("t", "a"), emit("k", "b")])
    found = subject.judge(given())
    assert found is not None
    assert [np.asarray(found.outputs[name]).tolist() for name in "ab"] == [[0.0], [1]]


def test_the_length_of_a_row_that_publishes_nothing_is_not_looked_at(made: Made) -> None:
    """3.6: a false guard means nothing for that row."""
    kind = mat("int64", 2)
    inputs = {"x": application(of(kind), "x"), "when": application(of(LIVE), "w"), "n": application(of(ROW), "n")}
    steps = [emit("x", "out", "append", when="when", valid_length="n", axis=1)]
    subject = made.subject(inputs, {"out": mat("int64", "?")}, {}, steps)
    found = subject.judge(given(x=[[1, 2], [3, 4]], w=[True, False], n=[1, -1]))
    assert found is not None
    assert isinstance(found.outputs["out"], Rows)
    refused(subject, given(x=[[1, 2], [3, 4]], w=[True, True], n=[1, -1]), "emit-length")


def test_what_may_not_be_replaced_is_refused_though_nothing_invokes_it(made: Made) -> None:
    """V338 is about the request, not about what it happens to run."""
    components = {"one": made.onnx("identity", ONE), "two": made.onnx("identity", ONE)}
    subject = made.subject({"x": application(of(ONE), "x")}, {"out": ONE}, components, [emit("x", "out")])
    refused(subject, Request({"x": np.array([1])}, 1, overrides={"one": "two"}), "bad-override")


def test_a_row_without_events_keeps_what_another_emit_gave_it(made: Made) -> None:
    """3.6, 3.7: events of other rows take nothing from a row's slot; both routes hold the latest and the events."""
    kind = row("int64")
    inputs = {"x": application(of(kind), "x"), "when": application(of(LIVE), "w")}
    steps = [emit("x", "out", "replace"), emit("x", "out", "event", when="when")]
    subject = made.subject(inputs, {"out": kind}, {}, steps)
    found = subject.judge(given(x=[6, 7], w=[False, True]))
    assert found is not None
    both = found.outputs["out"]
    assert isinstance(both, RowEvents)
    assert [None if each is None else each.tolist() for each in both.latest] == [[6], [7]]
    assert [[each.tolist() for each in events] for events in both.items] == [[], [[7]]]


def test_a_stand_in_of_another_contract_is_refused_before_anything_else_of_a_request(made: Made) -> None:
    """V338: a legal target, an illegal stand-in, and a step over it that this request's inputs would not come to."""
    components = {}
    for name, id in (("one", "test.one"), ("two", "test.two")):
        contract = {"id": id, "version": "1", "bindings": {"in": "x0", "out": "y0"}}
        more = {"contract": contract, "application_overridable": name == "one"}
        components[name] = made.onnx("identity", mat("int64", 1)) | more
    inputs = {"x": application(of(mat("int64", 1)), "x")}
    step = {"kind": "invoke", "component": "one", "inputs": {"x0": "x"}, "outputs": {"y0": "y"}}
    subject = made.subject(inputs, {"out": mat("int64", 1)}, components, [step, emit("y", "out")])
    refused(subject, Request({"x": np.array(["?"])}, 1, overrides={"one": "two"}), "bad-override")
    assert subject.judge(Request({"x": np.array([[1]])}, 1, overrides={"one": "one"})) is not None


def test_a_branch_output_over_a_branch_output_of_a_session_cell_is_its_final_value(made: Made) -> None:
    """3.5: a phi source that is the final reference of a session cell makes the phi its new final reference."""
    inputs = {"start": application(of(ONE), "start"), "which": application(of(FLAG), "which"), "t": TRUE, "n": TWO,
              "other": literal(of(ONE), 50)}  # fmt: skip
    turn = sequence(loop([invoke("step", {"x0": "turn"}, {"y0": "moved"})], "t", "n", {"turn": "moved"}))
    first = branch(
        "which", {"true": turn, "false": turn}, outputs={"once": {"cases": {"true": "turn", "false": "turn"}}}
    )
    again = branch(
        "which",
        {"true": emit("once", "out"), "false": emit("other", "out")},
        outputs={"twice": {"cases": {"true": "once", "false": "other"}}},
    )
    state = {"turn": {**cell(of(ONE), "start"), "scope": "session"}}
    subject = made.subject(inputs, {"out": ONE}, {"step": made.onnx("affine", ONE)}, [first, again], state=state)
    values = []
    for which in (True, False, True):
        found = subject.judge(Request({"start": np.array([1]), "which": np.array([which])}, 1, session="s"))
        assert found is not None
        values.append(np.asarray(found.outputs["out"]).tolist())
    assert values == [[(1 * 3 + 1) * 3 + 1], [50], [((50 * 3 + 1) % 97 * 3 + 1) % 97]]


def test_an_adapter_without_a_contract_is_refused(made: Made) -> None:
    """5.1: only a contract says which action a step runs. The folder was written and could not be loaded."""
    adapter = {"kind": "adapter", "abi": "onnx-genai.grammar-guidance", "version": "1"}
    component = {**made.onnx("identity", ROW), "implementation": adapter}
    steps = [invoke("walk", {"x0": "x"}, {"y0": "y"}), emit("y", "out")]
    pins = {"capabilities": [], "adapter_abis": {"onnx-genai.grammar-guidance": "1"}}
    with pytest.raises(CompileError) as refusal:
        made.subject({"x": application(of(ROW), "x")}, {"out": ROW}, {"walk": component}, steps, manifest=pins)
    assert [each.code for each in refusal.value.problems] == ["adapter-contract"]
    assert "clone, lookahead, commit" in refusal.value.problems[0].help


def test_float32_stands_for_bfloat16(made: Made) -> None:
    """Numpy has none: what a caller gives as float32 is rounded to it, by both routes."""
    kind = row("bfloat16")
    subject = made.subject({"x": application(of(kind), "x")}, {"out": kind}, {}, [emit("x", "out")])
    found = subject.judge(given(x=np.array([1.00390625, 3.0], np.float32)))
    assert found is not None
    assert np.asarray(found.outputs["out"]).astype(np.float32).tolist() == [1.0, 3.0]


def test_an_expanded_port_takes_whole_requests_only(made: Made) -> None:
    """V327: an extent on an expanded axis is a multiple of its factor, of a symbol that one port alone has too."""
    component = made.onnx("affine", Kind("int64", ("batch",), (0, 2)))
    steps = [invoke("step", {"x0": "x"}, {"y0": "y"}), emit("y", "out")]
    kind = Kind("int64", ("n",))
    component["ports"]["outputs"]["y0"] = of(kind)
    subject = made.subject({"x": application(of(kind), "x")}, {"out": kind}, {"step": component}, steps)
    assert subject.judge(given(x=[1, 2])) is not None
    refused(subject, given(x=[1, 2, 3]), "symbol-conflict")


def test_a_list_gives_the_extent_of_a_growing_axis(made: Made) -> None:
    """3.2: with one unbound symbol the list's length is its extent, and the symbol of a growing axis is never bound."""
    kind = mat("int64", "?")
    inputs = {"x": literal({**of(kind, "c.any"), "batch_layout": {"kind": "shared"}}, [1, 2, 3]), "t": TRUE, "n": TWO}
    inputs["x"]["contract"]["shape"] = [1, "grows"]
    contract = {"dtype": "int64", "rank": 2, "shape": [1, "grows"]}
    state = {"c": cell(contract, "x", {"kind": "bounded", "axis": 1, "max": "n"})}
    steps = [loop([emit("t", "seen", "event")], "t", "zero", {"c": "c"}), emit("x", "out")]
    inputs["zero"] = literal(of(ONE), 0)
    subject = made.subject(inputs, {"out": Kind("int64", (1, "?")), "seen": FLAG}, {}, steps, state=state)
    found = subject.judge(given())
    assert found is not None
    assert np.asarray(found.outputs["out"]).tolist() == [[1, 2, 3]]


def scalars(made: Made, temperature: Document, seed: Document) -> Subject:
    inputs = {
        "x": application(of(ROW), "x"),
        "t": request(temperature, "sampling_temperature"),
        "s": request(seed, "seed"),
    }
    outputs = {"out": ROW, "t_out": row("float32"), "s_out": Kind("int64", (FREE,))}
    return made.subject(inputs, outputs, {}, [emit("x", "out"), emit("t", "t_out"), emit("s", "s_out")])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_request_scalar_that_is_left_out_fits_a_vector(made: Made, rows: int) -> None:
    """3.1: rank 1 is one element, and over a bound batch it may be repeated. It bound `batch` to 1 instead, and the
    interpreter asked a vector without a shape for the shape of a literal."""
    subject = scalars(made, of(row("float32")), {"dtype": "int64", "rank": 1})
    found = subject.judge(given(x=[7] * rows))
    assert found is not None
    assert np.asarray(found.outputs["t_out"]).tolist() == [0.0] * rows
    assert np.asarray(found.outputs["s_out"]).tolist() == [0]


def test_a_request_scalar_is_no_matrix_and_no_longer_vector(made: Made) -> None:
    """3.1: higher rank is an error; a stated extent is one that a scalar has to have."""
    refused(scalars(made, of(row("float32")), {"dtype": "int64", "rank": 1, "shape": [2]}), given(x=[7]), "wrong-shape")


def test_a_missing_input_is_said_before_a_literal_that_does_not_fit(made: Made) -> None:
    """3.1 comes before 3.2. The executor went through both by name, the interpreter looked at literals first."""
    pair = {"dtype": "int64", "rank": 2, "shape": ["batch", 1]}
    for names in (("a", "b"), ("b", "a")):
        needed, fixed = names
        inputs = {"x": application(of(ROW), "x"), needed: application(of(ROW), needed), fixed: literal(pair, [1, 2])}
        inputs[fixed]["contract"]["shape"] = ["one", "one"]
        subject = made.subject(inputs, {"out": ROW}, {}, [emit("x", "out")])
        refused(subject, given(x=[7]), "missing-input")
        refused(subject, given(**{"x": [7], needed: [7]}), "literal-length")


def test_a_symbol_that_the_graph_fixes_on_one_axis_still_holds_on_the_other(made: Made) -> None:
    """3.2: the ports of an invoke unify by their contracts. The number of the graph had taken the symbol's place."""
    kind = mat("int64", 1)
    component = made.onnx("neg", kind)
    component["ports"]["inputs"]["x0"]["shape"] = ["rows", "rows"]
    steps = [invoke("neg", {"x0": "x"}, {"y0": "y"}), emit("y", "out")]
    subject = made.subject({"x": application(of(kind), "x")}, {"out": kind}, {"neg": component}, steps)
    assert subject.judge(given(x=[[3]])) is not None
    refused(subject, given(x=[[3], [4]]), "symbol-conflict")
