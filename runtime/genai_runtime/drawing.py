"""Pictures from a prompt: a package whose output is a picture, asked for by what its inputs mean."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.declared import input_of
from genai_runtime.given import as_tensors, token_ids
from genai_runtime.manifest import Manifest
from genai_runtime.problem import RequestError
from genai_runtime.request import Audience, Event
from genai_runtime.result import Result
from genai_runtime.tokenizer import Tokenizer
from genai_runtime.values import NUMPY, Array, encode

Progress = Callable[[int, int | None], None]
"""Told after each step: how many are done, of how many (None where the package does not say)."""

_OPTIONS = {
    "steps": "max_iterations",
    "guidance_scale": "guidance_scale",
    "seed": "seed",
    "width": "width",
    "height": "height",
    "strength": "denoising_strength",
}
"""Option -> the role of the input that it goes to."""
_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Drawing:
    """What `draw` made. pictures: uint8 [height, width, channels] each. seed: makes them again; None where the package
    draws no noise, or the caller gave it. result: all outputs of the run.

    Of several seeds: seeds and results have one entry a run, seed and result are those of the first.
    """

    pictures: list[npt.NDArray[np.uint8]]
    seed: int | None
    result: Result
    seeds: tuple[int | None, ...] = ()
    results: tuple[Result, ...] = ()

    def save(self, file: str | Path) -> list[Path]:
        """Write PNG files: the one named, or `name-1.png` and so on for several. Raises RequestError, OSError."""
        from genai_runtime.pictures import save_png

        path = Path(file)
        several = len(self.pictures) > 1
        names = [
            path.with_name(f"{path.stem}-{at}{path.suffix}") if several else path
            for at in range(1, len(self.pictures) + 1)
        ]
        for name, picture in zip(names, self.pictures, strict=True):
            save_png(name, picture)
        return names


class DrawingSide:
    """The side of a Model that makes pictures."""

    _manifest: Manifest

    @property
    def tokenizer(self) -> Tokenizer:
        """The package's tokenizer."""
        raise NotImplementedError

    def _invocation(
        self,
        inputs: Mapping[str, Any],
        stop_on_eos: bool,
        session: str | None,
        overrides: Mapping[str, str] | None,
        speculate: bool | None,
        audience: Audience,
        roles: Mapping[str, int | float] | None = None,
    ) -> Generator[Event, None, Result]:
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Whether a prompt gives pictures here: the package has an output for them and none for tokens."""
        roles = [each["role"] for each in self._manifest.data["outputs"]]
        return "image" in roles and "tokens" not in roles

    def draw(
        self,
        prompt: str | Sequence[int] | None = None,
        negative_prompt: str | Sequence[int] = "",
        *,
        inputs: Mapping[str, Any] | None = None,
        on_step: Progress | None = None,
        output: str | None = None,
        **options: Any,
    ) -> Drawing:
        """Make pictures. prompt, negative_prompt: text, or token ids; what to show, and what not.

        options: steps, guidance_scale, seed (None: a fresh one; a list makes a picture of each, one run after the
        other, as alone), width, height, strength, as far as the package has inputs for them; what is left out is the
        package's default. inputs: values of further workflow inputs, such as
        `noise` [rows, channels, height, width] in the place of what a seed draws. output: which, where several are
        pictures. Raises RequestError (no-picture-output, unknown-option, unsupported-option, bad-prompt, empty-prompt,
        prompt-length, no-prompt-input, bad-steps, bad-picture-size, ...), those of `run`; ExecutionError naming the
        failed step.
        """
        name = self._picture_output(output)
        given = as_tensors(inputs or {}, self._manifest.data["inputs"])
        seeds = _seeds(options.get("seed"))
        if len(seeds) > 1 and "noise" in given:
            what = "noise is given, and several seeds: pictures would all be of that noise"
            raise RequestError("unsupported-option", what, help="leave one of the two out")
        for seed in seeds:  # all of them are looked at before minutes of work
            self._roles({**options, "seed": seed})
        told = _Told(on_step, len(seeds))
        made = [
            self._drawn(name, prompt, negative_prompt, given, {**options, "seed": seed}, told.of(at))
            for at, seed in enumerate(seeds)
        ]
        pictures = [picture for each in made for picture in each.pictures]
        seeded, results = tuple(each.seed for each in made), tuple(each.result for each in made)
        return Drawing(pictures, seeded[0], results[0], seeded, results)

    def _drawn(
        self,
        name: str,
        prompt: str | Sequence[int] | None,
        negative_prompt: str | Sequence[int],
        given: Mapping[str, Array],
        options: Mapping[str, Any],
        on_step: Progress | None,
    ) -> Drawing:
        """One run, of one seed."""
        roles = self._roles(options)
        if input_of(self._manifest.data, "seed") is not None and "noise" not in given and "seed" not in roles:
            import secrets

            roles["seed"] = secrets.randbits(32)
        tensors = {**self._prompt_tensors(prompt, negative_prompt, given), **self._scalars(roles), **given}
        events = self._invocation(tensors, True, None, None, None, Audience(listens=on_step is not None), roles)
        result = self._followed(events, on_step, self._steps(roles))
        seed = roles.get("seed")
        return Drawing(result.images(name), None if seed is None else int(seed), result)

    def _picture_output(self, output: str | None) -> str:
        pictures = [each["name"] for each in self._manifest.data["outputs"] if each["role"] == "image"]
        if output is not None and output in pictures:
            return output
        if output is None and len(pictures) == 1:
            return str(pictures[0])
        what = f"output '{output}' holds no pictures" if output else f"{len(pictures) or 'no'} outputs hold pictures"
        help = f"outputs that do: {', '.join(pictures) or 'none; use run(inputs)'}"
        raise RequestError("no-picture-output", what, help=help)

    def _roles(self, options: Mapping[str, Any]) -> dict[str, int | float]:
        """Role -> value of the options that are given."""
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            what = f"there is no option {', '.join(unknown)}"
            raise RequestError("unknown-option", what, help=f"known: {', '.join(_OPTIONS)}")
        found: dict[str, int | float] = {}
        for option, value in options.items():
            if value is None:
                continue
            if input_of(self._manifest.data, _OPTIONS[option]) is None:
                raise RequestError("unsupported-option", f"the package has no input for '{option}'")
            whole = option not in ("guidance_scale", "strength")
            if isinstance(value, bool) or not isinstance(value, int | float) or (whole and type(value) is not int):
                kind = "a whole number" if whole else "a number"
                raise RequestError("bad-value", f"'{option}' is {value!r}, and has to be {kind}")
            if not whole and not abs(value) <= _MOST:  # all pixels were black
                raise RequestError("bad-value", f"'{option}' is {value!r}, which is no finite float32")
            found[_OPTIONS[option]] = value
        return found

    def _scalars(self, roles: Mapping[str, int | float]) -> dict[str, Array]:
        """The tensors of roles whose inputs a request does not fill by itself: those of the application."""
        found: dict[str, Array] = {}
        for role, value in roles.items():
            spec = input_of(self._manifest.data, role)
            if spec is not None and spec["source"] != "request":
                try:
                    found[spec["name"]] = encode(value, spec["dtype"]).reshape((1,) * spec["rank"])
                except (OverflowError, TypeError, ValueError) as fault:
                    what = f"{value!r} for role '{role}' is no {spec['dtype']}: {fault}"
                    raise RequestError("bad-value", what) from fault
        return found

    def _prompt_tensors(
        self, prompt: str | Sequence[int] | None, negative: str | Sequence[int], given: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The tensors of both prompts, as far as the package has inputs for them and `given` does not hold them."""
        found: dict[str, Array] = {}
        for role, text in (("prompt_tokens", prompt), ("negative_prompt_tokens", negative)):
            spec = input_of(self._manifest.data, role)
            if spec is None:
                if text:
                    what = f"the package has no input for a {'negative ' * (text is negative)}prompt"
                    raise RequestError("no-prompt-input", what)
            elif not {spec["name"], spec["application"]} & set(given) and text is not None:
                ids = np.array(self._padded(self._ids(text), spec), dtype=NUMPY[spec["dtype"]])
                found[spec["name"]] = ids if spec["rank"] == 1 else ids.reshape(1, -1)
        return found

    def _padded(self, ids: list[int], spec: Mapping[str, Any]) -> list[int]:
        """The ids as many as the graph takes, where it takes a fixed number. Raises RequestError `prompt-length`."""
        room = spec["shape"][-1]
        if not isinstance(room, int) or len(ids) == room:
            return ids
        pad = self._pad_id
        if len(ids) > room or pad is None:
            what = f"a prompt has {len(ids)} tokens, and input '{spec['name']}' takes {room}"
            help = "shorten it" if len(ids) > room else "nothing says which token pads: give the padded ids"
            raise RequestError("prompt-length", what, help=help)
        return [*ids, *[pad] * (room - len(ids))]

    def _ids(self, text: str | Sequence[int]) -> list[int]:
        """Token ids of a prompt; where it has none, the one that begins a text, or else pads it."""
        if not isinstance(text, str):
            ids = token_ids(text)
            if not ids:
                raise RequestError("empty-prompt", "a prompt of token ids has none", help="give at least one")
            wrong = [each for each in ids if not 0 <= each < 1 << 31]
            if wrong:  # a graph counts negative ones from the end of its table
                raise RequestError("bad-token", f"no such token ids: {wrong[:8]}")
            return ids
        ids = self.tokenizer.encode(text)
        first = self.tokenizer.bos_id
        return ids or [first if first is not None else self._pad_id or 0]

    @property
    def _pad_id(self) -> int | None:
        """The token that pads: the package's, else the tokenizer's."""
        stated: int | None = self._manifest.data["generation"]["pad_id"]
        return self.tokenizer.pad_id if stated is None and self._manifest.data["text"]["tokenizer"] else stated

    def _followed(self, events: Generator[Event, None, Result], on_step: Progress | None, total: int | None) -> Result:
        """Run to the end, telling of each step that the package publishes as an event."""
        told = {each["name"] for each in self._manifest.data["outputs"] if each["role"] == "event"}
        while True:
            try:
                event = next(events)
            except StopIteration as done:
                result: Result = done.value
                return result
            if on_step is not None and event.output in told:
                on_step(event.step + 1, total)

    def _steps(self, roles: Mapping[str, int | float]) -> int | None:
        """How many steps the run will take, None where nothing says."""
        asked: list[int | float | None] = []
        for role in ("max_iterations", "denoising_strength"):
            spec = input_of(self._manifest.data, role)
            default = spec.get("default") if spec is not None else None
            asked.append(roles.get(role, default if isinstance(default, int | float) else None))
        steps, strength = asked
        if steps is None or strength is None:
            return None if steps is None else int(steps)
        from genai_runtime.adapters.diffusion.schedule import taken_steps

        return taken_steps(int(steps), float(strength))


def _seeds(seed: Any) -> list[Any]:
    """The seeds of each run, [None] where nobody asks for one. Raises RequestError `bad-value`."""
    if not isinstance(seed, list | tuple):
        return [seed]
    seeds: list[Any] = list(seed)
    if not seeds:
        raise RequestError("bad-value", "'seed' is a list without a seed", help="give at least one, or None")
    return seeds


@dataclass(frozen=True)
class _Told:
    """Steps of several runs as one count."""

    on_step: Progress | None
    runs: int

    def of(self, run: int) -> Progress | None:
        """What the run with this number tells of its steps."""
        tell = self.on_step
        if tell is None or self.runs == 1:
            return tell

        def behind(done: int, total: int | None) -> None:
            tell(done if total is None else run * total + done, None if total is None else self.runs * total)

        return behind
