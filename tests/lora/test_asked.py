"""Adapters by name: what a caller of `generate`, `chat` and genai-run may ask for."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import cli
from genai_runtime.lora.asked import wishes_of

from tests.conftest import FIXTURES
from tests.lora_packages import Adapter, Seam, compiled, decoder_package, merged_model, random_factors
from tests.reference.plain_loop import greedy

HEAD = {"head": (16, 64)}


def three(features: Mapping[str, tuple[int, int]]) -> dict[str, Adapter]:
    return {name: Adapter(random_factors(seed, 2, features)) for seed, name in enumerate(("red", "blue", "wild=1"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("asked") / "p"
    return compiled(decoder_package(root, "tiny-runtime-policy", [Seam("head")], three))


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[genai_runtime.Model]:
    with genai_runtime.load(folder) as model:
        yield model


def wanted(folder: Path, *chosen: tuple[str, float]) -> list[int]:
    adapters = three(HEAD)
    merged = merged_model(folder.parent, "tiny-runtime-policy", [(adapters[name], scale) for name, scale in chosen])
    return greedy(merged, [1, 9, 14], 6)


@pytest.mark.parametrize(
    ("adapters", "chosen"),
    [
        (None, []),
        ([], []),
        ({}, []),
        (["red"], [("red", 1.0)]),
        (("blue", "red"), [("blue", 1.0), ("red", 1.0)]),
        ({"red": 0.5, "blue": -2}, [("red", 0.5), ("blue", -2.0)]),
        ({"red": np.float32(0.5)}, [("red", 0.5)]),
        ([{"red": 0.5}], [("red", 0.5)]),
        ([None], []),
    ],
)
def test_adapters_of_a_prompt(
    adapters: Any, chosen: list[tuple[str, float]], model: genai_runtime.Model, folder: Path
) -> None:
    got = model.generate([1, 9, 14], max_new_tokens=6, stop_on_eos=False, adapters=adapters)
    assert got.tokens == wanted(folder, *chosen)


def test_one_wish_is_for_every_row_and_a_list_is_one_a_row(model: genai_runtime.Model, folder: Path) -> None:
    options: dict[str, Any] = {"max_new_tokens": 6, "stop_on_eos": False}
    rows = model.generate(batch=[[1, 9, 14]] * 2, adapters=["red", "blue"], **options).rows
    assert [row.tokens for row in rows] == [wanted(folder, ("red", 1.0), ("blue", 1.0))] * 2
    rows = model.generate(batch=[[1, 9, 14]] * 2, adapters=[["red"], {"blue": 2.0}], **options).rows
    assert [row.tokens for row in rows] == [wanted(folder, ("red", 1.0)), wanted(folder, ("blue", 2.0))]


@pytest.mark.parametrize(
    ("adapters", "code"),
    [
        ("red", "bad-adapters"),
        (3, "bad-adapters"),
        ({"red": "1"}, "bad-adapters"),
        ({"red": True}, "bad-adapters"),
        ({1: 1.0}, "bad-adapters"),
        ([["red", "red"]], "bad-adapters"),
        (["red", "red"], "bad-adapters"),
        ([1], "bad-adapters"),
        ([["red"], ["blue"]], "wrong-row-count"),
        (["green"], "unknown-adapter"),
        (["red", "blue", "wild=1"], "adapter-selection"),
        ({"red": 17}, "adapter-selection"),
        ({"red": float("nan")}, "adapter-selection"),
        ({"red": 1e300}, "adapter-selection"),
    ],
)
def test_what_names_no_adapters(adapters: Any, code: str, model: genai_runtime.Model) -> None:
    with pytest.raises(genai_runtime.RequestError) as refused:
        list(model.generate([1, 9], max_new_tokens=2, adapters=adapters))
    assert refused.value.code == code


def test_a_package_without_adapters(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-gqa-v1", out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out") as model:
        assert model.generate([1, 9], max_new_tokens=2, adapters=[]).tokens
        with pytest.raises(genai_runtime.RequestError) as refused:
            model.generate([1, 9], adapters=["red"])
        assert refused.value.code == "no-adapter-service"


def test_wishes_keep_their_order() -> None:
    assert [list(each) for each in wishes_of([{"b": 1, "a": 2}, ["a", "b"]], 2)] == [["b", "a"], ["a", "b"]]


def test_the_command_takes_adapters(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = [str(folder), "--tokens", "1,9,14", "-n", "6", "--ignore-eos"]
    assert cli.main([*ask, "--adapter", "red=0.5", "--adapter", "blue"]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, wanted(folder, ("red", 0.5), ("blue", 1.0))))
    assert cli.main([*ask, "--adapter", "wild=1=2"]) == 0
    assert capsys.readouterr().out.strip() == ",".join(map(str, wanted(folder, ("wild=1", 2.0))))
    for wrong, code in (
        (["--adapter", "red=much"], "bad-adapters"),
        (["--adapter", "red", "--adapter", "red=2"], "bad-adapters"),
        (["--adapter", "green"], "unknown-adapter"),
        (["--adapter", "red=99"], "adapter-selection"),
    ):
        assert cli.main([*ask, *wrong]) == 2
        assert code in capsys.readouterr().err


def test_describe_names_the_adapters(model: genai_runtime.Model) -> None:
    assert model.describe()["adapters"] == ["red", "blue", "wild=1"]
