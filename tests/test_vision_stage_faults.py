"""Vision models in stages that are refused by name, requests that are, and the steps between their graphs alone."""

import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_runtime.adapters.entry_count import entry_count
from genai_runtime.adapters.image.one_by_one import one_picture
from genai_runtime.adapters.image.window_rows import window_rows
from genai_runtime.problem import RequestError

from tests.staged_packages import refused
from tests.test_stages_beside import MEDIA
from tests.test_vision_stages import Change, by_windows, changed, pictures, ran, seen, stage_of
from tools.fixtures.network import gqa_decoder
from tools.fixtures.stages import EMBEDDED, save, write_config
from tools.fixtures.vision_stages import IMAGE, tiny_vision_stages_v1, vision_entries, vision_graphs

CLASS = "unsupported-package-class"


def update(stage: str, **more: Any) -> Change:
    """Entries of a stage."""
    return lambda model: stage_of(model, stage).update(more)


REFUSED: dict[str, tuple[Change, str, str]] = {
    "two stages": (lambda model: model["vision"]["pipeline"].pop(), CLASS, "cut into 2 stages"),
    "another order": (lambda model: model["vision"]["pipeline"].reverse(), "bad-value", "their names tell another"),
    "no group in a window": (seen(window_size=3), "bad-value", "holds no group"),
    "graph and stages": (seen(filename="patch_embed.onnx"), "bad-value", "either could be meant"),
    "no such file": (update("vision_attn", filename="attn.onnx"), "missing-file", "attn.onnx"),
    "no such output": (update("vision_attn", outputs=["x"]), "missing-output", "no output 'x'"),
    "no output": (update("patch_embed", outputs=[]), CLASS, "lists 0 outputs"),
    "an input not listed": (update("vision_attn", inputs=[]), "unclaimed-input", "nothing feeds it"),
    "no token for entries": (lambda model: model.pop("image_token_id"), "bad-value", "state image_token_id"),
    "rows of one phase": (update("embeddings", run_on_prompt=False), CLASS, "one phase only"),
    "no rows": (update("embeddings", outputs=[]), CLASS, "which of them has the rows"),
    "more than tokens": (lambda model: model["decoder"]["pipeline"].pop(0), CLASS, "its graph takes"),
    "rows for nobody": (update("embeddings", output_names_forwarder={EMBEDDED: "x"}), "missing-input", "'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str, tmp_path: Path) -> None:
    change, code, words = REFUSED[name]
    assert words in refused(changed(tmp_path / "p", change)).get(code, "")


def test_beside_a_decoder_in_one_graph_a_vision_graph_is_taken_and_its_stages_are_not(tmp_path: Path) -> None:
    package = tmp_path / "p"
    package.mkdir()
    for name in ("vision", "embedding", "decoder"):
        shutil.copy(MEDIA / f"{name}.onnx", package / f"{name}.onnx")
    vision = {"filename": "vision.onnx", "pipeline": [{"one": {"filename": "nowhere.onnx"}}]}
    model = {"vision": vision, "embedding": {"filename": "embedding.onnx"}}
    write_config(package, [], {"filename": "decoder.onnx"}, model)
    found = [each for each in compile_package(package, out=tmp_path / "out").problems if each.code == "ignored-key"]
    assert "the graph is taken" in " ".join(each.what for each in found if each.path == "model.vision.pipeline")


def test_features_that_nothing_takes_are_refused(tmp_path: Path) -> None:
    """A decoder in one graph that takes tokens has no place for them."""
    package = tmp_path / "p"
    save(package, {**vision_graphs(), "decoder": gqa_decoder().proto()})
    write_config(package, [], {"filename": "decoder.onnx"}, {"vision": vision_entries(vision_graphs())})
    assert "nothing takes what the graph of 'vision' gives: 'image_features'" in refused(package)[CLASS]


def test_all_faults_of_the_stages_are_told_at_once(tmp_path: Path) -> None:
    def change(model: dict[str, Any]) -> None:
        model["vision"]["window_size"] = 3
        stage_of(model, "patch_embed")["filename"] = "nowhere.onnx"
        stage_of(model, "vision_attn")["outputs"] = ["x"]

    assert refused(changed(tmp_path / "p", change)).keys() >= {"bad-value", "missing-file", "missing-output"}


def test_a_stage_that_takes_more_than_rows_and_grids_is_refused(tmp_path: Path) -> None:
    package = changed(tmp_path / "p", lambda model: stage_of(model, "vision_attn")["inputs"].append("rotary"))
    graph = onnx.load(package / "vision_attn.onnx")
    graph.graph.input.append(onnx.helper.make_tensor_value_info("rotary", 1, ["patches", 4]))
    onnx.save(graph, package / "vision_attn.onnx")
    assert "'rotary', float32 [patches, 4], and nothing is told to form it" in refused(package)["missing-input"]


@pytest.mark.parametrize("shape", [None, ["patches", 9], ["one", "patches", 8]])
def test_rows_of_another_form_than_the_next_stage_takes_are_refused(shape: list[Any] | None, tmp_path: Path) -> None:
    package = changed(tmp_path / "p", lambda model: None)
    graph = onnx.load(package / "vision_attn.onnx")
    graph.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("hidden", 1, shape))
    onnx.save(graph, package / "vision_attn.onnx")
    assert "'hidden' is float32 [patches, 8], and stage 'vision_attn' takes" in refused(package)["wrong-port"]


@pytest.mark.parametrize("name", ["patch_embed", "vision_attn", "patch_merger"])
def test_grids_of_another_type_are_refused(name: str, tmp_path: Path) -> None:
    package = changed(tmp_path / "p", lambda model: stage_of(model, name)["inputs"].append("image_grid_thw"))
    graph = onnx.load(package / f"{name}.onnx")
    graph.graph.input.append(onnx.helper.make_tensor_value_info("image_grid_thw", 6, ["pictures", 3]))
    onnx.save(graph, package / f"{name}.onnx")
    assert "as int32 [pictures, 3]; grids are int64" in refused(package)["wrong-port"]


def test_features_of_another_width_than_the_rows_are_refused(tmp_path: Path) -> None:
    other = update("patch_merger", filename="vision_attn.onnx", inputs=["hidden"], outputs=["attended"])
    package = changed(tmp_path / "p", other)
    assert "float32 of 16 features" in refused(package)["wrong-port"]


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_prompt_with_other_places_than_entries_is_refused(tmp_path: Path) -> None:
    tiny_vision_stages_v1(tmp_path / "p")
    with pytest.raises(genai_runtime.RequestError, match=r"holds 3 tokens of pictures \(60\), and these have 4"):
        ran(tmp_path / "p", [[1, *[IMAGE] * 3, 9]], pictures([(4, 4)]))


@pytest.mark.parametrize(
    ("grids", "words"),
    [
        ([[1, 4, 6]], "has 16 patches, and the 1 grids"),
        ([[1, 1, 16]], "do not come out even"),
    ],
)
def test_grids_that_do_not_fit_the_patches_are_refused(grids: list[list[int]], words: str, tmp_path: Path) -> None:
    tiny_vision_stages_v1(tmp_path / "p")
    given = pictures([(4, 4)]) | {"image_grid_thw": np.array(grids)}
    with pytest.raises(genai_runtime.RequestError, match=words):
        ran(tmp_path / "p", [[1, *[IMAGE] * 4, 9]], given)


@pytest.mark.parametrize("height", [2, 3, 4, 7])
@pytest.mark.parametrize("width", [1, 4, 5])
@pytest.mark.parametrize("edge", [1, 2, 3])
def test_rows_go_into_windows_and_back(height: int, width: int, edge: int) -> None:
    order, grid = by_windows(height, width, edge), np.array([[1, 2 * height, 2 * width]])
    rows = np.arange(height * width * 4)[:, None]
    call = window_rows({"edge": edge, "merge": 2, "back": False})
    made = call({"rows": rows, "grids": grid})["rows"].reshape(-1, 4)
    assert made.tolist() == [[4 * each, 4 * each + 1, 4 * each + 2, 4 * each + 3] for each in order]
    back = window_rows({"edge": edge, "merge": 2, "back": True})
    groups = np.array(order)[None, :, None]
    assert back({"rows": groups, "grids": grid})["rows"].ravel().tolist() == list(range(height * width))


@pytest.mark.parametrize("edge", [7, 1 << 40])
def test_a_window_larger_than_the_picture_changes_no_order(edge: int) -> None:
    rows, grid = np.arange(24)[:, None], np.array([[1, 4, 6]])
    for back, given in ((False, rows), (True, rows[:6])):
        made = window_rows({"edge": edge, "merge": 2, "back": back})({"rows": given, "grids": grid})["rows"]
        assert made.tolist() == given.tolist()


def test_a_grid_that_no_memory_would_hold_is_refused() -> None:
    call = window_rows({"edge": 2, "merge": 2, "back": False})
    with pytest.raises(RequestError) as caught:
        call({"rows": np.zeros((4, 1)), "grids": np.array([[1, 1 << 31, 1 << 31]])})
    assert (caught.value.code, str(1 << 62) in str(caught.value.help)) == ("image-patches", True)


def test_adapters_refuse_parameters_they_do_not_know() -> None:
    for parameters in ({}, {"edge": 0, "merge": 2, "back": True}, {"edge": 1, "merge": 2}):
        with pytest.raises(ValueError, match="edge and merge"):
            window_rows(parameters)
    with pytest.raises(ValueError, match="entry_token"):
        entry_count({})


def test_pictures_of_packed_patches_come_out_one_by_one() -> None:
    call, rows = one_picture({"grid": "grid"}), np.arange(14)[:, None]
    grids = np.array([[1, 2, 3], [2, 2, 2]])
    for at, wanted in enumerate((range(6), range(6, 14))):
        made = call({"grid": grids, "pixels": rows, "at": np.array([at])})
        assert made["pixels"].ravel().tolist() == list(wanted)
        assert made["grid"].tolist() == grids[at : at + 1].tolist()
        assert (made["next"].tolist(), made["more"].tolist()) == ([at + 1], [at == 0])


@pytest.mark.parametrize(
    ("grids", "words"), [([], "has no grid"), ([[1, -2, -2]], "below 1: -2"), ([[1, 2, 3]], "take 6")]
)
def test_grids_that_are_none_are_named(grids: list[list[int]], words: str) -> None:
    given = {"grid": np.array(grids, np.int64).reshape(-1, 3), "pixels": np.zeros((4, 1)), "at": np.array([0])}
    with pytest.raises(RequestError, match=words) as caught:
        one_picture({"grid": "grid"})(given)
    assert caught.value.code == "image-patches"
