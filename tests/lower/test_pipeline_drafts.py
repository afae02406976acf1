"""Draft models of both versions of `genai_config.json`: the tokens of a plain loop over the target, and counted drafts.

What is drafted and what stays is simulated with plain loops over both graphs, without any state kept between blocks.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.lower import config_plugin
from genai_compiler.lower.config_plugin import lower_plugin
from genai_compiler.lower.genai_config_v1 import lower_genai_config
from genai_compiler.lower.genai_config_v2 import lower_pipeline_config
from genai_compiler.lower.lowered import Lowered, LoweredGraph
from genai_compiler.problem import Problem, Severity
from onnx import ModelProto, TensorProto

from tests.lower.packages import Layer, Recipe, decoder, write_package
from tests.lower.pipelines import VISION, Document, Graphs, package, pipeline, problems, vision
from tests.lower.test_pipeline import PLAIN
from tests.test_convert import converted, same_plan
from tests.wording import smells

PROMPTS = [[3, 1, 7], [5], [9, 10, 11, 12, 13, 14, 15, 16], [1, 2, 3] * 5]
SMALLER, SAME = Recipe(layers=(Layer(0), Layer(1)), op="attention"), Recipe(op="attention")
TARGETS = {"in one buffer": Recipe(), "growing": Recipe(op="attention")}
DRAFTED: Document = pipeline(
    PLAIN,
    extends=...,
    sessions={"decoder": {"file": "model.onnx"}, "small": {"file": "draft.onnx"}},
    roles={"target": "decoder", "draft": "small"},
    strategy={"kind": "speculative", "num_speculative_tokens": 3},
) | {"tokens": {"eos": 2, "pad": 0}, "generation": {"max_length": 64}}


def said(made: Lowered | LoweredGraph) -> list[Problem]:
    """The warnings, but for the tokenizer that these packages lack."""
    return [each for each in made.problems if each.path]


def both(target: Recipe = TARGETS["in one buffer"], draft: Recipe = SMALLER) -> Graphs:
    return {"model.onnx": decoder(target), "draft.onnx": decoder(draft)}


@cache
def _session(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def greedy(path: Path, prompt: list[int], count: int) -> list[int]:
    """So many greedy tokens by a loop over a graph, whatever its caches are called."""
    session = _session(path)
    caches = [each for each in session.get_inputs() if each.name not in ("input_ids", "attention_mask")]
    past = {each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32) for each in caches}
    fresh, length, tokens = list(prompt), 0, list[int]()
    while len(tokens) < count:
        length += len(fresh)
        feeds = {"input_ids": np.array([fresh]), "attention_mask": np.ones((1, length), np.int64), **past}
        logits, *present = session.run(None, feeds)
        past = dict(zip(past, present, strict=True))
        fresh = [int(logits[0, -1].argmax())]
        tokens += fresh
    return tokens


def expected(folder: Path, prompt: list[int], count: int, width: int) -> tuple[list[int], int, int]:
    """(tokens, drafted, accepted), by plain loops: each block drafts from the whole text so far."""
    tokens = greedy(folder / "model.onnx", prompt, count)
    drafted = accepted = 0
    at = 1  # the first token is the prompt's
    while at < len(tokens):
        most = min(width, len(tokens) - at - 1)
        guesses = greedy(folder / "draft.onnx", [*prompt, *tokens[:at]], most) if most else []
        right = 0
        while right < most and guesses[right] == tokens[at + right]:
            right += 1
        drafted, accepted, at = drafted + most, accepted + right, at + right + 1
    return tokens, drafted, accepted


def holds(folder: Path, width: int, count: int = 20) -> tuple[int, int]:
    """Compile the package and hold tokens and counts of every prompt against the loops; gives the counts' sums."""
    made, stayed = 0, 0
    out = folder.with_name("out")
    compile_package(folder, out=out)
    with genai_runtime.load(out, threads=1) as model:
        facts = model.describe()["speculation"]
        assert (facts["driven"], facts["by_itself"], facts["width"]) == (True, True, width)
        for prompt in PROMPTS:
            generation = model.generate(prompt, max_new_tokens=count, stop_on_eos=False)
            tokens, drafted, accepted = expected(folder, prompt, count, width)
            assert generation.tokens == tokens, prompt
            assert (generation.stats.drafted, generation.stats.accepted) == (drafted, accepted), prompt
            alone = model.generate(prompt, max_new_tokens=count, stop_on_eos=False, speculate=False)
            assert (alone.tokens, alone.stats.drafted) == (tokens, 0)
            sampled = [
                model.generate(prompt, max_new_tokens=count, temperature=1.3, seed=4, speculate=each).tokens
                for each in (True, False)
            ]
            assert sampled[0] == sampled[1]
            made, stayed = made + drafted, stayed + accepted
    return made, stayed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [1, 3, 6])
def test_a_strategy_gives_the_targets_own_tokens(target: str, width: int, tmp_path: Path) -> None:
    document = pipeline(DRAFTED, strategy={"num_speculative_tokens": width})
    made, _ = holds(package(tmp_path / "p", document, both(TARGETS[target])), width)
    assert made > 0


@pytest.mark.parametrize("draft", [SAME, Recipe()], ids=["growing", "in one buffer"])
def test_drafts_of_the_same_network_all_stay(draft: Recipe, tmp_path: Path) -> None:
    made, stayed = holds(package(tmp_path / "p", DRAFTED, both(draft=draft)), 3)
    assert made == stayed > 0


WAYS: dict[str, Document] = {
    "the strategy names both": {
        "roles": ...,
        "strategy": {"draft": {"producer": "draft_model", "session": "small"}, "verify": {"session": "decoder"}},
    },
    "the flow runs both": {
        "flow": [{"run": "decoder", "when": "step"}, {"run": "small", "when": "step"}],
    },
    "a preset runs the target": {"extends": "autoregressive-decoder", "roles": {"target": ...}},
    "the role of a session": {"sessions": {"decoder": {"role": "decoder"}}, "roles": {"target": ...}},
    "by rejection": {"strategy": {"acceptance": "rejection_sampling"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_there_are_several_ways_to_say_it(way: str, tmp_path: Path) -> None:
    plain = lower_pipeline_config(package(tmp_path / "a", DRAFTED, both()))
    other = lower_pipeline_config(package(tmp_path / "b", pipeline(DRAFTED, **WAYS[way]), both()))
    assert other.document == plain.document
    assert said(plain) == []
    assert [each.path for each in said(other)] == ["pipeline.strategy.acceptance"] * (way == "by rejection")


def test_the_target_may_have_any_name(tmp_path: Path) -> None:
    document = pipeline(
        DRAFTED,
        sessions={"decoder": {"file": "draft.onnx"}, "large": {"file": "model.onnx"}, "small": ...},
        roles={"target": "large", "draft": "decoder"},
    )
    made, _ = holds(package(tmp_path / "p", document, both()), 3)
    assert made > 0


def test_the_converted_document_is_the_same_package(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", DRAFTED, both())
    before = compile_package(folder, out=tmp_path / "before")
    after = converted(folder, tmp_path / "q" / "p")
    same_plan(before, compile_package(after, out=tmp_path / "after"))
    made, _ = holds(after, 3)
    assert made > 0


# ---- version 1 -------------------------------------------------------------------------------------------------------


def first_version(folder: Path, draft: ModelProto, config: Document | None = None, **section: Any) -> Path:
    write_package(folder, Recipe(), {"model": {"draft": {"filename": "draft.onnx", **section}}, **(config or {})})
    (folder / "draft.onnx").write_bytes(draft.SerializeToString())
    return folder


@pytest.mark.parametrize(("config", "width"), [({}, 4), ({"speculative": {"max_draft_tokens": 2}}, 2)])
def test_a_draft_model_of_version_1_is_used(config: Document, width: int, tmp_path: Path) -> None:
    folder = first_version(tmp_path / "p", decoder(SMALLER), config)
    assert [each for each in lower_genai_config(folder).problems if each.path.startswith("model.draft")] == []
    made, _ = holds(folder, width)
    assert made > 0


def test_both_versions_lower_to_one_document(tmp_path: Path) -> None:
    """But for the session's name, which the component has."""
    old = lower_genai_config(first_version(tmp_path / "v1", decoder(SMALLER), {"speculative": {"max_draft_tokens": 3}}))
    new = lower_pipeline_config(package(tmp_path / "v2", DRAFTED, both()))
    assert json.loads(json.dumps(new.document).replace('"small"', '"draft"')) == old.document


def test_a_converted_version_1_is_the_same_package(tmp_path: Path) -> None:
    folder = first_version(tmp_path / "p", decoder(SMALLER))
    before = compile_package(folder, out=tmp_path / "before")
    same_plan(before, compile_package(converted(folder, tmp_path / "q" / "p"), out=tmp_path / "after"))


def test_ports_of_a_draft_model_are_its_own(tmp_path: Path) -> None:
    """Names of its section count for it alone; the decoder's keep the form's."""
    named = Recipe(layers=(Layer(0), Layer(1)), op="attention", past="old.{}.{}", present="new.{}.{}")
    inputs = {"past_key_names": "old.%d.key", "past_value_names": "old.%d.value"}
    outputs = {"present_key_names": "new.%d.key", "present_value_names": "new.%d.value"}
    made, _ = holds(first_version(tmp_path / "p", decoder(named), inputs=inputs, outputs=outputs), 4)
    assert made > 0


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"max_draft_tokens": 0}, ("bad-value", "speculative.max_draft_tokens")),
        ({"max_draft_tokens": 17}, ("bad-value", "speculative.max_draft_tokens")),
        ({"ngram_size": 3}, ("ignored-key", "speculative.ngram_size")),
        ({"min_adaptive_k": 2}, ("ignored-key", "speculative.min_adaptive_k")),
        ({"cooldown": True}, ("ignored-key", "speculative.cooldown")),
    ],
)
def test_what_speculative_says_of_a_draft_model(stated: Document, said: tuple[str, str], tmp_path: Path) -> None:
    folder = first_version(tmp_path / "p", decoder(SMALLER), {"speculative": stated})
    found = problems(folder) if said[0] == "bad-value" else list(lower_genai_config(folder).problems)
    assert said in [(each.code, each.path) for each in found]


# ---- drafts that can't be driven -------------------------------------------------------------------------------------

EXTRA = {"temperature_of_layer": (TensorProto.FLOAT, ["batch", 1])}
UNDRIVEN: dict[str, tuple[Recipe, str]] = {
    "more inputs": (Recipe(op="attention", extra_inputs=EXTRA), "its graph"),
    "a cache of one length": (Recipe(past_length=64, present_length=64), "its caches are none that grow"),
    "one symbol": (Recipe(present_length="past_sequence_length"), "its graph declares past and present"),
}


@pytest.mark.parametrize("name", UNDRIVEN)
def test_a_draft_that_can_not_be_driven_is_said_and_changes_nothing(name: str, tmp_path: Path) -> None:
    recipe, why = UNDRIVEN[name]
    graphs = both(draft=recipe)
    one = lower_pipeline_config(package(tmp_path / "v2", DRAFTED, graphs))
    two = lower_genai_config(first_version(tmp_path / "v1", graphs["draft.onnx"]))
    for made, path in ((one, "pipeline.roles.draft"), (two, "model.draft")):
        (told,) = said(made)
        assert (told.code, told.path, told.severity) == ("ignored-key", path, Severity.WARNING)
        assert why in told.what
        assert smells([told]) == []
        assert "speculative" not in made.document
    out = tmp_path / "out"
    compile_package(tmp_path / "v2", out=out)
    with genai_runtime.load(out, threads=1) as model:
        tokens = model.generate(PROMPTS[0], max_new_tokens=8, stop_on_eos=False).tokens
    assert tokens == greedy(tmp_path / "v2" / "model.onnx", PROMPTS[0], 8)


def test_nothing_drafts_beside_other_models(tmp_path: Path) -> None:
    document = pipeline(
        VISION, sessions={"small": {"file": "draft.onnx"}}, roles={"draft": "small"}, strategy={"kind": "speculative"}
    )
    made = lower_pipeline_config(package(tmp_path / "p", document, vision() | {"draft.onnx": decoder(SMALLER)}))
    told = {each.path: each.what for each in made.problems}
    assert "other models stand beside the decoder" in told["pipeline.roles.draft"]


# ---- what is refused -------------------------------------------------------------------------------------------------

STRATEGY, REFUSED = "pipeline.strategy", "unsupported-package-class"
FAULTS: dict[str, tuple[Document, str, str, str]] = {
    "another kind": ({"strategy": {"kind": "lookahead"}}, "bad-value", f"{STRATEGY}.kind",
                     'Unknown strategy "lookahead"'),
    "n-grams": ({"strategy": {"draft": {"producer": "ngram", "ngram": {"max_draft": 4}}}}, REFUSED,
                f"{STRATEGY}.draft.producer", "drafts of the producer 'ngram' are not compiled"),
    "its own layers": ({"strategy": {"draft": {"producer": "self_speculative", "depth": 4}}}, REFUSED,
                       f"{STRATEGY}.draft.producer", "drafts of the producer 'self_speculative' are not compiled"),
    "more heads": ({"strategy": {"draft": {"producer": "extra_heads", "heads": 4}}}, REFUSED,
                   f"{STRATEGY}.draft.producer", "drafts of the producer 'extra_heads' are not compiled"),
    "no producer": ({"strategy": {"draft": {"producer": "draft"}}}, "bad-value", f"{STRATEGY}.draft.producer",
                    'Unknown producer "draft"'),
    "typical": ({"strategy": {"acceptance": "typical", "typical_threshold": 0.3}}, REFUSED, f"{STRATEGY}.acceptance",
                "keeps tokens that the target itself would not have chosen"),
    "a tree": ({"strategy": {"tree": {"max_nodes": 8, "medusa_choices": [[0], [0, 1]]}}}, REFUSED, f"{STRATEGY}.tree",
               "drafts that branch (tree) are not compiled"),
    "nobody drafts": ({"roles": {"draft": ...}, "flow": [{"run": "decoder"}]}, "missing-key", STRATEGY,
                      "the strategy names no session that drafts"),
    "no such session": ({"roles": {"draft": "smal"}, "flow": [{"run": "decoder"}]}, "unknown-component",
                        "pipeline.roles.draft", '"smal" is no session'),
    "its own draft": ({"roles": {"draft": "decoder"}}, "bad-value", "pipeline.roles.draft",
                      "'decoder' is the target of its own drafts"),
    "no target": ({"sessions": {"decoder": ...}, "roles": {"target": ...}}, "bad-value", "pipeline.roles.draft",
                  "there is no other session to decode"),
    "two drafts": ({"strategy": {"draft": {"session": "decoder"}}}, "bad-value", f"{STRATEGY}.draft.session",
                   "'decoder' here, but 'small' elsewhere"),
    "another target": ({"sessions": {"third": {"file": "model.onnx", "role": "decoder"}},
                        "flow": [{"run": "decoder"}, {"run": "third"}]}, "bad-value", "pipeline.roles.target",
                       "'third' has the role decoder"),
    "a target that never runs": ({"sessions": {"third": {"file": "model.onnx"}}, "flow": [{"run": "third"}]},
                                 "bad-value", "pipeline.roles.target", "which no flow step runs"),
    "many at once": ({"strategy": {"num_speculative_tokens": 65}}, "bad-value", f"{STRATEGY}.num_speculative_tokens",
                     "64 at most are drafted at once"),
    "an amateur": ({"roles": {"amateur": "small"}}, REFUSED, "pipeline.roles.amateur", "mixes the scores of several"),
    "an expert": ({"roles": {"expert": "decoder"}}, REFUSED, "pipeline.roles.expert", "mixes the scores of several"),
    "an unconditional one": ({"roles": {"unconditional": "small"}}, REFUSED, "pipeline.roles.unconditional",
                             "mixes the scores of several"),
    "hidden states": ({"dataflow": [{"from": "decoder.logits", "to": "small.input_ids"}]}, REFUSED,
                      "pipeline.dataflow[0]", "drafts are made of the tokens alone"),
    "no file": ({"sessions": {"small": {"file": "smal.onnx"}}}, "missing-file", "pipeline.sessions.small.file",
                "'smal.onnx'"),
    "a file elsewhere": ({"sessions": {"small": {"file": "../draft.onnx"}}}, "outside-package",
                         "pipeline.sessions.small.file", "'../draft.onnx'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_draft_model_is_refused_by_name(name: str, tmp_path: Path) -> None:
    over, code, path, what = FAULTS[name]
    found = problems(package(tmp_path / "p", pipeline(DRAFTED, **over), both()))
    (told,) = [each for each in found if (each.code, each.path) == (code, path)]
    assert what in told.what
    assert told.where.line > 0
    assert smells(found) == []


def test_what_belongs_to_another_way_is_said(tmp_path: Path) -> None:
    idle = {"draft": {"depth": 2, "heads": 3, "ngram": {"window": 9}}, "typical_threshold": 0.5}
    sessions = {"small": {"execution_provider": "CUDAExecutionProvider"}}
    made = lower_pipeline_config(package(tmp_path / "p", pipeline(DRAFTED, strategy=idle, sessions=sessions), both()))
    paths = ["depth", "heads", "ngram"]
    assert {each.path for each in made.problems if each.code == "ignored-key"} == {
        *(f"{STRATEGY}.draft.{each}" for each in paths),
        f"{STRATEGY}.typical_threshold",
        "pipeline.sessions.small.execution_provider",
    }
    idle_role = pipeline(DRAFTED, strategy=...)
    (told,) = said(lower_pipeline_config(package(tmp_path / "q", idle_role, both())))
    assert (told.code, told.path) == ("ignored-key", "pipeline.roles.draft")


def test_a_controller_is_refused_as_a_plugin_is(tmp_path: Path) -> None:
    stated = {"library": "libloop.so", "entry_point": "make", "config": "{}"}
    found = problems(package(tmp_path / "p", pipeline(DRAFTED, controller=stated), both()))
    told = {(each.code, each.path): each for each in found}
    whole = told[REFUSED, "pipeline.controller"]
    assert "the controller 'libloop.so' would own the loop; a compiler loads no code of a package" in whole.what
    assert "pipeline.strategy" in whole.help
    assert ("missing-file", "pipeline.controller.library") in told
    empty = problems(package(tmp_path / "q", pipeline(DRAFTED, controller={"config": "x"}), both()))
    paths = {each.path for each in empty if each.code == "missing-key"}
    assert paths == {"pipeline.controller.library", "pipeline.controller.entry_point"}
    assert smells([*found, *empty]) == []


def test_no_adapter_takes_the_place_of_a_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one takes that of a plugin beside it."""
    monkeypatch.setattr(config_plugin, "is_installed", lambda _abi: True)
    plugin = {"library": "model.onnx", "entry_point": "make"}
    folder = package(tmp_path / "p", pipeline(DRAFTED, plugin=plugin, controller=plugin), both())
    with pytest.raises(CompileError) as caught:
        lower_plugin(folder)
    assert [each.path for each in caught.value.problems if each.severity is Severity.ERROR] == ["pipeline.controller"]
