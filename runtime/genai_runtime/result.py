"""What one invocation adds up to: outputs, rows, events, pictures, sounds and task profiles (standard, 3.7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from genai_runtime.inputs import Dim
from genai_runtime.problem import ExecutionError, NoOutput, RequestError
from genai_runtime.values import Array

if TYPE_CHECKING:
    from genai_runtime.media import Audio, Media
    from genai_runtime.profiles import Computed, Profile


@dataclass(frozen=True)
class Result:
    """The outcome of one invocation. `result[name]` is an aggregate output; rows and events have calls of their own.

    runtime_steps: contract -> how often the runtime supplied that step (standard, 4.3): all 0 where graphs decide.
    drafted, accepted: tokens that a proposer guessed, and those of them that stayed.
    """

    aggregate: dict[str, Array]
    row_slots: dict[str, list[Array | None]]
    event_lists: dict[str, list[Array]]
    row_event_lists: dict[str, list[list[Array]]]
    iterations: int
    finish_reasons: dict[int, str]
    runtime_steps: dict[str, int] = field(default_factory=dict[str, int])
    drafted: int = 0
    accepted: int = 0
    picture_forms: dict[str, tuple[str, tuple[Dim, ...]]] = field(
        default_factory=dict[str, tuple[str, tuple[Dim, ...]]]
    )
    media: "Mapping[str, Media]" = field(default_factory=dict[str, "Media"])
    profiles: "Mapping[str, Profile]" = field(default_factory=dict[str, "Profile"], repr=False, compare=False)

    def profile(self, name: str) -> "Computed":
        """A task profile over these outputs: pooled float32, a text a row, or the outputs as they are (standard, 1.9).

        Raises RequestError `no-profile`, ExecutionError `profile-output`, `profile-lengths` (see profiles.Profile.of).
        """
        from genai_runtime.profiles import profile_named

        return profile_named(self.profiles, name).of(self)

    def __getitem__(self, output: str) -> Array:
        """The aggregate output, or the only row of a row-wise one.

        Raises NoOutput, a KeyError, for a name of no output, for one that got nothing, and for one of several rows.
        """
        if output in self.aggregate:
            return self.aggregate[output]
        rows = self.row_slots.get(output, [])
        if len(rows) == 1 and rows[0] is not None:
            return rows[0]
        raise self._no_output(output)

    def _no_output(self, output: str) -> NoOutput:
        known = sorted({*self.aggregate, *self.row_slots, *self.event_lists, *self.row_event_lists})
        rows = len(self.row_slots.get(output, ()))
        if rows > 1:
            return NoOutput("no-output", f"output '{output}' has {rows} rows", help=f"take rows({output!r})")
        if output in known:
            return NoOutput(
                "no-output", f"nothing was published to output '{output}' that stays", help=f"see events({output!r})"
            )
        from difflib import get_close_matches

        near = get_close_matches(str(output), known, 1)
        help = f"did you mean '{near[0]}'?" if near else f"outputs of this run: {', '.join(known) or 'none'}"
        return NoOutput("no-output", f"the run has no output {output!r}", help=help)

    def __contains__(self, output: object) -> bool:
        return output in self.aggregate or output in self.row_slots

    def rows(self, output: str) -> list[Array | None]:
        """A row-wise output: one [1, ...] array a row, None for a row that published nothing. Raises NoOutput."""
        if output in self.row_slots:
            return self.row_slots[output]
        if output in self.aggregate:
            raise NoOutput(
                "no-output", f"output '{output}' is published whole, not row by row", help=f"take result[{output!r}]"
            )
        raise self._no_output(output)

    def images(self, output: str) -> list[Array]:
        """The pictures of an output of role `image`: uint8 [height, width, channels] each (standard, 11).

        Raises RequestError `no-pictures`; NoOutput when nothing was published.
        """
        if output not in self.picture_forms:
            what = f"output '{output}' holds no pictures"
            raise RequestError("no-pictures", what, help=f"outputs that do: {', '.join(self.picture_forms) or 'none'}")
        from genai_runtime.pictures import as_pictures

        value_range, dims = self.picture_forms[output]
        given = self.row_slots[output] if output in self.row_slots else [self[output]]
        return [each for array in given if array is not None for each in as_pictures(array, value_range, dims)]

    def events(self, output: str) -> list[Array]:
        """What event emits published, in order."""
        return self.event_lists.get(output, [])

    def row_events(self, output: str) -> list[list[Array]]:
        """What event emits published row by row: for each row its [1, ...] arrays in order (standard, 3.6)."""
        return self.row_event_lists.get(output, [])

    def audio(self, output: str | None = None, row: int | None = None) -> "Audio":
        """An output with `media` as the bytes that the document asks for: samples resampled and encoded, or a finished
        file, held against what the document says (standard, section 11).

        output: may be left out where one output is a sound. row: which sound of several. Raises RequestError
        `no-audio`, `ambiguous-audio`, `no-such-row`; ExecutionError `audio-rows`, `audio-shape`, `audio-header`.
        """
        from genai_runtime.media import encode, pick

        media = pick(self.media, output)
        value = self._sound(media.output, row)
        if value is None:
            raise RequestError("no-audio", f"the run published nothing to output '{media.output}'")
        return encode(media, value)

    def _sound(self, output: str, row: int | None) -> Array | None:
        """All that was published to an output (parts of an event output put together), or a row of it."""
        slots = self.row_slots.get(output)
        if slots is not None:
            events = self.row_event_lists.get(output, [[]] * len(slots))
            rows = [_joined(parts, whole) for parts, whole in zip(events, slots, strict=True)]
        else:
            whole = _joined(self.event_lists.get(output, []), self.aggregate.get(output))
            if row is None or whole is None:
                return whole
            rows = [whole[at : at + 1] for at in range(whole.shape[0])]
        if row is None and len(rows) > 1:
            what = f"output '{output}' holds {len(rows)} sounds, and a file holds one"
            raise ExecutionError("audio-rows", what, help="take them one by one: audio(name, row=0)")
        if not 0 <= (row or 0) < len(rows):
            raise RequestError("no-such-row", f"output '{output}' has {len(rows)} rows, none is number {row}")
        return rows[row or 0]


def _joined(parts: list[Array], whole: Array | None) -> Array | None:
    """Events one behind the other in time, else what was published otherwise."""
    return np.concatenate(parts, axis=-1) if parts else whole
