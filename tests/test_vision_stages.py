"""Vision models that are cut into stages, and features that are written over rows of a decoder's first stage.

Expected tokens come from the stages' graphs in bare ONNX Runtime sessions and a plain loop over pictures, windows and
tokens; the order of windows is written out there group by group.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options

from tests.images.processors import picture
from tests.real_packages import GREEDY
from tests.staged_packages import converts
from tests.test_stages_beside import MEDIA, decoded, embedded
from tools.fixtures.network import HIDDEN, gqa_decoder
from tools.fixtures.stages import EMBEDDED, FINAL, cut, save, stage, write_config
from tools.fixtures.vision_stages import (
    IMAGE,
    MERGE,
    PATCH,
    PIXELS,
    WINDOW,
    tiny_vision_stages_v1,
    vision_entries,
    vision_graphs,
)

Array = np.ndarray[Any, Any]
Change = Callable[[dict[str, Any]], object]
NEW = 8
EDGE = WINDOW // PATCH // MERGE
REFERENCE = {
    (1, 8, 12): [32, 33, 11, 25, 25, 40, 4, 11],
    (1, 6, 10): [29, 48, 9, 7, 37, 62, 6, 54],
    (1, 2, 2): [32, 13, 43, 52, 20, 50, 63, 43],
    (1, 4, 6): [13, 20, 63, 46, 63, 57, 63, 25],
    (2, 4, 8): [4, 60, 28, 62, 6, 63, 6, 6],
    (3, 6, 6): [32, 37, 62, 32, 43, 6, 6, 6],
}
"""Grid of a picture -> greedy tokens of onnxruntime-genai 0.18 for `pictures` and the prompt 1, 5, its entries, 9, 14.

It ran the fixture's graphs, the embedding with rows up to 151655, which is the id that it looks for.
"""
GRIDS: tuple[list[tuple[int, int]], ...] = ([(8, 12)], [(6, 10)], [(2, 2)], [(6, 2), (4, 8), (2, 4)])
"""Patches of each picture: whole windows; windows cut at both rims; one group; several pictures."""


def by_windows(height: int, width: int, edge: int) -> list[int]:
    """The groups of a picture in the order of windows."""
    found = []
    for top in range(0, height, edge):
        for left in range(0, width, edge):
            for y in range(top, min(top + edge, height)):
                found += [y * width + x for x in range(left, min(left + edge, width))]
    return found


def features(folder: Path, pixels: Array, grids: Sequence[tuple[int, int]], edge: int = EDGE) -> Array:
    """What the three stages make of the pictures, one after the other."""
    embed, attend, merge = (
        ort.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("patch_embed", "vision_attn", "patch_merger")
    )
    made, at = [np.zeros((0, HIDDEN), np.float32)], 0
    for height, width in grids:
        mine = pixels[at : at + height * width]
        at += height * width
        order = by_windows(height // MERGE, width // MERGE, edge)
        hidden = embed.run(None, {"pixel_values": mine})[0].reshape(len(order), MERGE * MERGE, -1)
        (seen,) = attend.run(None, {"hidden": np.concatenate([hidden[each] for each in order])})
        (groups,) = merge.run(None, {"attended": seen})
        back = np.zeros_like(groups)
        for place, each in enumerate(order):
            back[each] = groups[place]
        made.append(back)
    return np.concatenate(made)


def written_over(graph: Path, entries: Array) -> Callable[[Array], dict[str, Array]]:
    """What the decoder's other stages take of new tokens: rows of the first, with the prompt's entries over some."""
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    left = list(entries)

    def of(ids: Array) -> dict[str, Array]:
        rows = session.run(None, {"input_ids": ids})[0].copy()
        for row, place in zip(*np.nonzero(ids == IMAGE), strict=True):
            if left:
                rows[row, place] = left.pop(0)
        return {EMBEDDED: rows}

    return of


def behind(folder: Path) -> Path:
    """The fixture's decoder behind its first stage, in one graph."""
    folder.mkdir(exist_ok=True)
    file = folder / "behind.onnx"
    onnx.save(cut(gqa_decoder().proto(), EMBEDDED)[1], file)
    return file


def pictures(grids: Sequence[tuple[int, int]], seed: int = 5) -> dict[str, Any]:
    count = sum(height * width for height, width in grids)
    pixels = np.random.default_rng(seed).normal(size=(count, PIXELS)).astype(np.float32)
    return {"pixel_values": pixels, "image_grid_thw": np.array([[1, *each] for each in grids])}


def places(grids: Sequence[tuple[int, int]]) -> int:
    return sum(height * width for height, width in grids) // MERGE**2


def changed(folder: Path, change: Change) -> Path:
    """The fixture with its configuration's `model` changed."""
    tiny_vision_stages_v1(folder)
    config = json.loads((folder / "genai_config.json").read_text())
    change(config["model"])
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


def stage_of(model: dict[str, Any], name: str) -> dict[str, Any]:
    listed = (*model["vision"]["pipeline"], *model["decoder"]["pipeline"])
    found: dict[str, Any] = next(each[name] for each in listed if name in each)
    return found


def seen(**more: Any) -> Change:
    return lambda model: model["vision"].update(more)


def ran(folder: Path, prompts: list[list[int]], more: dict[str, Any]) -> list[list[int]]:
    out = folder.with_name("out")
    compile_package(folder, out=out)
    inputs = {"request.input_ids": prompts, "request.max_iterations": [NEW], **more}
    with genai_runtime.load(out, threads=1) as model:
        found = model.run(inputs, stop_on_eos=False)
    return [[int(each) for each in np.ravel(row)] for row in found.rows("tokens")]


@pytest.mark.parametrize("grids", GRIDS, ids=str)
def test_three_stages_give_the_tokens_of_a_plain_loop(grids: list[tuple[int, int]], tmp_path: Path) -> None:
    package = changed(tmp_path / "p", lambda model: None)
    given, prompt = pictures(grids), [1, 5, *[IMAGE] * places(grids), 9, 14]
    entries = features(package, given["pixel_values"], grids)
    feeds = written_over(package / "embeddings.onnx", entries)
    assert ran(package, [prompt], given) == [decoded(behind(tmp_path / "w"), feeds, prompt, NEW)]


@pytest.mark.parametrize("grid", REFERENCE)
def test_one_picture_gives_the_tokens_of_the_reference(grid: tuple[int, int, int], tmp_path: Path) -> None:
    tiny_vision_stages_v1(tmp_path / "p")
    frames, height, width = grid
    given = pictures([(frames * height, width)]) | {"image_grid_thw": np.array([grid])}
    entries = frames * height * width // MERGE**2
    assert ran(tmp_path / "p", [[1, 5, *[IMAGE] * entries, 9, 14]], given) == [REFERENCE[grid]]


def test_a_larger_window_gives_the_tokens_of_the_reference(tmp_path: Path) -> None:
    package = changed(tmp_path / "p", seen(window_size=12))
    made = ran(package, [[1, 5, *[IMAGE] * 24, 9, 14]], pictures([(8, 12)]))
    assert made == [[32, 37, 54, 24, 4, 6, 49, 31]]


def test_the_order_of_windows_and_the_pictures_change_the_tokens(tmp_path: Path) -> None:
    """Of the loop that the others are held against: it would be no test if they did not."""
    package, grids = changed(tmp_path / "p", lambda model: None), [(8, 12)]
    prompt, pixels = [1, 5, *[IMAGE] * 24, 9, 14], pictures(grids)["pixel_values"]
    made = [
        decoded(behind(tmp_path / "w"), written_over(package / "embeddings.onnx", entries), prompt, NEW)
        for entries in (
            features(package, pixels, grids),
            features(package, pixels, grids, edge=99),
            features(package, pictures(grids, seed=6)["pixel_values"], grids),
        )
    ]
    assert made[0] != made[1]
    assert made[0] != made[2]


def test_text_alone_keeps_the_rows_of_all_its_tokens(tmp_path: Path) -> None:
    package, prompt = changed(tmp_path / "p", lambda model: None), [1, IMAGE, 9, 14]
    feeds = written_over(package / "embeddings.onnx", np.zeros((0, HIDDEN), np.float32))
    wanted = decoded(behind(tmp_path / "w"), feeds, prompt, NEW)
    assert ran(package, [prompt], {}) == [wanted]
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(prompt, max_new_tokens=NEW, **GREEDY).tokens == wanted


def test_a_batch_takes_its_entries_row_by_row(tmp_path: Path) -> None:
    package, grids = changed(tmp_path / "p", lambda model: None), [(4, 4), (2, 8)]
    given, prompts = pictures(grids), [[1, *[IMAGE] * 4, 9], [1, 9, *[IMAGE] * 4]]
    entries = features(package, given["pixel_values"], grids)
    graph, first = behind(tmp_path / "w"), package / "embeddings.onnx"
    wanted = [
        decoded(graph, written_over(first, mine), prompt, NEW)
        for prompt, mine in zip(prompts, (entries[:4], entries[4:]), strict=True)
    ]
    assert ran(package, prompts, given) == wanted


@pytest.mark.parametrize("size", [None, 11, 12, 99])
def test_the_window_is_as_large_as_stated(size: int | None, tmp_path: Path) -> None:
    """Without a size two groups an edge; what does not come out even is cut off."""

    def change(model: dict[str, Any]) -> None:
        del model["vision"]["window_size"]
        model["vision"] |= {"window_size": size} if size is not None else {}

    grids = [(8, 12)]
    package, given, prompt = changed(tmp_path / "p", change), pictures(grids), [1, *[IMAGE] * 24, 9]
    edge = {None: 2, 11: 2, 12: 3, 99: 24}[size]
    feeds = written_over(package / "embeddings.onnx", features(package, given["pixel_values"], grids, edge))
    assert ran(package, [prompt], given) == [decoded(behind(tmp_path / "w"), feeds, prompt, NEW)]


def test_the_converted_document_is_the_same_plan(tmp_path: Path) -> None:
    tiny_vision_stages_v1(tmp_path / "p")
    converts(tmp_path / "p", tmp_path)


def test_stages_may_be_one_object_and_pass_rows_on_by_any_name(tmp_path: Path) -> None:
    """The only result goes to the only input that nothing else feeds."""

    def change(model: dict[str, Any]) -> None:
        parts = model["vision"]["pipeline"]
        model["vision"]["pipeline"] = {f"part {at}": each for at, part in enumerate(parts) for each in part.values()}
        model["vision"]["pipeline"]["part 1"]["inputs"] = ["rows"]

    package, grids = changed(tmp_path / "p", change), [(8, 12)]
    graph = onnx.load(package / "vision_attn.onnx")
    entries = features(package, pictures(grids)["pixel_values"], grids)
    graph.graph.input[0].name = "rows"
    for node in graph.graph.node:
        node.input[:] = ["rows" if each == "hidden" else each for each in node.input]
    onnx.save(graph, package / "vision_attn.onnx")
    prompt = [1, *[IMAGE] * 24, 9]
    wanted = decoded(behind(tmp_path / "w"), written_over(package / "embeddings.onnx", entries), prompt, NEW)
    assert ran(package, [prompt], pictures(grids)) == [wanted]


def test_the_reference_would_load_the_stages_of_its_type(tmp_path: Path) -> None:
    """Its first decoder stage makes the embeddings: it opens no graph for them."""
    tiny_vision_stages_v1(tmp_path / "p")
    assert compile_package(tmp_path / "p", out=tmp_path / "out", options=Options(strict=True)).out is not None


# ---- other surroundings ----------------------------------------------------------------------------------------------


def test_three_stages_stand_before_an_embedding_graph(tmp_path: Path) -> None:
    """A decoder in one graph, and an embedding that puts the features in by itself."""
    package, seen, grids = tmp_path / "p", vision_graphs(), [(6, 10)]
    save(package, seen)
    for name in ("embedding", "decoder"):
        shutil.copy(MEDIA / f"{name}.onnx", package / f"{name}.onnx")
    model = {"vision": vision_entries(seen), "embedding": {"filename": "embedding.onnx"}}
    write_config(package, [], {"filename": "decoder.onnx"}, model)
    token = json.loads((MEDIA / "genai_config.json").read_text())["tokens"]["image_token"]
    given, prompt = pictures(grids), [1, *[token] * places(grids), 9, 14]
    entries = features(package, given["pixel_values"], grids)
    assert ran(package, [prompt], given) == [decoded(MEDIA / "decoder.onnx", embedded(entries), prompt, NEW)]


@pytest.mark.parametrize("phases", [1, 2])
def test_features_of_one_vision_graph_are_written_over_rows(phases: int, tmp_path: Path) -> None:
    """phases: 2 for other layers with the prompt than later."""
    package = tmp_path / "p"
    parts = dict(zip(("embeddings", "layers", "lm_head"), cut(gqa_decoder().proto(), EMBEDDED, FINAL), strict=True))
    entries = {name: stage(name, each) for name, each in parts.items()}
    if phases == 2:
        parts["iterator"] = parts["layers"]
        entries["iterator"] = stage("iterator", parts["layers"]) | {"run_on_prompt": False}
        entries["layers"]["run_on_token_gen"] = False
        entries["lm_head"] = entries.pop("lm_head")
    save(package, parts)
    shutil.copy(MEDIA / "vision.onnx", package / "vision.onnx")
    model = {"image_token_id": IMAGE, "vision": {"filename": "vision.onnx"}}
    write_config(package, [{name: each} for name, each in entries.items()], {}, model)
    pixels = np.random.default_rng(3).normal(size=(2, 4, 8)).astype(np.float32)
    vision = ort.InferenceSession(MEDIA / "vision.onnx", providers=["CPUExecutionProvider"])
    (made,) = vision.run(None, {"pixel_values": pixels})
    prompt = [1, *[IMAGE] * 4, 9, *[IMAGE] * 4, 14]
    feeds = written_over(package / "embeddings.onnx", made.reshape(-1, HIDDEN))
    assert ran(package, [prompt], {"pixel_values": pixels}) == [decoded(behind(tmp_path / "w"), feeds, prompt, NEW)]
    converts(package, tmp_path)


def test_files_of_pictures_go_through_the_stages_one_by_one(tmp_path: Path) -> None:
    """Pictures that need no resizing: their patches are cut here by hand, group by group."""
    pytest.importorskip("PIL.Image", reason="Pillow is absent: no picture can be decoded")
    package = changed(tmp_path / "p", lambda model: None)
    keys = {"size": {"shortest_edge": 16, "longest_edge": 4096}, "patch_size": PATCH, "merge_size": MERGE}
    told = {"image_processor_type": "Some", "resample": 3, "temporal_patch_size": 1, "do_normalize": False, **keys}
    (package / "preprocessor_config.json").write_text(json.dumps(told))
    grids, data, cut_up = [(4, 6), (6, 2)], [], []
    for height, width in grids:
        levels, file = picture(height * PATCH, width * PATCH)
        data.append(file)
        parts = (levels / 255).reshape(height // MERGE, MERGE, PATCH, width // MERGE, MERGE, PATCH, 3)
        cut_up.append(parts.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, PIXELS))
    entries = features(package, np.concatenate(cut_up).astype(np.float32), grids)
    prompt = [1, 5, *[IMAGE] * 6, 9, *[IMAGE] * 3, 14]
    wanted = decoded(behind(tmp_path / "w"), written_over(package / "embeddings.onnx", entries), prompt, NEW)
    compile_package(package, out=tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        assert model.generate(prompt, images=data, max_new_tokens=NEW, **GREEDY).tokens == wanted


@pytest.mark.parametrize("stated", [None, "sizes"])
def test_grids_are_called_as_the_graphs_or_the_file_call_them(stated: str | None, tmp_path: Path) -> None:
    """A file that states no name has no `image_sizes`, whatever the default of the key is."""
    names = {"image_grid_thw": stated} if stated else {}
    package = changed(tmp_path / "p", seen(inputs={"pixel_values": "pixel_values", **names}))
    given, prompt = pictures([(4, 6)]), [1, *[IMAGE] * 6, 9]
    given[stated or "image_grid_thw"] = given.pop("image_grid_thw")
    entries = features(package, given["pixel_values"], [(4, 6)])
    wanted = decoded(behind(tmp_path / "w"), written_over(package / "embeddings.onnx", entries), prompt, NEW)
    assert ran(package, [prompt], given) == [wanted]


def test_a_stage_that_takes_grids_gets_those_of_its_picture(tmp_path: Path) -> None:
    """Attention that adds the height of the picture to its rows."""
    package = changed(tmp_path / "p", lambda model: stage_of(model, "vision_attn")["inputs"].append("image_grid_thw"))
    model = onnx.load(package / "vision_attn.onnx")
    model.graph.input.append(onnx.helper.make_tensor_value_info("image_grid_thw", 7, ["grids", 3]))
    for node in model.graph.node:
        node.input[:] = ["higher" if each == "hidden" else each for each in node.input]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "height"))
    more = [
        onnx.helper.make_node("Gather", ["image_grid_thw", "height"], ["heights"], axis=1),
        onnx.helper.make_node("Cast", ["heights"], ["floats"], to=1),
        onnx.helper.make_node("Add", ["hidden", "floats"], ["higher"]),
    ]
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend([*more, *kept])
    grids = [(4, 6), (2, 8)]
    given, prompt = pictures(grids), [1, *[IMAGE] * 10, 9]
    plain = ort.InferenceSession((package / "patch_embed.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    assert plain.run(None, {"pixel_values": given["pixel_values"]})[0].shape == (40, 8)
    parts = []
    for at, (height, width) in ((0, grids[0]), (24, grids[1])):
        moved = onnx.load(package / "patch_embed.onnx")
        moved.graph.node[-1].output[0] = "before"
        moved.graph.initializer.append(onnx.numpy_helper.from_array(np.array(height, np.float32), "height"))
        moved.graph.node.append(onnx.helper.make_node("Add", ["before", "height"], ["hidden"]))
        other = tmp_path / f"of {height}"
        shutil.copytree(package, other)
        onnx.save(moved, other / "patch_embed.onnx")
        parts.append(features(other, given["pixel_values"][at : at + height * width], [(height, width)]))
    onnx.save(model, package / "vision_attn.onnx")
    feeds = written_over(package / "embeddings.onnx", np.concatenate(parts))
    assert ran(package, [prompt], given) == [decoded(behind(tmp_path / "w"), feeds, prompt, NEW)]
