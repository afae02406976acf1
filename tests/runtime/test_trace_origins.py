"""Every span of a trace that belongs to a step names a place in the files that the package's author wrote.

Held against the files themselves, read by json and yaml: the path leads to a value, its line holds the last key.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import yaml
from genai_compiler import compile_package
from genai_runtime.timings import ADAPTER, HOST, RUN, SELECT, TEXT

from tests.conftest import FIXTURES
from tests.lower.packages import Recipe, decoder
from tests.lower.pipelines import package as pipeline
from tests.lower.plain_folders import plain_folder, undeclared
from tests.lower.test_bare import NAMED
from tests.lower.test_bare import package as bare
from tests.lower.test_composite import package as composite
from tests.lower.test_pipeline_drafts import DRAFTED, both

STATED = {"vocab_size": 64, "max_position_embeddings": 64, "eos_token_id": 2}
STAGES = {
    f"model.decoder.pipeline[{at}].{stage}.filename"
    for at, stage in enumerate(("embeddings", "context", "iterator", "lm_head"))
}
SAID = {"do_sample": False, "temperature": 0.7}
KEYS = re.compile(r'\.?([A-Za-z_][\w-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


def of_fixture(case: str) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(FIXTURES / case, folder))


def rewritten(folder: Path) -> Path:
    """Version 1 as nobody writes it: each value stands below its key."""
    shutil.copytree(FIXTURES / "tiny-gqa-v1", folder)
    file = folder / "genai_config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")), indent=1).replace('": ', '":\n'), "utf-8")
    return folder


def with_tokenizer(folder: Path) -> Path:
    for each in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FIXTURES / "tiny-gqa-v1" / each, folder)
    return folder


def started(folder: Path) -> Path:
    (folder / "generation_config.json").write_text('{"decoder_start_token_id": 1}')
    return folder


MADE: dict[str, tuple[Callable[[Path], Path], dict[str, set[str]]]] = {
    "v1": (of_fixture("tiny-gqa-v1"), {RUN: {"model.decoder.filename"}, SELECT: {"search"}, TEXT: {"model"}}),
    "v1, values below": (rewritten, {RUN: {"model.decoder.filename"}, SELECT: {"search"}, TEXT: {"model"}}),
    "v1, encoder": (
        of_fixture("tiny-encoder-decoder-v1"),
        {RUN: {"model.encoder.filename", "model.decoder.filename"}, SELECT: {"search"}, TEXT: {"model"}},
    ),
    "v1, stages": (
        of_fixture("tiny-stages-v1"),
        {RUN: STAGES, SELECT: {"search"}, TEXT: {"model"}},
    ),
    "v1, an end put behind": (
        of_fixture("tiny-ssru-v1"),
        {
            RUN: {"model.encoder.filename", "model.decoder.filename"},
            ADAPTER: {"model.encoder"},
            SELECT: {"search"},
            TEXT: {"model"},
        },
    ),
    "v2, least": (
        of_fixture("tiny-minimal-v2"),
        {RUN: {"pipeline.sessions.decoder.file"}, SELECT: {"pipeline"}, TEXT: {"pipeline"}},
    ),
    "v2, embedding before": (
        of_fixture("tiny-media-v2"),
        {
            RUN: {"pipeline.sessions.embedding.file", "pipeline.sessions.decoder.file"},
            SELECT: {"generation"},
            TEXT: {"tokens"},
        },
    ),
    "v2, drafts": (
        lambda folder: with_tokenizer(pipeline(folder, DRAFTED, both())),
        {RUN: {"pipeline.sessions.decoder.file", "pipeline.sessions.small.file"}},
    ),
    "workflow": (of_fixture("tiny-runtime-policy"), {}),
    "workflow, linked": (of_fixture("tiny-decoder"), {}),
    "workflow, drafts": (of_fixture("tiny-chained-drafts"), {}),
    "model.io": (
        lambda folder: with_tokenizer(bare(folder, decoder(Recipe()), NAMED)),
        {RUN: {"model.io"}, SELECT: {"model.io"}, TEXT: {"model.io"}},
    ),
    "pipeline.models": (
        lambda folder: with_tokenizer(started(composite(folder))),
        {
            RUN: {"pipeline.models.reader.filename", "pipeline.models.writer.filename"},
            SELECT: {"pipeline.strategy"},
            TEXT: {"pipeline.strategy"},
        },
    ),
    "plain folder": (
        lambda folder: undeclared(FIXTURES / "tiny-gqa-v1", folder, STATED),
        {RUN: {"model.onnx"}, SELECT: {"config.json"}, TEXT: {"tokenizer.json"}},
    ),
    "plain folder that says how to choose": (
        lambda folder: with_tokenizer(plain_folder(folder, {"model.onnx": decoder(Recipe())}, generation=SAID)),
        {RUN: {"model.onnx"}, SELECT: {"do_sample"}, TEXT: {"tokenizer.json"}},
    ),
}


def at(file: Path, path: str) -> Any:
    """The value that a path names in a file, read without this project."""
    text = file.read_text("utf-8")
    value = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    for key, index, odd in KEYS.findall(path):
        if isinstance(value, dict):  # YAML's own true and false are keys here
            value = {str(each).lower() if isinstance(each, bool) else each: of for each, of in value.items()}
        value = value[int(index)] if index else value[key or odd]
    return value


def last_key(path: str) -> str:
    """The key that a path ends in, "" where that is a list's item."""
    key, index, odd = KEYS.findall(path)[-1]
    return "" if index else key or odd


def events_of(package: Path, out: Path, drafts: bool = False) -> list[dict[str, Any]]:
    """What a trace has of one request that goes through the whole of it, text included."""
    compile_package(package, out)
    with genai_runtime.load(out, threads=1, timings=True) as model:
        model.generate([1, 5, 9], max_new_tokens=4, stop_on_eos=False, speculate=drafts or None).text  # noqa: B018
        assert model.timings is not None
        trace = model.timings.write(out.with_suffix(".json"))
    found: list[dict[str, Any]] = json.loads(trace.read_text("utf-8"))["traceEvents"]
    return found


@pytest.mark.parametrize("case", MADE)
def test_the_line_holds_the_key_that_the_path_names(case: str, tmp_path: Path) -> None:
    make, wanted = MADE[case]
    package = make(tmp_path / "package")
    events = events_of(package, tmp_path / "out", "drafts" in case)
    assert {RUN, TEXT} <= {each["cat"] for each in events}
    seen: dict[str, set[str]] = {}
    for kind, place in ((each["cat"], place) for each in events for place in each["args"]["origin"].split(", ")):
        told = re.fullmatch(r"([\w.-]+?)(?::(\d+) (.+))?", place)
        assert told, place
        file, line, path = package / told[1], told[2], told[3]
        assert file.is_file()
        seen.setdefault(kind, set()).add(path or told[1])
        if path is None:
            continue
        value, text = at(file, path), file.read_text("utf-8").splitlines()[int(line) - 1]
        key = last_key(path)
        assert f'"{key}"' in text or re.match(rf"\s*(- )?{key}:", text) if key else text.lstrip().startswith(("-", "{"))
        if path.endswith((".filename", ".file")):
            assert (package / value).is_file()
    for kind, places in wanted.items():
        assert seen.get(kind, set()) == places, kind


@pytest.mark.parametrize("case", ["tiny-runtime-policy", "tiny-decoder"])
def test_an_authored_step_stands_where_it_is_written(case: str, tmp_path: Path) -> None:
    """Its path is the step's own; text belongs to the step that publishes the tokens."""
    package = FIXTURES / case
    for each in events_of(package, tmp_path / "out"):
        path = each["args"]["origin"].split(", ")[0].split(" ", 1)[1]
        assert path == each["args"]["step"]
        step = at(package / "inference_metadata.yaml", path)
        assert (step["kind"] == "emit") == (each["cat"] == TEXT)
        if step["kind"] == "emit":
            assert step["output"] == "tokens"


@pytest.mark.parametrize("case", ["tiny-decoder", "tiny-held-state"])
def test_a_linked_graph_names_the_place_of_each_member(case: str, tmp_path: Path) -> None:
    """The model runs in one graph with others, before the loop and in it: no step that runs a graph is left unnamed."""
    package = FIXTURES / case
    where = "pipeline.workflow.steps[0]"
    loop = at(package / "inference_metadata.yaml", where)
    steps = {
        f"{where}.{part}[{number}]": step["component"]
        for part in ("setup", "steps")
        for number, step in enumerate(loop[part])
        if step["kind"] == "invoke"
    }
    spans = {
        tuple(place.split(" ", 1)[1] for place in each["args"]["origin"].split(", "))
        for each in events_of(package, tmp_path / "out")
        if each["cat"] in (RUN, HOST)
    }
    named = [path for span in spans for path in span]
    assert sorted(named) == sorted(steps)
    for span in spans:
        if "model" in (inside := [steps[path] for path in span]):
            assert "last_token_logits" in inside
