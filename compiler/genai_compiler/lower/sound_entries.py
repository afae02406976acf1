"""How many entries of a prompt a sound takes, where a processor file has no number for it.

The graph that makes the entries has them in the shape of its output. Shapes are computed for some numbers of frames.
What strides, convolutions and cuts make of these, one behind the other, is (frames + more) // frames an entry; where
the shapes agree with that, it is taken. Actual entries are counted before the decoder runs (`entry_check`).
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.lower.matching import rank_of
from genai_compiler.lower.sound_roles import FEATURES, MASK, Roles
from genai_compiler.lower.stages import Medium
from genai_compiler.read.activations import extents_at
from genai_compiler.read.extents import MAX_BYTES, MAX_NODES
from genai_compiler.read.signature import load_graph

FRAMES, MORE = "entry_frames", "entry_more"
"""Parameters of the sound's adapter: entries are (frames + entry_more) // entry_frames."""
_MOST = 2048
"""Frames up to which shapes are computed."""
_CHECKED = (17, 100, 333, 1500)


@dataclass(frozen=True)
class Form:
    """Features of one sound: [bands, frames], or [frames, bands]. frames: 0 where they follow from the sound, by hops
    and numbers that are known where `counted`.
    """

    bands: int
    frames: int = 0
    bands_first: bool = True
    counted: bool = False

    @property
    def axis(self) -> int:
        """That of the frames in [sounds, ., .]."""
        return 2 if self.bands_first else 1


def entries_by_shape(root: Path, form: Form, medium: Medium, roles: Roles) -> Mapping[str, Any]:
    """Parameters that say how many entries a sound takes, {} where no shape tells."""
    rows = _rows_of(root, form, medium, roles)
    if rows is None:
        return {}
    if form.frames:
        fixed = rows(form.frames)
        return {"entries": fixed} if fixed else {}
    port, axis = roles[FEATURES], form.axis
    held = [
        each.most
        for stage in medium.stages
        for each in stage.signature.limits
        if (each.input, each.axis) == (port.name, axis)
    ]
    found = _law(rows, min([_MOST, *held])) if form.counted else None
    return {"of_sound": True, FRAMES: found[0], MORE: found[1]} if found is not None else {}


Rows = Callable[[int], int | None]
"""Frames of a sound -> entries, None where no shape tells."""


def _rows_of(root: Path, form: Form, medium: Medium, roles: Roles) -> Rows | None:
    """What the only stage of a medium makes of one sound."""
    stage, features = medium.stages[-1], roles[FEATURES]
    if len(medium.stages) != 1 or rank_of(features) != 3:
        return None
    model = load_graph(root / stage.artifact, root)
    if len(model.graph.node) > MAX_NODES or model.ByteSize() > MAX_BYTES:
        return None
    output = next(each for each in stage.signature.outputs if f"{stage.component}.{each.name}" == medium.result)

    def rows(frames: int) -> int | None:
        shape = (1, form.bands, frames) if form.bands_first else (1, frames, form.bands)
        given = {port.name: (1, frames) if role == MASK else (1,) for role, port in roles.items()}
        dims = extents_at(model, {**given, features.name: shape}).get(output.name)
        if dims is None or None in dims[:-1]:
            return None
        merged = medium.merges is not None
        known = [each for each in dims[:-1] if each is not None]
        return known[0] * (known[1] if merged else 1) if len(known) == 1 + merged else None

    return rows


def _law(rows: Rows, most: int) -> tuple[int, int] | None:
    """(frames an entry, more) of all checked numbers of frames; None where these follow no such law."""
    low, first, last = most // 2, rows(most // 2), rows(most)
    if first is None or last is None or last <= first:
        return None
    stride = round((most - low) / (last - first))
    if stride < 1:
        return None
    end = low + bisect_right(range(stride), first, key=lambda more: rows(low + more) or 0)
    more = stride * (first + 1) - end

    def agrees(frames: int) -> bool:
        count, made = (frames + more) // stride, rows(frames)
        return made == count if count > 0 else made is None or made <= 0  # too short for a kernel

    checked = (*(each for each in _CHECKED if each <= most), low, most)
    return (stride, more) if all(map(agrees, checked)) else None
