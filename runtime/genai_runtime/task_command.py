"""`genai-run DIR --task NAME`: one run, and what a task profile makes of it: an embedding, scores, a transcription.

Where a package makes neither text nor pictures and has one profile, the command needs no name of it.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from genai_runtime.description import is_asked_for
from genai_runtime.file_forms import JSON, NPY, hold_ending
from genai_runtime.problem import RequestError
from genai_runtime.profiles import profile_named
from genai_runtime.values import NUMPY, Array

if TYPE_CHECKING:
    from genai_runtime.model import Model

_FORM = "--input wants NAME=FILE.npy or NAME=JSON"


def show_task(model: "Model", arguments: argparse.Namespace, encode: Callable[[], list[int] | None]) -> None:
    """Run, and print or write. An `arguments.task` of None is the package's only profile.

    encode: gives the prompt's tokens, None without one. Raises RequestError, ExecutionError, OSError.
    """
    task = arguments.task if arguments.task is not None else only_profile(model)
    profile = profile_named(model.profiles, task)  # said before anything runs
    if arguments.save is not None and arguments.save.suffix.lower() != JSON:
        if not profile.gives_array:
            raise RequestError("bad-value", "this profile gives no array to write", help="name a .json file")
        hold_ending(arguments.save, NPY)
    declared = model.describe()["inputs"]
    inputs: dict[str, Any] = {**given_inputs(arguments.input, declared), **_files(model, arguments)}
    prompt = next((each for each in declared if each["role"] == "prompt_tokens"), None)
    if prompt is None and (arguments.prompt is not None or arguments.tokens is not None):
        help = f"give the package's own inputs with --input: {_names(declared)}"
        raise RequestError("no-prompt-input", "the package has no input for prompt tokens", help=help)
    ids = encode() if prompt is not None else None
    named = {prompt["name"], prompt["application"]} if prompt is not None else set[str]()
    if not ids and prompt is not None and inputs.keys().isdisjoint(named) and is_asked_for(prompt):
        raise _no_prompt(declared, inputs, ids is None)
    if ids is not None and prompt is not None:
        array = _as_prompt(ids, np.dtype(NUMPY[prompt["dtype"]]))
        inputs[prompt["name"]] = array if prompt["rank"] == 1 else array.reshape(1, -1)
    made = model.run(inputs).profile(task)
    told = {"profile": task, "kind": model.profiles[task].kind, "value": _plain(made)}
    if arguments.save is not None:
        _write(arguments.save, made, told)
    elif arguments.json:
        print(json.dumps(told))
    elif isinstance(made, list):
        for row in cast(list[Any], made):
            print(row if isinstance(row, str) else ",".join(map(str, row)))
    else:
        print(json.dumps(_plain(made)))


def _no_prompt(declared: list[dict[str, Any]], inputs: dict[str, Any], silent: bool) -> RequestError:
    """What the package wants that was given no text. silent: nothing was read in its place, either."""
    others = [each for each in declared if is_asked_for(each) and each["role"] != "prompt_tokens"]
    left = [each for each in others if each["name"] not in inputs and each["application"] not in inputs]
    help = "give --prompt TEXT or --tokens 1,2,3, or a text on standard input"
    help += f"; with it, by --input NAME=VALUE: {_names(left)}" if left else ""
    what = "the package makes its result of a prompt, and was given none"
    return RequestError("no-prompt" if silent else "empty-prompt", what, help=help)


def _as_prompt(ids: list[int], dtype: np.dtype[Any]) -> Array:
    """[n]. Raises RequestError `empty-prompt`, `bad-token`."""
    if not ids:
        raise RequestError("empty-prompt", "the prompt has no tokens", help="give at least one")
    held = np.iinfo(dtype)
    if wrong := [each for each in ids if not held.min <= each <= held.max]:
        raise RequestError("bad-token", f"no such token ids: {wrong[:8]}")
    return np.array(ids, dtype=dtype)


def _files(model: "Model", arguments: argparse.Namespace) -> dict[str, list[Path]]:
    """The files of `--image` and `--audio` by input. Raises RequestError `no-image-input`, `no-audio-input`."""
    taken = {each["kind"]: each["input"] for each in model.describe()["media"]}
    given = {kind: files for kind in ("image", "audio") if (files := getattr(arguments, kind))}
    for kind in given:
        if kind not in taken:
            what = f"--{kind}: no input of the package takes such a file for a task"
            raise RequestError(f"no-{kind}-input", what, help=f"leave --{kind} out, or give tensors with --input")
    return {taken[kind]: files for kind, files in given.items()}


def only_profile(model: "Model") -> str:
    """The one profile of a package that makes neither text nor pictures. Raises RequestError `no-tokens-output`."""
    if len(model.profiles) == 1:
        return next(iter(model.profiles))
    what = "the package makes neither text nor pictures"
    if model.profiles:
        named = " or ".join(f"--task {each}" for each in sorted(model.profiles))
        raise RequestError("no-tokens-output", f"{what}, and has several profiles", help=f"add {named}")
    raise RequestError("no-tokens-output", f"{what}, and has no profile", help="use run(inputs) in Python")


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
    except (ValueError, OSError, EOFError, OverflowError, RecursionError, MemoryError) as fault:
        raise RequestError("bad-value", f"input '{name}' can't be read: {fault}", help=_FORM) from fault


def _write(file: Path, made: object, told: dict[str, Any]) -> None:
    """The array, or what `--json` prints where the file is called so."""
    if file.suffix.lower() == JSON:
        file.write_text(json.dumps(told) + "\n", encoding="utf-8")
        print(f"{file}: profile {told['profile']}", file=sys.stderr)
        return
    array = cast(Array, made)
    with file.open("wb") as out:
        np.save(out, array, allow_pickle=False)
    print(f"{file}: {array.dtype}{list(array.shape)}", file=sys.stderr)


def _plain(made: object) -> Any:
    if isinstance(made, np.ndarray):
        return cast(Array, made).tolist()
    if isinstance(made, dict):
        return {role: _plain(each) for role, each in cast(dict[str, Any], made).items()}
    return made


def _names(declared: list[dict[str, Any]]) -> str:
    return ", ".join(each["application"] or each["name"] for each in declared if each["source"] != "literal") or "none"
