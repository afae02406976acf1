"""Every runnable conformance package, compiled and run: each expected value and each expected refusal.

The expected values come from an independent interpreter (INDEX.md of the data says how); nothing here was taken from
our own output.
"""

from pathlib import Path

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime.result import Result

from tests.data import needs_data
from tests.reference.cases import Call, Case, compare, expected_file, load_cases, workflow_packages
from tests.reference.values import Events, Published, Rows

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
    "adapter": {"adapter", "adapter-selection"},
}
"""The suite's error kinds and the codes that we report them by."""


@needs_data
@pytest.mark.parametrize("name", workflow_packages())
def test_package_gives_every_expected_value(name: str, tmp_path: Path) -> None:
    cases = load_cases(name)
    out = tmp_path / f"{name}.compiled"
    compile_package(cases[0].folder, out=out)
    faults = [fault for case in cases for fault in case_faults(case, out)]
    assert not faults, "\n".join(faults)


SPEECH = [each for each in workflow_packages() if "speech_capability" in expected_file(each)]


@needs_data
@pytest.mark.parametrize("name", SPEECH)
def test_speech_is_bound_or_refused_as_expected(name: str, tmp_path: Path) -> None:
    """The capability is built from what is loaded; the workflow runs either way (the cases above)."""
    expected, out = expected_file(name), tmp_path / f"{name}.compiled"
    compile_package(load_cases(name)[0].folder, out=out)
    wanted = expected["speech_capability"]
    with genai_runtime.load(out) as model:
        if wanted["status"] == "error":
            with pytest.raises(genai_runtime.RequestError) as refused:
                model.speech("Hello there.")
            assert refused.value.code == "ambiguous-speech"
            return
        bound = model.speech_binding
        assert (bound.audio_output, bound.text_assembly) == (wanted["audio_output"], wanted["text_assembly"])
        for each in expected["text_assembly"]:
            assert bound.assembly.prompt(each["fields"]["input"], each["fields"]["instructions"]) == each["prompt"]
        tokens = model.tokenizer.encode(" Hello there.")
        assert model.speech("Hello there.").content == model.run({"request.prompt_tokens": [tokens]}).audio().content


@needs_data
def test_the_three_speech_packages_are_among_them() -> None:
    assert SPEECH == ["speech_wav", "speech_wav_two_adapters", "speech_wav_two_audio"]


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
    return compare(call.expect, published(result), result.iterations) + delivery_faults(call, result)


def delivery_faults(call: Call, result: Result) -> list[str]:
    """What the sound that is handed over gets wrong: its header exactly, its samples within their tolerance."""
    wanted = call.expect.get("delivery")
    if wanted is None:
        return []
    audio = result.audio(wanted["output"])
    facts = {
        "content_type": audio.content_type,
        "sample_rate_hz": audio.sample_rate,
        "channels": audio.channels,
        "wav_bytes": len(audio.content),
        "header_hex": audio.content[:44].hex(),
    }
    faults = [f"{name}: {each!r}, not {wanted[name]!r}" for name, each in facts.items() if each != wanted[name]]
    made = np.frombuffer(audio.content, "<i2", offset=44).astype(np.int64)
    pcm = np.array(wanted["pcm_s16_interleaved"])
    if made.shape != pcm.shape or np.abs(made - pcm).max(initial=0) > wanted["pcm_atol"]:
        faults.append(f"pcm_s16_interleaved: {made.tolist()[:16]}...")
    return faults


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
