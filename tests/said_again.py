"""Packages of exporters said again in version 2 of genai_config.json: their graphs and text files, and the pipeline.

No sizes, no names of ports, no type: what version 2 has no word for is the graphs' to tell.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.real_packages import ENCODED, MEDIA, PACKAGES, RUN, cases

SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty")
DECLARED = ("genai_config.json", "inference_metadata.yaml")


def _configured(name: str) -> bool:
    return (PACKAGES / name / "genai_config.json").is_file()


DECODERS = [name for name in RUN if _configured(name)]
PICTURED = [name for name in MEDIA if _configured(name)]
SAID_AGAIN = [*DECODERS, *PICTURED, *ENCODED]


def pipeline(config: dict[str, Any]) -> dict[str, Any]:
    """The one decoder of a version 1 file."""
    session = {"file": config["model"]["decoder"]["filename"]}
    return {"version": 2, "pipeline": {"extends": "autoregressive-decoder", "sessions": {"decoder": session}}}


def alone(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of one decoder in words of version 2 only."""
    model, search = config["model"], config["search"]
    ids = {key: model[f"{key}_token_id"] for key in ("eos", "pad", "bos") if model.get(f"{key}_token_id") is not None}
    sampling = {key: search[key] for key in SAMPLING if key in search}
    return {
        **pipeline(config),
        "tokens": ids,
        "generation": {"max_length": model["context_length"], "sampling": sampling},
    }


def _pictured(config: dict[str, Any]) -> dict[str, Any]:
    """Three graphs by the preset, the pictures by the package's processor file."""
    model = config["model"]
    sessions = {part: {"file": model[part]["filename"]} for part in ("vision", "embedding", "decoder")}
    block: dict[str, Any] = {
        "extends": "vision-language",
        "sessions": sessions,
        "preprocessing": {"image": {"config": "processor_config.json"}},
    }
    if "image_grid_thw" in json.dumps(model["vision"]):
        block["state"] = {"position_ids": {"strategy": "mrope_3d", "grid_source": "vision.image_grid_thw"}}
    ids = {"eos": model["eos_token_id"], "image_token": model["image_token_id"]}
    return {"version": 2, "pipeline": block, "tokens": ids, "generation": {"max_length": 512}}


def _encoded(name: str) -> dict[str, Any]:
    """An encoder and a decoder by the preset. The data's own first token starts the output, beside text."""
    sessions = {part: {"file": f"{part}/model.onnx"} for part in ("encoder", "decoder")}
    start = {case["decoder_start"] for case in cases(name, "text")}
    ids = {"eos": [2], **({"decoder_start": start.pop()} if start else {})}
    return {
        "version": 2,
        "pipeline": {"extends": "encoder-decoder", "sessions": sessions},
        "tokens": ids,
        "generation": {"max_length": 64},
    }


def said_again(name: str, folder: Path) -> Path:
    """A copy of the package in `folder`, its metadata in words of version 2."""
    shutil.copytree(PACKAGES / name, folder)
    file = PACKAGES / name / "genai_config.json"
    if name in ENCODED:
        document = _encoded(name)
    else:
        config = json.loads(file.read_text("utf-8"))
        document = _pictured(config) if name in PICTURED else alone(config)
    for each in DECLARED:
        (folder / each).unlink(missing_ok=True)
    (folder / "genai_config.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    return folder
