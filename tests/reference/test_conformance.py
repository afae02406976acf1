"""The reference interpreter against every runnable workflow case of the conformance data."""

import pytest

from tests.data import needs_data
from tests.reference.cases import Call, Case, all_cases, compare, tensor_faults
from tests.reference.interpreter import interpret
from tests.reference.machine import SessionStore
from tests.reference.values import ReferenceError


@needs_data
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: f"{case.package}-{case.id}")
def test_conformance_case(case: Case) -> None:
    store: SessionStore = {}
    for call in case.calls:
        assert _faults(case, call, store) == []


def _faults(case: Case, call: Call, store: SessionStore) -> list[str]:
    try:
        result = interpret(
            case.folder,
            call.inputs,
            stop_on_eos=call.stop_on_eos,
            session=call.session,
            sessions_store=store,
            overrides=call.overrides,
        )
    except ReferenceError as failure:
        return _error_faults(call, failure)
    if call.error_kind:
        return [f"succeeded, expected {call.error_kind}: {call.expect['explanation']}"]
    faults = compare(call.expect, result.outputs, result.iterations)
    for name, spec in call.expect.get("internal_values", {}).items():
        faults += tensor_faults(name, spec, result.values[name])
    return faults


def _error_faults(call: Call, failure: ReferenceError) -> list[str]:
    if call.error_kind is None:
        return [f"refused: {failure}"]
    faults = [] if failure.kind == call.error_kind else [f"{failure}, expected kind {call.error_kind}"]
    words = call.expect.get("error_mentions", [])
    return faults + [f"{failure} does not mention {word!r}" for word in words if word not in failure.message]
