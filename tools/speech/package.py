"""Write the two packages: graphs as the wheels hold them, and the few words that no graph says."""

import json
import shutil
from pathlib import Path

from genai_compiler.convert_ort import convert_ort

from tools.speech.tokenizer import read_tokens, tokenizer_json
from tools.speech.wheels import DETECTOR, TRANSCRIBER, fetch

# What the graphs do not say: who starts and ends an output, how long it may get, and the rate of the samples.
CONFIG = {"decoder_start_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 194, "vocab_size": 32768}
PROCESSOR = {"sampling_rate": 16000, "do_normalize": False}
RECORDINGS = ("beckett.wav", "two_cities.wav")
DECLARATION = Path(__file__).with_name("detector")
"""What makes a package of the detector's graph: the document, and two graphs of a few nodes as text."""


def build_transcriber(folder: Path, cache: Path) -> Path:
    """`folder`/package with graphs, config.json, preprocessor_config.json, tokenizer.json; `folder`/*.wav.

    Raises DownloadError.
    """
    files = fetch(TRANSCRIBER, cache)
    package = folder / "package"
    part = _fresh(folder)
    for name in ("encoder_model", "decoder_model_merged"):
        (part / f"{name}.ort").write_bytes(files[f"{name}.ort"])
        convert_ort(part / f"{name}.ort", part / "package" / f"{name}.onnx")
        (part / f"{name}.ort").unlink()
    for name, data in (("config.json", CONFIG), ("preprocessor_config.json", PROCESSOR)):
        (part / "package" / name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    text = json.dumps(tokenizer_json(read_tokens(files["tokenizer.bin"])), ensure_ascii=False)
    (part / "package" / "tokenizer.json").write_text(text, encoding="utf-8")
    for name in RECORDINGS:
        (part / name).write_bytes(files[name])
    _put(part, folder)
    return package


def build_detector(folder: Path, cache: Path) -> Path:
    """`folder`/package with the graph and its declaration. Raises DownloadError."""
    files = fetch(DETECTOR, cache)
    part = _fresh(folder)
    (part / "package" / "silero_vad.onnx").write_bytes(files["silero_vad.onnx"])
    shutil.copytree(DECLARATION, part / "package", dirs_exist_ok=True)
    _put(part, folder)
    return folder / "package"


def _fresh(folder: Path) -> Path:
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "package").mkdir(parents=True)
    return part


def _put(part: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)
