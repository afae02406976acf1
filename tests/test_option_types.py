"""Options of a program with values that they do not take: told by the field's name, whatever the slip."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genai_compiler import CompileError, Options, check_package, compile_package
from genai_compiler.costs.files import costs_text, read_costs
from genai_compiler.costs.table import shipped_costs
from genai_compiler.memory import MemoryAsk
from genai_compiler.option_types import FIELDS

from tests.conftest import FIXTURES

PACKAGE = FIXTURES / "tiny-decoder"
WRONG = [
    ("costs", "user", "chosen_costs(WORD_OR_FILE, os.environ)"),
    ("costs", Path("costs.json"), "chosen_costs"),
    ("forms", ["greedy"], 'forms={"greedy": "own"}'),
    ("forms", {"greedy": 1}, 'forms={"greedy": "own"}'),
    ("forms", None, 'forms={"greedy": "own"}'),
    ("without", "fuse_islands", 'without=("fuse_islands",)'),
    ("without", (1,), 'without=("fuse_islands",)'),
    ("without", None, 'without=("fuse_islands",)'),
    ("graph", Path("model.onnx"), 'graph="model.onnx"'),
    ("graph", 3, 'graph="model.onnx"'),
    ("hints", "hints.json", "hints_file takes its path"),
    ("hints", [], "hints_file takes its path"),
    ("hints_file", {"placement": []}, "hints takes the data"),
    ("memory", True, "MemoryAsk(batch=1)"),
    ("memory", {"batch": 1}, "MemoryAsk(batch=1)"),
    ("stop_after", None, 'stop_after="read"'),
    ("stop_after", "emitt", "did you mean emit?"),
    ("bundle", "yes", "True or False"),
    ("force", 1, "True or False"),
    ("artifacts", None, "True or False"),
    ("strict", "no", "True or False"),
    ("write", 0, "True or False"),
    ("store_sessions", [], "True or False"),
]


@pytest.mark.parametrize(("name", "value", "help"), WRONG, ids=str)
def test_a_field_of_another_type_is_named(name: str, value: Any, help: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGE, tmp_path / "out", Options(**{name: value}))
    (found,) = refused.value.problems
    assert (found.code, found.where.file) == ("bad-option", f"Options.{name}")
    assert found.what.startswith(f"Options.{name} takes ")
    assert found.what.endswith(f", got {value!r}")
    assert help in found.help
    assert not (tmp_path / "out").exists()


def test_every_field_is_held() -> None:
    assert set(FIELDS) == {each.name for each in fields(Options)} == {name for name, _, _ in WRONG}


@pytest.mark.parametrize("name", ["batch", "prompt", "context", "chunk"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, 1 << 40], ids=repr)
def test_lengths_of_memory_are_numbers_from_one(name: str, value: Any) -> None:
    """But for chunks: none of them are a prompt as a whole."""
    if (name, value, type(value)) == ("chunk", 0, int):
        assert compile_package(PACKAGE, options=Options(write=False, memory=MemoryAsk(chunk=0))).memory is not None
        return
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGE, options=Options(write=False, memory=MemoryAsk(**{name: value})))
    (found,) = refused.value.problems
    least = 0 if name == "chunk" else 1
    assert found.what == f"MemoryAsk.{name} takes a whole number from {least} to 2147483648, got {value!r}"


def test_a_context_below_its_prompt_is_refused() -> None:
    with pytest.raises(CompileError, match=r"MemoryAsk.context takes at least the 9 tokens of prompt, got 8"):
        compile_package(PACKAGE, options=Options(write=False, memory=MemoryAsk(prompt=9, context=8)))


def test_a_word_that_is_no_form_is_named() -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGE, options=Options(write=False, forms={"": "hosts"}))  # type: ignore[dict-item]
    (found,) = refused.value.problems
    assert (found.code, found.where.file, found.help) == ("unknown-form", "Options.forms", "did you mean host?")


@pytest.mark.parametrize("options", [{"strict": True}, {}, "strict", Options], ids=repr)
def test_options_are_options(options: Any) -> None:
    with pytest.raises(CompileError, match="options takes Options, got "):
        compile_package(PACKAGE, options=options)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(PACKAGE, options=Options(costs="user", without="fuse_islands"))  # type: ignore[arg-type]
    assert [each.where.file for each in refused.value.problems] == ["Options.costs", "Options.without"]


def test_check_takes_true_or_false() -> None:
    (found,) = check_package(PACKAGE, artifacts="no")  # type: ignore[arg-type]
    assert found.code == "bad-option"


def test_paths_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text(costs_text(shipped_costs()), "utf-8")
    (tmp_path / "hints.json").write_text('{"placement": []}', "utf-8")
    costs = read_costs(str(tmp_path / "costs.json"))
    assert costs == shipped_costs()
    lengths = MemoryAsk(batch=np.int64(2))  # type: ignore[arg-type]
    options = Options(costs=costs, hints_file=str(tmp_path / "hints.json"), without=["hold_state"], memory=lengths)  # type: ignore[arg-type]
    assert compile_package(PACKAGE, tmp_path / "out", options).memory is not None
