"""What a caller of the text level, or of `run`, asks for -> requests for the executor."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_runtime.declared import given_for, length_roles, prompt_tensor
from genai_runtime.further import Further
from genai_runtime.options import (
    ROLES,
    Limits,
    refuse_overrides,
    refuse_tensors,
    resolve_roles,
    resolve_sampling,
    row_values,
    tensor_options,
)
from genai_runtime.request import Audience, Request, Shared
from genai_runtime.sample import SamplingOptions
from genai_runtime.values import Array


class Requests:
    """Makes the requests of one package. data: its manifest."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._generation: Mapping[str, Any] = data["generation"]

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a row."""
        return frozenset(self._generation["end_ids"])

    @cached_property
    def valid_ids(self) -> int | npt.NDArray[np.bool_]:
        """How many ids have a token (0: all), or which, when some in between have none."""
        count, holes = int(self._generation["valid_ids"]), self._generation["holes"]
        if not holes:
            return count
        valid = np.ones(count, dtype=np.bool_)
        valid[[each for each in holes if each < count]] = False
        return valid

    def runtime(
        self,
        prompts: list[list[int]],
        limits: Limits,
        options: tuple[SamplingOptions, ...],
        stop_on_eos: bool,
        shared: Shared,
        further: Further,
    ) -> list[Callable[[], Request]]:
        """One request for all rows where the decoder tells their lengths apart and nothing drafts, else one a row."""
        equal = len({len(each) for each in prompts}) == 1
        together = (equal or self._generation["ragged"]) and further.together and not shared.speculate
        together = together and not self._generation["alone"]
        groups = [list(range(len(prompts)))] if together else [[row] for row in range(len(prompts))]

        def request(rows: list[int]) -> Request:
            chosen, most = [prompts[row] for row in rows], tuple(limits.rows[row] for row in rows)
            ends = shared.stopped if len(groups) == 1 else set[int]()
            shared.audience.may_end(ends, len(rows))
            return Request(
                tensors=prompt_tensor(self._data, chosen) | further.tensors(rows),
                roles=length_roles(self._data, max(most)),
                stop_on_eos=stop_on_eos,
                prompt_lengths=tuple(len(each) for each in chosen),
                row_limits=most,
                sampling=tuple(options[row] for row in rows),
                end_ids=self.end_ids,
                valid_ids=self.valid_ids,
                context_length=limits.context,
                stopped=ends,
                audience=shared.audience,
                speculate=shared.speculate,
                tally=shared.tally,
                profiled=bool(self._data["profiles"]),
                prefill_chunk=shared.prefill_chunk,
            )

        return [lambda rows=rows: request(rows) for rows in groups]  # type: ignore[misc]

    def workflow(
        self,
        prompts: list[list[int]],
        limits: Limits,
        sampling: Mapping[str, Any],
        stop_on_eos: bool,
        audience: Audience,
        further: Further,
    ) -> list[Callable[[], Request]]:
        """A workflow says nothing of row lengths by role, so every row is a run of its own."""
        rows = [self._roles_of(row_values(sampling, row, len(prompts))) for row in range(len(prompts))]
        for _, options in rows:
            options.validate()

        def request(row: int) -> Request:
            most = limits.rows[row]
            room = limits.context - len(prompts[row]) if limits.context else most
            lengths = length_roles(self._data, min(most, room))
            roles, options = rows[row]
            return Request(
                prompt_tensor(self._data, [prompts[row]]) | further.tensors([row]),
                {**lengths, **roles},
                stop_on_eos,
                sampling=(options,),
                audience=audience,
                profiled=bool(self._data["profiles"]),
            )

        return [lambda row=row: request(row) for row in range(len(prompts))]  # type: ignore[misc]

    def _roles_of(self, given: Mapping[str, Any]) -> tuple[dict[str, int | float], SamplingOptions]:
        """Role values of one row and the options behind them, for a package that has its own sampler."""
        declared = frozenset(str(each["role"]) for each in self._data["inputs"] if each["role"])
        always_greedy = self._generation["sampler_mode"] == "greedy"
        return resolve_roles(given, self._generation["defaults"], declared, always_greedy)

    def sampling_of(self, tensors: Mapping[str, Array]) -> tuple[dict[str, int | float], tuple[SamplingOptions, ...]]:
        """Sampling values that a caller of `run` gave as tensors, over the package's defaults: roles, options a row."""
        given = tensor_options({option: given_for(self._data, tensors, role) for option, role in ROLES.items()})
        refuse_overrides(given, self._generation)
        refuse_tensors(tensors, self._data["inputs"], self._generation)
        if self._generation["policy"] == "runtime":
            rows = max(map(len, given.values()), default=1)
            scalars = {name: values if len(values) > 1 else values[0] for name, values in given.items()}
            return {}, resolve_sampling(scalars, self._generation["defaults"], [0] * rows)
        # one greedy row among others must not make their sampler greedy: the largest temperature stands for all
        roles, options = self._roles_of({name: max(values) for name, values in given.items()})
        return roles, (options,)

    def end_ids_of(self, tensors: Mapping[str, Array]) -> frozenset[int]:
        """The end tokens that a caller of `run` gave, else the package's."""
        value = given_for(self._data, tensors, "eos_token_ids")
        return self.end_ids if value is None else frozenset(value.reshape(-1).tolist())
