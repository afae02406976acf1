"""Where a component's session should run, as far as hints say: a preference that the runtime negotiates."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """One component. device: `gpu`, `npu`, `cpu`, or "" when only memory is spoken of; index: its number, None any.

    memory: bytes that the device's arena may have, 0 unlimited. cpu_arena: whether the CPU keeps freed memory.
    """

    component: str
    device: str
    index: int | None = None
    memory: int = 0
    cpu_arena: bool = True

    def __str__(self) -> str:
        number = "" if self.index is None else f":{self.index}"
        parts = [f"prefers {self.device}{number}"] if self.device else []
        parts += [f"at most {self.memory} bytes of arena"] if self.memory else []
        parts += [] if self.cpu_arena else ["no CPU arena"]
        return f"session {self.component}: {', '.join(parts)}"
