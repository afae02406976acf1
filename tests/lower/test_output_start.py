"""The token that starts an output beside an encoder, where nobody names it: said when compiling, and by a run.

What is said is followed: then the package runs, and the tokens are those of a loop over both graphs.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_compiler.problem import Problem
from genai_runtime.problem import RequestError

from tests.data import ROOT, needs_data
from tests.lower import pipelines, test_composite
from tests.lower.test_config_models import PACKAGE, plain_loop
from tests.real_packages import PACKAGES

SOURCE = [3, 1, 7]
NAMED = "decoder_start_token_id in generation_config.json"


def composite(folder: Path) -> Path:
    return test_composite.package(folder)


def plain(folder: Path) -> Path:
    shutil.copytree(PACKAGES / "mobius-t5-meta", folder, ignore=shutil.ignore_patterns("*.yaml", "expected.json"))
    (folder / "config.json").write_text('{"vocab_size": 320, "eos_token_id": 2, "max_position_embeddings": 64}')
    return folder


def version_1(folder: Path) -> Path:
    shutil.copytree(PACKAGE, folder)
    config = json.loads((folder / "genai_config.json").read_text())
    del config["model"]["decoder_start_token_id"]
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


def version_2(folder: Path) -> Path:
    document: Any = {**pipelines.ENCODER_DECODER, "tokens": {"eos": [2]}}
    return pipelines.package(folder, document, pipelines.encoder_decoder())


MADE: Mapping[str, Callable[[Path], Path]] = {
    "composite": composite,
    "plain": plain,
    "version 1": version_1,
    "version 2": version_2,
}
KEYS = {
    "composite": NAMED,
    "plain": NAMED,
    "version 1": "model.decoder_start_token_id",
    "version 2": "tokens.decoder_start",
}
KINDS = [pytest.param(each, marks=needs_data) if each == "plain" else each for each in MADE]


def told(folder: Path, out: Path) -> list[Problem]:
    problems = compile_package(folder, out=out).problems
    return [each for each in problems if each.code == "no-start-token"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_nobody_names_is_said_and_how_to_name_it(kind: str, tmp_path: Path) -> None:
    found = told(MADE[kind](tmp_path / "p"), tmp_path / "out")
    assert [(each.severity.value, each.help) for each in found] == [("warning", f"state {KEYS[kind]}")]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        with pytest.raises(RequestError) as caught:
            model.generate(SOURCE, max_new_tokens=3).tokens  # noqa: B018
        assert caught.value.code == "missing-input"
        assert NAMED in caught.value.help
        assert "run(inputs), as decoder_input_ids" in caught.value.help
        assert "--task" not in caught.value.help


@pytest.mark.parametrize("kind", KINDS)
def test_named_in_that_file_it_starts_the_output(kind: str, tmp_path: Path) -> None:
    folder = MADE[kind](tmp_path / "p")
    (folder / "generation_config.json").write_text('{"decoder_start_token_id": 2}')
    assert told(folder, tmp_path / "out") == []
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        made = model.generate(SOURCE, max_new_tokens=6, temperature=0, stop_on_eos=False).tokens
    if kind == "composite":
        assert made == test_composite.by_hand(folder, SOURCE, 2, 6)
    elif kind == "version 1":
        assert made == plain_loop(folder, {"input_ids": np.array([SOURCE])}, [2], 6)
    else:
        assert len(made) == 6


def test_no_start_is_missed_without_an_encoder(tmp_path: Path) -> None:
    assert told(ROOT / "fixtures" / "tiny-gqa-v1", tmp_path / "out") == []
