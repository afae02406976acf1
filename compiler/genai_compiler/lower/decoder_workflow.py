"""Decoder facts -> the canonical workflow of a single decoder (metadata standard, section 10.3, version 1.0).

Plain document data in the standard's form, in the order the section gives. Pure: the same facts, the same document.
Where the section leaves a name to the graph, the graph's port names are used; extents are numbers wherever the graph or
the configuration gives them.
"""

import json
from typing import Any

from genai_compiler.lower.decoder_components import (
    COUNT,
    FLAG,
    SCALAR,
    Data,
    application_contract,
    cell_contract,
    control_ports,
    count_contract,
    decoder_component,
    fed_positions,
    fed_tokens,
    front_component,
    length_contract,
    media_contract,
    policy_component,
    row_wise,
    token_contract,
    zero_contract,
)
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts, FrontFacts
from genai_compiler.lower.decoder_state import declared_cells, seeds, state_cells, state_groups
from genai_compiler.lower.packed_rows import PACK, PACKED, pack_component, pack_step, paged_ports
from genai_compiler.read.signature import Port

CAPABILITIES = (
    "workflow_ssa linear_effects typed_emit streaming_emit nested_control_flow loop_induction_values "
    "serving_service_contract bounded_state_recurrence"
)
FORMED = -1
"""The default of positions that the runtime forms itself unless the caller gives them."""
FIRST_PASS, LATER_PASS = "package.first_pass", "package.later_pass"
_NETWORK = "network"
"""The cell of the flag that picks one network for the prompt and another for later tokens."""
# Sampling fields a caller may set, by the workflow input that carries each (section 1.8).
_SAMPLING = {
    "temperature": ("sampling_temperature", "float32", 1.0),
    "top_k": ("sampling_top_k", "int64", 0),
    "top_p": ("sampling_top_p", "float32", 1.0),
}


def decoder_document(facts: DecoderFacts, eos: tuple[int, ...], defaults: Data) -> Data:
    """The whole document: model facts, generation defaults and the workflow.

    eos: end token ids, () when unknown. defaults: `generation.defaults`.
    """
    model: Data = {"max_sequence_length": facts.max_sequence_length}
    if facts.vocab_size is not None:
        model["vocab_size"] = facts.vocab_size
    overrides = {name: {"input": f"request.{name}"} for name in _SAMPLING}
    document = {
        "schema_version": "1.0",
        "model": model,
        "pipeline": {"workflow": _workflow(facts, eos, defaults)},
        "generation": {
            "defaults": defaults,
            "overrides": {"do_sample": {"input": "request.temperature"}, **overrides},
        },
    }
    unshared: Data = json.loads(json.dumps(document))  # parts used twice must not be one object
    return unshared


def application_inputs(facts: DecoderFacts) -> dict[str, str]:
    """Port name -> the workflow input that feeds it from the application; `/` and space become `_`.

    None is a value that feeds another port: an encoder's mask, which the decoder takes too, may be called as its own.
    """
    names, others = dict[str, str](), {each.value for each in facts.extras}
    paged = [port for port, _, _ in paged_ports(facts.paged)] if facts.paged is not None else []
    given = [*(each.port for each in facts.lengths), *(each.port for each in facts.extras if not each.value)]
    for port in (facts.attention_mask, facts.position_ids, *paged, *given):
        if port is not None:
            name = "application." + port.name.replace("/", "_").replace(" ", "_")
            names[port.name] = name + "_" if name in names.values() or name in others else name
    return names


def _step_value(port: Port) -> str:
    """The body value of an extra output, distinct from those of the two components."""
    return "step.hidden" if port.name in ("logits", "token") else f"step.{port.name}"


def _workflow(facts: DecoderFacts, eos: tuple[int, ...], defaults: Data) -> Data:
    workflow: Data = {
        "manifest": {"adapter_abis": {}, "capabilities": CAPABILITIES.split()},
        "inputs": _inputs(facts, eos, defaults),
        "outputs": {
            "tokens": {"contract": token_contract(facts), "role": "tokens", "stage": "pre_adapter"},
        },
        "components": _components(facts),
        "state": _state(facts),
    }
    if state_cells(facts):
        workflow["serving"] = _serving(facts)
    return workflow | {"steps": [_loop(facts)]}


def _components(facts: DecoderFacts) -> Data:
    found: Data = {"decoder": decoder_component(facts), "token_policy": policy_component(facts)}
    if facts.paged is not None or facts.flat:
        found[PACK] = pack_component(token_contract(facts), fed_tokens(facts))
    return found if facts.front is None else found | {facts.front.component: front_component(facts, facts.front)}


def _inputs(facts: DecoderFacts, eos: tuple[int, ...], defaults: Data) -> Data:
    limit, application = facts.max_sequence_length, application_inputs(facts)
    inputs: Data = {
        facts.prompt: _prompt(facts),
        "request.max_iterations": _request(SCALAR, "max_iterations") | {"required": False, "default": limit},
    }
    for name, (sampling_role, dtype, fallback) in _SAMPLING.items():
        value = defaults.get(name, fallback)
        number = float(value) if dtype == "float32" else int(value)
        request = _request({"dtype": dtype, "rank": 0, "shape": []}, sampling_role)
        inputs[f"request.{name}"] = request | {"required": False, "default": number}
    if eos:
        contract = {"dtype": "int64", "rank": 1, "shape": ["eos_count"]}
        role = {"kind": "runtime", "version": "1.0", "role": "eos_token_ids"}
        inputs["package.eos_token_ids"] = _literal(contract, list(eos), role) | {"externally_suppliable": True}
    for port, extent in ((facts.attention_mask, "total_sequence"), (facts.position_ids, "sequence")):
        if port is not None:
            placed = extent == "sequence"
            given = _application(port, fed_positions(facts, port) if placed else application_contract(port, extent))
            if extent == "sequence" and facts.front is not None and facts.front.places_media:
                given |= {"required": False, "default": FORMED}
            name = application[port.name]
            if name.removesuffix("_") in {each.value for each in facts.extras}:  # the caller's name is the other one's
                given |= {"source": {"kind": "application", "name": f"{port.name}_"}}
            inputs[name] = given
    for port, _, contract in paged_ports(facts.paged) if facts.paged is not None else ():
        inputs[application[port.name]] = _application(port, contract)
    for length in facts.lengths:
        inputs[application[length.port.name]] = _application(length.port, length_contract(length.port))
    for each in facts.extras:
        if not each.value:
            inputs[application[each.port.name]] = _application(each.port, row_wise(each.port))
    for port in facts.unread:
        inputs[f"package.{port.name}"] = _literal(row_wise(port), 0.0 if "float" in port.dtype else 0)
    for port in facts.zero_inputs:
        inputs[f"package.{port.name}"] = _literal(zero_contract(port), 0)
    for port, _ in facts.front.media if facts.front is not None else ():
        contract = media_contract(port)
        none = [0, *(port.shape or ())[1:]]
        inputs[f"package.no_{port.name}"] = _literal({**contract, "shape": none}, 0.0 if "float" in port.dtype else 0)
    if facts.flag is not None:
        for name, value in ((FIRST_PASS, not facts.flag.later), (LATER_PASS, facts.flag.later)):
            inputs[name] = _literal(zero_contract(facts.flag.port), value)
    inputs["package.active"] = _literal(FLAG, True)
    inputs["package.done"] = _literal(FLAG, False)
    inputs["package.accepted_len"] = _literal(COUNT, 0)
    inputs["package.sequence_capacity"] = _literal(SCALAR, limit)
    if facts.static_cache is not None:
        inputs["package.cache_lengths"] = _literal(count_contract(facts.static_cache.write_indices), 0)
        inputs["package.capacity"] = _literal(SCALAR, facts.static_states[0].capacity)
    for name, state in seeds(facts).items():
        zero = 0.0 if "float" in state.dtype else 0
        inputs[name] = _literal(cell_contract(state), zero)
    return inputs


def _prompt(facts: DecoderFacts) -> Data:
    """The request's tokens, or those that start the output where the request's tokens go to an encoder."""
    if facts.prompt == PROMPT:
        given = _request(token_contract(facts), "prompt_tokens")
        return given if facts.start is None else given | {"required": False, "default": facts.start}
    source = {"kind": "application", "name": facts.prompt.partition(".")[2]}
    asked = {"required": True} if facts.start is None else {"required": False, "default": facts.start}
    return {"contract": token_contract(facts), "role": {"kind": "opaque"}, "source": source, **asked}


def _request(contract: Data, role: str) -> Data:
    return {
        "contract": contract,
        "role": {"kind": "runtime", "version": "1.0", "role": role},
        "source": {"kind": "request"},
        "required": True,
    }


def _literal(contract: Data, default: Any, role: Data | None = None) -> Data:
    source = {"kind": "literal"}
    return {"contract": contract, "role": role or {"kind": "opaque"}, "source": source, "default": default}


def _application(port: Port, contract: Data) -> Data:
    return {
        "contract": contract,
        "role": {"kind": "opaque"},
        "source": {"kind": "application", "name": port.name},
        "required": True,
        "externally_suppliable": True,
    }


def _state(facts: DecoderFacts) -> Data:
    plain = {"scope": "invocation", "recurrence": {"kind": "invariant"}, "management": "workflow"}
    cells: Data = {
        "active": {"contract": FLAG, "initializer": "package.active", **plain},
        "done": {"contract": FLAG, "initializer": "package.done", **plain},
        "accepted_len": {"contract": COUNT, "initializer": "package.accepted_len", **plain},
        "sequence": {
            "contract": token_contract(facts),
            "initializer": facts.prompt,
            **plain,
            "recurrence": {"kind": "bounded", "axis": 1, "max": "package.sequence_capacity"},
        },
    }
    for port, _ in facts.front.media if facts.front is not None else ():
        rule = {"kind": "bounded", "axis": 0, "max": "package.sequence_capacity"}
        media = {"contract": media_contract(port), "initializer": f"package.no_{port.name}", **plain}
        cells[f"media.{port.name}"] = {**media, "recurrence": rule}
    if facts.flag is not None:
        cells[_NETWORK] = {"contract": zero_contract(facts.flag.port), "initializer": FIRST_PASS, **plain}
    if facts.static_cache is not None:
        contract = count_contract(facts.static_cache.write_indices)
        cells["cache_lengths"] = {"contract": contract, "initializer": "package.cache_lengths", **plain}
    return cells | declared_cells(facts)


def _serving(facts: DecoderFacts) -> Data:
    service = {"groups": state_groups(facts)}
    return {"active": "active", "done": "done", "accepted_len": "accepted_len", "state_service": service}


def _loop(facts: DecoderFacts) -> Data:
    cells = state_cells(facts)
    policy = ("active", "done", "accepted_len", *(("cache_lengths",) if facts.static_cache is not None else ()))
    carried: list[Data] = [{"cell": cell, "next": f"body.{cell}"} for cell in (*policy, *cells)]
    for port, value in facts.front.media if facts.front is not None else ():
        carried.append({"cell": f"media.{port.name}", "initial": value, "next": f"package.no_{port.name}"})
    if facts.flag is not None:
        carried.append({"cell": _NETWORK, "next": LATER_PASS})
    return {
        "kind": "loop",
        "setup": [],
        "steps": [
            *([_invoke_front(facts, facts.front)] if facts.front is not None else []),
            *([pack_step(facts.prompt)] if facts.paged is not None or facts.flat else []),
            _invoke_decoder(facts),
            {
                "kind": "invoke",
                "component": "token_policy",
                "inputs": {"logits": "step.logits"},
                "outputs": {"token": "step.token", **{name: f"body.{name}" for name in policy}},
            },
            {"kind": "emit", "value": "step.token", "output": "tokens", "mode": "append", "when": "active"},
        ],
        "continue_when": "active",
        "max_iterations": "request.max_iterations",
        "termination": "generation_eos",
        "iteration": {"value": "loop.iteration", "contract": {"dtype": "int64", "rank": 1, "shape": [1]}},
        "carried": [*carried, {"cell": "sequence", "next": "step.token"}],
    }


def _invoke_front(facts: DecoderFacts, front: FrontFacts) -> Data:
    inputs = {facts.token_ids.name: facts.prompt, **{port.name: f"media.{port.name}" for port, _ in front.media}}
    outputs = {made.name: f"step.{front.component}.{made.name}" for made, _ in front.streams}
    return {"kind": "invoke", "component": front.component, "inputs": inputs, "outputs": outputs}


def _invoke_decoder(facts: DecoderFacts) -> Data:
    inputs = {facts.token_ids.name: PACKED if facts.paged is not None or facts.flat else facts.prompt}
    if facts.front is not None:
        inputs = {taken.name: f"step.{facts.front.component}.{made.name}" for made, taken in facts.front.streams}
    inputs |= {facts.own_tokens.name: facts.prompt} if facts.own_tokens is not None else {}
    inputs |= application_inputs(facts)
    inputs |= {each.port.name: each.value for each in facts.extras if each.value}
    inputs |= {port.name: f"package.{port.name}" for port in (*facts.zero_inputs, *facts.unread)}
    inputs |= {facts.flag.port.name: _NETWORK} if facts.flag is not None else {}
    cells = state_cells(facts)
    inputs |= {port.name: "cache_lengths" for port in control_ports(facts)}
    inputs |= {state.input: cell for cell, state in cells.items()}
    outputs = {facts.logits.name: "step.logits"}
    if facts.hidden is not None:
        outputs[facts.hidden.name] = _step_value(facts.hidden)
    outputs |= {state.output: f"body.{cell}" for cell, state in cells.items()}
    return {"kind": "invoke", "component": "decoder", "inputs": inputs, "outputs": outputs}
