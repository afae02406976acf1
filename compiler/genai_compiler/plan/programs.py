"""Preprocessing programs as data of the plan (standard, 5.5): what an adapter is to run, everything decided."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AudioSteps:
    """An audio program (5.7). steps: (op, its number) on the samples, in order. window: their fixed number.

    mels: bands of the features. Both 0 where there is none. outputs: (port of the adapter, content).
    """

    steps: tuple[tuple[str, int | float], ...]
    window: int
    mels: int
    outputs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        steps = [f"{op} {number:g}" for op, number in self.steps]
        steps += [f"fit {self.window}"] if self.window else []
        steps += [f"log_mel {self.mels}"] if self.mels else []
        return f"{', '.join(('decode', *steps))} -> {', '.join(f'{port}: {what}' for port, what in self.outputs)}"
