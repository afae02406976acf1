"""Sound files -> samples: WAV by `wav`; FLAC and MP3 by miniaudio (extra `sound`), imported when the first one comes.

Files come from strangers: one is known by its first bytes, its length is held against MAX_SAMPLES before a sample is
made, decoding ends where more come than it says, and a file with fewer or more is refused.
"""

from typing import Any

import numpy as np

from genai_runtime.adapters.audio.sound_tags import MOST_TAGS, untagged
from genai_runtime.adapters.audio.wav import MAX_SAMPLES, Samples, parse_wav, read_wav, unreadable
from genai_runtime.problem import LoadError

_SYNC, _LAYER_3 = 0xE6, 0xE2
"""In the second byte of a frame of MPEG audio: the rest of its sync word and the layer; what an MP3 has there."""
_FRAMES = 1 << 16
"""Decoded together."""


def read_sound(content: bytes) -> tuple[Samples, int]:
    """float32 [frames, channels] and the rate in Hz. Integers are divided by their half range, as those of WAV files.

    Raises ExecutionError `bad-audio`, saying what is wrong with the file; LoadError `miniaudio-missing`.
    """
    content = untagged(content)
    if not _packed(content):
        return read_wav(content)
    decoder = _decoder()
    channels, rate, frames = _form(content, decoder)
    return _decoded(content, channels, rate, frames, decoder), rate


def extent_of(content: bytes) -> tuple[int, int]:
    """(frames, rate in Hz) of what `read_sound` gives; samples are looked at only where nothing else tells.

    Raises the same.
    """
    content = untagged(content)
    if not _packed(content):
        form, data = parse_wav(content)
        return len(data) // max(form.block, 1), form.rate
    decoder = _decoder()
    channels, rate, frames = _form(content, decoder)
    return frames or len(_decoded(content, channels, rate, frames, decoder)), rate


def _packed(content: bytes) -> bool:
    """Whether a file without its tags begins as FLAC or MP3 files do."""
    if content[:4] == b"fLaC":
        return True
    if content[:3] == b"ID3":
        what = f"the tag before its sound says more bytes than the file has, or more than {MOST_TAGS} stand there"
        raise unreadable(what, "copy it again, or take the tags out")
    if len(content) > 1 and content[0] == 0xFF and content[1] & _SYNC == _LAYER_3:
        return True
    if content[:4] != b"RIFF":
        raise unreadable("it begins as no WAV, FLAC or MP3 file does", "convert it to WAV, FLAC or MP3")
    return False


def _decoder() -> Any:
    try:
        import miniaudio
    except ImportError as missing:
        what = f"FLAC and MP3 files are decoded by miniaudio, which can't be imported: {missing}"
        raise LoadError("miniaudio-missing", what, help="install genai-compile[sound], or give a WAV file") from missing
    return miniaudio


def _form(content: bytes, decoder: Any) -> tuple[int, int, int]:
    """(channels, rate, frames). A FLAC file written to a pipe says 0 frames, as an empty one does."""
    try:
        form = decoder.flac_get_info(content) if content[:4] == b"fLaC" else decoder.mp3_get_info(content)
    except Exception as fault:  # a damaged file makes a decoder raise anything
        raise unreadable(f"it is damaged: {fault}", "copy it again, or convert it to WAV") from fault
    if form.num_frames * form.nchannels > MAX_SAMPLES:
        raise unreadable(f"it says more than {MAX_SAMPLES} samples", "cut it into parts")
    return form.nchannels, form.sample_rate, form.num_frames


def _decoded(content: bytes, channels: int, rate: int, frames: int, decoder: Any) -> Samples:
    """float32 [frames, channels], or as many as come where it is 0."""
    parts, found = [np.empty((0, channels), np.float32)], 0
    try:
        stream = decoder.stream_memory(content, decoder.SampleFormat.FLOAT32, channels, rate, _FRAMES)
        for each in stream:
            parts.append(np.frombuffer(each, np.float32).reshape(-1, channels))
            found += len(parts[-1])
            if found * channels > MAX_SAMPLES or 0 < frames < found:
                break
        stream.close()
    except Exception as fault:  # as above
        raise unreadable(f"it is damaged: {fault}", "copy it again, or convert it to WAV") from fault
    if 0 < frames < found:
        raise unreadable(f"it says {frames} samples and more are there", "copy it again, or convert it to WAV")
    if found * channels > MAX_SAMPLES:
        raise unreadable(f"it has more than {MAX_SAMPLES} samples", "cut it into parts")
    if frames and found != frames:
        raise unreadable(f"it says {frames} samples and {found} are there", "it may be cut short")
    samples = np.concatenate(parts)
    if not np.isfinite(samples).all():
        raise unreadable("a sample is no finite number")
    return samples
