"""One broken audio program a refusal (V068); the program that is broken is the one of `audio.yaml`."""

from typing import Any

from tests.check.cases_steps import P, case
from tests.read.documents import DELETE

T, O = "preprocessing.audio.transforms", "preprocessing.audio.outputs"  # noqa: E741
PORTS = f"{P}/components/ears/ports/outputs"
TS, OS = "preprocessing/audio/transforms", "preprocessing/audio/outputs"
DECODE, RESAMPLE, SCALE, PAD, MEL, NORMALIZE, FRAMES, COUNT = range(8)


def audio(place: str, changes: dict[str, Any], *also: str) -> Any:
    return case("V068", "audio", changes, place, *also)


def at(index: int, key: str) -> str:
    return f"{TS}/{index}/{key}"


def said(index: int) -> str:
    return f"{T}[{index}]"


def changed(at: int, port: str, key: str, value: object, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """The contract of an output and of its port, which must agree, changed alike."""
    return {f"{OS}/{at}/contract/{key}": value, f"{PORTS}/{port}/{key}": value, **(more or {})}


AUDIO = [
    # an operation that nobody knows, and the legal ones that are not carried out
    *(
        audio(said(SCALE), {at(SCALE, "op"): op})
        for op in ("own", "frame", "log_mel_spectrogram", "emit_sample_lengths", "emit_validity_mask")
    ),
    # order
    audio(said(0), {f"{TS}/0": {"op": "downmix", "outputs": ["decoded"]}}),
    audio(said(SCALE), {f"{TS}/{SCALE}": {"op": "decode", "outputs": ["louder"]}}),
    audio(said(SCALE), {f"{TS}/{SCALE}": {"op": "resample", "sample_rate": 16000, "outputs": ["louder"]}}),
    audio(said(PAD), {f"{TS}/{SCALE}": {"op": "pad", "target_length": 480000, "outputs": ["louder"]},
                      f"{TS}/{PAD}": {"op": "zero_mean_unit_variance", "outputs": ["windowed"]}}),
    audio(said(NORMALIZE), {f"{TS}/{NORMALIZE}": {"op": "rescale", "scale": 2.0, "outputs": ["features"]}},
          ),
    audio(said(SCALE), {f"{TS}/{SCALE}": {"op": "normalize", "outputs": ["louder"]}}),
    audio(said(FRAMES), {f"{TS}/{FRAMES}": {"op": "log_mel", "num_mel_bins": 80, "outputs": ["frames"]}},),
    # fields
    audio(said(DECODE), {at(DECODE, "channels"): 2}),
    audio(said(DECODE), {at(DECODE, "sample_rate"): 44100}),
    audio(said(RESAMPLE), {at(RESAMPLE, "sample_rate"): DELETE, at(DECODE, "sample_rate"): DELETE}),
    audio(said(MEL), {at(RESAMPLE, "sample_rate"): 8000}),
    audio(said(RESAMPLE), {at(RESAMPLE, "mode"): "linear"}),
    audio(said(SCALE), {at(SCALE, "scale"): DELETE}),
    audio(said(SCALE), {at(SCALE, "scale"): float("inf")}),
    audio(said(SCALE), {f"{TS}/{SCALE}": {"op": "zero_mean_unit_variance", "epsilon": -1.0, "outputs": ["louder"]}}),
    audio(said(SCALE), {at(SCALE, "n_fft"): 400}),
    audio(said(PAD), {at(PAD, "target_length"): DELETE}),
    audio(said(PAD), {at(PAD, "pad_value"): 0.5}),
    audio(said(PAD), {at(PAD, "mode"): "reflect"}),
    audio(said(PAD), {at(PAD, "target_length"): (64 << 20) + 1}),
    audio(said(PAD), {f"{TS}/{SCALE}": {"op": "trim", "target_length": 160, "outputs": ["louder"]}}),
    *(
        audio(said(MEL), {at(MEL, key): value})
        for key, value in (
            ("num_mel_bins", 64), ("n_fft", 512), ("hop_length", 128), ("win_length", 320), ("window", "hamming"),
            ("mel_scale", "htk"), ("sample_rate", 8000), ("epsilon", 1e-5), ("mode", "power"), ("scale", 2.0),
        )
    ),
    audio(said(MEL), {at(MEL, "num_mel_bins"): DELETE}),
    audio(said(NORMALIZE), {at(NORMALIZE, "mode"): "mean_variance"}),
    audio(said(FRAMES), {at(FRAMES, "hop_length"): 80}),
    # names
    audio(said(SCALE), {at(SCALE, "inputs"): ["resample"]}),
    audio(said(SCALE), {at(SCALE, "inputs"): ["decoded"]}),
    audio(said(SCALE), {at(SCALE, "inputs"): ["resampled", "decoded"]}),
    audio(said(SCALE), {at(SCALE, "outputs"): ["louder", "more"]}),
    audio(said(COUNT), {at(COUNT, "outputs"): ["frames"]}),
    audio(said(COUNT), {at(COUNT, "inputs"): ["frames"]}),
    # outputs
    audio(f"{O}[0]", {f"{OS}/0/source": "mells"}),
    audio(f"{O}[0]", {f"{OS}/0/source": "windowed"}),
    audio(f"{O}[1]", {f"{OS}/1/source": "louder"}),
    audio(f"{O}[2]", {f"{OS}/2/content": "frame_lengths"}),
    audio(f"{O}[1]", {f"{OS}/1/pad_value": 1.0}),
    audio(f"{O}[0]", {f"{OS}/0/rank": 2}),
    audio(f"{O}[0]", changed(0, "features", "dtype", "float16", {f"{OS}/0/dtype": "float16"})),
    audio(f"{O}[2]", changed(2, "frames", "dtype", "int32", {f"{OS}/2/dtype": "int32"})),
    audio(f"{O}[0]", changed(0, "features", "rank", 2, {f"{OS}/0/contract/shape": ["batch", 80],
                                                        f"{PORTS}/features/shape": ["batch", 80]})),
    audio(f"{O}[0]", changed(0, "features", "shape", ["batch", 128, 3000])),
    audio(f"{O}[0]", changed(0, "features", "shape", ["batch", 80, 1500])),
    audio(f"{O}[1]", changed(1, "wave", "shape", ["batch", 16000])),
    audio(f"{O}[1]", changed(1, "wave", "shape", [2, "length"], {
        f"{TS}/{PAD}": {"op": "spectrogram", "outputs": ["windowed"]}, f"{OS}/1/source": "windowed"})),
    audio(f"{O}[0]", {f"{TS}": [{"op": "decode"}]}),
    audio(f"{O}[1]", {f"{TS}": [], f"{OS}/0/content": "waveform"}),
    case("G006", "audio", {f"{OS}/1": DELETE}, O),
]  # fmt: skip
