"""Packages for the peer's builder: the checkpoints that it reads, and how llama.cpp is built. No builder is run."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from safetensors.numpy import load_file

from tests.conftest import FIXTURES
from tests.tools.tiny_checkpoint import CONFIG, tiny_checkpoint
from tools.peers.__main__ import main
from tools.peers.checkpoints import Size, write_random, write_real
from tools.peers.environments import cmake_options, processor_flags, python_of
from tools.peers.policy_package import head_shape, write_policy_package

SIZE = Size(layers=2, hidden=32, feed_forward=48, heads=4, kv_heads=2, vocabulary=300)


def test_a_random_checkpoint_has_the_shapes_of_its_configuration(tmp_path: Path) -> None:
    write_random(tmp_path, SIZE)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == 3 + SIZE.layers * 9
    assert tensors["lm_head.weight"].shape == (300, 32)
    assert tensors["model.layers.1.self_attn.k_proj.weight"].shape == (16, 32)
    assert tensors["model.layers.0.mlp.down_proj.weight"].shape == (32, 48)
    assert {each.dtype for each in tensors.values()} == {np.dtype(np.float32)}
    assert not tensors["lm_head.weight"][-1].any()
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert (config["hidden_size"], config["head_dim"], config["tie_word_embeddings"]) == (32, 8, False)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert len(tokenizer["model"]["vocab"]) == 300


def test_a_random_checkpoint_is_the_same_every_time(tmp_path: Path) -> None:
    for name in "ab":
        write_random(tmp_path / name, SIZE)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def test_the_real_checkpoint_is_the_dequantised_one_with_its_stacked_matrices_apart(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint()
    write_real(tmp_path, checkpoint)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == 2 + CONFIG.layers * 9
    blocks = checkpoint.layers[1].qkv
    scale, minimum = np.repeat(blocks.scale, 32, axis=1), np.repeat(blocks.minimum, 32, axis=1)
    rows = scale * blocks.quants + minimum
    query, kv = CONFIG.heads * CONFIG.head_size, CONFIG.kv_heads * CONFIG.head_size
    name = "model.layers.1.self_attn.{}_proj.weight"
    np.testing.assert_allclose(tensors[name.format("q")], rows[:query], rtol=1e-6)
    np.testing.assert_allclose(tensors[name.format("k")], rows[query : query + kv], rtol=1e-6)
    np.testing.assert_allclose(tensors[name.format("v")], rows[query + kv :], rtol=1e-6)
    up = checkpoint.layers[0].gate_up.dequantised()[CONFIG.feed_forward :]
    np.testing.assert_array_equal(tensors["model.layers.0.mlp.up_proj.weight"], up)
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["tie_word_embeddings"] is True


def test_policies_of_the_policy_package_are_linked(tmp_path: Path) -> None:
    write_policy_package(tmp_path / "package", FIXTURES / "tiny-gqa-v1", 64)
    assert head_shape(onnx.load(tmp_path / "package" / "model.onnx")) == (2, 16)
    compile_package(tmp_path / "package", tmp_path / "compiled")
    plan = (tmp_path / "compiled" / "plan.txt").read_text("utf-8")
    assert "island" in plan
    for name in ("sampler", "termination", "state_update"):
        assert f"invoke {name}(" not in plan


def test_llama_cpp_is_built_for_what_the_processor_has_and_no_more() -> None:
    flags = processor_flags("processor\t: 0\nflags\t\t: fpu avx2 fma amx_tile\nprocessor\t: 1\nflags\t\t: avx512f\n")
    assert flags == {"fpu", "avx2", "fma", "amx_tile"}
    assert cmake_options(flags) == "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON"
    assert processor_flags("") == set()


def test_what_is_missing_is_said_with_the_way_to_make_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["packages", "tiny", "--peers", str(tmp_path)]) == 2
    assert "python -m tools.peers environments builder" in capsys.readouterr().err
    assert not python_of(tmp_path, "builder").exists()
    with pytest.raises(SystemExit):
        main(["packages", "enormous"])
    assert "unknown: enormous; there are int4" in capsys.readouterr().err
