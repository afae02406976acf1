"""Random damage to plain data, for tests that compare judges or look for crashes."""

import copy
import random
from collections.abc import Iterator
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, -0.5, 2**33, 2**63, "", "x", "zeros", "invoke", [], {}, ["a"], ["a", "a"],
    [0], [-1], [""], [None], [[]], {"a": 1}, {"kind": "invoke"}, {"kind": "shared"}, {"kind": "emit"},
    {"kind": None}, {"io": {}},
)  # fmt: skip


def damaged(data: Any, dice: random.Random, times: int = 1) -> Any:
    """A copy with `times` random changes: an entry removed, replaced, added, doubled or moved elsewhere."""
    result = copy.deepcopy(data)
    for _ in range(times):
        holders = [each for each in _containers(result) if each]
        if holders:
            _damage(dice.choice(holders), dice)
    return result


def _damage(holder: Any, dice: random.Random) -> None:
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key, way = dice.choice(keys), dice.choice(["remove", "replace", "add", "double", "swap"])
    if way == "remove":
        del holder[key]
    elif way == "replace":
        holder[key] = copy.deepcopy(dice.choice(ODD_VALUES))
    elif way == "double":
        holder[key] = [holder[key], copy.deepcopy(holder[key])]
    elif way == "swap":
        other = dice.choice(keys)
        holder[key], holder[other] = holder[other], holder[key]
    elif isinstance(holder, dict):
        holder[dice.choice(["kind", "axis", "future", "steps"])] = copy.deepcopy(dice.choice(ODD_VALUES))
    else:
        holder.append(copy.deepcopy(holder[key]))


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)
