"""What is known of a denoising loop -> its workflow.

    schedule -> latents, from the caller's noise or drawn -> models of the prompt, again for the negative prompt
    loop: input -> denoiser (twice, and guided) -> step; then what decodes the latents

The steps between the graphs are the runtime's adapter (`genai-compile.diffusion`); its tables are made at run time, as
a request says how many steps it wants.
"""

import json
from collections.abc import Mapping
from typing import Any

from genai_compiler.lower.decoder_components import ALIGNED, SCALAR, Data
from genai_compiler.lower.denoising_loop import NEGATIVE_TOKENS, Guidance, Loop, is_picture
from genai_compiler.lower.stages import Stage, StageInput
from genai_compiler.read.signature import Port

ABI, VERSION = "genai-compile.diffusion", "1"
_NOISE, _STEPS, _SEED, _SCALE = "request.noise", "request.max_iterations", "request.seed", "request.guidance_scale"
_STRENGTH, _CLEAN = "request.strength", "request.latents"
_GIVEN = "given.noise"
_FLAG = {"dtype": "bool", "rank": 1, "shape": [1]}


def iterative_document(loop: Loop) -> Data:
    """The whole document, as plain data. Pure: the same loop, the same document."""
    return _Writer(loop).document()


def _tensor(dtype: str, shape: list[int | str]) -> Data:
    contract: Data = {"dtype": dtype, "rank": len(shape), "shape": shape}
    return contract | ({"batch_layout": ALIGNED} if shape[:1] == ["batch"] else {})


class _Writer:
    """The workflow under construction."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.components: Data = {}
        self.inputs: Data = {}
        models = {each.component for each in (*loop.before, loop.denoiser, *loop.final)}
        self.models = models
        self.lead = _free("diffusion", models)
        rows = [*(loop.sample.shape or ())]
        inner: list[int | str] = [
            each if isinstance(each, int) else f"latents.{axis}" for axis, each in enumerate(rows[1:], start=1)
        ]
        self.latents: list[int | str] = ["batch" if loop.denoiser.rows else rows[0] or "latents.0", *inner]

    def value(self, name: str) -> str:
        """A value of the loop's own."""
        return f"{self.lead}.{name}"

    def document(self) -> Data:
        steps = [*self._start(), *self._before(), self._loop(), *self._end()]
        first = self.value("start" if self.loop.strength is None else "blended")
        state = {self.value("latents"): self._cell(first)}
        if self.loop.multistep:
            state[self.value("history")] = self._cell(first)
        capabilities = ["workflow_ssa", "linear_effects", "nested_control_flow", "loop_induction_values", "typed_emit"]
        capabilities += ["streaming_emit", *(["input_presence"] if self.loop.size is not None else [])]
        workflow: Data = {
            "manifest": {"adapter_abis": {ABI: VERSION}, "capabilities": capabilities},
            "inputs": self.inputs,
            "outputs": self._outputs(),
            "components": self.components,
            "state": state,
            "steps": steps,
        }
        document = {"schema_version": "1.0", "pipeline": {"workflow": workflow}}
        unshared: Data = json.loads(json.dumps(document))  # parts used twice must not be one object
        return unshared

    # ---- before the loop ---------------------------------------------------------------------------------------------

    def _start(self) -> list[Data]:
        """The schedule, and the latents that the loop begins with."""
        steps = {"required": True} if self.loop.steps is None else {"required": False, "default": self.loop.steps}
        self.inputs[_STEPS] = _request(SCALAR, "max_iterations") | steps
        tables = {
            "timesteps": _tensor("float32", ["steps"]),
            "table": _tensor("float32", ["steps", 6]),
            "scale": _tensor("float32", [1]),
        }
        ports, fed = {"steps": SCALAR}, {"steps": _STEPS}
        if self.loop.strength is not None:
            ports["strength"], fed["strength"] = _tensor("float32", [1]), _STRENGTH
            tables |= {"signal": _tensor("float32", [1]), "count": SCALAR}
            strength = {"required": False, "default": self.loop.strength}
            self.inputs[_STRENGTH] = _request(_tensor("float32", [1]), "denoising_strength") | strength
        made = {name: self.value(name) for name in tables}
        schedule = self._run("schedule", ports, tables, fed, made, self.loop.schedule)
        scale, latents = _tensor("float32", [1]), {"latents": _tensor("float32", self.latents)}
        noise = _tensor(self.loop.sample.dtype, self.latents)
        self.inputs[_NOISE] = {
            "contract": noise,
            "role": {"kind": "opaque"},
            "source": {"kind": "application", "name": "noise"},
            **({"required": True} if self.loop.size is None else {"required": False, "present_as": _GIVEN}),
        }
        name = self.value("start") if self.loop.size is None else self.value("start.given")
        fed = {"noise": _NOISE, "scale": made["scale"]}
        given = self._run("start", {"noise": noise, "scale": scale}, latents, fed, {"latents": name}, {})
        first = given if self.loop.size is None else self._drawn_or(given, latents, made["scale"])
        return [schedule, first, *(self._blend() if self.loop.strength is not None else ())]

    def _blend(self) -> list[Data]:
        """The caller's latents under the noise that the loop begins with."""
        clean, noise = _tensor(self.loop.sample.dtype, self.latents), _tensor("float32", self.latents)
        self.inputs[_CLEAN] = {
            "contract": clean,
            "role": {"kind": "opaque"},
            "source": {"kind": "application", "name": "latents"},
            "required": True,
        }
        ports = {"clean": clean, "signal": _tensor("float32", [1]), "latents": noise}
        fed = {"clean": _CLEAN, "signal": self.value("signal"), "latents": self.value("start")}
        return [self._run("blend", ports, {"latents": noise}, fed, {"latents": self.value("blended")}, {})]

    def _drawn_or(self, given: Data, latents: Data, scale: str) -> Data:
        """The caller's noise where there is some, else noise of the seed."""
        assert self.loop.size is not None
        extents = [*self.latents[2:]]
        self.inputs[_SEED] = _request(_tensor("int64", ["batch"]), "seed") | {"required": False, "default": 0}
        for side, extent, pixels in zip(("height", "width"), extents, self.loop.size, strict=True):
            default = extent * pixels if isinstance(extent, int) else 0
            self.inputs[f"request.{side}"] = _request(SCALAR, side) | {"required": False, "default": default}
        ports = {
            "seed": _tensor("int64", ["rows"]),
            "width": SCALAR,
            "height": SCALAR,
            "scale": _tensor("float32", [1]),
        }
        fed = {"seed": _SEED, "width": "request.width", "height": "request.height", "scale": scale}
        down, across = self.loop.size
        facts = {"channels": self.latents[1], "pixels_down": down, "pixels_across": across}
        drawn = self._run("draw", ports, latents, fed, {"latents": self.value("start.drawn")}, facts)
        return {
            "kind": "branch",
            "predicate": _GIVEN,
            "cases": {"true": given},
            "default": drawn,
            "outputs": {
                self.value("start"): {
                    "cases": {"true": self.value("start.given")},
                    "default": self.value("start.drawn"),
                }
            },
        }

    def _before(self) -> list[Data]:
        """The models that run once, those of the prompt a second time for the negative one."""
        steps = [self._invoke(each, {}, {}) for each in self.loop.before]
        guidance = self.loop.guidance
        if guidance is None:
            return steps
        for stage in guidance.prompted:
            made = {each.name: f"{stage.component}.{each.name}.negative" for each in stage.signature.outputs}
            steps.append(self._invoke(stage, {}, made, guidance))
        return steps

    def _invoke(
        self, stage: Stage, own: Mapping[str, str], made: Mapping[str, str], guidance: Guidance | None = None
    ) -> Data:
        """A run of a model. own: port -> value, of inputs that the loop feeds. made: port -> value, else as the stage
        names them. guidance: for the second pass.
        """
        if stage.component not in self.components:
            self.components[stage.component] = _model(stage)
        inputs: Data = {}
        for each in stage.inputs:
            value = each.value if guidance is None else guidance.negative(each.value)
            inputs[each.port.name] = own.get(each.port.name, value)
            if each.asked and value not in self.inputs:
                self.inputs[value] = _asked(stage, each, value)
        outputs = {each.name: made.get(each.name, f"{stage.component}.{each.name}") for each in stage.signature.outputs}
        return {"kind": "invoke", "component": stage.component, "inputs": inputs, "outputs": outputs}

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self) -> Data:
        self.inputs["package.true"] = {
            "contract": _FLAG,
            "role": {"kind": "opaque"},
            "source": {"kind": "literal"},
            "required": False,
            "default": True,
        }
        carried = [{"cell": self.value("latents"), "next": self.value("next")}]
        if self.loop.multistep:
            carried.append({"cell": self.value("history"), "next": self.value("next_history")})
        progress = {"kind": "emit", "value": self.value("step"), "output": "progress", "mode": "event"}
        return {
            "kind": "loop",
            "setup": [],
            "steps": [self._input(), *self._estimate(), self._step(), progress],
            "continue_when": "package.true",
            "max_iterations": _STEPS if self.loop.strength is None else self.value("count"),
            "iteration": {"value": self.value("step"), "contract": SCALAR},
            "carried": carried,
        }

    def _input(self) -> Data:
        """The denoiser's latents and timestep of a step."""
        loop = self.loop
        form = "scalar" if not loop.timestep.shape else "rows" if isinstance(loop.timestep.shape[0], str) else "one"
        forms: dict[str, list[int | str]] = {"scalar": [], "one": [1], "rows": [self.latents[0]]}
        time = forms[form]
        ports = {
            "latents": _tensor("float32", self.latents),
            "timesteps": _tensor("float32", ["steps"]),
            "table": _tensor("float32", ["steps", 6]),
            "step": SCALAR,
        }
        outputs = {"sample": _tensor(loop.sample.dtype, self.latents), "timestep": _tensor(loop.timestep.dtype, time)}
        facts = {"dtype": loop.sample.dtype, "timestep": loop.timestep.dtype, "timestep_form": form}
        fed = {name: self.value(name) for name in ports}
        return self._run("input", ports, outputs, fed, {name: self.value(name) for name in outputs}, facts)

    def _estimate(self) -> list[Data]:
        """The denoiser's runs, and what guidance makes of two."""
        loop, guidance = self.loop, self.loop.guidance
        own = {loop.sample.name: self.value("sample"), loop.timestep.name: self.value("timestep")}
        named = self._other_outputs("")
        if guidance is None:
            return [self._invoke(loop.denoiser, own, {**named, loop.estimate.name: self.value("estimate")})]
        without = {**self._other_outputs(".negative"), loop.estimate.name: self.value("unconditional")}
        towards = {**named, loop.estimate.name: self.value("conditional")}
        self.inputs[_SCALE] = _request(_tensor("float32", ["batch"]), "guidance_scale") | {
            "required": False,
            "default": guidance.scale,
        }
        estimate = _tensor(loop.estimate.dtype, self.latents)
        ports = {"unconditional": estimate, "conditional": estimate, "scale": _tensor("float32", ["rows"])}
        fed = {"unconditional": self.value("unconditional"), "conditional": self.value("conditional"), "scale": _SCALE}
        guided = {"estimate": _tensor("float32", self.latents)}
        return [
            self._invoke(loop.denoiser, own, without, guidance),
            self._invoke(loop.denoiser, own, towards),
            self._run("guide", ports, guided, fed, {"estimate": self.value("estimate")}, {}),
        ]

    def _other_outputs(self, behind: str) -> dict[str, str]:
        """What the denoiser gives beside its estimate, which nothing reads."""
        stage = self.loop.denoiser
        return {each.name: f"{stage.component}.{each.name}{behind}" for each in stage.signature.outputs}

    def _step(self) -> Data:
        loop = self.loop
        ports = {
            "latents": _tensor("float32", self.latents),
            "estimate": _tensor("float32" if loop.guidance is not None else loop.estimate.dtype, self.latents),
            "table": _tensor("float32", ["steps", 6]),
            "step": SCALAR,
        }
        outputs = {"next": _tensor("float32", self.latents)}
        if loop.multistep:
            ports["history"] = outputs["next_history"] = _tensor("float32", self.latents)
        fed = {name: self.value(name) for name in ports}
        return self._run("step", ports, outputs, fed, {name: self.value(name) for name in outputs}, {})

    # ---- after it ----------------------------------------------------------------------------------------------------

    def _end(self) -> list[Data]:
        """Models that take the latents, and what is published."""
        steps: list[Data] = []
        fed: dict[str, str] = {}
        for dtype in dict.fromkeys(port.dtype for port in self.loop.latents.values()):
            fed[dtype] = self.value("latents")
            if self.loop.scaling is not None or dtype != "float32":
                steps.append(self._finish(dtype, fed))
        for stage in self.loop.final:
            port = self.loop.latents.get(stage.name)
            steps.append(self._invoke(stage, {port.name: fed[port.dtype]} if port is not None else {}, {}))
        steps.append({"kind": "emit", "value": self.value("latents"), "output": "latents", "mode": "replace"})
        for name, (stage, port) in self._results().items():
            value = f"{stage.component}.{port.name}"
            steps.append({"kind": "emit", "value": value, "output": name, "mode": "replace"})
        return steps

    def _finish(self, dtype: str, fed: dict[str, str]) -> Data:
        """The latents as those models take them; one step a type."""
        fed[dtype] = self.value(f"finished.{dtype}")
        facts = {"scaling_factor": float(self.loop.scaling or 1), "dtype": dtype}
        ports, outputs = {"latents": _tensor("float32", self.latents)}, {"latents": _tensor(dtype, self.latents)}
        return self._run(
            "finish", ports, outputs, {"latents": self.value("latents")}, {"latents": fed[dtype]}, facts, dtype
        )

    def _results(self) -> dict[str, tuple[Stage, Port]]:
        """Output -> where it comes from; a package's only picture is called so."""
        pictures = [port for _, port in self.loop.results if is_picture(port)]
        found: dict[str, tuple[Stage, Port]] = {}
        for stage, port in self.loop.results:
            name = "image" if pictures == [port] else port.name
            taken = {*found, "latents", "progress"}
            found[name if name not in taken else f"{stage.component}.{name}"] = (stage, port)
        return found

    def _outputs(self) -> Data:
        outputs: Data = {}
        for name, (stage, port) in self._results().items():
            picture = {"role": "image", "value_range": "negative_one_to_one"}
            role = picture if is_picture(port) else {"role": "tensor"}
            outputs[name] = {"contract": stage.result(port), **role, "stage": "pre_adapter"}
        latents = _tensor("float32", self.latents)
        outputs["latents"] = {"contract": latents, "role": "tensor", "stage": "pre_adapter"}
        outputs["progress"] = {"contract": SCALAR, "role": "event", "stage": "pre_adapter"}
        return outputs

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _cell(self, initial: str) -> Data:
        contract = _tensor("float32", self.latents)
        return {
            "contract": contract,
            "scope": "invocation",
            "initializer": initial,
            "recurrence": {"kind": "invariant"},
        }

    def _run(
        self,
        action: str,
        inputs: Data,
        outputs: Data,
        fed: Mapping[str, str],
        made: Mapping[str, str],
        facts: Mapping[str, Any],
        behind: str = "",
    ) -> Data:
        """A step of the adapter: declares its component, gives its invoke. Ports are called as their roles."""
        name = _free("_".join(each for each in ("diffusion", action, behind) if each), self.models)
        self.components[name] = {
            "implementation": {"kind": "adapter", "abi": ABI, "version": VERSION},
            "ports": {"inputs": inputs, "outputs": outputs},
            "contract": {
                "id": ABI,
                "version": VERSION,
                "bindings": {each: each for each in dict.fromkeys((*inputs, *outputs))},
                "parameters": {"action": action, **facts},
            },
        }
        return {"kind": "invoke", "component": name, "inputs": dict(fed), "outputs": dict(made)}


def _free(wish: str, taken: set[str]) -> str:
    name = wish
    while name in taken:
        name += "_"
    return name


def _model(stage: Stage) -> Data:
    inputs = {each.port.name: stage.contract(each.port) for each in stage.inputs}
    outputs = {each.name: stage.contract(each) for each in stage.signature.outputs}
    return {
        "implementation": {"kind": "onnx", "artifact": stage.artifact},
        "ports": {"inputs": inputs, "outputs": outputs},
    }


def _asked(stage: Stage, given: StageInput, value: str) -> Data:
    """What the caller gives for an input of a model. Names without a dot are those of the application."""
    contract, negative = stage.result(given.port), value == NEGATIVE_TOKENS or value.endswith(".negative")
    if negative:  # the other prompt has a length of its own
        shape = [each if isinstance(each, int) or each == "batch" else f"{each}.negative" for each in contract["shape"]]
        contract = {**contract, "shape": shape}
    if given.tokens:
        return _request(contract, "negative_prompt_tokens" if negative else "prompt_tokens")
    name = value.partition(".")[2].partition(".")[2]
    if negative:
        name = f"negative_{name.removesuffix('.negative')}"
    return {
        "contract": contract,
        "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": name},
        "required": True,
    }


def _request(contract: Data, role: str) -> Data:
    return {
        "contract": contract,
        "role": {"kind": "runtime", "version": "1.0", "role": role},
        "source": {"kind": "request"},
        "required": True,
    }
