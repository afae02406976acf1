"""`genai-run DIR --task NAME`: one run, and what a task profile makes of it: an embedding, scores, a transcription."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from genai_runtime.file_forms import NPY, hold_ending
from genai_runtime.problem import RequestError
from genai_runtime.profiles import profile_named
from genai_runtime.values import NUMPY, Array

if TYPE_CHECKING:
    from genai_runtime.model import Model

_FORM = "--input wants NAME=FILE.npy or NAME=JSON"


def show_task(model: "Model", arguments: argparse.Namespace, ids: list[int] | None) -> None:
    """Run and print. ids: the prompt's tokens, None without one. Raises RequestError, ExecutionError."""
    profile_named(model.profiles, arguments.task)  # said before anything runs
    if arguments.save is not None:
        hold_ending(arguments.save, NPY)
    declared = model.describe()["inputs"]
    inputs: dict[str, Any] = {**given_inputs(arguments.input, declared), **_files(model, arguments)}
    if ids is not None:
        prompt = next((each for each in declared if each["role"] == "prompt_tokens"), None)
        if prompt is None:
            help = f"give the package's own inputs with --input: {_names(declared)}"
            raise RequestError("no-prompt-input", "the package has no input for prompt tokens", help=help)
        array = np.array(ids, dtype=NUMPY[prompt["dtype"]])
        inputs[prompt["name"]] = array if prompt["rank"] == 1 else array.reshape(1, -1)
    made = model.run(inputs).profile(arguments.task)
    if arguments.save is not None:
        _write(arguments.save, made)
    elif arguments.json:
        kind = model.profiles[arguments.task].kind
        print(json.dumps({"profile": arguments.task, "kind": kind, "value": _plain(made)}))
    elif isinstance(made, list):
        for row in cast(list[Any], made):
            print(row if isinstance(row, str) else ",".join(map(str, row)))
    else:
        print(json.dumps(_plain(made)))


def _files(model: "Model", arguments: argparse.Namespace) -> dict[str, list[Path]]:
    """The files of `--image` and `--audio` by input. Raises RequestError `no-image-input`, `no-audio-input`."""
    taken = {each["kind"]: each["input"] for each in model.describe()["media"]}
    given = {kind: files for kind in ("image", "audio") if (files := getattr(arguments, kind))}
    for kind in given:
        if kind not in taken:
            what = f"--{kind}: no input of the package takes such a file for a task"
            raise RequestError(f"no-{kind}-input", what, help=f"leave --{kind} out, or give tensors with --input")
    return {taken[kind]: files for kind, files in given.items()}


def given_inputs(given: list[str], declared: list[dict[str, Any]]) -> dict[str, Array]:
    """The values of `--input`, by name. Raises RequestError `bad-inputs`, `unknown-input`, `bad-value`."""
    return dict(_input(each, declared) for each in given)


def _input(text: str, declared: list[dict[str, Any]]) -> tuple[str, Array]:
    name, found, value = text.partition("=")
    spec = next((each for each in declared if name in (each["name"], each["application"])), None)
    if not found or not value:
        raise RequestError("bad-inputs", f"{_FORM}, got {text!r}")
    if spec is None:
        raise RequestError(
            "unknown-input", f"the package declares no input '{name}'", help=f"inputs: {_names(declared)}"
        )
    try:
        if value.endswith(".npy"):
            return name, np.load(value, allow_pickle=False)
        numbers = np.array(json.loads(value))
        dtype = np.dtype(np.float32 if spec["dtype"] == "bfloat16" else NUMPY[spec["dtype"]])
        if numbers.dtype.kind not in "biuf" or (numbers.dtype.kind == "f" and dtype.kind in "biu"):
            raise ValueError(f"it holds no {spec['dtype']}")
        return name, numbers.astype(dtype)
    except (ValueError, OSError, EOFError, OverflowError) as fault:
        raise RequestError("bad-value", f"input '{name}' can't be read: {fault}", help=_FORM) from fault


def _write(file: Path, made: object) -> None:
    if not isinstance(made, np.ndarray):
        raise RequestError("bad-value", "this profile gives no array to write", help="leave --save out")
    with file.open("wb") as out:
        np.save(out, cast(Array, made), allow_pickle=False)
    print(f"{file}: {made.dtype}{list(cast(Array, made).shape)}", file=sys.stderr)


def _plain(made: object) -> Any:
    if isinstance(made, np.ndarray):
        return cast(Array, made).tolist()
    if isinstance(made, dict):
        return {role: _plain(each) for role, each in cast(dict[str, Any], made).items()}
    return made


def _names(declared: list[dict[str, Any]]) -> str:
    return ", ".join(each["application"] or each["name"] for each in declared if each["source"] != "literal") or "none"
