"""One broken document a rule: steps, loops, branches, emits, presence, capabilities (V122-V136, V229-V274).

A case: rule, base, what changes, where the problem stands, and rules that can't but break with it.
"""

from typing import Any

from tests.read.documents import DELETE

Case = tuple[str, str, dict[str, Any], str, frozenset[str]]
P = "pipeline/workflow"
W = "pipeline.workflow"
S = f"{P}/steps"
NONE: frozenset[str] = frozenset()


def case(rule: str, base: str, changes: dict[str, Any], place: str, *also: str) -> Case:
    return rule, base, changes, place, frozenset(also)


COUNTS = {"dtype": "int64", "rank": 1, "shape": ["batch"], "batch_layout": {"kind": "request_aligned", "axis": 0}}
WIDE = {"dtype": "float32", "rank": 2, "shape": ["batch", 8], "batch_layout": {"kind": "request_aligned", "axis": 0}}
STEP = {"kind": "invoke", "component": "step", "inputs": {"x": "x"}, "outputs": {"y": "new", "live": "new.live"}}
EMIT = {"kind": "emit", "value": "x", "output": "z", "mode": "replace"}
LOOP = {
    "kind": "loop",
    "steps": [STEP],
    "continue_when": "live",
    "max_iterations": "limit",
    "carried": [{"cell": "acc", "next": "new"}],
}
WORKFLOW_INPUT = {"contract": WIDE, "role": {"kind": "opaque"}, "source": {"kind": "application", "name": "w"}}

STEPS = [
    case("V229", "flow", {f"{S}/0/setup/0": {"kind": "sequence", "steps": []}, f"{S}/0/carried/0/initial": "x"},
         f"{W}.steps[0].setup[0].steps", "V235"),
    case("V229", "flow", {f"{S}/2/default": {"kind": "sequence", "steps": []}, f"{S}/2/outputs/view/default": "x"},
         f"{W}.steps[2].default.steps"),
    case("V229", "io", {S: []}, f"{W}.steps"),
    case("V230", "flow", {f"{S}/0/setup/0/component": "stap"}, f"{W}.steps[0].setup[0].component"),
    case("V231", "flow", {f"{S}/0/setup/0/inputs/y": "x"}, f"{W}.steps[0].setup[0].inputs.y"),
    case("V232", "flow", {f"{S}/0/setup/0/inputs": {"bias": "b"}, f"{P}/inputs/b": {
        "contract": {"dtype": "float32", "rank": 1}, "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": "b"}}}, f"{W}.steps[0].setup[0].inputs"),
    case("V233", "flow", {f"{S}/0/setup/0/outputs/z": "zed"}, f"{W}.steps[0].setup[0].outputs.z"),
    case("V234", "flow", {f"{S}/0/setup/0/outputs": {"y": "ready"}}, f"{W}.steps[0].setup[0].outputs"),
    case("V235", "flow", {f"{S}/0/setup/0/inputs/x": "xs"}, f"{W}.steps[0].setup[0].inputs.x"),
    case("V235", "flow", {f"{S}/1/predicate": "chose"}, f"{W}.steps[1].predicate"),
    case("V235", "flow", {f"{S}/4/value": "acc.next"}, f"{W}.steps[4].value"),
    case("V235", "flow", {f"{S}/4/value": "m"}, f"{W}.steps[4].value"),
    case("V235", "flow", {f"{S}/4/value": "i"}, f"{W}.steps[4].value"),
    case("V235", "flow", {f"{S}/0/setup/0/inputs/x": "acc"}, f"{W}.steps[0].setup[0].inputs.x"),
    case("V235", "flow", {f"{S}/3/valid_length": "length"}, f"{W}.steps[3].valid_length"),
    case("V235", "flow", {f"{S}/0/steps/1/when": "alife"}, f"{W}.steps[0].steps[1].when"),
    case("V236", "flow", {f"{S}/2/default/outputs/out": "ready", f"{S}/2/outputs/view/default": "ready"},
         f"{W}.steps[2].default.outputs.out"),
    case("V236", "flow", {f"{S}/0/iteration/value": "one"}, f"{W}.steps[0].iteration"),
    case("V236", "flow", {f"{S}/2/outputs": {"chosen": {"cases": {"true": "seen"}, "default": "blank"}}},
         f"{W}.steps[2].outputs.chosen"),
    case("V236", "flow", {f"{S}/0/setup/0/outputs/live": "log"}, f"{W}.steps[0].carried[2].cell"),
    case("V237", "flow", {f"{P}/inputs/x2": WORKFLOW_INPUT, f"{S}/0/setup/0/inputs/x": "x2"},
         f"{W}.steps[0].setup[0].inputs.x"),
    case("V237", "flow", {f"{S}/0/setup/0/inputs/x": "lengths"}, f"{W}.steps[0].setup[0].inputs.x"),
]  # fmt: skip

LOOPS = [
    case("V238", "flow", {f"{S}/0/max_iterations": "lengths"}, f"{W}.steps[0].max_iterations"),
    case("V238", "flow", {f"{S}/0/max_iterations": "choose"}, f"{W}.steps[0].max_iterations"),
    case("V238", "flow", {f"{S}/0/max_iterations": "acc.next"}, f"{W}.steps[0].max_iterations"),
    case("V239", "flow", {f"{S}/0/iteration/contract/dtype": "int32"}, f"{W}.steps[0].iteration.contract"),
    case("V239", "flow", {f"{S}/0/iteration/contract": {"dtype": "int64", "rank": 2, "shape": [1, 1]}},
         f"{W}.steps[0].iteration.contract"),
    case("V240", "flow", {f"{S}/0/iteration/contract/shape": [1]}, f"{W}.steps[0].iteration.contract"),
    case("V240", "flow", {f"{S}/0/iteration/contract": {"dtype": "int64", "rank": 1}},
         f"{W}.steps[0].iteration.contract"),
    case("V241", "flow", {f"{S}/0/carried/2/cell": "lag"}, f"{W}.steps[0].carried[2].cell"),
    case("V242", "flow", {f"{P}/state/acc/initializer": "acc.next"}, f"{W}.steps[0].carried[0]"),
    case("V242", "flow", {f"{P}/state/alive/initializer": "alife"}, f"{W}.steps[0].carried[1]"),
    case("V243", "flow", {f"{P}/state/alive/initializer": "lengths"}, f"{W}.steps[0].carried[1]"),
    case("V244", "flow", {f"{S}/0/carried/0/initial": "redy"}, f"{W}.steps[0].carried[0].initial"),
    case("V245", "flow", {f"{S}/0/carried/0/initial": "lengths"}, f"{W}.steps[0].carried[0].initial"),
    case("V246", "flow", {f"{P}/state/log/recurrence/max": "i"}, f"{W}.steps[0].carried[2]"),
    case("V246", "flow", {f"{P}/state/log/recurrence/increment": "acc.next"}, f"{W}.steps[0].carried[2]"),
    case("V247", "flow", {f"{P}/state/log/recurrence/increment": "lengths"}, f"{W}.steps[0].carried[2]"),
    case("V248", "flow", {f"{S}/0/continue_when": "alive.next"}, f"{W}.steps[0].continue_when"),
    case("V249", "flow", {f"{S}/0/continue_when": "lengths"}, f"{W}.steps[0].continue_when"),
    case("V250", "flow", {f"{S}/0/carried/0/next": "acc.nxt"}, f"{W}.steps[0].carried[0].next"),
    case("V251", "flow", {f"{S}/0/carried/0/next": "alive.next"}, f"{W}.steps[0].carried[0].next"),
    case("V252", "flow", {f"{S}/0/carried/2/cell": "acc"}, f"{W}.steps[0].carried[2].cell"),
    case("V252", "flow", {f"{S}/4": LOOP}, f"{W}.steps[4].carried[0].cell"),
    case("V252", "flow", {f"{S}/0/steps/1": LOOP}, f"{W}.steps[0].steps[1].carried[0].cell"),
]  # fmt: skip

BRANCHES = [
    case("V253", "flow", {f"{S}/1/predicate": "live"}, f"{W}.steps[1].predicate"),
    case("V253", "flow", {f"{S}/1/predicate": "x"}, f"{W}.steps[1].predicate"),
    case("V254", "flow", {f"{S}/2": {"kind": "branch", "predicate": "choose", "cases": {}, "default": STEP}},
         f"{W}.steps[2].cases"),
    case("V255", "flow", {f"{S}/1/outputs/chosen/cases/false": DELETE}, f"{W}.steps[1].outputs.chosen"),
    case("V256", "flow", {f"{S}/1/outputs/chosen/cases/2": "x"}, f'{W}.steps[1].outputs.chosen.cases["2"]'),
    case("V257", "flow", {f"{S}/1/outputs/chosen/default": "x"}, f"{W}.steps[1].outputs.chosen.default"),
    case("V257", "flow", {f"{S}/2/outputs/view/default": DELETE}, f"{W}.steps[2].outputs.view"),
    case("V258", "flow", {f"{S}/1/outputs/chosen/cases/false": "m"}, f"{W}.steps[1].outputs.chosen.cases.false"),
    case("V258", "flow", {f"{S}/2/outputs/view/default": "seen"}, f"{W}.steps[2].outputs.view.default"),
    case("V259", "flow", {f"{S}/1/outputs/chosen/cases/false": "lengths"}, f"{W}.steps[1].outputs.chosen"),
    case("V259", "flow", {f"{P}/inputs/{name}": {"contract": {"dtype": "float32", "rank": 1, "shape": [extent]},
         "role": {"kind": "opaque"}, "source": {"kind": "application", "name": name}}
         for name, extent in (("some", "n"), ("three", 3), ("four", 4))} | {f"{S}/5": {"kind": "branch",
         "predicate": "choose", "cases": {"0": STEP, "1": STEP, "2": STEP},
         "outputs": {"merged": {"cases": {"0": "some", "1": "three", "2": "four"}}}}}, f"{W}.steps[5].outputs.merged"),
    case("V260", "flow", {f"{S}/1/outputs/chosen/cases/true": "x"}, f"{W}.steps[1].cases.true"),
    case("V260", "flow", {f"{S}/1": {"kind": "branch", "predicate": "choose", "cases": {"false": STEP}, "default": {
        "kind": "loop", "steps": [{**STEP, "inputs": {"x": "memo"}}], "continue_when": "live", "max_iterations": "one",
        "carried": [{"cell": "memo", "next": "new"}]}}, f"{S}/3/value": "x"}, f"{W}.steps[1].default"),
]  # fmt: skip

EMITS = [
    case("V261", "flow", {f"{S}/4/output": "zed"}, f"{W}.steps[4].output"),
    case("G002", "flow", {f"{S}/4/mode": "append", f"{S}/4/axis": 2}, f"{W}.steps[4].axis"),
    case("G002", "flow", {f"{S}/3/axis": 7}, f"{W}.steps[3].axis"),
    case("G002", "flow", {f"{P}/outputs/n": {"contract": {"dtype": "int64", "rank": 0}, "role": "tensor",
                                             "stage": "pre_adapter"},
                          f"{S}/4": {"kind": "emit", "value": "one", "output": "n", "mode": "append"}},
         f"{W}.steps[4].axis"),
    case("V262", "flow", {f"{S}/0/steps/1/when": "lengths"}, f"{W}.steps[0].steps[1].when"),
    case("V263", "flow", {f"{S}/3/valid_length": "live"}, f"{W}.steps[3].valid_length"),
    case("V264", "flow", {f"{S}/3/value": "view", f"{S}/2/outputs/view/cases/true": "seen"},
         f"{W}.steps[3].valid_length"),
    case("V264", "flow", {f"{P}/inputs/fixed": {**WORKFLOW_INPUT, "contract": {"dtype": "float32", "rank": 2}},
                          f"{S}/0/steps/1/value": "fixed"},
         f"{W}.steps[0].steps[1].when", "V271"),
    case("V265", "flow", {f"{P}/outputs/y/contract/batch_layout": DELETE}, f"{W}.steps[0].steps[1].when"),
    case("V266", "flow", {f"{S}/4/value": "live"}, f"{W}.steps[4].value"),
    case("V267", "flow", {f"{S}/4": {**EMIT, "value": "one", "valid_length": "one"}}, f"{W}.steps[4].value", "V270"),
    case("V268", "flow", {f"{P}/outputs/z/contract/dtype": "fp32"}, f"{W}.steps[3].value"),
    case("V268", "flow", {f"{S}/3/value": "lengths"}, f"{W}.steps[3].value"),
    case("V269", "flow", {f"{P}/state/memo/contract/shape": [2, 4], f"{P}/outputs/z/contract/shape": [3, 4],
                          f"{S}/4/value": "free.out", f"{S}/2": {
                              "kind": "invoke", "component": "free", "inputs": {}, "outputs": {"o": "free.out"}},
                          f"{S}/1/outputs/chosen/cases/false": "even", f"{S}/1/cases/true/steps/0/outputs/y": "m",
                          f"{P}/inputs/even": {**WORKFLOW_INPUT, "contract": {**WIDE, "shape": [2, 4]}},
                          f"{S}/3/value": "even"}, f"{W}.steps[3].value"),
    case("V270", "flow", {f"{P}/inputs/plain": {**WORKFLOW_INPUT, "contract": {"dtype": "float32", "rank": 2}},
                          f"{S}/4/value": "plain"}, f"{W}.steps[4].value"),
    case("V271", "flow", {f"{P}/inputs/plain": {**WORKFLOW_INPUT, "contract": {"dtype": "float32", "rank": 2}},
                          f"{P}/outputs/more": {"contract": WIDE, "role": "tensor", "stage": "pre_adapter"},
                          f"{S}/4": {**EMIT, "value": "plain", "output": "more"}}, f"{W}.steps[4].value"),
    case("V272", "served", {f"{P}/outputs/facts": {"contract": {"dtype": "float32", "rank": 2}, "role": "tensor",
                                                   "stage": "pre_adapter"},
                            f"{P}/inputs/facts": {**WORKFLOW_INPUT, "contract": {"dtype": "float32", "rank": 2}},
                            f"{S}/1": {**EMIT, "value": "facts", "output": "facts"}}, f"{W}.steps[1].value"),
    case("V274", "flow", {f"{P}/manifest/capabilities": ["workflow_ssa", "linear_effects", "typed_emit",
         "loop_induction_values", "emit_valid_length", "input_presence", "session_state_lease"]},
         f"{W}.manifest.capabilities"),
    case("V122", "lora", {f"{P}/manifest/capabilities/2": "own"}, f"{W}.manifest.capabilities"),
    case("V122", "lora", {f"{P}/manifest/capabilities/1": "own"}, f"{W}.manifest.capabilities"),
]  # fmt: skip

PRESENCE = [
    case("V135", "flow", {f"{S}/0/setup/0/inputs/x": "image"}, f"{W}.steps[0].setup[0].inputs.x"),
    case("V135", "flow", {f"{S}/2/default/inputs/in": "image"}, f"{W}.steps[2].default.inputs.in"),
    case("V135", "flow", {f"{S}/1/cases/false/inputs/x": "image"}, f"{W}.steps[1].cases.false.inputs.x"),
    case("V135", "flow", {f"{S}/0/carried/0/initial": "image"}, f"{W}.steps[0].carried[0].initial"),
    case("V135", "flow", {f"{S}/0/carried/0/next": "image"}, f"{W}.steps[0].carried[0].next"),
    case("V135", "flow", {f"{S}/4/value": "image"}, f"{W}.steps[4].value"),
    case("V136", "flow", {f"{S}/2/outputs/view/default": "image"}, f"{W}.steps[2].outputs.view.default"),
    case("V136", "flow", {f"{S}/1/outputs/chosen/cases/false": "image"}, f"{W}.steps[1].outputs.chosen.cases.false"),
]  # fmt: skip
