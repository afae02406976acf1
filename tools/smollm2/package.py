"""Write the packages: each form in a folder of its own, complete or not there at all."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx_ir as ir

from tools.smollm2.checkpoint import Checkpoint, read_checkpoint
from tools.smollm2.genai_config import genai_config
from tools.smollm2.graph import build_decoder
from tools.smollm2.precision import Float, Quantised
from tools.smollm2.tokenizer import write_text_files
from tools.smollm2.weight_file import WeightFile
from tools.smollm2.workflow import write_workflow

GRAPH = "model.onnx"
WEIGHTS = "model.onnx.data"
FORMS = ("v1", "workflow", "float")
_DECIDING = (
    "download",
    "checkpoint",
    "blocks",
    "precision",
    "graph",
    "tokenizer",
    "genai_config",
    "workflow",
    "package",
)


def build_packages(checkpoint_path: Path, out: Path, forms: tuple[str, ...]) -> None:
    """Build `forms` under `out`; one that an unchanged tool has built before is left as it is."""
    pending = [form for form in forms if not _is_current(out / form)]
    for form in forms:
        if form not in pending:
            print(f"{form}: {out / form} (already built)", flush=True)
    if not pending:
        return
    print("checkpoint: reading", flush=True)
    checkpoint = read_checkpoint(checkpoint_path)
    for form in pending:
        print(f"{form}: writing {out / form}", flush=True)
        with _staged(out / form) as folder:
            _WRITERS[form](folder, checkpoint, out)
        size = sum(path.stat().st_size for path in (out / form).rglob("*") if path.is_file())
        print(f"{form}: {size / 1e6:.1f} MB", flush=True)


def _write_v1(folder: Path, checkpoint: Checkpoint, out: Path) -> None:
    _write_graph(folder, checkpoint, Quantised)
    _write_v1_text(folder, checkpoint)


def _write_float(folder: Path, checkpoint: Checkpoint, out: Path) -> None:
    _write_graph(folder, checkpoint, Float)
    _write_v1_text(folder, checkpoint)


def _write_workflow_form(folder: Path, checkpoint: Checkpoint, out: Path) -> None:
    twin = out / "v1"
    if _is_current(twin):
        for name in (GRAPH, WEIGHTS):
            # No hard link: the onnx library refuses external data that has a second name.
            shutil.copyfile(twin / name, folder / name)
    else:
        _write_graph(folder, checkpoint, Quantised)
    write_text_files(folder, checkpoint.vocabulary, checkpoint.config.context_length)
    write_workflow(folder, checkpoint, GRAPH)


_WRITERS: dict[str, Callable[[Path, Checkpoint, Path], None]] = {
    "v1": _write_v1,
    "workflow": _write_workflow_form,
    "float": _write_float,
}


def _write_graph(folder: Path, checkpoint: Checkpoint, precision: type[Float] | type[Quantised]) -> None:
    with WeightFile(folder / WEIGHTS) as weights:
        model = build_decoder(checkpoint, weights, precision)
    ir.save(model, folder / GRAPH)


def _write_v1_text(folder: Path, checkpoint: Checkpoint) -> None:
    write_text_files(folder, checkpoint.vocabulary, checkpoint.config.context_length)
    text = json.dumps(genai_config(checkpoint), indent=4) + "\n"
    (folder / "genai_config.json").write_text(text, encoding="utf-8")


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A fresh folder that replaces `target` when the block ends well."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)
    _stamp(target).write_text(_tool_hash() + "\n", encoding="utf-8")


def _is_current(target: Path) -> bool:
    stamp = _stamp(target)
    return target.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == _tool_hash()


def _stamp(target: Path) -> Path:
    return target.with_name(target.name + ".stamp")


def _tool_hash() -> str:
    """Changes with any module that decides what a package holds; the checkpoint itself is pinned in one of them."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in [*(here / f"{name}.py" for name in _DECIDING), here.parent / "policies.py"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
