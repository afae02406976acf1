"""What a caller hands in, before anything reads it: prompts, token ids, input tensors, session names."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from genai_runtime.adapters.files import join_files
from genai_runtime.given_numbers import numbers_as
from genai_runtime.problem import RequestError
from genai_runtime.values import Array

_IDS_HELP = "give text, or whole numbers: a list, or a 1-d integer array"
_BATCH_HELP = "this is one prompt; several go in as batch=[...]"


def prompts_of(batch: Any) -> list[Any]:
    """The prompts of a batch. Raises RequestError `bad-prompt`."""
    if isinstance(batch, str | bytes | Mapping) or not isinstance(batch, Iterable):
        raise RequestError("bad-prompt", f"a batch is a list of prompts, got {_short(batch)}", help=_IDS_HELP)
    prompts: Iterable[Any] = batch
    try:
        return list(prompts)
    except TypeError as fault:  # an array of rank 0 says that it is iterable
        raise RequestError("bad-prompt", f"a batch is a list of prompts, got {_short(batch)}") from fault


def token_ids(prompt: Any) -> list[int]:
    """The ids of a prompt that is no text: whole numbers of Python or numpy, in a sequence or a 1-d integer array.

    Raises RequestError: `bad-prompt` for what is neither, `bad-token` for an entry that is no whole number.
    """
    if isinstance(prompt, np.ndarray):
        array = cast(Array, prompt)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            what = f"a prompt of token ids is a 1-d integer array, got {array.dtype} of rank {array.ndim}"
            help = _BATCH_HELP if array.ndim > 1 or array.dtype.kind in "UO" else _IDS_HELP
            raise RequestError("bad-prompt", what, help=help)
        listed = array.tolist()
        if None in listed:
            raise RequestError("bad-token", "the prompt's array hides entries (numpy.ma)", help=_IDS_HELP)
        return [int(each) for each in listed]
    if isinstance(prompt, str | bytes | Mapping) or not isinstance(prompt, Iterable):
        raise RequestError("bad-prompt", f"a prompt is text or token ids, got {_short(prompt)}", help=_IDS_HELP)
    ids: Iterable[Any] = prompt
    entries = list(ids)
    wrong = [each for each in entries if isinstance(each, bool) or not isinstance(each, int | np.integer)]
    if wrong:
        prompts = all(isinstance(each, str | Sequence | np.ndarray) for each in entries)
        help = _BATCH_HELP if prompts else _IDS_HELP
        raise RequestError("bad-token", f"{_short(wrong[0])} is no token id", help=help)
    return [int(each) for each in entries]


Declared = Sequence[Mapping[str, Any]]
"""The inputs of a manifest: their name, application name and dtype."""
Bytes = bytes | bytearray | memoryview
_FILE = (*get_args(Bytes), Path, str)


def as_tensors(inputs: Any, declared: Declared = ()) -> dict[str, Array]:
    """The inputs of `run` as arrays; bytes and Paths are files, and for an input of bytes so is the text of a path.

    Numbers of Python, alone or in lists, take the dtype that is declared where that can hold them; floats never become
    whole numbers. Arrays stay as they are. Raises RequestError `bad-inputs`, `bad-value`, `no-such-file`, ...
    """
    if not isinstance(inputs, Mapping):
        help = "give a mapping: input name -> array"
        raise RequestError("bad-inputs", f"the inputs are no mapping: {_short(inputs)}", help=help)
    given: Mapping[Any, Any] = inputs
    odd = [name for name in given if not isinstance(name, str)]
    if odd:
        raise RequestError("bad-inputs", f"an input is named by text, got {_short(odd[0])}")
    dtypes = {name: str(each["dtype"]) for each in declared for name in (each["application"], each["name"])}
    return {name: _tensor(name, value, dtypes.get(name, "")) for name, value in given.items()}


def _tensor(name: str, value: Any, dtype: str) -> Array:
    if isinstance(value, _FILE):
        value = [value]
    if isinstance(value, list | tuple) and value and all(isinstance(each, _FILE) for each in value):
        files = cast(list[Bytes | Path | str], value)
        if dtype != "uint8" and any(isinstance(each, str) for each in files):
            help = "give numbers; generate and chat take text; a path is read where an input takes a file's bytes"
            raise RequestError("bad-value", f"input '{name}' takes numbers, got text: {_short(value)}", help=help)
        return np.frombuffer(join_files([content_of(name, each) for each in files]), np.uint8)
    try:
        array = numbers_as(value, dtype)
    except Exception as fault:  # whatever a foreign object's own conversion raises
        raise RequestError("bad-value", f"input '{name}' can't be made an array: {fault}") from fault
    if array.dtype.kind not in "biufcV":
        raise RequestError("bad-value", f"input '{name}' is no array of numbers: {_short(value)}")
    return array


def content_of(name: str, file: Bytes | Path | str) -> bytes:
    """The bytes of a file, by its path or as they are. Raises RequestError `no-such-file`, `unreadable-file`."""
    if not isinstance(file, Path | str):
        return bytes(file)
    try:
        path = Path(file)
        if not path.is_file():
            raise RequestError("no-such-file", f"input '{name}': there is no file {_short(str(path))}")
        return path.read_bytes()
    except OSError as failure:
        what = f"input '{name}': {_short(str(file))} can't be read: {failure.strerror}"
        raise RequestError("unreadable-file", what) from failure


def hold_flags(**flags: Any) -> None:
    """Options that hold for a whole request and are true or false. Raises RequestError `bad-option`."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            help = "give True or False; it holds for every row" + _one_by_one(value)
            raise RequestError("bad-option", f"{name} is true or false, got {_short(value)}", help=help)


def _one_by_one(value: Any) -> str:
    """The way out for who gives a value a row where an option has one for all."""
    return ": run rows that differ in it one by one" if isinstance(value, list | tuple | np.ndarray) else ""


def hold_session(session: Any) -> str | None:
    """A session's name. Raises RequestError `bad-session`."""
    if session is not None and not isinstance(session, str):
        raise RequestError("bad-session", f"a session is named by text, got {_short(session)}")
    return session


def _short(value: object) -> str:
    """A value in a message, however long it is."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
