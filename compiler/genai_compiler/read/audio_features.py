"""Features of sound by stated numbers: operations of a processor file -> what the runtime makes of samples.

The class and its fields are those of the runtime's `adapters.audio.stated_features`: generated code states them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Attributes = Mapping[str, Any]
_LOWEST_RATE = 8_000
_ALPHA, _GAIN, _TOP = 0.97, 32768.0, 7689.0
"""What `natural` features are made with and no attribute says: emphasis, gain, the highest frequency."""


@dataclass(frozen=True)
class AudioFeatures:
    """See the runtime's class of this name."""

    rate: int
    frame: int
    hop: int
    span: int
    mels: int
    skip: int = 0
    before: int = 0
    behind: int = 0
    emphasis: str = ""
    alpha: float = 0.0
    window: str = "hann"
    gain: float = 1.0
    fft: int = 0
    power: bool = True
    bands: str = "slaney"
    low: float = 0.0
    high: float = 0.0
    bank: tuple[int, int] = (0, 0)
    bins: int = 0
    floor: float = 0.0
    clipped: bool = False
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    spread: float = 0.0
    bands_first: bool = False
    blank: int = 0


Refuse = Callable[[str, str], None]
"""Told an attribute, "" for the operation itself, and what is wrong with it."""


def natural(attributes: Attributes, rates: tuple[int, ...], refuse: Refuse) -> Iterator[AudioFeatures]:
    """Of each rate: frames with emphasis of their own, nothing around the clip, bands in natural logarithms."""
    if not set(rates) <= {_LOWEST_RATE, 2 * _LOWEST_RATE}:
        refuse("", f"it takes samples at {_LOWEST_RATE} and {2 * _LOWEST_RATE} Hz, not at {', '.join(map(str, rates))}")
        return
    for rate in rates:
        end = "_8k/" if rate == _LOWEST_RATE else "/"
        frames, bands = f"stft_normal{end}", f"logmel{end}"
        names = [f"{frames}n_fft", f"{frames}frame_length", f"{frames}hop_length", f"{bands}n_fft", f"{bands}n_mel"]
        missing = [each for each in names if attributes[each] is None]
        if missing:
            refuse("", f"it lacks {', '.join(missing)}, which samples at {rate} Hz need")
            continue
        fft, frame, hop, bank, mels = (int(attributes[each]) for each in names)
        if frame > fft:
            refuse(names[1], f"frames of {frame} are longer than the transform, {fft}")
        if bank not in (fft, 2 * fft):
            refuse(names[3], f"bands of a transform of {bank} go with one of {bank} or {bank // 2}, not {fft}")
        yield AudioFeatures(
            rate=rate,
            frame=frame,
            hop=hop,
            span=frame,
            mels=mels,
            emphasis="frame",
            alpha=_ALPHA,
            window=attributes[f"{frames}win_fn"],
            gain=_GAIN,
            fft=fft,
            bands="natural",
            high=_TOP,
            bank=(bank, 2 * _LOWEST_RATE),
            bins=0 if bank == fft else bank // 2 - fft // 2 - 1,
            floor=1.0,
            clipped=True,
        )


def htk(attributes: Attributes, rates: tuple[int, ...], refuse: Refuse) -> Iterator[AudioFeatures]:
    """Half a frame of silence before the clip, the root of the spectrum, bands on the HTK scale."""
    rate = int(attributes["sampling_rate"])
    _hold_rate("sampling_rate", rate, rates, refuse)
    frame, hop = (_samples(rate, attributes[f"{each}_length_ms"]) for each in ("frame", "hop"))
    low, high = float(attributes["min_frequency"]), float(attributes["max_frequency"])
    if not 0 < frame <= 1 << 16 or not hop:
        refuse("frame_length_ms" if hop else "hop_length_ms", f"it gives frames of {frame} samples every {hop}")
        return
    if not low < high <= rate / 2:
        refuse("max_frequency", f"bands from {low} to {high} Hz, of samples at {rate} Hz")
    per_band = {}
    for name in ("per_bin_mean", "per_bin_stddev"):
        per_band[name] = tuple(map(float, attributes[name]))
        if per_band[name] and len(per_band[name]) != attributes["feature_size"]:
            refuse(name, f"it has {len(per_band[name])} numbers for {attributes['feature_size']} bands")
    alpha = float(attributes["preemphasis"])
    yield AudioFeatures(
        rate=rate,
        frame=frame,
        hop=hop,
        span=frame + 1,
        mels=int(attributes["feature_size"]),
        before=frame // 2,
        emphasis=("frame" if attributes["preemphasis_htk_flavor"] else "next") if alpha else "",
        alpha=alpha,
        fft=(1 << (frame - 1).bit_length()) << int(attributes["fft_overdrive"]),
        power=False,
        bands="htk",
        low=low,
        high=high,
        floor=float(attributes["mel_floor"]),
        mean=per_band["per_bin_mean"],
        deviation=per_band["per_bin_stddev"],
    )


def emphasised(attributes: Attributes, rates: tuple[int, ...], refuse: Refuse) -> Iterator[AudioFeatures]:
    """The clip with emphasis, half a transform of silence at both ends, Slaney bands."""
    rate, fft, frame = (int(attributes[each]) for each in ("sample_rate", "fft_size", "win_length"))
    _hold_rate("sample_rate", rate, rates, refuse)
    if frame > fft:
        refuse("win_length", f"a window of {frame} is longer than the transform, {fft}")
    yield AudioFeatures(
        rate=rate,
        frame=frame,
        hop=int(attributes["hop_length"]),
        span=fft,
        mels=int(attributes["num_mels"]),
        skip=(fft - frame) // 2,
        before=fft // 2,
        behind=fft // 2,
        emphasis="clip" if attributes["preemph"] else "",
        alpha=float(attributes["preemph"]),
        fft=fft,
        floor=float(attributes["log_eps"]),
        bands_first=True,
    )


def raw(attributes: Attributes, rates: tuple[int, ...], refuse: Refuse) -> Iterator[AudioFeatures]:
    """Samples side by side, as many as one entry of a prompt stands for; the last row is filled up with silence."""
    rate, frame = int(attributes["sampling_rate"]), int(attributes["audio_samples_per_token"])
    _hold_rate("sampling_rate", rate, rates, refuse)
    if attributes["padding_value"]:
        refuse("padding_value", f"it is {attributes['padding_value']}; 0 is offered")
    yield AudioFeatures(rate=rate, frame=frame, hop=frame, span=frame, mels=frame, window="none")


FEATURES: Mapping[str, Callable[[Attributes, tuple[int, ...], Refuse], Iterator[AudioFeatures]]] = {
    "natural": natural,
    "htk": htk,
    "emphasised": emphasised,
    "raw": raw,
}
"""What an operation does -> its features, one for each rate."""


def _samples(rate: int, milliseconds: Any) -> int:
    """Halves are rounded up."""
    return int(rate * float(milliseconds) / 1000 + 0.5)


def _hold_rate(name: str, rate: int, rates: tuple[int, ...], refuse: Refuse) -> None:
    if rates != (rate,):
        refuse(name, f"it is {rate}, and the sound is decoded to {' or '.join(map(str, rates))} Hz")
