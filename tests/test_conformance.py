"""Every runnable conformance package, compiled and run: each expected value and each expected refusal.

The expected values come from an independent interpreter (INDEX.md of the data says how); nothing here was taken from
our own output.
"""

from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package
from genai_runtime.publish import Result

from tests.data import needs_data
from tests.reference.cases import Call, Case, compare, load_cases, workflow_packages
from tests.reference.values import Events, Published, Rows

NOT_OFFERED = {
    "adapter": "onnx-genai.parameter-overlay",
    "vlm": "onnx-genai.image-preprocess",
}
"""Packages whose adapter is not provided yet: they must be refused, naming it."""

SAME_KIND = {
    "missing_input": {"missing-input"},
    "unknown_input": {"unknown-input"},
    "dtype": {"wrong-dtype"},
    "rank": {"wrong-rank"},
    "shape": {"wrong-shape"},
    "symbol": {"symbol-conflict"},
    "recurrence": {"recurrence"},
    "inactive_rows": {"inactive-rows"},
    "capacity": {"capacity"},
    "emit": {"emit-length", "emit-contract"},
    "control": {"emit-length", "loop-bound"},
    "override": {"bad-override"},
    "adapter": {"adapter"},
}
"""The suite's error kinds and the codes that we report them by."""


@needs_data
@pytest.mark.parametrize("name", [each for each in workflow_packages() if each not in NOT_OFFERED])
def test_package_gives_every_expected_value(name: str, tmp_path: Path) -> None:
    cases = load_cases(name)
    out = tmp_path / f"{name}.compiled"
    compile_package(cases[0].folder, out=out)
    faults = [fault for case in cases for fault in case_faults(case, out)]
    assert not faults, "\n".join(faults)


@needs_data
@pytest.mark.parametrize("name", sorted(NOT_OFFERED))
def test_package_with_an_adapter_we_lack_is_refused_by_name(name: str, tmp_path: Path) -> None:
    folder = load_cases(name)[0].folder
    with pytest.raises(CompileError) as refused:
        compile_package(folder, out=tmp_path / "out.compiled")
    assert any(NOT_OFFERED[name] in each.what for each in refused.value.problems)
    assert not (tmp_path / "out.compiled").exists()


def case_faults(case: Case, compiled: Path) -> list[str]:
    """What a fresh load of the compiled package gets wrong in one case."""
    with genai_runtime.load(compiled) as model:
        return [
            f"{case.id}, call {at}: {fault}" for at, call in enumerate(case.calls) for fault in call_faults(model, call)
        ]


def call_faults(model: genai_runtime.Model, call: Call) -> list[str]:
    """What one call gets wrong."""
    try:
        result = model.run(call.inputs, stop_on_eos=call.stop_on_eos, session=call.session, overrides=call.overrides)
    except genai_runtime.GenaiError as failure:
        return refusal_faults(call, failure)
    if call.error_kind is not None:
        return [f"expected an error of kind {call.error_kind}"]
    if any(result.runtime_steps.values()):
        return [f"the runtime supplied a step that the package has graphs for: {result.runtime_steps}"]
    return compare(call.expect, published(result), result.iterations)


def refusal_faults(call: Call, failure: genai_runtime.GenaiError) -> list[str]:
    """Whether a failure was expected, has the right kind and mentions what it must."""
    if call.error_kind is None:
        return [f"failed: {failure}"]
    faults = [
        f"{word!r} is not mentioned in: {failure}"
        for word in call.expect.get("error_mentions", [])
        if word not in str(failure)
    ]
    if failure.code not in SAME_KIND.get(call.error_kind, set()):
        faults.append(f"error kind {call.error_kind} was reported as {failure.code}")
    return faults


def published(result: Result) -> dict[str, Published]:
    """A result in the form that `compare` takes."""
    rows: dict[str, Published] = {name: Rows(tuple(slots)) for name, slots in result.row_slots.items()}
    events: dict[str, Published] = {name: Events(tuple(each)) for name, each in result.event_lists.items()}
    return {**result.aggregate, **rows, **events}
