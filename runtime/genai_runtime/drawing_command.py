"""`genai-run DIR --prompt TEXT -o FILE.png` where the package makes pictures; progress goes to stderr."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from genai_runtime.file_forms import PNG, hold_ending
from genai_runtime.problem import RequestError
from genai_runtime.task_command import given_inputs

if TYPE_CHECKING:
    from genai_runtime.model import Model


def show_drawing(model: "Model", arguments: argparse.Namespace, ids: list[int] | None) -> None:
    """Draw and write. ids: the prompt's tokens, None for a text. Raises RequestError, ExecutionError, OSError."""
    if arguments.save is None:
        raise RequestError("no-file", "the package makes a picture, and nothing says where to", help="add -o FILE.png")
    hold_ending(arguments.save, PNG)
    names = ("steps", "guidance_scale", "seed", "width", "height", "strength")
    made = model.draw(
        ids if ids is not None else arguments.prompt,
        arguments.negative_prompt or "",
        inputs=given_inputs(arguments.input, model.describe()["inputs"]),
        on_step=_say_step,
        **{name: getattr(arguments, name) for name in names},
    )
    files = made.save(arguments.save)
    if arguments.json:
        print(json.dumps({"files": [str(each) for each in files], "seed": made.seed, "steps": made.result.iterations}))
        return
    seed = f"seed {made.seed}" if made.seed is not None else "noise as given"
    for name, picture in zip(files, made.pictures, strict=True):
        print(f"{name}: {picture.shape[1]} x {picture.shape[0]} pixels, {seed}", file=sys.stderr)


def _say_step(done: int, total: int | None) -> None:
    """One line that a terminal overwrites, and a file keeps."""
    here, last = sys.stderr.isatty(), done == total
    text = f"step {done}" + (f" of {total}" if total is not None else "")
    print(f"\r{text}" if here else text, end="" if here and not last else "\n", file=sys.stderr, flush=True)
