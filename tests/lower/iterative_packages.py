"""Small packages with a denoising loop: a text encoder, a denoiser, a decoder of latents, of a few operators each."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import yaml
from genai_compiler import check_package, compile_package
from genai_compiler.problem import Problem
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import laid_over

FLOAT, HALF, INT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
DOCUMENT: dict[str, Any] = {
    "pipeline": {
        "models": {
            "words": {"filename": "words.onnx"},
            "denoiser": {"filename": "denoiser.onnx"},
            "painter": {"filename": "painter.onnx", "scaling_factor": 0.5},
        },
        "dataflow": [
            {"from": "denoiser.guess", "to": "denoiser.noisy"},
            {"from": "words.meaning", "to": "denoiser.text"},
            {"from": "denoiser.noisy", "to": "painter.latents"},
        ],
        "strategy": {
            "kind": "iterative",
            "denoiser": "denoiser",
            "num_steps": 3,
            "timestep_input": "when",
            "scheduler_config": {
                "kind": "ddim",
                "num_train_timesteps": 1000,
                "beta_start": 0.0001,
                "beta_end": 0.02,
                "beta_schedule": "linear",
                "prediction_type": "epsilon",
            },
            "guidance_scale": 3.0,
            "cfg_conditioning_input": "text",
        },
    }
}


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], held: dict[str, Any]) -> ModelProto:
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def words(*outputs: str) -> ModelProto:
    """ids int64 [rows, n] -> meaning float32 [rows, n, 5], and what else is asked for."""
    table = np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)
    names = outputs or ("meaning",)
    return model(
        [helper.make_node("Gather", ["table", "ids"], [name]) for name in names],
        [helper.make_tensor_value_info("ids", INT, ["rows", "n"])],
        [helper.make_tensor_value_info(name, FLOAT, ["rows", "n", 5]) for name in names],
        {"table": table},
    )


@dataclass(frozen=True)
class Denoiser:
    """noisy [b, 4, h, w], when, text [b, n, 5] -> guess: half of noisy, moved by the timestep and the text's mean."""

    latents: int = FLOAT
    time: int = INT
    time_shape: list[Any] = field(default_factory=lambda: ["b"])
    width: int = 5
    weight: int = 5
    guess: int | None = FLOAT
    channels: int = 4

    def made(self) -> ModelProto:
        rng = np.random.default_rng(2)
        weight = rng.normal(size=(self.weight, 4)).astype(np.float32)
        nodes = [
            helper.make_node("Cast", ["noisy"], ["x"], to=FLOAT),
            helper.make_node("Cast", ["when"], ["t"], to=FLOAT),
            helper.make_node("Reshape", ["t", "column"], ["t4"]),
            helper.make_node("Mul", ["t4", "small"], ["ts"]),
            helper.make_node("MatMul", ["text", "weight"], ["projected"]),
            helper.make_node("ReduceMean", ["projected", "one"], ["mean"], keepdims=0),
            helper.make_node("Unsqueeze", ["mean", "last"], ["moved"]),
            helper.make_node("Mul", ["x", "half"], ["halved"]),
            helper.make_node("Add", ["halved", "ts"], ["timed"]),
            helper.make_node("Add", ["timed", "moved"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["guess"], to=self.guess or FLOAT),
        ]
        guess = helper.make_tensor_value_info("guess", self.guess or FLOAT, ["b", self.channels, "h", "w"])
        if self.guess is None:
            guess = helper.make_empty_tensor_value_info("guess")
        return model(
            nodes,
            [
                helper.make_tensor_value_info("noisy", self.latents, ["b", 4, "h", "w"]),
                helper.make_tensor_value_info("when", self.time, self.time_shape),
                helper.make_tensor_value_info("text", FLOAT, ["b", "m", self.width]),
            ],
            [guess],
            {
                "weight": weight,
                "column": np.array([-1, 1, 1, 1]),
                "small": np.float32(1e-3),
                "half": np.float32(0.5),
                "one": np.array([1]),
                "last": np.array([2, 3]),
            },
        )


def painter(dtype: int = FLOAT, channels: int = 4, extents: bool = True) -> ModelProto:
    """latents [b, 4, h, w] -> picture [b, 3, 2h, 3w], whose extents it names or leaves open."""
    weight = np.random.default_rng(3).normal(size=(3, channels, 1, 1)).astype(np.float32)
    size = ["2*h", "w * 3"] if extents else [None, None]
    return model(
        [
            helper.make_node("Cast", ["latents"], ["x"], to=FLOAT),
            helper.make_node("Conv", ["x", "weight"], ["mixed"]),
            helper.make_node("Resize", ["mixed", "", "scales"], ["picture"], mode="nearest"),
        ],
        [helper.make_tensor_value_info("latents", dtype, ["b", channels, "h", "w"])],
        [helper.make_tensor_value_info("picture", FLOAT, ["b", 3, *size])],
        {"weight": weight, "scales": np.array([1, 1, 2, 3], np.float32)},
    )


def package(folder: Path, over: dict[str, Any] | None = None, **graphs: ModelProto) -> Path:
    folder.mkdir(parents=True)
    made = {"words": words(), "denoiser": Denoiser().made(), "painter": painter()} | graphs
    for name, each in made.items():
        save(each, folder / f"{name}.onnx")
    (folder / "inference_metadata.yaml").write_text(yaml.safe_dump(laid_over(DOCUMENT, over or {})))
    return folder


def strategy(**over: Any) -> dict[str, Any]:
    return {"pipeline": {"strategy": over}}


def scheduler(**over: Any) -> dict[str, Any]:
    return strategy(scheduler_config=over)


def told(folder: Path) -> dict[str, list[Problem]]:
    found: dict[str, list[Problem]] = {}
    for each in check_package(folder):
        found.setdefault(each.code, []).append(each)
    return found


def opened(folder: Path, out: Path) -> genai_runtime.Model:
    compile_package(folder, out=out)
    return genai_runtime.load(out, threads=1)
