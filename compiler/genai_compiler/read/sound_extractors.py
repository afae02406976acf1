"""The flat keys of a feature extractor whose class says what the keys leave open -> features by stated numbers.

The table is sound_extractors.json: the class, as `feature_extractor_type` has it -> `does`, our word for what lies
around the clip and where emphasis is; `keys` that a file may state, with the class's defaults; `plain`: keys whose
effect is not offered -> the values that have none; `numbers`: the rest of AudioFeatures; `rates`: where the class has
features for several, what differs. docs/audio.md says where the numbers come from.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genai_compiler.read.audio_features import AudioFeatures, Refuse
from genai_compiler.read.audio_operations import AudioForm, audio_fault
from genai_compiler.read.config_json import Json
from genai_compiler.read.flat_keys import Members, members_of
from genai_compiler.read.places import DocPath, as_written

_CLASS = "feature_extractor_type"


@dataclass(frozen=True)
class Extractor:
    """An entry of the table. rates: in rising order."""

    does: str
    keys: Mapping[str, Any]
    plain: Mapping[str, tuple[Json, ...]]
    numbers: Mapping[str, Any]
    rates: tuple[Mapping[str, Any], ...]


def _table() -> dict[str, Extractor]:
    entries = json.loads((Path(__file__).parent / "sound_extractors.json").read_text("utf-8"))
    return {
        name: Extractor(
            entry["does"],
            entry["keys"],
            {key: tuple(values) for key, values in entry["plain"].items()},
            entry["numbers"],
            tuple(entry.get("rates", [{}])),
        )
        for name, entry in entries.items()
    }


EXTRACTORS: Mapping[str, Extractor] = _table()


def class_sound(root: Json) -> tuple[Members, DocPath] | None:
    """(the members of an extractor of a class that is known, where they stand), None where there is none."""
    return members_of(root, lambda members: str(members.get(_CLASS)) in EXTRACTORS)


def class_features(members: Members, refuse: Refuse) -> Iterator[AudioFeatures]:
    """The features that an extractor's members say, one for each rate. refuse: told a key and what is wrong with it."""
    known = EXTRACTORS[str(members[_CLASS])]
    stated = {key: value for key in known.keys if (value := members.get(key)) is not None}
    faults = [(key, audio_fault(AudioForm(known.does, known.keys), key, value)) for key, value in stated.items()]
    for key, fault in faults:
        if fault:
            refuse(key, f"it {fault}")
    for key, plain in known.plain.items():
        if key in members and members[key] not in (None, *plain):
            refuse(key, f"it is {as_written(members[key])}; {as_written(plain[0])} is offered")
    if any(fault for _, fault in faults):
        return
    emphasis = {"preemphasis": 0.0} if members.get("preemphasis", 0.0) is None else {}
    for rate in known.rates:
        numbers = {**known.numbers, **rate.get("numbers", {})}
        yield from _features(known.does, {**known.keys, **rate, **stated, **emphasis}, numbers, refuse)


def class_strides(members: Members) -> tuple[int, ...] | None:
    """How many frames, and how many of these, an entry of a prompt stands for; None where the class does not say."""
    keys = EXTRACTORS[str(members[_CLASS])].keys
    names = [each for each in ("audio_compression_rate", "audio_downsample_rate") if each in keys]
    return tuple(int(str(members.get(each) or keys[each])) for each in names) or None


def _features(
    does: str, keys: Mapping[str, Any], numbers: Mapping[str, Any], refuse: Refuse
) -> Iterator[AudioFeatures]:
    rate, fft, frame = (int(keys[each]) for each in ("sampling_rate", "n_fft", "win_length"))
    low, high = (float(keys.get(each, 0)) for each in ("mel_min_frequency", "mel_max_frequency"))
    if frame > fft:
        refuse("win_length", f"a window of {frame} is longer than the transform, {fft}")
    bank = tuple(numbers.get("bank", (0, 0)))
    if "mel_max_frequency" in keys and not low < high <= (bank[1] or rate) / 2:
        refuse("mel_max_frequency", f"bands from {low} to {high} Hz, of samples at {rate} Hz")
        return
    alpha, centered = float(keys["preemphasis"]), does == "centered"
    yield AudioFeatures(
        rate=rate,
        frame=frame,
        hop=int(keys["hop_length"]),
        span=fft if centered else frame,
        mels=int(keys["feature_size"]),
        skip=(fft - frame) // 2 if centered else 0,
        before=fft // 2 if centered else 0,
        behind=fft // 2 if centered else 0,
        emphasis="" if not alpha else "clip" if centered else "frame",
        alpha=alpha,
        fft=fft,
        low=low,
        high=high,
        **{**numbers, "bank": bank},
    )
