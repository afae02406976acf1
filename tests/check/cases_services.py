"""One broken document a rule: the LoRA service and speculative decoding (V069-V121, V275-V308)."""

from typing import Any

from tests.check.cases_steps import COUNTS, P, S, W, case
from tests.read.documents import DELETE

TARGET, FIRST, SECOND = "adapters/target_manifest/targets/0", "adapters/artifacts/first", "adapters/artifacts/second"
T, A = "adapters.target_manifest.targets[0]", "adapters.artifacts.first"
TARGETS = "adapters.target_manifest.targets"
LONELY: dict[str, Any] = {"pipeline": DELETE}  # the service without a workflow

SERVICE = [
    case("V069", "lora", {"adapters/application_capability": "adapters"}, "adapters.application_capability"),
    case("V070", "lora", {"adapters/cache": {"max_entries": 0}}, "adapters.cache.max_entries"),
    case("V071", "lora", {**LONELY, "adapters/selection/max_adapters": 0}, "adapters.selection.max_adapters"),
    case("V072", "lora", {"adapters/artifacts": {}}, "adapters.artifacts"),
    case("V073", "lora", {"adapters/target_manifest/targets": [], f"{FIRST}/bindings": [], f"{SECOND}/bindings": [],
                          f"{P}/components/overlay": DELETE, f"{S}/0": {"kind": "invoke", "component": "model"}},
         TARGETS, "V107"),
    case("V074", "lora", {"adapters/selection/segments": "segment"}, "adapters.selection.segments"),
    case("V074", "lora", {f"{P}/inputs/segments/contract/shape": ["batch", 3]}, "adapters.selection.segments"),
    case("V075", "lora", {f"{P}/inputs/counts/contract/dtype": "int32"}, "adapters.selection.adapter_counts"),
    case("V075", "lora", {f"{P}/inputs/counts/role/version": "1"}, "adapters.selection.adapter_counts"),
    case("V076", "lora", {f"{P}/inputs/scales/required": False, f"{P}/inputs/scales/default": 1.0},
         "adapters.selection.scales"),
    case("V076", "lora", {f"{P}/inputs/scales/source": {"kind": "literal"}, f"{P}/inputs/scales/default": 1.0},
         "adapters.selection.scales"),
    case("V077", "lora", {f"{P}/inputs/active/contract/shape": ["rows"]}, "adapters.selection.active"),
    case("V077", "lora", {f"{P}/inputs/active/contract/batch_layout": DELETE}, "adapters.selection.active"),
    case("V078", "lora", {**LONELY, "adapters/selection/scales": ""}, "adapters.selection.scales"),
]  # fmt: skip

TARGET_RULES = [
    case("V079", "lora", {f"{TARGET}/node_name": " "}, f"{T}.node_name"),
    case("V080", "lora", {"adapters/target_manifest/targets/1/id": "q", f"{SECOND}/bindings/0/target": "q",
                          f"{SECOND}/rank": 2, f"{SECOND}/alpha": 4}, f"{TARGETS}[1].id"),
    case("V081", "lora", {"adapters/target_manifest/targets/1/initializer": "wq", f"{TARGET}/output_slice": DELETE},
         f"{TARGETS}[1].initializer"),
    case("V082", "lora", {f"{TARGET}/input_features": 0}, f"{T}.input_features"),
    case("V083", "lora", {f"{TARGET}/activation_dtype": "int8"}, f"{T}.activation_dtype"),
    case("V084", "lora", {"adapters/target_manifest/targets/1/rank": 0, f"{SECOND}/bindings/0/target": "q",
                          f"{SECOND}/rank": 2, f"{SECOND}/alpha": 4}, f"{TARGETS}[1].rank"),
    case("V085", "lora", {"adapters/target_manifest/targets/1/alpha": -1, f"{SECOND}/bindings/0/target": "q",
                          f"{SECOND}/rank": 2, f"{SECOND}/alpha": 4}, f"{TARGETS}[1].alpha"),
    case("V086", "lora", {f"{TARGET}/output_slice/role": ""}, f"{T}.output_slice.role"),
    case("V086", "lora", {f"{TARGET}/output_slice/width": 0}, f"{T}.output_slice.width"),
    case("V086", "lora", {f"{TARGET}/output_slice/offset": 5}, f"{T}.output_slice.width"),
    case("V087", "lora", {f"{TARGET}/graph_inputs/b": "q.a"}, f"{T}.graph_inputs.b"),
    case("V087", "lora", {f"{TARGET}/graph_inputs/scale": " "}, f"{T}.graph_inputs.scale"),
    case("V088", "lora", {"adapters/target_manifest/targets/1/component": "modl"}, f"{TARGETS}[1].component"),
    case("V089", "lora", {**LONELY, "adapters/target_manifest/targets/1/component": "decoder"},
         f"{TARGETS}[1].component"),
    case("V119", "lora", {f"{P}/components/overlay/contract/parameters/component": 1},
         f"{W}.components.overlay.contract.parameters.component"),
    case("V120", "lora", {f"{P}/components/overlay/contract/parameters/parameter": DELETE},
         f"{W}.components.overlay.contract.parameters"),
    case("V121", "lora", {f"{P}/components/overlay/contract/parameters/parameter": "wk"},
         f"{W}.components.overlay.contract.parameters"),
]  # fmt: skip

ADAPTERS = [
    case("V090", "lora", {f"{FIRST}/identity": ""}, f"{A}.identity"),
    case("V091", "lora", {f"{FIRST}/provenance/source": ""}, f"{A}.provenance.source"),
    case("V092", "lora", {f"{SECOND}/index": 0}, "adapters.artifacts.second.index"),
    case("V093", "lora", {f"{SECOND}/identity": "one"}, "adapters.artifacts.second.identity"),
    case("V094", "lora", {f"{SECOND}/index": 2}, "adapters.artifacts"),
    case("V095", "lora", {f"{SECOND}/rank": 0}, "adapters.artifacts.second.rank"),
    case("V096", "lora", {f"{SECOND}/alpha": 0}, "adapters.artifacts.second.alpha"),
    case("V097", "lora", {f"{FIRST}/dtype": "int4"}, f"{A}.dtype"),
    case("V098", "lora", {f"{SECOND}/weights": []}, "adapters.artifacts.second"),
    case("V099", "lora", {f"{FIRST}/weights/2": {"location": "adapters/first/x.json", "scale_encoding": "baked",
         "loader_capability": "onnx-genai.adapters.json@1"}}, f"{A}.weights[2].format"),
    case("V100", "lora", {f"{FIRST}/weights/0/location": "adapters/second/w.json"}, f"{A}.weights[0].location"),
    case("V100", "lora", {f"{FIRST}/weights/0/location": "adapters/first/../w.json"}, f"{A}.weights[0].location"),
    case("V100", "lora", {f"{FIRST}/weights/0/location": "/adapters/first/w.json"}, f"{A}.weights[0].location"),
    case("V101", "lora", {f"{FIRST}/weights/0/loader_capability": " "}, f"{A}.weights[0].loader_capability"),
    case("V102", "lora", {f"{FIRST}/weights/0/loader_capability": "onnxruntime.lora-adapter@1"},
         f"{A}.weights[0].loader_capability"),
    case("V103", "lora", {f"{FIRST}/weights/1/scale_encoding": "baked"}, f"{A}.weights[1].scale_encoding"),
    case("V104", "lora", {f"{FIRST}/weights/2/scale_encoding": "alpha_over_rank"}, f"{A}.weights[2].scale_encoding"),
    case("V105", "lora", {f"{FIRST}/weights/1/config_location": DELETE}, f"{A}.weights[1]"),
    case("V105", "lora", {f"{FIRST}/weights/0/config_location": "adapters/first/c.json"},
         f"{A}.weights[0].config_location"),
    case("V106", "lora", {f"{FIRST}/weights/1/config_location": "adapters/c.json"},
         f"{A}.weights[1].config_location"),
    case("V107", "lora", {f"{SECOND}/bindings": []}, "adapters.artifacts.second"),
    case("V108", "lora", {f"{FIRST}/bindings/0/weight_key": ""}, f"{A}.bindings[0].weight_key"),
    case("V109", "lora", {f"{SECOND}/bindings": [{"target": "v", "weight_key": "k"}, {"target": "q", "weight_key": "k",
         "rank": 2, "alpha": 4}]}, "adapters.artifacts.second.bindings[1].weight_key"),
    case("V110", "lora", {f"{SECOND}/bindings/0/target": "w"}, "adapters.artifacts.second.bindings[0].target"),
    case("V111", "lora", {f"{TARGET}/graph_inputs": DELETE}, f"{A}.bindings[0].target"),
    case("V112", "lora", {f"{SECOND}/bindings/0/rank": 0}, "adapters.artifacts.second.bindings[0].rank"),
    case("V113", "lora", {f"{SECOND}/bindings/0/alpha": -2}, "adapters.artifacts.second.bindings[0].alpha"),
    case("V114", "lora", {f"{TARGET}/rank": 3}, f"{A}.bindings[0]"),
    case("V115", "lora", {f"{TARGET}/alpha": 5}, f"{A}.bindings[0]"),
    case("V116", "lora", {f"{TARGET}/output_slice/rank": 3}, f"{A}.bindings[0]"),
    case("V117", "lora", {f"{TARGET}/output_slice/alpha": 5}, f"{A}.bindings[0]"),
    case("V118", "lora", {f"{SECOND}/bindings": [{"target": "v", "weight_key": "k"}, {"target": "v",
         "weight_key": "l"}]}, "adapters.artifacts.second.bindings[1].target"),
]  # fmt: skip

SP, EX = "speculative", "speculative/proposal_execution"
X = "speculative.proposal_execution"
GROUP = f"{P}/serving/state_service/groups"
BLOCK = {EX: {"kind": "block"}}
UNFOLDED = {f"{EX}/folded_carry_output": DELETE}
OTHER = {"implementation": {"kind": "onnx", "artifact": "o.onnx"}, "ports": {"outputs": {"hidden": COUNTS}}}

CHAINS = [
    case("V275", "drafts", {"pipeline": DELETE}, "speculative"),
    case("V276", "drafts", {**BLOCK, f"{SP}/proposer": "drft"}, "speculative.proposer"),
    case("V277", "drafts", {**BLOCK, f"{SP}/target": "modl"}, "speculative.target"),
    case("V278", "drafts", {**UNFOLDED, f"{EX}/token_embedding_input": "fusd"}, f"{X}.token_embedding_input"),
    case("V279", "drafts", {f"{EX}/logits_output": "logit"}, f"{X}.logits_output"),
    case("V280", "drafts", {**UNFOLDED, f"{EX}/recurrent": []}, X),
    case("V281", "drafts", {f"{EX}/folded_carry_output": "cary"}, f"{X}.folded_carry_output"),
    case("V282", "drafts", {f"{SP}/port_bindings": {}}, "speculative.port_bindings"),
    case("V283", "drafts", {f"{SP}/port_bindings/target_hidden_context": "fusd"},
         "speculative.port_bindings.target_hidden_context"),
    case("V283", "drafts", {**UNFOLDED, f"{SP}/port_bindings/target_hidden_context": "fusd"},
         "speculative.port_bindings.target_hidden_context"),
    case("V283", "drafts", {**BLOCK, f"{SP}/port_bindings/target_hidden_context": "fusd"},
         "speculative.port_bindings.target_hidden_context"),
    case("V284", "drafts", {f"{SP}/port_bindings/target_hidden_context": "more"},
         "speculative.port_bindings.target_hidden_context"),
    case("V285", "drafts", {f"{EX}/folded_carry_seed": DELETE}, X),
    case("V286", "drafts", {f"{EX}/folded_carry_seed/component": "modl"}, f"{X}.folded_carry_seed.component"),
    case("V287", "drafts", {f"{EX}/folded_carry_seed/output": "hiden"}, f"{X}.folded_carry_seed.output"),
    case("V288", "drafts", {f"{P}/components/other": OTHER, f"{EX}/folded_carry_seed/component": "other"},
         f"{X}.folded_carry_seed.component"),
    case("V289", "drafts", {f"{EX}/token_embedding": DELETE}, X),
    case("V290", "drafts", {f"{EX}/token_embedding/component": "modl"}, f"{X}.token_embedding.component"),
    case("V291", "drafts", {f"{EX}/token_embedding/component": "draft"}, f"{X}.token_embedding.component"),
    case("V292", "drafts", {f"{P}/components/model/implementation": {"kind": "binding"}},
         f"{X}.token_embedding.component"),
    case("V293", "drafts", {f"{EX}/token_embedding/table": " "}, f"{X}.token_embedding.table"),
    case("V294", "drafts", {f"{EX}/recurrent/1": {"state": "hidden", "input": "more", "output": "h"}},
         f"{X}.recurrent[1].state"),
    case("V295", "drafts", {f"{EX}/recurrent/0/state": "hiden"}, f"{X}.recurrent[0].state"),
    case("V296", "drafts", {f"{SP}/rollback_state": []}, f"{X}.recurrent[0].state"),
    case("V297", "drafts", {f"{EX}/recurrent/0/input": "hh", f"{GROUP}/main/ports/draft/hidden/input": "hh"},
         f"{X}.recurrent[0].input", "V206"),
    case("V298", "drafts", {f"{EX}/recurrent/0/output": "hh", f"{GROUP}/main/ports/draft/hidden/output": "hh"},
         f"{X}.recurrent[0].output", "V207"),
    case("V299", "drafts", {f"{SP}/rollback_state": ["hidden", "plain"], f"{EX}/recurrent/0/state": "plain"},
         f"{X}.recurrent[0].state"),
    case("V300", "drafts", {f"{GROUP}/main/ports/draft/hidden/access": "read_only"}, f"{X}.recurrent[0].state"),
    case("V301", "drafts", {f"{EX}/recurrent/0/input": "more"}, f"{X}.recurrent[0].input"),
    case("V302", "drafts", {f"{EX}/recurrent/0/output": "carry"}, f"{X}.recurrent[0].output"),
    case("V302", "drafts", {f"{EX}/recurrent/0/output": "carry",
         f"{GROUP}/main/ports/draft/hidden/access": "read_only"}, f"{X}.recurrent[0].output", "V300"),
]  # fmt: skip

UNDONE = [
    case("V303", "drafts", {f"{SP}/rollback_state": ["hidden", "hiden"]}, "speculative.rollback_state[1]"),
    case("V304", "drafts", {f"{GROUP}/main/capabilities/cascade": ["sde"]}, "speculative.rollback_state[0]", "V201"),
    case("V305", "drafts", {f"{GROUP}/side/capabilities": {}}, "speculative.rollback_state[0]"),
    case("V306", "drafts", {f"{GROUP}/side/capabilities/rollback_positions": 3}, "speculative.rollback_state[0]"),
    case("V307", "drafts", {f"{P}/effects/notes/speculation_safety": {"kind": "none"}},
         f"{W}.effects.notes.speculation_safety"),
    case("V308", "drafts", {f"{P}/effects/grammar/speculation_safety/max_depth": 3},
         f"{W}.effects.grammar.speculation_safety"),
]  # fmt: skip
