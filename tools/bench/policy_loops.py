"""What stands around one decoder run: nothing, or three policy sessions, by io-binding or by `session.run`."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tools.bench.bound_loop import BoundLoop, Buffers, open_session
from tools.bench.run_clock import RunClock
from tools.peers.policy_package import NEVER

POLICIES = ("sampler", "termination", "state_update")


class RunOnly(BoundLoop):
    """The run call with nothing around it: its tokens are not those of the model."""

    def _one_row(self, chosen: NDArray[np.int64], place: int, new: int, buffers: Buffers) -> list[int]:
        run, binding = self._run, buffers.step._iobinding
        buffers.mask[0, : place + new // 2] = 1
        for _ in range(new - 1):
            run(binding, None)
        return [0] * new


class PolicyLoop(BoundLoop):
    """The tiny package with policies, as somebody would drive its four graphs by hand; every binding is made once.

    bound: policies by io-binding, else by `session.run` on numpy arrays; the decoder is bound in both.
    """

    def __init__(self, package: Path, threads: int, clock: RunClock, *, bound: bool) -> None:
        super().__init__(package, threads, clock)
        self._bound_policies = bound
        self._sessions = {name: open_session(package / f"{name}.onnx", threads) for name in POLICIES}
        call = "run_with_iobinding" if bound else "run"
        self._runs = {
            name: clock.timed(session, getattr(session._sess if bound else session, call))
            for name, session in self._sessions.items()
        }

    def _one_row(self, chosen: NDArray[np.int64], place: int, new: int, buffers: Buffers) -> list[int]:
        facts: dict[str, Any] = {
            "mask": buffers.mask, "lengths": np.array([place]), "token": buffers.token,
            "eos": np.array([NEVER]), "iteration": np.zeros(1, np.int64), "limit": np.array([new]),
            "active": np.ones(1, np.bool_), "done": np.zeros(1, np.bool_), "logits": buffers.logits,
        }  # fmt: skip
        buffers.token[0] = chosen
        return (self._by_binding if self._bound_policies else self._by_run)(facts, new, buffers)

    def _by_binding(self, facts: dict[str, Any], new: int, buffers: Buffers) -> list[int]:
        renamed = {"next_mask": "mask", "next_lengths": "lengths", "next_active": "active"}
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        held = {name: value(array) for name, array in facts.items()}
        bound = {name: session.io_binding() for name, session in self._sessions.items()}
        for name, session in self._sessions.items():
            for port in session.get_inputs():
                bound[name].bind_ortvalue_input(port.name, held[port.name])
            for port in session.get_outputs():
                bound[name].bind_ortvalue_output(port.name, held[renamed.get(port.name, port.name)])
        update, end, decode, sample = (
            self._runs["state_update"], self._runs["termination"], self._run, self._runs["sampler"]
        )  # fmt: skip
        update_ports, end_ports, sample_ports = (
            bound[name]._iobinding for name in ("state_update", "termination", "sampler")
        )
        ports, token, iteration, active = buffers.step._iobinding, buffers.token, facts["iteration"], facts["active"]
        tokens = [token.item()]
        for step in range(new - 1):
            iteration[0] = step
            update(update_ports, None)
            end(end_ports, None)
            if not active.item():
                break
            decode(ports, None)
            sample(sample_ports, None)
            tokens.append(token.item())
        return tokens

    def _by_run(self, facts: dict[str, Any], new: int, buffers: Buffers) -> list[int]:
        update, end, decode, sample = (
            self._runs["state_update"], self._runs["termination"], self._run, self._runs["sampler"]
        )  # fmt: skip
        ports, token, mask, logits = buffers.step._iobinding, buffers.token, buffers.mask, buffers.logits
        lengths, active, eos, limit = facts["lengths"], facts["active"], facts["eos"], facts["limit"]
        iteration = facts["iteration"]
        tokens = [token.item()]
        for step in range(new - 1):
            iteration[0] = step
            mask[:], lengths = update(None, {"mask": mask, "lengths": lengths})
            feeds = {"token": token, "eos": eos, "iteration": iteration, "limit": limit, "active": active}
            active, _ = end(None, feeds)
            if not active.item():
                break
            decode(ports, None)
            token[:] = sample(None, {"logits": logits})[0]
            tokens.append(token.item())
        return tokens
