"""Types that numpy lacks: bfloat16 is numbers to a caller (float32) and bits inside, float8 is bits to both."""

import gc
from fractions import Fraction
from pathlib import Path
from typing import Any

import genai_runtime
import ml_dtypes
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import RequestError, binding
from genai_runtime.inputs import Input, bind_inputs
from genai_runtime.request import Request
from genai_runtime.rows import keep_rows
from genai_runtime.values import encode, from_bfloat16, to_array, to_bfloat16, to_bits, to_value
from onnx import TensorProto, checker, helper, save

from tools.fixtures.document import (
    Document,
    application,
    cell,
    emit,
    invoke,
    literal,
    loop,
    onnx,
    output,
    package,
    request,
    tensor,
    write_document,
)

FLOAT8 = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
EXACT = [0.0, -0.0, 1.0, -2.5, 0.15625, 3.0e38, 1e-40, float("inf"), float("-inf")]


def bits_of(numbers: object, dtype: Any = ml_dtypes.bfloat16) -> Any:
    """The bits as the ml_dtypes library has them."""
    wide = np.asarray(numbers, np.float32).astype(dtype)
    return wide.view(np.uint16 if wide.itemsize == 2 else np.uint8)


# ---- numbers and bits ------------------------------------------------------------------------------------------------


def test_one_is_3f80() -> None:
    """Sign 0, exponent 127, mantissa 0."""
    assert encode(1.0, "bfloat16") == 0x3F80
    assert encode(1.0, "bfloat16").shape == ()


def test_every_rounding_agrees_with_ml_dtypes() -> None:
    random = np.random.default_rng(5).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    near = (np.arange(0x3F80, 0x4080, dtype=np.uint32)[:, None] << 16) + np.array(
        [0, 0x7FFF, 0x8000, 0x8001], np.uint32
    )
    numbers = np.concatenate([random, near.reshape(-1)]).view(np.float32)
    numbers = np.concatenate([numbers, np.array(EXACT, np.float32)])
    known = ~np.isnan(numbers)
    assert np.array_equal(to_bfloat16(numbers)[known], bits_of(numbers[known]))
    assert np.isnan(from_bfloat16(to_bfloat16(numbers[~known]))).all()


def test_a_tie_goes_to_the_even_neighbour() -> None:
    """bfloat16 has 8 bits of precision: halfway between 1 and its neighbours, in exact arithmetic."""
    step = Fraction(1, 128)
    for low, wanted in [(Fraction(1), Fraction(1)), (1 + step, 1 + 2 * step)]:
        assert Fraction(float(from_bfloat16(encode(float(low + step / 2), "bfloat16")))) == wanted


def test_bits_come_back_as_the_numbers_they_are() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = every.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(from_bfloat16(every), numbers, equal_nan=True)


# ---- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_a_bfloat16_tensor_is_read_as_float32(shape: tuple[int, ...]) -> None:
    numbers = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    value = to_value(encode(numbers, "bfloat16"), "bfloat16")
    assert value.data_type() == "tensor(bfloat16)"
    array = to_array(value)
    assert array.dtype == np.float32
    assert array.shape == shape
    assert np.array_equal(array, numbers)
    assert np.array_equal(to_bits(value), bits_of(numbers))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_a_float8_tensor_is_read_as_bits(dtype: str) -> None:
    bits = bits_of([1.0, -0.5, 2.0], FLOAT8[dtype])
    value = to_value(bits, dtype)
    assert np.array_equal(to_array(value), bits)
    assert np.array_equal(to_bits(value), bits)
    assert to_array(value).dtype == np.uint8


def test_bits_keep_their_tensor_alive() -> None:
    """The memory of a dropped tensor is given to the next one of its size: the bits would change under our eyes."""
    wanted = np.arange(4096, dtype=np.uint16)
    bits = to_bits(to_value(wanted, "bfloat16"))
    gc.collect()
    others = [to_value(np.full(4096, 7, np.uint16), "bfloat16") for _ in range(8)]
    assert len(others) == 8
    assert np.array_equal(bits, wanted)


# ---- inputs ----------------------------------------------------------------------------------------------------------

HEAT = Input("heat", "bfloat16", (2,), role="sampling_temperature")


def bound(spec: Input, **request: Any) -> Any:
    """The bits that an input is bound to."""
    return to_bits(bind_inputs([spec], Request(**{"tensors": {}, **request}))["heat"])


def test_literals_and_roles_are_numbers() -> None:
    spec = Input("heat", "bfloat16", (2,), source="literal", required=False, default=1.0)
    assert bound(spec).tolist() == [0x3F80, 0x3F80]
    spec = Input("heat", "bfloat16", (2,), source="literal", required=False, default=(1.0, -2.5))
    assert bound(spec).tolist() == bits_of([1.0, -2.5]).tolist()
    role = Input("heat", "bfloat16", (1,), role="sampling_temperature")
    assert bound(role, roles={"sampling_temperature": 0.7}).tolist() == bits_of([0.7]).tolist()


def test_a_caller_gives_numbers_or_bits() -> None:
    numbers = np.array([1.0, 0.7], np.float32)
    for given in (numbers, bits_of(numbers), numbers.astype(ml_dtypes.bfloat16)):
        assert np.array_equal(bound(HEAT, tensors={"heat": given}), bits_of(numbers))
    with pytest.raises(RequestError, match="wrong-dtype"):
        bound(HEAT, tensors={"heat": numbers.astype(np.float64)})


@pytest.mark.parametrize("dtype", FLOAT8)
def test_numbers_for_float8_are_refused_by_name(dtype: str) -> None:
    spec = Input("heat", dtype, (2,), source="literal", required=False, default=1.0)
    with pytest.raises(RequestError) as refused:
        bound(spec)
    assert refused.value.code == "bad-value"
    assert dtype in refused.value.what
    with pytest.raises(RequestError, match="bad-value"):
        bound(Input("heat", dtype, (1,), role="sampling_temperature"), roles={"sampling_temperature": 0.5})
    bits = bits_of([1.0, 2.0], FLOAT8[dtype])
    assert np.array_equal(bound(spec, tensors={"heat": bits}), bits)
    assert np.array_equal(bound(spec, tensors={"heat": bits.view(FLOAT8[dtype])}), bits)


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", *FLOAT8])
def test_rows_that_are_not_live_keep_their_bits(dtype: str) -> None:
    kind: Any = FLOAT8.get(dtype, ml_dtypes.bfloat16)
    old, new = bits_of([[1.0], [2.0]], kind), bits_of([[3.0], [4.0]], kind)
    merged = keep_rows("c", np.array([True, False]), to_value(old, dtype), to_value(new, dtype), 0, 1, -1, "o")
    assert to_bits(merged).tolist() == [new[0].tolist(), old[1].tolist()]
    assert merged.data_type() == to_value(new, dtype).data_type()


# ---- whole packages --------------------------------------------------------------------------------------------------


def write_graph(path: Path) -> None:
    """next bfloat16 [batch] = x + step; live bool [batch] = next < limit, all computed in float32 and rounded."""
    brain, batch = TensorProto.BFLOAT16, ["batch"]
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["step"], ["stride"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "stride"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["next"], to=brain),
        helper.make_node("Less", ["sum", "limit"], ["live"]),
    ]
    inputs = [helper.make_tensor_value_info("x", brain, batch), helper.make_tensor_value_info("step", brain, [1]),
              helper.make_tensor_value_info("limit", TensorProto.FLOAT, batch)]  # fmt: skip
    outputs = [helper.make_tensor_value_info("next", brain, batch),
               helper.make_tensor_value_info("live", TensorProto.BOOL, batch)]  # fmt: skip
    graph = helper.make_graph(nodes, "count", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    checker.check_model(model)
    path.parent.mkdir(parents=True)
    save(model, path)


def counting_package(folder: Path) -> genai_runtime.Model:
    """Rows count up in bfloat16 by a bfloat16 literal, each to its own limit; the heat is a role in bfloat16."""
    write_graph(folder / "count.onnx")
    rows, stride, flag, limit = (tensor("bfloat16", "batch", rows=True), tensor("bfloat16", 1),
                                 tensor("bool", "batch", rows=True), tensor("float32", "batch", rows=True))  # fmt: skip
    inputs = {
        "start": application(rows, "start"),
        "limit": application(limit, "limit"),
        "step": literal(stride, 1.5),
        "live": literal(flag, True),
        "steps": literal(tensor("int64"), 4),
        "heat": request(stride, "sampling_temperature", 0.7),
    }
    outputs = {"count": output(rows), "heat.out": output(stride)}
    ports: tuple[Document, Document] = ({"x": rows, "step": stride, "limit": limit}, {"next": rows, "live": flag})
    fed, made = {"x": "x", "step": "step", "limit": "limit"}, {"next": "x.next", "live": "live.next"}
    body = [invoke("count", fed, made)]
    steps = [
        emit("heat", "heat.out"),
        loop(body, "going", "steps", {"x": "x.next", "going": "live.next"}),
        emit("x", "count"),
    ]
    state = {"x": cell(rows, "start"), "going": cell(flag, "live")}
    capabilities = ["workflow_ssa", "linear_effects", "nested_control_flow", "typed_emit"]
    components = {"count": onnx("count.onnx", *ports)}
    write_document(folder, package(capabilities, inputs, outputs, components, steps, state=state))
    compile_package(folder, out=folder.with_suffix(".compiled"))
    return genai_runtime.load(folder.with_suffix(".compiled"))


def test_a_bfloat16_workflow(tmp_path: Path) -> None:
    """Row 0 stops at 2 while row 1 goes on: literal, role, kept rows and outputs all pass through the host."""
    model = counting_package(tmp_path / "p")
    start, limit = np.array([0.5, 0.25], np.float32), np.array([1.0, 100.0], np.float32)
    result = model.run({"start": start, "limit": limit})
    count = result["count"]
    assert count.dtype == np.float32
    assert count.tolist() == [0.5 + 1.5, 0.25 + 4 * 1.5]
    assert from_bfloat16(bits_of(0.7)) == result["heat.out"].item()
    again = model.run({"start": count, "limit": limit})
    assert again["count"].tolist() == [2.0 + 1.5, 6.25 + 4 * 1.5], "what comes out goes in again"


def test_the_outputs_of_a_session_are_bfloat16(tmp_path: Path) -> None:
    """What the tests above stand on: ONNX Runtime gives numpy no array of this type."""
    value = binding.allocate((2,), "bfloat16")
    with pytest.raises(RuntimeError):
        value.numpy()
