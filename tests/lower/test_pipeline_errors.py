"""The error contract of version 2 (its section 7.4), one document a row, and what else its text may not say."""

import json
from pathlib import Path
from typing import Any

import pytest
from genai_compiler.problem import Severity

from tests.lower.pipelines import (
    ENCODER_DECODER,
    MINIMAL,
    VISION,
    Document,
    Graphs,
    encoder_decoder,
    lone,
    named,
    package,
    pipeline,
    problems,
    vision,
)

PLAIN: Document = json.loads(MINIMAL)
Row = tuple[Document, str, str, str]


def pooled() -> Graphs:
    """A vision graph whose one output goes by another name."""
    graphs = vision()
    return graphs | {"vision.onnx": named(graphs["vision.onnx"], {"image_features": "hidden_states"})}


WIRES = [
    {"from": "vision.image_features", "to": "embedding.image_features"},
    {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embeds"},
]
STAGES = [{"run": "embedding"}, {"run": "decoder"}]
CONTRACT: dict[str, Row] = {
    "flow names undeclared session": (
        pipeline(PLAIN, flow=[{"run": "vision"}, {"run": "decoder"}]),
        "unknown-component",
        "pipeline.flow[0].run",
        'Flow step references session "vision" but no such session is declared in pipeline.sessions',
    ),
    "wire output missing": (
        pipeline(VISION, dataflow=WIRES),
        "missing-output",
        "pipeline.dataflow[0].from",
        'Dataflow wire references output "image_features" but session "vision" has no such output '
        "(available outputs: hidden_states)",
    ),
    "bad strategy": (
        pipeline(PLAIN, state={"position_ids": {"strategy": "my_custom"}}),
        "bad-value",
        "pipeline.state.position_ids.strategy",
        'Unknown position_ids strategy "my_custom". Valid options: auto, default, mrope_3d, windowed',
    ),
    "cycle": (
        pipeline(VISION, dataflow=[*WIRES, {"from": "decoder.logits", "to": "vision.pixel_values"}]),
        "cyclic-dataflow",
        "pipeline.dataflow",
        "Circular dependency detected in dataflow: vision → embedding → decoder → vision",
    ),
    "bad preset": (
        pipeline(PLAIN, extends="my-preset"),
        "bad-value",
        "pipeline.extends",
        'Unknown pipeline preset "my-preset". Built-in presets: '
        "autoregressive-decoder, vision-language, encoder-decoder, speech-language",
    ),
    "no sessions": (
        pipeline(VISION, sessions=..., extends="speech-language"),
        "missing-key",
        "pipeline.sessions",
        'Pipeline config requires at least one session. Add "sessions": {"decoder": {"file": "model.onnx"}}',
    ),
}  # fmt: skip
SIBLINGS: dict[str, Row] = {
    "wire input missing": (
        pipeline(VISION, dataflow=[*WIRES[:1], {"from": "embedding.inputs_embeds", "to": "decoder.inputs_embed"}]),
        "missing-input",
        "pipeline.dataflow[1].to",
        'Dataflow wire references input "inputs_embed" but session "decoder" has no such input (available inputs: '
        "inputs_embeds, attention_mask, past_key_values.0.key, past_key_values.0.value)",
    ),
    "wire to an undeclared session": (
        pipeline(VISION, dataflow=[*WIRES, {"from": "visoin.x", "to": "decoder.y"}]),
        "unknown-component",
        "pipeline.dataflow[2].from",
        'Dataflow wire references session "visoin" but no such session is declared in pipeline.sessions',
    ),
    "four fields, one of them empty": (
        pipeline(VISION, dataflow=[{"from_session": "vision", "from_output": "", "to_session": "decoder"}]),
        "missing-key",
        "pipeline.dataflow[0]",
        "the wire lacks an end",
    ),
    "an end without a dot": (
        pipeline(VISION, dataflow=[{"from": "vision", "to": "embedding.image_features"}]),
        "bad-value",
        "pipeline.dataflow[0].from",
        'Dataflow wire end "vision" is not of the form session.output',
    ),
    "bad when": (
        pipeline(PLAIN, flow=[{"run": "decoder", "when": "allways"}]),
        "bad-value",
        "pipeline.flow[0].when",
        'Flow step "decoder" has an unknown "when": "allways". Valid options: init, once, prompt, step, always, final',
    ),
    "bad loop": (
        pipeline(PLAIN, flow=[{"run": "decoder", "loop": "per_picture"}]),
        "bad-value",
        "pipeline.flow[0].loop",
        'Unknown loop "per_picture". Valid options: batched, per_image',
    ),
    "bad format": (
        pipeline(PLAIN, preprocessing={"image": {"format": "other"}}),
        "bad-value",
        "pipeline.preprocessing.image.format",
        'Unknown preprocessing format "other". Valid options: ort-extensions',
    ),
    "eleven stages": (
        pipeline(PLAIN, flow=[{"run": "decoder"}] * 11),
        "bad-value",
        "pipeline.flow",
        "Pipeline exceeds the maximum of 10 stages (got 11).",
    ),
    "one session twice": (
        pipeline(PLAIN, flow=[{"run": "decoder"}] * 2),
        "bad-value",
        "pipeline.flow[1].run",
        'Flow runs session "decoder" twice in one phase',
    ),
    "no step at all": (
        pipeline(PLAIN, flow=[]),
        "missing-key",
        "pipeline.flow",
        "the flow is empty: nothing would run",
    ),
    "two producers": (
        pipeline(VISION, dataflow=[*WIRES, WIRES[0]]),
        "wrong-port",
        "pipeline.dataflow[2].to",
        'Dataflow feeds input "image_features" of session "embedding" twice',
    ),
    "a consumer first": (
        pipeline(VISION, flow=[{"run": "decoder"}, {"run": "embedding"}, {"run": "vision"}], dataflow=WIRES[1:]),
        "bad-value",
        "pipeline.flow",
        'Flow runs session "decoder" before "embedding", whose output "inputs_embeds" it takes',
    ),
    "a producer that never runs": (
        pipeline(VISION, flow=STAGES, dataflow=WIRES),
        "bad-value",
        "pipeline.dataflow[0].from",
        'Dataflow takes output "image_features" of session "vision", which no flow step runs',
    ),
    "a plugin without its library": (
        pipeline(PLAIN, plugin={"library": "mine.so", "entry_point": "make"}),
        "missing-file",
        "pipeline.plugin.library",
        "there is no file 'mine.so' in the package",
    ),
    "an expected output of another rank": (
        pipeline(VISION, dataflow=[], preprocessing={
            "image": {"expected_outputs": {"pixel_values": {"rank": 4, "dtype": "float32"}}}}),
        "wrong-port",
        "pipeline.preprocessing.image.expected_outputs.pixel_values",
        'Expected output "pixel_values" is rank 4 float32, but session "vision" takes float32 [batch, 2, 8]',
    ),
    "a cross cache of nobody": (
        pipeline(ENCODER_DECODER, state={"cross_cache": {"source": "speech"}}),
        "unknown-component",
        "pipeline.state.cross_cache.source",
        'Cross cache references session "speech" but no such session is declared in pipeline.sessions',
    ),
    "a pattern with two slots": (
        pipeline(PLAIN, state={"kv_cache": {"past_key_pattern": "past.{layer}.%d.key"}}),
        "bad-value",
        "pipeline.state.kv_cache.past_key_pattern",
        "the pattern 'past.{layer}.%d.key' has 2 slots for the layer's number",
    ),
    "a field that no dialect has": (
        pipeline(PLAIN, sessions={"decoder": {"fiel": "model.onnx"}}),
        "unknown-field",
        "pipeline.sessions.decoder.fiel",
        'decoder has no field "fiel"',
    ),
    "a value of another type": (
        {**PLAIN, "tokens": {"pad": "zero"}},
        "wrong-type",
        "tokens.pad",
        'an integer expected, "zero" found',
    ),
    "several sessions and no order": (
        pipeline(VISION, extends=...),
        "missing-key",
        "pipeline.flow",
        "there are several sessions, and neither a flow nor a preset says which runs when",
    ),
    "a session without a file": (
        pipeline(VISION, extends="speech-language", sessions={"speech": {}}),
        "missing-key",
        "pipeline.sessions.speech",
        "the session 'speech' names no file",
    ),
    "a file that is absent": (
        pipeline(PLAIN, sessions={"decoder": {"file": "modle.onnx"}}),
        "missing-file",
        "pipeline.sessions.decoder.file",
        "there is no file 'modle.onnx' in the package",
    ),
    "an unknown provider": (
        pipeline(PLAIN, sessions={"decoder": {"execution_provider": "CUDDAExecutionProvider"}}),
        "unknown-provider",
        "pipeline.sessions.decoder.execution_provider",
        "there is no execution provider 'CUDDAExecutionProvider'",
    ),
    "version 1 with a pipeline": (
        {**PLAIN, "version": 1},
        "bad-value",
        "version",
        "version is 1, but a file with a pipeline is of version 2",
    ),
    "version 2 without a pipeline": ({"version": 2}, "missing-field", "", "the document lacks pipeline"),
}  # fmt: skip
NOT_YET: dict[str, Row] = {
    "plugin": (
        pipeline(PLAIN, plugin={"library": "model.onnx", "entry_point": "make"}),
        "unsupported-package-class",
        "pipeline.plugin",
        "a compiler loads no code of a package",
    ),
    "once an image": (
        pipeline(VISION, flow=[{"run": "vision", "when": "once", "loop": "per_image", "loop_over": "pixel_values"},
                               *STAGES]),
        "unsupported-package-class",
        "pipeline.flow[0].loop",
        "'vision' runs once an image, and nothing makes images of files",
    ),
    "crops": (
        pipeline(VISION, flow=[{"run": "vision", "dynamic_shape": {"source": "sizes", "apply_to_dims": [2, 3]}},
                               *STAGES]),
        "unsupported-package-class",
        "pipeline.flow[0].dynamic_shape",
        "'vision' takes items cut to their size, and nothing makes them of files",
    ),
    "a cross cache that changes": (
        pipeline(ENCODER_DECODER, state={"cross_cache": {"frozen": False}}),
        "unsupported-package-class",
        "pipeline.state.cross_cache.frozen",
        "a cross cache that changes from step to step",
    ),
    "another loop": (
        pipeline(PLAIN, generation_loop="denoising"),
        "unsupported-package-class",
        "pipeline.generation_loop",
        "a generation loop of kind 'denoising' is not compiled yet",
    ),
    "beams": ({**PLAIN, "generation": {"num_beams": 4}}, "unsupported-search", "generation.num_beams", "beam search"),
}  # fmt: skip


def told(row: Row, folder: Path, **files: Any) -> dict[str, str]:
    """path -> what is wrong, of the problems with the row's code."""
    document, code, _, _ = row
    graphs = pooled() if files.get("pooled") else vision() if "vision" in str(document) else lone()
    found = problems(package(folder, document, encoder_decoder() if "encoder" in str(document) else graphs))
    wrong = [each for each in found if each.severity is Severity.ERROR]
    assert all(each.where.file == "genai_config.json" and each.where.line for each in wrong)
    return {each.path: each.what for each in wrong if each.code == code}


@pytest.mark.parametrize("situation", CONTRACT)
def test_each_row_of_the_contract_gives_its_message(situation: str, tmp_path: Path) -> None:
    row = CONTRACT[situation]
    found = told(row, tmp_path / "p", pooled=situation == "wire output missing")
    assert found[row[2]] == row[3]


@pytest.mark.parametrize("situation", SIBLINGS)
def test_what_the_contract_is_silent_about_is_said_in_its_manner(situation: str, tmp_path: Path) -> None:
    row = SIBLINGS[situation]
    assert told(row, tmp_path / "p")[row[2]] == row[3]


@pytest.mark.parametrize("situation", NOT_YET)
def test_what_is_not_compiled_is_refused_by_name(situation: str, tmp_path: Path) -> None:
    row = NOT_YET[situation]
    assert row[3] in told(row, tmp_path / "p")[row[2]]


def test_all_faults_come_at_once_with_lines_and_near_names(tmp_path: Path) -> None:
    """One document with faults of text and of graphs: nothing hides behind anything."""
    document = pipeline(
        VISION,
        extends="vision-langauge",
        flow=[{"run": "vison", "when": "once"}, {"run": "embedding", "when": "promt"}, {"run": "decoder"}],
        dataflow=[WIRES[0], {"from": "embedding.inputs_embed", "to": "decoder.inputs_embeds"}],
        state={"position_ids": {"strategy": "mrope3d"}},
    )
    found = problems(package(tmp_path / "p", document, vision()))
    helps = {each.path: each.help for each in found if each.severity is Severity.ERROR}
    assert helps["pipeline.extends"] == "did you mean vision-language?"
    assert helps["pipeline.flow[0].run"] == "did you mean vision?"
    assert helps["pipeline.flow[1].when"] == "did you mean prompt?"
    assert helps["pipeline.dataflow[1].from"] == "did you mean inputs_embeds?"
    assert helps["pipeline.state.position_ids.strategy"] == "did you mean mrope_3d?"
    lines = (tmp_path / "p" / "genai_config.json").read_text().splitlines()
    for each in found:
        if each.path == "pipeline.flow[1].when":
            assert '"promt"' in lines[each.where.line - 1]
