"""One broken document a rule: state cells, groups, serving, sessions (V165-V228)."""

from typing import Any

from tests.check.cases_steps import COUNTS, P, S, W, case
from tests.read.documents import DELETE

ST, GR = f"{P}/state", f"{P}/serving/state_service/groups"
G = f"{W}.serving.state_service.groups"
FLAGS = {**COUNTS, "dtype": "bool"}
PLAIN: dict[str, Any] = {
    "contract": COUNTS, "scope": "invocation", "initializer": "zero", "recurrence": {"kind": "invariant"},
}  # fmt: skip
PORT = {"input": "k", "output": "k"}

CELLS = [
    case("V165", "flow", {f"{ST}/acc/session": {}}, f"{W}.state.acc.session"),
    case("V166", "flow", {f"{ST}/memo/session": {"policy": "copy_on_write"}}, f"{W}.state.memo.session.policy"),
    case("V167", "flow", {f"{ST}/memo/session": {"ttl_seconds": 5}}, f"{W}.state.memo.session.ttl_seconds"),
    case("V168", "flow", {f"{ST}/memo/session": {"optimistic_metadata_version": True}},
         f"{W}.state.memo.session.optimistic_metadata_version"),
    case("V169", "flow", {f"{ST}/log/recurrence/axis": 2}, f"{W}.state.log.recurrence.axis"),
    case("V170", "served", {f"{ST}/cursor": {**PLAIN, "service_group": "pagde"}}, f"{W}.state.cursor.service_group"),
    case("V171", "served", {f"{ST}/m": {**PLAIN, "management": "runtime", "release_boundary": "row",
                                        "service_group": "paged"}}, f"{W}.state.m.contract"),
    case("V172", "served", {f"{ST}/k/recurrence/axis": 3}, f"{W}.state.k.recurrence.axis"),
    case("V173", "served", {f"{GR}/paged/sequence_axis": DELETE, f"{GR}/paged/update": DELETE,
                            f"{ST}/v/recurrence": {"kind": "invariant"}}, f"{W}.state.k.recurrence"),
    case("V174", "served", {f"{ST}/conv/contract/batch_layout": DELETE}, f"{W}.state.conv.contract"),
    case("V175", "served", {f"{ST}/k/recurrence": {"kind": "growing", "axis": 2, "increment": "room", "max": "room"}},
         f"{W}.state.k.recurrence.increment"),
    case("V176", "served", {f"{ST}/k/management": "external"}, f"{W}.state.k.management"),
    case("V177", "served", {f"{ST}/k/release_boundary": DELETE}, f"{W}.state.k"),
    case("V178", "served", {f"{ST}/cursor/release_boundary": "row"}, f"{W}.state.cursor.release_boundary"),
    case("V179", "served", {f"{ST}/k/release_boundary": "session"}, f"{W}.state.k.release_boundary"),
    case("V180", "served", {f"{P}/outputs/k": {"contract": {"dtype": "float32", "rank": 4}, "role": "tensor",
                                               "stage": "pre_adapter"}}, f"{W}.state.k"),
    case("V180", "served", {f"{P}/outputs/cache": {"contract": {"dtype": "float32", "rank": 4}, "role": "tensor",
                                                   "stage": "pre_adapter"},
                            f"{S}/0/steps/1": {"kind": "emit", "value": "conv", "output": "cache", "mode": "replace"}},
         f"{W}.state.conv"),
]  # fmt: skip

GROUPS = [
    case("V181", "served", {f"{GR}/paged/layout": " "}, f"{G}.paged.layout"),
    case("V182", "served", {f"{GR}/paged/logical_lengths": "acepted"}, f"{G}.paged.logical_lengths"),
    case("V183", "served", {f"{GR}/paged/logical_lengths": "done"}, f"{G}.paged.logical_lengths"),
    case("V183", "served", {f"{ST}/rough": {**PLAIN, "class": "advisory"}, f"{GR}/paged/logical_lengths": "rough",
                            f"{P}/manifest/capabilities/0": "advisory_state"}, f"{G}.paged.logical_lengths", "V274"),
    case("V184", "served", {f"{GR}/paged/total_length": "room"}, f"{G}.paged.total_length"),
    case("V185", "served", {f"{GR}/paged/sequence_axis": DELETE, f"{ST}/k/recurrence": {"kind": "invariant"},
                            f"{ST}/v/recurrence": {"kind": "invariant"}}, f"{G}.paged"),
    case("V186", "served", {f"{GR}/whole/sequence_axis": 2}, f"{G}.whole.sequence_axis"),
    case("V187", "served", {f"{ST}/conv/recurrence": {"kind": "bounded", "axis": 2, "max": "room"}},
         f"{W}.state.conv.recurrence"),
    case("V188", "served", {f"{GR}/ring/logical_lengths": DELETE}, f"{G}.ring"),
    case("V189", "served", {f"{GR}/ring/update/write_indices": "curser"}, f"{G}.ring.update.write_indices"),
    case("V190", "served", {f"{GR}/ring/update/write_indices": "done"}, f"{G}.ring.update.write_indices"),
    case("V191", "served", {f"{GR}/ring/update/capacity": "rom"}, f"{G}.ring.update.capacity"),
    case("V192", "served", {f"{GR}/ring/update/capacity": "zero"}, f"{G}.ring.update.capacity"),
    case("V193", "served", {f"{GR}/ring/update/kv_length_ports/decodr": "len"},
         f"{G}.ring.update.kv_length_ports.decodr"),
    case("V194", "served", {f"{GR}/ring/update/write_indices_ports/decoder": "att"},
         f"{G}.ring.update.write_indices_ports.decoder"),
    case("V195", "served", {f"{GR}/ring/update/write_indices_ports": {}}, f"{G}.ring.update.write_indices_ports"),
    case("V196", "served", {f"{GR}/ring/update/kv_length_ports": {}}, f"{G}.ring.update.kv_length_ports"),
    case("V197", "served", {f"{ST}/rk/recurrence": {"kind": "bounded", "axis": 2, "max": "room"}},
         f"{W}.state.rk.recurrence"),
    case("V201", "served", {f"{GR}/paged/capabilities/cascade": ["ring", "rong"]},
         f"{G}.paged.capabilities.cascade[1]"),
    case("V202", "served", {f"{GR}/paged/capabilities/rollback_positions": 0},
         f"{G}.paged.capabilities.rollback_positions"),
]  # fmt: skip

PORTS = [
    case("V198", "served", {f"{GR}/paged/ports/decoder/v": {"input": "v", "output": "v", "role": "key"}},
         f"{G}.paged.ports.decoder.v"),
    case("V199", "served", {f"{GR}/paged/ports/decoder/v/role": "key"}, f"{G}.paged.ports.decoder.v.layer"),
    case("V200", "served", {f"{GR}/paged/ports/decoder/v/layer": 1}, f"{G}.paged.ports.decoder.k"),
    case("V203", "served", {f"{GR}/paged/ports/decodr": {}}, f"{G}.paged.ports.decodr"),
    case("V204", "served", {f"{GR}/whole/ports/decoder/cnv": PORT}, f"{G}.whole.ports.decoder.cnv"),
    case("V205", "served", {f"{GR}/whole/ports/decoder/k": PORT}, f"{G}.whole.ports.decoder.k"),
    case("V205", "served", {f"{GR}/whole/ports/decoder/cursor": PORT}, f"{G}.whole.ports.decoder.cursor"),
    case("V206", "served", {f"{GR}/whole/ports/decoder/conv/input": "con"}, f"{G}.whole.ports.decoder.conv.input"),
    case("V207", "served", {f"{GR}/whole/ports/decoder/conv/output": "con"}, f"{G}.whole.ports.decoder.conv.output"),
    case("V208", "served", {f"{GR}/whole/ports/decoder/conv/output": DELETE}, f"{G}.whole.ports.decoder.conv"),
    case("V209", "served", {f"{P}/components/decoder/ports/roles": {}}, f"{W}.components.decoder.ports.roles"),
]  # fmt: skip

SERVING = [
    case("V210", "io", {f"{P}/serving": {"active": "live", "done": "live", "state_service": {"groups": {}}},
                        f"{P}/manifest/capabilities/3": "serving_service_contract",
                        f"{P}/components/guide": DELETE,
                        f"{P}/inputs/live": {"contract": FLAGS, "role": {"kind": "opaque"},
                                             "source": {"kind": "literal"}, "default": True}}, f"{W}.serving"),
    case("V211", "served", {f"{P}/serving/accepted_len": DELETE}, f"{W}.serving"),
    case("V212", "served", {f"{P}/serving/active": "active.n"}, f"{W}.serving.active"),
    case("V213", "served", {f"{P}/serving/done": "accepted"}, f"{W}.serving.done"),
    case("V214", "served", {f"{P}/serving/accepted_len": "done"}, f"{W}.serving.accepted_len"),
    case("V215", "served", {f"{P}/serving/done": "gone", f"{P}/inputs/gone": {
        "contract": {"dtype": "bool", "rank": 1, "shape": ["batch"]}, "role": {"kind": "opaque"},
        "source": {"kind": "literal"}, "default": False}}, f"{W}.serving.done"),
]  # fmt: skip

TALK = f"{ST}/talk"
SESSIONS = [
    case("V216", "session", {f"{TALK}/scope": "invocation", f"{TALK}/release_boundary": "row"},
         f"{W}.state.talk.session.continuation"),
    case("V217", "session", {f"{TALK}/class": "advisory", f"{P}/manifest/capabilities": [
        "workflow_ssa", "typed_emit", "session_state_lease", "bounded_state_recurrence", "serving_service_contract",
        "advisory_state"]}, f"{W}.state.talk.class"),
    case("V218", "session", {f"{TALK}/release_boundary": "row"}, f"{W}.state.talk"),
    case("V218", "session", {f"{TALK}/management": "external"}, f"{W}.state.talk"),
    case("V219", "session", {f"{TALK}/recurrence": {"kind": "invariant"}}, f"{W}.state.talk.recurrence"),
    case("V219", "session", {f"{TALK}/recurrence/axis": 0}, f"{W}.state.talk.recurrence"),
    case("V220", "session", {f"{TALK}/recurrence/max": "rom"}, f"{W}.state.talk.recurrence.max"),
    case("V220", "session", {f"{P}/inputs/perhaps": {"contract": {"dtype": "int64", "rank": 0},
         "role": {"kind": "opaque"}, "source": {"kind": "application", "name": "p"}, "required": False,
         "present_as": "has"}, f"{TALK}/recurrence/max": "perhaps", f"{P}/manifest/capabilities": [
        "workflow_ssa", "typed_emit", "session_state_lease", "bounded_state_recurrence", "serving_service_contract",
        "input_presence"]}, f"{W}.state.talk.recurrence.max"),
    case("V221", "session", {f"{TALK}/session/continuation/prompt_input": "x"},
         f"{W}.state.talk.session.continuation.prompt_input"),
    case("V222", "session", {f"{P}/outputs/tokens/role": "tensor"},
         f"{W}.state.talk.session.continuation.tokens_output"),
    case("V222", "session", {f"{TALK}/session/continuation/tokens_output": "token"},
         f"{W}.state.talk.session.continuation.tokens_output"),
    case("V223", "session", {f"{TALK}/contract/dtype": "int32"}, f"{W}.state.talk.contract"),
    case("V223", "session", {f"{TALK}/contract/batch_layout": DELETE}, f"{W}.state.talk.contract"),
    case("V224", "session", {f"{S}/3": {"kind": "loop", "steps": [
        {"kind": "invoke", "component": "flag", "inputs": {}, "outputs": {"o": "talk.n"}}], "continue_when": "x.live",
        "max_iterations": "room", "carried": [{"cell": "talk", "next": "talk.n"}]},
        f"{P}/manifest/capabilities": ["workflow_ssa", "typed_emit", "session_state_lease", "bounded_state_recurrence",
        "serving_service_contract", "nested_control_flow", "linear_effects"]}, f"{W}.state.talk"),
    case("V225", "session", {f"{ST}/again": {"contract": {"dtype": "int64", "rank": 2, "shape": ["batch", "n"],
        "batch_layout": {"kind": "request_aligned", "axis": 0}}, "scope": "session", "initializer": "prompt",
        "recurrence": {"kind": "bounded", "axis": 1, "max": "room"}, "management": "runtime",
        "release_boundary": "session", "session": {"continuation": {"kind": "prompt_prefix", "prompt_input": "prompt",
        "tokens_output": "tokens"}}}}, f"{W}.state.again.session.continuation"),
    case("V226", "session", {f"{GR}/kv/ports": {}}, f"{W}.state.kept.service_group"),
    case("V227", "session", {f"{ST}/memo/initializer": "past.n"}, f"{W}.state.memo"),
    case("V228", "session", {f"{GR}/kv/ports/step/kept": {"input": "past", "access": "read_only"}},
         f"{W}.state.kept"),
    case("V228", "session", {f"{P}/components/step/ports/inputs/past/optional": True, f"{S}/0/inputs/past": DELETE},
         f"{W}.state.kept"),
]  # fmt: skip
