"""Binding a request to the workflow's inputs: caller values, role values, literals, symbols (standard, 3.1 and 3.2)."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import cast

import numpy as np

from genai_runtime.options import ROLES, role_fallbacks
from genai_runtime.problem import RequestError
from genai_runtime.request import Request
from genai_runtime.row_selection import ROLE as ROW_SELECTION
from genai_runtime.row_selection import identity, select_rows
from genai_runtime.token_entries import hold_entries
from genai_runtime.values import NUMPY, Array, Value, encode, to_bfloat16, to_value

Dim = int | str | None
Literal = bool | int | float | tuple[bool | int | float, ...] | None


@dataclass(frozen=True)
class Input:
    """A declared input. dims: extents, symbols, or None for an axis that is never checked.

    limits: (axis, least, most) of extents that the package's graphs bound by tables of their own; patches: (pixels of
    an edge, how many a picture [pictures, channels, height, width] has), likewise. needs: groups of inputs; where this
    one is given, one of each has to be given too. entries: how many token ids there are, 0 for inputs of others.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    row_axis: int | None = None
    row_factor: int = 1
    role: str = ""
    source: str = "request"
    application: str = ""
    required: bool = True
    default: Literal = None
    present_as: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    limits: tuple[tuple[int, int, int], ...] = ()
    patches: tuple[int, int] | None = None
    entries: int = 0


_PROMPTS = {"prompt_tokens": "prompt", "negative_prompt_tokens": "negative prompt"}
"""Role -> what its tokens are to a caller."""
_OUTPUT_START = "request.decoder_input_ids"
"""The tokens that start an output beside an encoder, as the compiler calls them."""
ABSENT = cast(Value, None)
"""Stands for an absent optional input."""


@dataclass(frozen=True)
class Bound:
    """The environment at the start: values by name (an absent optional input is missing) and the symbols' extents."""

    values: dict[str, Value]
    symbols: dict[str, int]

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def optional(self, name: str) -> Value:
        """An input that may be absent; the workflow reads it only where its presence is known (standard, V135)."""
        return self.values.get(name, ABSENT)


def bind_inputs(inputs: Sequence[Input], request: Request) -> Bound:
    """Bind every declared input. Raises RequestError: unknown-input, missing-input, wrong-dtype, wrong-rank, ..."""
    _refuse_unknown(inputs, request.tensors)
    symbols: dict[str, int] = {}
    fallbacks = _fallbacks(inputs, request)
    given = select_rows(inputs, {each.name: _given(each, request) for each in inputs}, request)
    arrays: dict[str, Array] = {}
    for each in sorted(inputs, key=lambda item: item.name):
        array = given[each.name]
        if array is not None:
            arrays[each.name] = _checked(each, array, symbols)
    _refuse_missing(inputs, given, {*request.roles, *fallbacks}, request.profiled)
    for each in sorted(inputs, key=lambda item: item.name):
        if given[each.name] is None:
            selects = each.role == ROW_SELECTION
            array = identity(inputs, arrays) if selects else _left_out(each, request, fallbacks, symbols)
            if array is not None:
                arrays[each.name] = _checked(each, array, symbols)
    _refuse_alone(inputs, arrays)
    values = {each.name: to_value(arrays[each.name], each.dtype) for each in inputs if each.name in arrays}
    for each in inputs:
        if each.present_as:
            values[each.present_as] = to_value(np.array(each.name in arrays))
    return Bound(values, symbols)


def _refuse_unknown(inputs: Sequence[Input], tensors: Mapping[str, Array]) -> None:
    known = {each.name for each in inputs} | {each.application for each in inputs if each.application}
    unknown = sorted(set(tensors) - known)
    if unknown:
        names = ", ".join(repr(each) for each in unknown)
        raise RequestError("unknown-input", f"the package declares no input {names}", help=f"inputs: {sorted(known)}")


def _refuse_missing(
    inputs: Sequence[Input], given: Mapping[str, Array | None], roles: Set[str], profiled: bool
) -> None:
    """Before a literal gets its shape (standard, 3.1 and 3.2). roles: those that have a value without an input."""
    for each in sorted(inputs, key=lambda item: item.name):
        answered = each.source == "request" and each.role in {*roles, ROW_SELECTION}
        if each.required and given[each.name] is None and each.default is None and not answered:
            help = _start_help(each) if each.name == _OUTPUT_START else _missing_help(each, profiled)
            raise RequestError("missing-input", f"input '{each.name}' is required and was not given", help=help)


def _missing_help(spec: Input, profiled: bool) -> str:
    """profiled: the package has profiles, which take any input on the command line."""
    help = "give run(inputs) a tensor for it; genai-run takes files (--image, --audio)"
    return f"{help}, and with --task --input {spec.application or spec.name}=VALUE" if profiled else help


def _start_help(spec: Input) -> str:
    name = spec.application or spec.name
    help = (
        "state decoder_start_token_id in generation_config.json (of a workflow: the default of the input) and compile "
    )
    return f"{help}again; or give the tokens that start the output to run(inputs), as {name}"


def _refuse_alone(inputs: Sequence[Input], given: Mapping[str, Array]) -> None:
    """Raises RequestError `missing-input` for an input without what belongs to it: no branch of the workflow fits."""
    specs = {each.name: each for each in inputs}
    for each in (each for each in inputs if each.name in given):
        groups = _lacking(each, specs, given)
        if groups:
            lacking = " and ".join(" or ".join(_called(specs[name]) for name in group) for group in groups)
            are = "are" if len(groups) > 1 else "is"
            what = f"{_called(each)} is given, and {lacking} {are} not: they belong together"
            forms = "; ".join(" or ".join(f"{_called(specs[x])}, {_form(specs[x])}" for x in group) for group in groups)
            raise RequestError("missing-input", what, help=f"give {forms}; or leave {_called(each)} out")


def _lacking(spec: Input, specs: Mapping[str, Input], given: Mapping[str, Array]) -> list[tuple[str, ...]]:
    """The groups that an input needs and has none of, and those that these would need."""
    found, asked = list[tuple[str, ...]](), [spec]
    while asked:
        for group in asked.pop().needs:
            if group not in found and given.keys().isdisjoint(group):
                found.append(group)
                asked += [specs[name] for name in group]
    return found


def _called(spec: Input) -> str:
    return f"'{spec.application or spec.name}'"


def _fallbacks(inputs: Sequence[Input], request: Request) -> Mapping[str, int | float]:
    """What a role is bound to where neither request nor document says."""
    defaults = {each.role: each.default for each in inputs if each.source == "request" and each.default is not None}
    stated = {option: defaults[role] for option, role in ROLES.items() if role in defaults}
    return role_fallbacks(request.sampling[0], stated)


def _given(spec: Input, request: Request) -> Array | None:
    """The caller's tensor. A scalar of the request is none: it takes the shape that the tensors leave it."""
    if spec.name in request.tensors:
        return request.tensors[spec.name]
    if spec.application and spec.application in request.tensors:
        return request.tensors[spec.application]
    value = request.roles.get(spec.role) if spec.source == "request" else None
    return None if value is None or np.ndim(value) == 0 else _role_value(spec, value)


def _left_out(
    spec: Input, request: Request, fallbacks: Mapping[str, int | float], symbols: Mapping[str, int]
) -> Array | None:
    """A scalar of the request, else the document's literal, else what the runtime has for the role (standard, 3.1).

    A scalar fills a vector as long as the rows that are bound; one element where nothing else says how long it is.
    """
    if spec.source == "artifact":
        what = f"input '{spec.name}' is a file of the package, which is no tensor"
        raise RequestError("missing-input", what, help="give a tensor for it")
    asked = spec.source == "request"
    value = request.roles.get(spec.role) if asked else None
    if value is None and spec.default is not None:
        return _literal(spec, symbols)
    value = fallbacks.get(spec.role) if value is None and asked else value
    if value is None:
        return None
    array = _role_value(spec, value)
    if spec.dims and not isinstance(spec.dims[0], int):
        return np.broadcast_to(array, (_literal_extent(spec, 0, symbols),))
    return array


def _role_value(spec: Input, value: Array | int | float) -> Array:
    try:
        array = encode(value, spec.dtype)
    except (OverflowError, TypeError, ValueError) as fault:
        raise RequestError("bad-value", f"{value!r} for role '{spec.role}' is no {spec.dtype}: {fault}") from fault
    if array.ndim == 0 and len(spec.dims) == 1:
        array = array.reshape(1)
    if array.ndim == 1 and len(spec.dims) == 2 and spec.role == "prompt_tokens":
        array = array.reshape(1, -1)
    if array.ndim != len(spec.dims):
        raise RequestError("wrong-rank", f"the value of role '{spec.role}' has rank {array.ndim}, input '{spec.name}' "
                           f"wants {len(spec.dims)}")  # fmt: skip
    return array


def _checked(spec: Input, array: Array, symbols: dict[str, int]) -> Array:
    wanted = np.dtype(NUMPY[spec.dtype])
    array = _in_bits(spec, array)
    if array.dtype != wanted:
        what = f"input '{spec.name}' is {array.dtype}, the package wants {spec.dtype}"
        raise RequestError("wrong-dtype", what, help=f"give {_form(spec)}: an array of that type, or Python's numbers")
    if array.ndim != len(spec.dims):
        what = f"input '{spec.name}' has rank {array.ndim}, the package wants {len(spec.dims)}"
        raise RequestError("wrong-rank", what, help=f"give {_form(spec)}")
    unify(f"input '{spec.name}'", array.shape, spec.dims, symbols, spec.row_axis, spec.row_factor)
    for axis, least, most in spec.limits:
        if not least <= array.shape[axis] <= most:
            raise _beyond(spec, axis, array.shape[axis], least, most)
    if spec.entries:
        hold_entries(array, spec.entries, spec.application or spec.name)
    if spec.patches is not None:
        _hold_patches(spec, array.shape[-2:], *spec.patches)
    return array


def _hold_patches(spec: Input, size: tuple[int, ...], patch: int, count: int) -> None:
    """Raises RequestError `wrong-shape` for pictures that a table of a graph has not as many rows for."""
    height, width = size
    found = (height // patch) * (width // patch)
    if found != count:
        what = f"input '{spec.application or spec.name}' is {height} x {width} pixels, which are {found} patches"
        help = f"give pictures of {count} patches, which the package's table of positions is for"
        raise RequestError("wrong-shape", f"{what} of {patch} x {patch}; the package takes {count}", help=help)


def _beyond(spec: Input, axis: int, extent: int, least: int, most: int) -> RequestError:
    """An extent that a table of a graph has no rows for."""
    takes = f"{least}" if least == most else f"{least} to {most}" if least else f"{most} at most"
    if spec.role in _PROMPTS:
        what = f"the {_PROMPTS[spec.role]} has {extent} tokens, and the package takes {takes}"
        return RequestError("prompt-length", f"{what}: its table of positions has no more rows", help="shorten it")
    what = f"input '{spec.application or spec.name}' has extent {extent} on axis {axis}, and the package takes {takes}"
    return RequestError("wrong-shape", f"{what}: its table of positions has no more rows", help=f"give {_form(spec)}")


def _form(spec: Input) -> str:
    """What an input wants: its type and its shape."""
    return f"{spec.dtype} of shape {_shape(spec.dims)}"


def _shape(dims: Sequence[Dim]) -> str:
    return f"[{', '.join('any' if each is None else str(each) for each in dims)}]"


def _in_bits(spec: Input, array: Array) -> Array:
    """A caller's tensor in this machine's byte order; of a type that numpy lacks (float32, as outputs have it, or an
    extension type), its bits."""
    if spec.dtype == "bfloat16" and array.dtype == np.float32:
        return to_bfloat16(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array.view(NUMPY[spec.dtype]) if array.dtype.name == spec.dtype else array


def unify(
    what: str,
    shape: Sequence[int],
    dims: Sequence[Dim],
    symbols: dict[str, int],
    row_axis: int | None = None,
    row_factor: int = 1,
) -> None:
    """Hold extents against dims: numbers must be equal, symbols bind at first use. Raises RequestError."""
    for axis, (extent, dim) in enumerate(zip(shape, dims, strict=True)):
        factor = row_factor if axis == row_axis else 1
        if isinstance(dim, int):
            if extent != dim:
                fault = f"{what} has extent {extent} on axis {axis}, the package wants {dim}"
                raise RequestError("wrong-shape", fault, help=f"give the shape {_shape(dims)}; it is {list(shape)}")
        elif dim is not None and (extent % factor or symbols.setdefault(dim, extent // factor) != extent // factor):
            times = f" times {factor}" if factor > 1 else ""
            raise RequestError(
                "symbol-conflict",
                f"{what} gives '{dim}' the extent {extent} on axis {axis}; "
                f"elsewhere in this request it is {symbols.get(dim)}{times}",
            )


def _literal(spec: Input, symbols: Mapping[str, int]) -> Array:
    assert spec.default is not None
    shape = [_literal_extent(spec, axis, symbols) for axis in range(len(spec.dims))]
    if not isinstance(spec.default, tuple):
        return np.full(shape, _literal_elements(spec))
    free = [axis for axis, dim in enumerate(spec.dims) if not isinstance(dim, int) and dim not in symbols]
    if len(free) == 1:
        others = int(np.prod([extent for axis, extent in enumerate(shape) if axis != free[0]], dtype=np.int64))
        shape[free[0]] = len(spec.default) // max(others, 1)
    if int(np.prod(shape, dtype=np.int64)) != len(spec.default):
        what = f"the literal of input '{spec.name}' has {len(spec.default)} elements, its shape here is {shape}"
        raise RequestError("literal-length", what)
    return _literal_elements(spec).reshape(shape)


def _literal_elements(spec: Input) -> Array:
    try:
        return encode(spec.default, spec.dtype)
    except (OverflowError, TypeError, ValueError) as fault:
        raise RequestError("bad-value", f"the literal of input '{spec.name}' is no {spec.dtype}: {fault}") from fault


def _literal_extent(spec: Input, axis: int, symbols: Mapping[str, int]) -> int:
    dim = spec.dims[axis]
    if isinstance(dim, int):
        return dim
    factor = spec.row_factor if axis == spec.row_axis else 1
    return (symbols.get(dim, 1) if dim is not None else 1) * factor
