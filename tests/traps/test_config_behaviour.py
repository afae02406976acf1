"""How packages run (genai-config, traps 55 to 86): what the reference does wrong or refuses, as met here."""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_runtime.adapters.grammar_guidance import grammar_guidance
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.hybrids import State, hybrid, move_logits, recomputed, with_three_axes
from tests.lower.packages import VOCABULARY, Recipe, decoder
from tests.lower.test_front_model import MARK, by_hand, images, ran
from tests.lower.test_windows import WINDOW, whole, windowed
from tests.reference.plain_loop import greedy
from tests.traps.loop import plain_tokens
from tests.traps.packages import FREE, PROMPTS, gives_plain_tokens, loaded, package, problems, told
from tests.traps.test_config_syntax import with_images
from tests.traps.test_config_values import chances
from tests.traps.toy import toy
from tools.fixtures.network import gqa_decoder
from tools.fixtures.stages import tiny_stages_v1

# ---- 56: penalties ---------------------------------------------------------------------------------------------------

PIECES = ["<go>", "a", "b", "c", "d", "<end>"]


def test_56_the_repetition_penalty_covers_the_prompt(tmp_path: Path) -> None:
    """a scores 2.2 and b 2.0 everywhere; a stood in the prompt, so that 2.2 / 1.2 = 1.83 loses to b."""
    table = np.zeros((6, 6), np.float32)
    table[:, 1], table[:, 2] = 2.2, 2.0
    model = toy(tmp_path, PIECES, table=table, config={"search": {"repetition_penalty": 1.2}}).model
    assert model.generate([0, 3], max_new_tokens=1).text == "a"
    assert model.generate([0, 1, 3], max_new_tokens=1).text == "b"


# ---- 57, 61: other components ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sections",
    [
        {"vision": {"filename": ""}},
        {"vision": {"filename": "", "spatial_merge_size": 2}, "embedding": {"filename": ""}},
        {"vision": {"config_filename": "processor_config.json"}, "speech": {"config_filename": ""}},
        {"vision": {}, "embedding": {}, "encoder": {}, "speech": {}},
    ],
)
@pytest.mark.parametrize("kind", ["gemma3", "phi3v", "gemma4"])
def test_57_a_text_graph_that_is_typed_as_a_vision_package_runs(
    tmp_path: Path, sections: dict[str, Any], kind: str
) -> None:
    """The reference opens the folder as a model, because the vision model's file has no name."""
    folder = package(tmp_path / "p", {"model": {"type": kind, **sections}})
    filled = [("warning", "ignored-key", f"model.{name}") for name, section in sections.items() if section]
    assert told(folder) == filled
    gives_plain_tokens(loaded(folder), folder / "model.onnx")


def test_61_weights_for_media_that_nothing_switches_on_are_told(tmp_path: Path) -> None:
    """The reference never activates them either, without a word."""
    folder = with_images(tmp_path / "p", {"image_features": "seen"}, {"image_features": "entries"})
    text = (folder / "genai_config.json").read_text()
    stated = text.replace('"filename": "look.onnx"', '"filename": "look.onnx", "adapter_filename": "v.onnx_adapter"')
    assert stated != text
    (folder / "genai_config.json").write_text(stated)
    (found,) = [each for each in problems(folder) if each.path == "model.vision.adapter_filename"]
    assert "not applied" in found.what


# ---- 60, 66: media ---------------------------------------------------------------------------------------------------


def test_60_66_every_request_has_media_of_its_own_or_none(tmp_path: Path) -> None:
    """An image, another one, none, the first again: nothing of a request is left in the next."""
    folder = with_images(tmp_path / "p", {"image_features": "seen"}, {"image_features": "entries"})
    model, prompt = loaded(folder), [3, MARK, MARK, 5]
    first, second = images(2)[:1], images(2)[1:]
    for seen in (first, second, None, first):
        ids = prompt if seen is not None else [3, 5]
        given = {} if seen is None else {"images": seen}
        assert ran(model, **{"request.input_ids": [ids]}, **given) == [by_hand(folder, ids, seen, 6)]
    assert by_hand(folder, prompt, first, 6) != by_hand(folder, prompt, second, 6)


# ---- 63: windows of a prompt -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pad", [0, 5, 63])
def test_63_what_fills_a_window_changes_no_token(tmp_path: Path, pad: int) -> None:
    """Windows of four; one token, one less than a window, one more than two: equal to the graph that is not cut.

    The padding is a token of the prompts too, at their ends, where the reference would count it away.
    """
    (tmp_path / "p").mkdir()
    tiny_stages_v1(tmp_path / "p")
    file = tmp_path / "p" / "genai_config.json"
    config = json.loads(file.read_text())
    config["model"]["pad_token_id"] = pad
    file.write_text(json.dumps(config))
    gqa_decoder().save(tmp_path / "whole.onnx")
    model = loaded(tmp_path / "p")
    for prompt in ([9], [pad], [1, 9, pad], [14, 3, 7, 20, 5, 6, 11, 30, pad], [pad, pad, 4, pad, pad]):
        wanted = greedy(tmp_path / "whole.onnx", prompt, 8)
        assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted


# ---- 64, 83: windows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "found"),
    [
        ({"slide_inputs": False, "slide_key_value_cache": False}, ("warning", "config-contradicts-graph")),
        ({"slide_inputs": True, "slide_key_value_cache": False}, ("error", "unsupported-package-class")),
        ({}, ("error", "unsupported-package-class")),
    ],
)
def test_64_three_meanings_of_one_section(tmp_path: Path, window: dict[str, Any], found: tuple[str, str]) -> None:
    """A window of attention is the graph's to have; one graph cuts no prompt, and a shifted cache is refused."""
    folder = package(tmp_path, {"model": {"decoder": {"sliding_window": {"window_size": 4, **window}}}})
    assert told(folder) == [(*found, "model.decoder.sliding_window")]


@pytest.mark.parametrize("share", [True, False])
def test_83_a_window_of_the_operator_needs_no_word_of_the_file(tmp_path: Path, share: bool) -> None:
    """Without its section, and without a shared buffer: equal to plain runs over the whole, past the window."""
    search = {"past_present_share_buffer": share}
    folder = package(tmp_path / "p", {"model": {"decoder": {"num_hidden_layers": 2}}, "search": search}, windowed())
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    model = loaded(folder)
    for prompt in ([3, 7, 11], list(range(3, 20))):
        wanted = list(prompt)
        for _ in range(4 * WINDOW):
            wanted.append(int(whole(session, wanted).argmax()))
        assert model.generate(prompt, max_new_tokens=4 * WINDOW, **FREE).tokens == wanted[len(prompt) :]


# ---- 67: masks -------------------------------------------------------------------------------------------------------


def counting_the_mask(op: str) -> ModelProto:
    """A decoder whose favourite after n positions is n mod 24, by the width of its mask."""
    model = decoder(Recipe(op=op))
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array(VOCABULARY), "ids"), numpy_helper.from_array(np.array([-1]), "flat"),
         numpy_helper.from_array(np.array([0, 100], np.float32), "off_on")]
    )  # fmt: skip
    model.graph.node.append(helper.make_node("Reshape", ["total_length", "flat"], ["width"]))
    model.graph.node.append(helper.make_node("Mod", ["width", "ids"], ["favourite"]))
    model.graph.node.append(helper.make_node("OneHot", ["favourite", "ids", "off_on"], ["favoured"]))
    move_logits(model, "favoured", TensorProto.FLOAT)
    return model


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_67_the_mask_is_as_long_as_past_and_new_together(tmp_path: Path, op: str) -> None:
    model = loaded(package(tmp_path / "p", {}, counting_the_mask(op)))
    for prompt in (*PROMPTS, [4] * 30):
        count = len(prompt)
        wanted = [at % VOCABULARY for at in range(count, count + 20)]
        assert model.generate(prompt, max_new_tokens=20, **FREE).tokens == wanted


# ---- 74 to 76, 84: beams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["attention", "hybrid"])
def test_74_75_76_84_beams_are_refused_where_they_are_asked_for(tmp_path: Path, model: str) -> None:
    """No beam is ever searched wrongly: neither by a package's word, nor by a request's."""
    graph = decoder(Recipe()) if model == "attention" else hybrid(Recipe(), State())
    config = {"search": {"num_beams": 4, "num_return_sequences": 2, "past_present_share_buffer": True}}
    found = {(severity, path) for severity, code, path in told(package(tmp_path / "p", config, graph))
             if code == "unsupported-search"}  # fmt: skip
    assert found == {("error", "search.num_beams"), ("error", "search.num_return_sequences")}
    plain = loaded(package(tmp_path / "plain", {}, graph))
    with pytest.raises(genai_runtime.RequestError) as refused:
        plain.generate([3], num_beams=4)
    assert "num_beams" in refused.value.what


# ---- 79 to 82 --------------------------------------------------------------------------------------------------------


def pruned(op: str) -> ModelProto:
    """A decoder that gives the logits of the last position alone, [batch, 1, vocabulary]."""
    model = decoder(Recipe(op=op))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last one"))
    head = next(each for each in model.graph.node if "logits" in each.output)
    model.graph.node.insert(-1, helper.make_node("Gather", [head.input[0], "last one"], ["kept"], axis=1))
    head.input[0] = "kept"
    port = next(each for each in model.graph.output if each.name == "logits")
    port.type.tensor_type.shape.dim[1].dim_value = 1
    return model


@pytest.mark.parametrize("op", ["gqa", "attention"])
def test_79_short_rows_of_a_pruned_graph_get_their_own_last_logits(tmp_path: Path, op: str) -> None:
    """Rows of 5, 1 and 3 tokens together: each as alone, and as the graph that gives all positions."""
    folder = package(tmp_path / "p", {}, pruned(op))
    save(decoder(Recipe(op=op)), tmp_path / "whole.onnx")
    model = loaded(folder)
    gives_plain_tokens(model, folder / "model.onnx")
    gives_plain_tokens(model, tmp_path / "whole.onnx")


@pytest.mark.parametrize("ids", [{}, {"image_token_id": 0, "vision_start_token_id": 0}, {"image_token_id": 7}])
def test_80_two_pads_in_a_row_are_no_image(tmp_path: Path, ids: dict[str, int]) -> None:
    """Arithmetic: on three equal axes, after n tokens the favourite is (n - 1) * 111 mod 24."""
    folder = package(
        tmp_path / "p", {"model": {"type": "qwen2_5_vl", **ids}}, with_three_axes(decoder(Recipe(op="attention")))
    )
    model = loaded(folder)
    for prompt in ([0, 0, 3, 0, 0, 0, 0], [0, 0], [7, 0, 0, 7]):
        wanted = [(at * 111) % 24 for at in range(len(prompt) - 1, len(prompt) + 7)]
        assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted


@pytest.mark.parametrize("search", [{}, {"top_k": 50}, {"top_k": 1000}])
def test_81_a_vocabulary_smaller_than_top_k_is_sampled_whole(tmp_path: Path, search: dict[str, Any]) -> None:
    """50 is the default, and 6 ids are there: all of them can come."""
    table = chances(0.3, 0.3, 0.2, 0.2)
    model = toy(tmp_path, PIECES, table=table, config={"search": {"do_sample": True, **search}}).model
    assert {model.generate([0], seed=seed, max_new_tokens=1).tokens[0] for seed in range(40)} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    "names",
    [
        ("past_conv.3", "present_conv.3"),
        ("past_key_values.3.conv_state", "present.3.conv_state"),
        ("past.3.conv", "present.3.conv"),
    ],
)
@pytest.mark.parametrize("stated", [True, False])
def test_82_convolution_states_by_the_names_of_any_release(
    tmp_path: Path, names: tuple[str, str], stated: bool
) -> None:
    """The default template changed between releases, so that a file without the key loaded in one of them only."""
    past, present = (each.replace("3", "%d") for each in names)
    config = {"inputs": {"past_conv_names": past}, "outputs": {"present_conv_names": present}} if stated else {}
    folder = package(
        tmp_path / "p",
        {"model": {"type": "lfm2", "decoder": {"num_hidden_layers": ..., **config}}},
        hybrid(Recipe(), State(names)),
    )
    assert told(folder) == []
    assert [each.input for each in lower_genai_config(folder).decoder.fixed_states] == [names[0]]
    model = loaded(folder)
    for prompt in PROMPTS:
        wanted = recomputed(folder / "model.onnx", prompt, 8)
        assert model.generate(prompt, max_new_tokens=8, **FREE).tokens == wanted


# ---- 85: guidance ----------------------------------------------------------------------------------------------------


def test_85_a_row_that_has_finished_its_grammar_stops_no_other(tmp_path: Path) -> None:
    """Two rows in one automaton, 0 -a-> 1 -end-> 2 -end-> 2: the first is done while the second has just begun."""
    table = np.full((3, 4), -1, np.int64)
    table[0, 1], table[1, 3], table[2, 3] = 1, 2, 2
    step = grammar_guidance({"action": "commit"})

    def after(state: list[int], *tokens: int) -> dict[str, Any]:
        return step({"state": np.array(state), "tokens": np.array(tokens).reshape(-1, 1),
                     "valid_length": np.ones(len(tokens), np.int64), "transition_table": table})  # fmt: skip

    first = after([1, 0], 3, 1)
    assert first["next_state"].tolist() == [2, 1]
    assert first["logits_mask"].tolist() == [[False, False, False, True], [False, False, False, True]]
    assert after(first["next_state"].tolist(), 3, 3)["next_state"].tolist() == [2, 2]


def test_58_a_type_that_the_reference_has_not_is_an_ordinary_decoder(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {"model": {"type": "olmo3_next_moe"}})
    assert told(folder) == []
    model = loaded(folder)
    assert model.generate([3], max_new_tokens=6, **FREE).tokens == plain_tokens(folder / "model.onnx", [3], 6)
