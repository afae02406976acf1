"""The first case of a package of the test data: what is asked of a loaded model, and what a reference gave for it.

References are the data's expected values and the plain loops of the tests; both are taken from the tests' own modules.
A check is `model -> whether what came out is the reference's`.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
from genai_compiler import CompileError, compile_package
from genai_compiler.problem import errors
from genai_runtime.problem import GenaiError

from tests import (
    staged_packages,
    test_bare_packages,
    test_conformance,
    test_own_tokens,
    test_pipelines,
    test_real_diffusion,
    test_vision_stages,
)
from tests.data import ROOT
from tests.lower import test_config_models, test_one_token_rows, test_pipeline_pass
from tests.real_packages import DRAWN, ENCODED, GREEDY, MEDIA, SINGLE, cases, encoder_case, reliable
from tests.reference.cases import load_cases
from tests.reference.plain_loop import greedy
from tests.test_real_stages import encoder_inputs, media_inputs
from tests.test_stages_beside import decoded
from tools.fixtures.network import gqa_decoder

Check = Callable[[genai_runtime.Model], bool]
STEPS = 12


@dataclass(frozen=True)
class Outcome:
    """What became of a package. refused, failed: codes of its compiling and of its loading or running, "" for none."""

    refused: str = ""
    failed: str = ""
    equal: bool = False


def outcome(package: Path, check: Check | None) -> Outcome:
    """Compiled into a temporary folder, loaded on the CPU, its first case run. check: None where nothing is to run."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            compile_package(package, out=Path(folder) / "out")
        except CompileError as refused:
            return Outcome(refused=errors(refused.problems)[0].code)
        if check is None:
            return Outcome()
        try:
            with genai_runtime.load(Path(folder) / "out", threads=1, providers=["cpu"]) as model:
                return Outcome(equal=check(model))
        except GenaiError as failure:
            return Outcome(failed=failure.code)


# ---- the exporters' packages -----------------------------------------------------------------------------------------


def of_exporter(name: str, starts: bool = True) -> Check:
    """The first case that a reference decides. starts: beside an encoder the request says what starts the output."""
    if name in DRAWN:
        return _drawn(name)
    if name in SINGLE:
        return _single(name)
    if name in ENCODED:
        (case, wanted), inputs = _first(name), encoder_inputs(_first(name)[0])
        if not starts:
            inputs.pop("decoder_input_ids", None)
        return _tokens(inputs, wanted, len(case["greedy"]))
    if name in MEDIA:
        case, wanted = _first(name, "image")
        return _tokens(media_inputs(name, case), wanted, len(case["greedy"]))
    return generated(name)


def generated(name: str) -> Check:
    """Greedy tokens of a text."""
    case, wanted = _first(name)
    return lambda model: (
        model.generate(case["prompt"], max_new_tokens=len(case["greedy"]), **GREEDY).tokens[: len(wanted)] == wanted
    )


def _first(name: str, *kinds: str) -> tuple[dict[str, Any], list[int]]:
    """The first case with tokens that no other kernel may turn over, and these tokens."""
    return next((case, wanted) for case in cases(name, *kinds) if (wanted := reliable(name, case)))


def _tokens(inputs: Mapping[str, Any], wanted: list[int], steps: int) -> Check:
    def check(model: genai_runtime.Model) -> bool:
        made = model.run({**inputs, "request.max_iterations": [steps]}, stop_on_eos=False)
        return test_config_models.rows_of(made)[: len(wanted)] == wanted

    return check


def _drawn(name: str) -> Check:
    given = test_real_diffusion.data(name)
    expected = {"latents": given["final_latent"], "image": given["image"]}

    def check(model: genai_runtime.Model) -> bool:
        made = model.run(test_real_diffusion.request(given))
        return all(np.abs(made[key] - each).max() <= 2e-5 * np.abs(each).max() for key, each in expected.items())

    return check


def _single(name: str) -> Check:
    inputs, wanted = encoder_case(name)
    return lambda model: _close(model.run(inputs), wanted)


def _close(made: Any, wanted: Mapping[str, Any]) -> bool:
    return bool(wanted) and all(np.allclose(made[key], each, rtol=1e-4, atol=1e-5) for key, each in wanted.items())


# ---- the suite -------------------------------------------------------------------------------------------------------


def of_workflow(name: str) -> Check:
    """Every call of the first case that is to succeed."""
    case = next(each for each in load_cases(name) if all(call.error_kind is None for call in each.calls))
    return lambda model: not [fault for call in case.calls for fault in test_conformance.call_faults(model, call)]


def of_bare(name: str) -> Check:
    """Greedy tokens of the first case."""
    case = test_bare_packages.expected(name)["cases"][0]
    steps, wanted = case["new_tokens"], case["expected_tokens"]
    return lambda model: model.generate(case["prompt"], max_new_tokens=steps, **GREEDY).tokens == wanted


# ---- this repository's fixtures, held against plain loops over their graphs ------------------------------------------


def of_fixture(name: str, folder: Path) -> Check:
    """folder: an empty one, for a graph that the loop needs in another form."""
    return FIXTURES[name](ROOT / "fixtures" / name, folder)


def _text(wanted: list[int], prompt: list[int], ends: bool = True) -> Check:
    options: dict[str, Any] = {"max_new_tokens": STEPS, **(GREEDY if not ends else {"temperature": 0})}
    return lambda model: model.generate(prompt, **options).tokens[: len(wanted)] == wanted


def _crossed(package: Path, _: Path) -> Check:
    source, start = [5, 9, 30], 1
    wanted = test_config_models.plain_loop(package, {"input_ids": np.array([source])}, [start], STEPS)
    inputs = {"request.input_ids": [source], "decoder_input_ids": np.array([[start]], np.int32)}
    return _tokens(inputs, wanted, STEPS)


def _one_token(package: Path, _: Path) -> Check:
    source = test_one_token_rows.SOURCES[0]
    wanted = test_one_token_rows.plain(package, [source], STEPS)[0][0].tolist()
    return _text(wanted, source, ends=False)


def _staged(_: Path, folder: Path) -> Check:
    prompt = staged_packages.PROMPTS[0]
    gqa_decoder().save(folder / "whole.onnx")
    return _text(greedy(folder / "whole.onnx", prompt, STEPS), prompt, ends=False)


def _vision_staged(package: Path, folder: Path) -> Check:
    grids = test_vision_stages.GRIDS[1]
    given = test_vision_stages.pictures(grids)
    prompt = [1, 5, *[test_vision_stages.IMAGE] * test_vision_stages.places(grids), 9, 14]
    entries = test_vision_stages.features(package, given["pixel_values"], grids)
    feeds = test_vision_stages.written_over(package / "embeddings.onnx", entries)
    wanted = decoded(test_vision_stages.behind(folder), feeds, prompt, STEPS)
    return _tokens({"request.input_ids": [prompt], **given}, wanted, STEPS)


def _own_tokens(package: Path, _: Path) -> Check:
    return _text(test_own_tokens.expected(package, [1, 9, 14]), [1, 9, 14], ends=False)


def _minimal(package: Path, _: Path) -> Check:
    return _text(greedy(package / "model.onnx", [1, 10, 20, 30], STEPS, [test_pipelines.EOS]), [1, 10, 20, 30])


def _encoded(*_: Path) -> Check:
    return _text(test_pipelines.cross([7, 8, 9, 10, 11], STEPS), [7, 8, 9, 10, 11])


def _pictured(package: Path, _: Path) -> Check:
    pixels = test_pipelines.drawn(1, test_pipelines.PATCHES, test_pipelines.PIXELS)
    prompt = [test_pipelines.BOS, *[test_pipelines.SEEN] * test_pipelines.PATCHES, 9, 14]
    wanted = test_pipelines.media(prompt, STEPS, pixels, case=package.name)
    return _tokens({"request.input_ids": [prompt], "pixel_values": pixels}, wanted, STEPS)


def _embedded(*_: Path) -> Check:
    ids, mask = np.array([[5, 9, 17]]), np.array([[1, 1, 0]])
    wanted = test_pipeline_pass.by_hand(ids, mask)
    return lambda model: _close(model.run({"input_ids": ids, "attention_mask": mask}), {"sentence": wanted})


FIXTURES: Mapping[str, Callable[[Path, Path], Check]] = {
    "tiny-encoder-decoder-v1": _crossed,
    "tiny-ssru-v1": _one_token,
    "tiny-stages-v1": _staged,
    "tiny-vision-stages-v1": _vision_staged,
    "tiny-own-tokens-v1": _own_tokens,
    "tiny-minimal-v2": _minimal,
    "tiny-encoder-v2": _encoded,
    "tiny-vision-v2": _pictured,
    "tiny-embedder-v2": _embedded,
    "tiny-media-v2": _pictured,
}
