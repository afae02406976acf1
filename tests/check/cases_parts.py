"""One broken document a rule: contracts, inputs, outputs, components, effects, tasks, preprocessing (V029-V164)."""

from typing import Any

from tests.check.cases_steps import WIDE, P, S, W, case
from tests.read.documents import DELETE

OUT, IN, COMP = f"{P}/outputs", f"{P}/inputs", f"{P}/components"
SPEECH, DECODING = "profiles/speech", "profiles/speech/decoding"
WAVE: dict[str, Any] = {
    "kind": "invoke", "component": "ears", "inputs": {"encoded": "file"}, "outputs": {"wave": "again"},
}  # fmt: skip

CONTRACTS = [
    case("V124", "io", {f"{IN}/x/contract/dtype": "float64", f"{S}/0/component": "thing"},
         f"{W}.inputs.x.contract.dtype", "V231", "V233"),
    case("V124", "io", {f"{COMP}/thing/ports": {"inputs": {"p": {"dtype": "string", "rank": 0}}}},
         f"{W}.components.thing.ports.inputs.p.dtype"),
    case("V124", "io", {f"{OUT}/plain/contract/dtype": "int4"}, f"{W}.outputs.plain.contract.dtype"),
    case("V124", "flow", {f"{P}/state/spare": {"contract": {"dtype": "x", "rank": 0}, "scope": "invocation",
         "initializer": "x", "recurrence": {"kind": "invariant"}}}, f"{W}.state.spare.contract.dtype"),
    case("G001", "io", {f"{IN}/pair/contract/batch_layout/axis": 1}, f"{W}.inputs.pair.contract.batch_layout.axis"),
    case("G001", "io", {f"{OUT}/plain/contract/batch_layout/axis": 2, f"{S}/1/output": "picture"},
         f"{W}.outputs.plain.contract.batch_layout.axis"),
    case("G001", "io", {f"{COMP}/guide/ports/inputs/spare": {"dtype": "int64", "rank": 0, "batch_layout": {
             "kind": "token_packed", "axis": 0, "offsets": "x", "owner": "x"}}},
         f"{W}.components.guide.ports.inputs.spare.batch_layout.axis"),
    case("G001", "flow", {f"{P}/state/spare": {"contract": {"dtype": "int64", "rank": 0, "batch_layout": {
             "kind": "request_aligned", "axis": 0}}, "scope": "invocation", "initializer": "one",
             "recurrence": {"kind": "invariant"}}}, f"{W}.state.spare.contract.batch_layout.axis"),
    case("G001", "flow", {f"{S}/0/iteration/contract/batch_layout": {"kind": "request_aligned", "axis": 0}},
         f"{W}.steps[0].iteration.contract.batch_layout.axis"),
    case("V125", "io", {f"{OUT}/plain/contract/rank": 3}, f"{W}.outputs.plain.contract.rank"),
    case("V126", "io", {f"{IN}/pair/contract/batch_layout/factor": 0},
         f"{W}.inputs.pair.contract.batch_layout.factor"),
    case("V127", "io", {f"{IN}/ids/role": {"kind": "opaque"}}, f"{W}.inputs.ids.role"),
    case("V128", "io", {f"{IN}/pair/required": False}, f"{W}.inputs.pair"),
    case("V129", "flow", {f"{IN}/image/required": True}, f"{W}.inputs.image.present_as"),
    case("V130", "flow", {f"{IN}/image/default": 0.0}, f"{W}.inputs.image.present_as"),
    case("V131", "flow", {f"{IN}/image/source": {"kind": "artifact", "path": "image.bin"}},
         f"{W}.inputs.image.present_as"),
    case("V132", "flow", {f"{IN}/image/role/role": "seed"}, f"{W}.inputs.image.present_as"),
    case("V133", "flow", {f"{IN}/image/present_as": " ", f"{S}/2/predicate": " "}, f"{W}.inputs.image.present_as"),
    case("V134", "flow", {f"{IN}/image/present_as": "choose", f"{S}/2/predicate": "choose"},
         f"{W}.inputs.image.present_as"),
    case("V134", "flow", {f"{IN}/late": {"contract": WIDE, "role": {"kind": "opaque"}, "required": False,
         "source": {"kind": "application", "name": "late"}, "present_as": "has_image"}},
         f"{W}.inputs.late.present_as"),
]  # fmt: skip

OUTPUTS = [
    case("V137", "io", {f"{OUT}/sound/role": "tensor"}, f"{W}.outputs.sound.media"),
    case("V138", "io", {f"{OUT}/sound/media/sample_rate_hz": DELETE}, f"{W}.outputs.sound.media"),
    case("V139", "io", {f"{OUT}/sound/media/channels": DELETE}, f"{W}.outputs.sound.media"),
    case("V140", "io", {f"{OUT}/sound/media/sample_rate_hz": 0}, f"{W}.outputs.sound.media.sample_rate_hz"),
    case("V141", "io", {f"{OUT}/sound/media/source_sample_rate_hz": 0},
         f"{W}.outputs.sound.media.source_sample_rate_hz"),
    case("V142", "io", {f"{OUT}/sound/media/channels": 0}, f"{W}.outputs.sound.media.channels"),
    case("V143", "io", {f"{OUT}/sound/stage": "post_adapter"}, f"{W}.outputs.sound.contract.dtype"),
    case("V144", "io", {f"{OUT}/sound/contract/dtype": "int16"}, f"{W}.outputs.sound.contract.dtype"),
    case("V145", "io", {f"{OUT}/picture/value_range": DELETE}, f"{W}.outputs.picture"),
    case("V146", "io", {f"{OUT}/plain/value_range": "zero_to_255"}, f"{W}.outputs.plain.value_range"),
]  # fmt: skip

COMPONENTS = [
    case("V147", "io", {f"{COMP}/a.b": {"implementation": {"kind": "binding"}}}, f'{W}.components["a.b"]'),
    case("V147", "io", {f"{COMP}/ ": {"implementation": {"kind": "binding"}}}, f'{W}.components[" "]'),
    case("V148", "io", {f"{COMP}/draw/implementation/artifact": " "}, f"{W}.components.draw.implementation.artifact"),
    case("V149", "io", {f"{P}/manifest/adapter_abis/own.thing": "1"}, f"{W}.components.thing.implementation"),
    case("V149", "io", {f"{P}/manifest/adapter_abis/own.thing": DELETE}, f"{W}.components.thing.implementation"),
    case("V150", "io", {f"{COMP}/draw/contract/version": ""}, f"{W}.components.draw.contract"),
    case("V151", "io", {f"{COMP}/draw/contract/bindings/in": "z"}, f"{W}.components.draw.contract.bindings.in"),
    case("V151", "io", {f"{COMP}/draw/contract/bindings/ ": "x"}, f'{W}.components.draw.contract.bindings[" "]'),
    case("V152", "io", {f"{COMP}/thing/contract": {"id": "own.thing", "version": "1"}},
         f"{W}.components.thing.contract"),
    case("V153", "io", {f"{COMP}/guide/contract/parameters/action": "jump"},
         f"{W}.components.guide.contract.parameters.action"),
    case("V153", "io", {f"{COMP}/guide/contract/parameters": {}}, f"{W}.components.guide.contract.parameters"),
    case("V154", "io", {f"{COMP}/guide/contract/bindings/tokens": DELETE}, f"{W}.components.guide.contract.bindings"),
    case("V155", "io", {f"{COMP}/guide/contract/bindings/tokens": "used"},
         f"{W}.components.guide.contract.bindings.tokens"),
    case("V155", "io", {f"{COMP}/guide/contract/bindings/next_state": "table"},
         f"{W}.components.guide.contract.bindings.next_state"),
    case("V156", "io", {f"{COMP}/draw/contract": DELETE}, f"{W}.components.draw.application_overridable"),
    case("V157", "io", {f"{COMP}/guide/application_overridable": True},
         f"{W}.components.guide.application_overridable"),
    case("V158", "io", {f"{COMP}/draw/effects": ["log", " "]}, f"{W}.components.draw.effects[1]"),
    case("V159", "io", {f"{COMP}/draw/effects": ["lag"]}, f"{W}.components.draw.effects[0]"),
    case("V160", "io", {f"{P}/effects/ ": {"retry": "pure"}}, f'{W}.effects[" "]'),
    case("V161", "io", {f"{P}/effects/log/speculation_safety/max_depth": 0}, f"{W}.effects.log"),
    case("V162", "io", {f"{COMP}/draw/row_scope": DELETE}, f"{W}.components.draw"),
    case("V163", "io", {f"{COMP}/draw/ports/inputs/p": {"dtype": "int64", "rank": 1, "optional": True, "batch_layout": {
        "kind": "token_packed", "offsets": "o", "owner": "w", "axis": 0}}, f"{COMP}/draw/row_scope/axis": 1,
        f"{COMP}/draw/ports/inputs/x/batch_layout/axis": 1, f"{COMP}/draw/ports/outputs/x/batch_layout/axis": 1},
         f"{W}.components.draw.row_scope.axis", "V271"),
    case("V164", "io", {f"{COMP}/draw/row_scope/axis": 1}, f"{W}.components.draw.ports.inputs.x"),
]  # fmt: skip

TASKS = [
    case("V029", "tasks", {"generation/overrides/ ": {"input": "heat"}}, 'generation.overrides[" "]'),
    case("V030", "tasks", {"pipeline": DELETE, "profiles": {}, "preprocessing": {}}, "generation.overrides"),
    case("V031", "tasks", {"generation/overrides/temperature/input": "hat"}, "generation.overrides.temperature.input"),
    case("V032", "tasks", {"generation/overrides/temperature/input": "x"}, "generation.overrides.temperature.input"),
    case("V033", "tasks", {"generation/overrides/temperature/constraint/minimum": 3},
         "generation.overrides.temperature.constraint"),
    case("V034", "tasks", {"profiles/odd/requirement": DELETE}, "profiles.odd.kind"),
    case("V035", "tasks", {f"{SPEECH}/outputs/scores": "score"}, "profiles.speech.outputs.scores"),
    case("V036", "tasks", {DECODING: DELETE}, "profiles.speech"),
    case("V037", "tasks", {f"{DECODING}/lengths": DELETE}, "profiles.speech.decoding"),
    case("V038", "tasks", {f"{DECODING}/blank_id": DELETE}, "profiles.speech.decoding"),
    case("V039", "tasks", {f"{DECODING}/time_axis": 2}, "profiles.speech.decoding.class_axis"),
    case("V040", "tasks", {f"{DECODING}/lengths": "length"}, "profiles.speech.decoding.lengths"),
    case("V041", "tasks", {f"{DECODING}/vocabulary": {"source": "inline"}}, "profiles.speech.decoding.vocabulary"),
    case("V042", "tasks", {f"{DECODING}/vocabulary/size": 4}, "profiles.speech.decoding.vocabulary.size"),
    case("V043", "tasks", {f"{DECODING}/vocabulary/word_delimiter": " "},
         "profiles.speech.decoding.vocabulary.word_delimiter"),
    case("V044", "tasks", {f"{DECODING}/vocabulary/ignored_tokens": ["a", "b"]},
         "profiles.speech.decoding.vocabulary.ignored_tokens[1]"),
    case("V045", "tasks", {f"{DECODING}/blank_id": 3}, "profiles.speech.decoding.blank_id"),
]  # fmt: skip

PREPROCESSING = [
    case("V046", "tasks", {"preprocessing": DELETE}, f"{W}.components.ears"),
    case("V047", "tasks", {f"{COMP}/ears2": {"implementation": {
        "kind": "adapter", "abi": "onnx-genai.audio-preprocess", "version": "1"}}}, "preprocessing.audio"),
    case("V047", "tasks", {"preprocessing/image": {"transforms": [{"op": "decode"}], "outputs": [
        {"source": "a", "name": "wave", "content": "pixels", "dtype": "float32"}]}}, "preprocessing.image"),
    case("V048", "tasks", {f"{COMP}/ears/ports/inputs": {"file": {"dtype": "uint8", "rank": 1}},
                           f"{S}/0/inputs": {"file": "file"}}, f"{W}.components.ears.ports.inputs"),
    case("V049", "tasks", {f"{COMP}/ears/ports/inputs/encoded/dtype": "int8",
                           f"{P}/inputs/file/contract/dtype": "int8"}, f"{W}.components.ears.ports.inputs.encoded"),
    case("V050", "tasks", {f"{S}": [{**WAVE, "outputs": {"wave": "wave"}}, WAVE]}, f"{W}.components.ears"),
    case("V051", "tasks", {"preprocessing/audio/outputs/0/optional": True}, "preprocessing.audio.outputs[0].optional"),
    case("V052", "tasks", {"preprocessing/audio/outputs/0/contract": DELETE}, "preprocessing.audio.outputs[0]"),
    case("V053", "tasks", {"preprocessing/audio/outputs/0/dtype": "fp32"}, "preprocessing.audio.outputs[0].dtype"),
    case("V054", "tasks", {"preprocessing/audio/outputs/0/name": "waves"}, "preprocessing.audio.outputs[0].name"),
    case("V055", "tasks", {f"{S}/0/outputs": {"wave": "first", "waves": "wave"}},
         "preprocessing.audio.outputs[0].name", "V233", "G006"),
    case("V056", "tasks", {"preprocessing/audio/outputs/0/contract": WIDE}, "preprocessing.audio.outputs[0].contract"),
    case("V056", "tasks", {"preprocessing/audio/outputs/0/contract": {**WIDE, "shape": ["batch", 4], "batch_layout": {
        "kind": "shared"}}}, "preprocessing.audio.outputs[0].contract"),
]  # fmt: skip
