"""Field packages of version 1, said again in version 2: one decoder, one document, whatever the exporter."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.lower.lowered import Lowered
from genai_compiler.problem import CompileError

from tests.data import needs_data
from tests.real_packages import PACKAGES
from tests.said_again import alone, pipeline

pytestmark = needs_data
CONFIGS = sorted(each.parent.name for each in PACKAGES.glob("*/genai_config.json")) if PACKAGES.is_dir() else []


def lowered(folder: Path) -> Lowered | None:
    """A package of one decoder, None for any other and for what version 1 refuses."""
    model = json.loads((folder / "genai_config.json").read_text("utf-8"))["model"]
    if any(model.get(each) for each in ("encoder", "embedding", "vision", "speech")):
        return None
    try:
        return lower_genai_config(folder)
    except CompileError:
        return None


def beside(config: dict[str, Any]) -> dict[str, Any]:
    """A pipeline beside the whole of version 1, as prototypes wrote it."""
    return {**config, **pipeline(config)}


@pytest.mark.parametrize("form", [alone, beside], ids=["alone", "beside version 1"])
def test_version_2_lowers_to_what_version_1_lowers_to(form: Any, tmp_path: Path) -> None:
    """Every package of one decoder that version 1 compiles, its graph telling the sizes that ports leave open."""
    compared = 0
    for name in CONFIGS:
        old = lowered(PACKAGES / name)
        if old is None:
            continue
        folder = shutil.copytree(PACKAGES / name, tmp_path / name)
        config = json.loads((folder / "genai_config.json").read_text("utf-8"))
        (folder / "genai_config.json").write_text(json.dumps(form(config)), encoding="utf-8")
        new = lower_pipeline_config(folder)
        assert new.document == old.document, name
        compared += 1
        shutil.rmtree(folder)
    assert compared >= 15
