"""What a request may select (V343), and what an overlay makes of it: plain numpy says what is right."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import CompileError, compile_package

from tests.lora_packages import (
    NAMES,
    Adapter,
    compiled,
    overlay_package,
    plain_delta,
    random_factors,
    selected,
    target,
)
from tests.reference.interpreter import interpret

SQUARE = {"t": (4, 4)}
ADAPTERS = {
    "one": Adapter(random_factors(1, 2, SQUARE), alpha=3.0),
    "two": Adapter(random_factors(2, 3, SQUARE), alpha=0.5),
    "three": Adapter(random_factors(3, 1, SQUARE), baked=True),
    "four": Adapter(random_factors(4, 2, {"other": (4, 4)})),
}
LIST = list(ADAPTERS.values())
X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters of one target and a fourth that changes another; rows have two slots, the cache two entries."""
    root = tmp_path_factory.mktemp("overlay") / "p"
    targets = [target("t", 4, 4), target("other", 4, 4, initializer="v")]
    return overlay_package(root, ADAPTERS, targets, cache={"max_entries": 2}, change=_with_second_weight)


def _with_second_weight(document: dict[str, Any]) -> None:
    """The second target is a weight of a component of its own, which no step runs."""
    document["adapters"]["target_manifest"]["targets"][1] |= {"component": "second", "initializer": "w"}
    components = document["pipeline"]["workflow"]["components"]
    components["second"] = components["base"]


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[genai_runtime.Model]:
    with genai_runtime.load(compiled(folder)) as model:
        yield model


def run(model: genai_runtime.Model, x: Any, *rows: list[tuple[int, float]], **how: Any) -> Any:
    return model.run({"x": x} | selected(*rows, **how))["y"]


# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [[(0, 1.0)], [(1, -2.0)], []],
        [[(0, 0.5), (1, 16.0)], [(1, -16.0), (0, 1.0)], [(0, 0.0)]],
        [[(2, 1.0)], [(2, 3.0), (0, 1.0)], [(0, -1.0), (2, 2.0)]],
    ],
)
def test_each_row_gets_its_own_deltas(model: genai_runtime.Model, rows: list[list[tuple[int, float]]]) -> None:
    wanted = [x + plain_delta([(LIST[i], s) for i, s in row], "t", x[None])[0] if row else x
              for x, row in zip(X, rows, strict=True)]  # fmt: skip
    np.testing.assert_allclose(run(model, X, *rows), np.stack(wanted), rtol=1e-5, atol=1e-5)


def test_rows_together_are_bit_for_bit_what_they_are_alone(model: genai_runtime.Model) -> None:
    rows = [[(0, 0.5), (1, 3.0)], [], [(1, -2.0)]]
    together = run(model, X, *rows)
    alone = np.concatenate([run(model, X[at : at + 1], row) for at, row in enumerate(rows)])
    np.testing.assert_array_equal(together, alone, strict=True)


def test_a_row_without_adapters_is_the_input_to_the_bit(model: genai_runtime.Model) -> None:
    odd = np.array([[-0.0, np.nan, np.inf, 1e-45], [-0.0, 1, 2, 3], [1, 2, 3, 4]], np.float32)
    got = run(model, odd, [], [(0, 1.0)], [(1, 1.0)], active=[True, False, True])
    np.testing.assert_array_equal(got[:2].view(np.uint32), odd[:2].view(np.uint32))


def test_an_inactive_row_is_base_only_and_loads_nothing(folder: Path) -> None:
    with genai_runtime.load(compiled(folder)) as model:
        got = run(model, X, [(0, 1.0)], [(1, 99.0)], [(1, 1.0), (1, 1.0)], active=[True, False, False])
        np.testing.assert_array_equal(got[1:], X[1:])
        assert model._sessions.lora.cache.held == (0,)


def test_selections_reach_the_reference_interpreter_alike(model: genai_runtime.Model, folder: Path) -> None:
    inputs = {"x": X} | selected([(0, 0.5), (1, 3.0)], [], [(2, 1.0)], active=[True, True, False])
    np.testing.assert_allclose(model.run(inputs)["y"], interpret(folder, inputs).outputs["y"], rtol=1e-6)


# ---- V343 ------------------------------------------------------------------------------------------------------------


def changed(kind: str, *values: tuple[tuple[int, ...], float]) -> Callable[[dict[str, Any]], None]:
    def change(inputs: dict[str, Any]) -> None:
        for place, value in values:
            inputs[NAMES[kind]][place] = value

    return change


REFUSED = [
    ("unknown index", changed("segments", ((1, 0), 4)), "adapter-selection", "slot 0 of row 1 holds adapter 4"),
    ("negative index", changed("segments", ((1, 0), -1)), "adapter-selection", "slot 0 of row 1 holds adapter -1"),
    ("count too large", changed("counts", ((1,), 3)), "adapter-selection", "row 1 counts 3 adapters"),
    ("count negative", changed("counts", ((1,), -1)), "adapter-selection", "row 1 counts -1 adapters"),
    ("unused id", changed("segments", ((1, 1), 0)), "adapter-selection", "slot 1 of row 1 is not used"),
    ("unused scale", changed("scales", ((1, 1), 1e-30)), "adapter-selection", "slot 1 of row 1 is not used"),
    ("unused nan", changed("scales", ((1, 1), np.nan)), "adapter-selection", "slot 1 of row 1 is not used"),
    ("twice", changed("segments", ((0, 1), 0)), "adapter-selection", "slot 1 of row 0 holds adapter 'one' a second"),
    ("scale too large", changed("scales", ((0, 1), 16.001)), "adapter-selection", "slot 1 of row 0 scales"),
    ("scale nan", changed("scales", ((0, 0), np.nan)), "adapter-selection", "slot 0 of row 0 scales adapter 'one'"),
    ("scale infinite", changed("scales", ((0, 0), -np.inf)), "adapter-selection", "slot 0 of row 0 scales"),
    ("cache", changed("segments", ((1, 0), 2)), "adapter-cache", "the rows use 3 adapters"),
    ("no binding", changed("segments", ((1, 0), 3)), "adapter-binding", "slot 0 of row 1 holds adapter 'four'"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "code", "what"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_a_selection_that_is_none_is_named(
    model: genai_runtime.Model, change: Callable[[dict[str, Any]], None], code: str, what: str
) -> None:
    inputs = {"x": X[:2]} | selected([(0, 1.0), (1, 1.0)], [(0, 2.0)])
    model.run(inputs)
    change(inputs)
    if code == "adapter-binding":
        inputs[NAMES["segments"]][0, 1], inputs[NAMES["scales"]][0, 1], inputs[NAMES["counts"]][0] = -1, 0, 1
    with pytest.raises(genai_runtime.RequestError, match=what) as refused:
        model.run(inputs)
    assert refused.value.code == code
    assert "V343" in refused.value.what


@pytest.mark.parametrize("name", ["count too large", "unknown index", "unused id", "unused scale"])
def test_inactive_rows_are_checked_for_counts_indices_and_padding(model: genai_runtime.Model, name: str) -> None:
    inputs = {"x": X[:2]} | selected([(0, 1.0)], [(0, 2.0)], active=[True, False])
    next(each for each in REFUSED if each[0] == name)[1](inputs)
    with pytest.raises(genai_runtime.RequestError, match="row 1"):
        model.run(inputs)


def test_an_adapter_outside_the_graphs_needs_the_packages_leave(tmp_path: Path) -> None:
    root = overlay_package(tmp_path / "p", {"one": LIST[0]}, [target("t", 4, 4)], portable_fallback=False)
    with genai_runtime.load(compiled(root)) as model:
        np.testing.assert_array_equal(run(model, X[:1], []), X[:1])
        with pytest.raises(genai_runtime.RequestError, match="portable_fallback") as refused:
            run(model, X[:1], [(0, 1.0)])
        assert refused.value.code == "adapter-fallback"


def test_no_row_says_which_are_active(tmp_path: Path) -> None:
    def without(document: dict[str, Any]) -> None:
        del document["adapters"]["selection"]["active"]
        del document["pipeline"]["workflow"]["inputs"][NAMES["active"]]

    root = overlay_package(tmp_path / "p", {"one": LIST[0]}, [target("t", 4, 4)], change=without)
    with genai_runtime.load(compiled(root)) as model:
        inputs = selected([(0, 2.0)])
        del inputs[NAMES["active"]]
        wanted = X[:1] + plain_delta([(LIST[0], 2.0)], "t", X[:1])
        np.testing.assert_allclose(model.run({"x": X[:1]} | inputs)["y"], wanted, rtol=1e-5)


# ---- widths and slices -----------------------------------------------------------------------------------------------


def test_outputs_of_another_width_are_deltas_only(tmp_path: Path) -> None:
    adapter = Adapter(random_factors(6, 2, {"t": (4, 6)}))
    root = overlay_package(tmp_path / "p", {"one": adapter}, [target("t", 4, 6)])
    with genai_runtime.load(compiled(root)) as model:
        wanted = plain_delta([(adapter, 2.0)], "t", X)
        np.testing.assert_allclose(run(model, X, *[[(0, 2.0)]] * 3), wanted, rtol=1e-5)
        with pytest.raises(genai_runtime.ExecutionError, match="row 1 uses no adapter"):
            run(model, X[:2], [(0, 2.0)], [])


def test_slices_of_one_weight_each_get_their_part(tmp_path: Path) -> None:
    first, second = (
        {"role": role, "offset": offset, "width": width} for role, offset, width in (("q", 0, 2), ("v", 3, 1))
    )
    factors = random_factors(7, 2, {"q": (4, 2), "v": (4, 1)})
    adapters = {"both": Adapter(factors), "q": Adapter({"q": factors["q"]}, alpha=1.0)}
    targets = [target("q", 4, 4, output_slice=first), target("v", 4, 4, output_slice=second)]
    root = overlay_package(tmp_path / "p", adapters, targets)
    with genai_runtime.load(compiled(root)) as model:
        got = run(model, X[:2], [(0, 2.0)], [(1, -1.0)])
    wanted = X[:2].copy()
    wanted[0, :2] += plain_delta([(adapters["both"], 2.0)], "q", X[:1])[0]
    wanted[0, 3:] += plain_delta([(adapters["both"], 2.0)], "v", X[:1])[0]
    wanted[1, :2] += plain_delta([(adapters["q"], -1.0)], "q", X[1:2])[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


# ---- the cache -------------------------------------------------------------------------------------------------------


def test_the_least_recently_used_adapter_goes_first_and_comes_back_the_same(folder: Path) -> None:
    with genai_runtime.load(compiled(folder)) as model:
        cache = model._sessions.lora.cache
        assert cache.held == ()
        first = run(model, X[:1], [(0, 1.0)])
        run(model, X[:1], [(1, 1.0)])
        run(model, X[:1], [(0, 1.0)])
        assert cache.held == (1, 0)
        run(model, X[:1], [(2, 1.0)])
        assert cache.held == (0, 2)
        run(model, X[:2], [(1, 1.0)], [(2, 1.0)])
        assert set(cache.held) == {1, 2}, "those of the running request stay"
        np.testing.assert_array_equal(run(model, X[:1], [(0, 1.0)]), first)


# ---- when it is compiled ---------------------------------------------------------------------------------------------


def test_the_plan_shows_what_an_overlay_reads(folder: Path) -> None:
    text = (compiled(folder) / "plan.txt").read_text("utf-8")
    assert "%adapters = select adapters(%lora.segments, %lora.counts, %lora.scales, %lora.active)" in text
    assert "invoke overlay(in=%x) adapted by %adapters" in text


@pytest.mark.parametrize(
    ("port", "contract", "what"),
    [
        ("in", {"dtype": "float16", "rank": 2, "shape": ["batch", 4]}, "not float16 of rank 2"),
        ("in", {"dtype": "float32", "rank": 3, "shape": ["batch", 1, 4]}, "not float32 of rank 3"),
        ("in", {"dtype": "float32", "rank": 2, "shape": ["batch", 5]}, "the input has 5 features, target 't' 4"),
        ("out", {"dtype": "float32", "rank": 2, "shape": ["batch", 5]}, "the output has 5 features, target 't' 4"),
    ],
)
def test_an_overlay_that_cannot_apply_its_target(
    port: str, contract: dict[str, Any], what: str, tmp_path: Path
) -> None:
    def change(document: dict[str, Any]) -> None:
        workflow = document["pipeline"]["workflow"]
        contract["batch_layout"] = {"kind": "request_aligned", "axis": 0}
        workflow["components"]["overlay"]["ports"][f"{port}puts"] = {port: contract}
        side, name = ("inputs", "x") if port == "in" else ("outputs", "y")
        workflow[side][name]["contract"] = contract

    root = overlay_package(tmp_path / "p", {"one": LIST[0]}, [target("t", 4, 4)], change=change)
    with pytest.raises(CompileError) as refused:
        compile_package(root, out=tmp_path / "out")
    assert [(each.code, each.path) for each in refused.value.problems] == [
        ("adapter-overlay", f"pipeline.workflow.components.overlay.ports.{port}puts.{port}")
    ]
    assert what in refused.value.problems[0].what
    assert not (tmp_path / "out").exists()


def test_a_target_that_nothing_applies_is_refused(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        workflow = document["pipeline"]["workflow"]
        workflow["steps"].insert(
            0, {"kind": "invoke", "component": "base", "inputs": {"x": "x"}, "outputs": {"y": "z"}}
        )
        workflow["components"]["overlay"]["contract"]["parameters"]["component"] = "second"
        workflow["components"]["second"] = workflow["components"]["base"]

    targets = [target("t", 4, 4), target("u", 4, 4, component="second")]
    root = overlay_package(tmp_path / "p", {"one": LIST[0]}, targets, change=change)
    with pytest.raises(CompileError, match="nothing applies adapters to target 't'") as refused:
        compile_package(root, out=tmp_path / "out")
    assert [each.code for each in refused.value.problems] == ["adapter-not-applied"]
