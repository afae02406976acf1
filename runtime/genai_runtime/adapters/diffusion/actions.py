"""The actions of genai-compile.diffusion@1. Latents are carried in float32 whatever type the graphs take.

| action | inputs | outputs |
|---|---|---|
| schedule | steps int64 [1]; strength float32 [1] | timesteps float32 [N], table float32 [N, 6], scale float32 [1]; |
| | (for a run that starts from clean latents) | and signal float32 [1], count int64 [1] |
| start | noise [B, ...], scale | latents float32 [B, ...] |
| draw | seed int64 [B], width and height int64 [1], scale | latents float32 [B, channels, height, width] |
| blend | clean [B, ...], signal, latents | latents: the clean ones under that noise |
| input | latents, timesteps, table, step int64 [1] | sample [B, ...], timestep: rank 0, [1] or [B] |
| guide | unconditional, conditional [B, ...], scale float32 [B] | estimate float32 [B, ...] |
| step | latents, estimate, table, step; history for solvers of two steps | next; next_history |
| finish | latents | latents divided by `scaling_factor`, in `dtype` |
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from genai_runtime.adapters.diffusion.gaussian import gaussian
from genai_runtime.adapters.diffusion.schedule import (
    FROM_ESTIMATE,
    FROM_X,
    KEEP,
    MOVE,
    RECALL,
    SCALE,
    Schedule,
    make_schedule,
)
from genai_runtime.adapters.diffusion.scheduler import Scheduler, read_scheduler
from genai_runtime.problem import ExecutionError, RequestError
from genai_runtime.values import Array

Inputs = Mapping[str, Array]
Call = Callable[[Inputs], dict[str, Array]]
Parameters = Mapping[str, bool | int | float | str]

_DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.float32, "float64": np.float64}
"""What a graph takes -> what is made here; bfloat16 is made of float32 on the way."""
_TIMES = {"int64": np.int64, "int32": np.int32, **_DTYPES}
MOST_VALUES = 64 << 20
"""Numbers that the latents of one row may have."""


def diffusion(parameters: Parameters) -> Call:
    """The call for `parameters.action`. Raises ValueError for parameters that it does not know or can't use."""
    action = parameters.get("action")
    if action not in _ACTIONS:
        raise ValueError(f"action is {action!r}; it is one of {', '.join(_ACTIONS)}")
    return _ACTIONS[str(action)](parameters)


def _schedule(parameters: Parameters) -> Call:
    scheduler = read_scheduler(parameters)
    made: dict[tuple[int, float | None], Schedule] = {}

    def call(inputs: Inputs) -> dict[str, Array]:
        count = int(inputs["steps"].reshape(-1)[0])
        strength = float(inputs["strength"].reshape(-1)[0]) if "strength" in inputs else None
        _check_count(count, scheduler)
        if strength is not None and not 0 < strength <= 1:
            raise RequestError("bad-steps", f"strength is {strength}", help="it is above 0, and 1 at most")
        if (count, strength) not in made:
            made.clear()  # requests mostly ask for the same
            made[count, strength] = make_schedule(scheduler, count, strength)
        found = made[count, strength]
        return {
            "timesteps": found.timesteps.astype(np.float32),
            "table": found.table.astype(np.float32),
            "scale": np.array([found.start], np.float32),
            "signal": np.array([found.signal], np.float32),
            "count": np.array([len(found.table)], np.int64),
        }

    return call


def _check_count(count: int, scheduler: Scheduler) -> None:
    listed = scheduler.listed
    if listed and count != len(listed):
        what = f"{count} steps are asked for, and the package lists the timesteps of {len(listed)}"
        raise RequestError("bad-steps", what, help=f"ask for {len(listed)} steps")
    if not 1 <= count <= scheduler.train_steps:
        what = f"{count} steps are asked for; this schedule has between 1 and {scheduler.train_steps}"
        raise RequestError("bad-steps", what, help="20 to 50 is usual")


def _start(parameters: Parameters) -> Call:
    def call(inputs: Inputs) -> dict[str, Array]:
        return {"latents": inputs["noise"].astype(np.float32) * inputs["scale"]}

    return call


def _draw(parameters: Parameters) -> Call:
    channels, down, across = (_whole(parameters, name) for name in ("channels", "pixels_down", "pixels_across"))

    def call(inputs: Inputs) -> dict[str, Array]:
        height = _extent(inputs["height"], "height", down)
        width = _extent(inputs["width"], "width", across)
        shape = (channels, height, width)
        if height * width * channels > MOST_VALUES:
            what = f"a picture of {width * across} x {height * down} is larger than is drawn here"
            raise RequestError("bad-picture-size", what, help="ask for a smaller one")
        rows = [gaussian(int(seed), height * width * channels).reshape(shape) for seed in inputs["seed"].reshape(-1)]
        return {"latents": np.stack(rows) * inputs["scale"]}

    return call


def _extent(given: Array, name: str, pixels: int) -> int:
    """Latents along a side of so many pixels."""
    side = int(given.reshape(-1)[0])
    if side == 0:
        help = "say width and height (--width, --height), or give the noise itself"
        raise RequestError("bad-picture-size", f"nothing says the {name} of the picture", help=help)
    if side < 0 or side % pixels:
        help = f"a multiple of {pixels}: one latent stands for so many pixels"
        raise RequestError("bad-picture-size", f"{name} is {side}", help=help)
    return side // pixels


def _blend(parameters: Parameters) -> Call:
    def call(inputs: Inputs) -> dict[str, Array]:
        clean, noise = inputs["clean"].astype(np.float32), inputs["latents"]
        if clean.shape != noise.shape:
            what = f"latents {list(clean.shape)} are to start from, under noise {list(noise.shape)}"
            raise RequestError("bad-picture-size", what, help="ask for the width and height of those latents")
        return {"latents": clean * inputs["signal"] + noise}

    return call


def _input(parameters: Parameters) -> Call:
    dtype, time, form = parameters.get("dtype"), parameters.get("timestep"), parameters.get("timestep_form")
    if dtype not in _DTYPES or time not in _TIMES or form not in ("scalar", "one", "rows"):
        raise ValueError(f"dtype {dtype!r}, timestep {time!r} or timestep_form {form!r} is unknown")

    def call(inputs: Inputs) -> dict[str, Array]:
        latents, step = inputs["latents"], int(inputs["step"].reshape(-1)[0])
        sample = latents * inputs["table"][step, SCALE]
        rows = {"scalar": (), "one": (1,), "rows": latents.shape[:1]}[str(form)]
        timestep = np.full(rows, inputs["timesteps"][step]).astype(_TIMES[str(time)])
        return {"sample": sample.astype(_DTYPES[str(dtype)]), "timestep": timestep}

    return call


def _guide(parameters: Parameters) -> Call:
    def call(inputs: Inputs) -> dict[str, Array]:
        without, towards = (inputs[name].astype(np.float32) for name in ("unconditional", "conditional"))
        scale = inputs["scale"].astype(np.float32).reshape(-1, *[1] * (towards.ndim - 1))
        return {"estimate": without + scale * (towards - without)}

    return call


def _step(parameters: Parameters) -> Call:
    def call(inputs: Inputs) -> dict[str, Array]:
        latents, estimate = inputs["latents"], inputs["estimate"].astype(np.float32)
        if latents.shape != estimate.shape:
            what = f"the graph takes latents {list(latents.shape)} and estimates {list(estimate.shape)}"
            raise ExecutionError("estimate-shape", what, help="ask for another width and height, of a larger multiple")
        row = inputs["table"][int(inputs["step"].reshape(-1)[0])]
        moved = row[KEEP] * latents + row[MOVE] * estimate
        if "history" not in inputs:
            if row[RECALL]:
                what = "this solver leans on the step before, and the component has no port 'history'"
                raise ExecutionError("solver-history", what, help="carry next_history in a cell, and bind it")
            return {"next": moved}
        clean = row[FROM_X] * latents + row[FROM_ESTIMATE] * estimate
        return {"next": moved + row[RECALL] * inputs["history"], "next_history": clean}

    return call


def _finish(parameters: Parameters) -> Call:
    factor, dtype = parameters.get("scaling_factor"), parameters.get("dtype")
    if not isinstance(factor, float) or not factor > 0 or dtype not in _DTYPES:
        raise ValueError(f"scaling_factor {factor!r} is no number above 0, or dtype {dtype!r} is unknown")
    return partial(_divided, factor=factor, dtype=_DTYPES[str(dtype)])


def _divided(inputs: Inputs, factor: float, dtype: Any) -> dict[str, Array]:
    return {"latents": (inputs["latents"] / np.float32(factor)).astype(dtype)}


def _whole(parameters: Parameters, name: str) -> int:
    value = parameters.get(name)
    if type(value) is not int or value < 1:
        raise ValueError(f"'{name}' is {value!r}; it is a whole number above 0")
    return value


_ACTIONS: Mapping[str, Callable[[Parameters], Call]] = {
    "schedule": _schedule,
    "start": _start,
    "draw": _draw,
    "blend": _blend,
    "input": _input,
    "guide": _guide,
    "step": _step,
    "finish": _finish,
}
