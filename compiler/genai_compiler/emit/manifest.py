"""The manifest of a compiled folder: what it was made from, what it needs, and what a caller may ask of it."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from genai_compiler.check.context import context_of
from genai_compiler.check.generation_defaults import OWN_FIELDS
from genai_compiler.check.sound_side import sound_side
from genai_compiler.emit.graph_files import GraphFile
from genai_compiler.emit.kernels import kernels
from genai_compiler.emit.media_facts import media_facts
from genai_compiler.emit.origins import origins, text_origin
from genai_compiler.emit.policy_graphs import policy_entry
from genai_compiler.emit.speech import speech, speech_files
from genai_compiler.emit.task_facts import task_facts
from genai_compiler.emit.view import ABI_VERSION, executor_view
from genai_compiler.plan.ir import Decode, Emit, Output, Plan
from genai_compiler.plan.on_demand import on_demand
from genai_compiler.plan.placement import Placement
from genai_compiler.plan.processor_files import PROCESSORS
from genai_compiler.plan.shared_rows import share_padded, share_runs
from genai_compiler.plan.token_entries import END_SOURCE
from genai_compiler.plan.uses import walk
from genai_compiler.read.artifacts import find_artifact
from genai_compiler.read.document import AdapterImplementation, ApplicationSource, GenerationDefaults
from genai_compiler.read.lora_data import lora_data, lora_files
from genai_compiler.read.ort_options import ATTRIBUTES
from genai_compiler.read.package import Package
from genai_compiler.read.sound_processor import FILE as SOUND_PROCESSOR

FORMAT = 3
"""Raised with every key that a manifest must have or loses (genai_runtime.manifest reads one format only)."""
SMALL_FILE = 4 << 20
"""Files up to this size are checked by content at every load, larger ones by size and time stamp."""


def manifest(
    plan: Plan,
    package: Package,
    version: str,
    package_path: str,
    executor: str,
    graphs: Mapping[str, GraphFile],
    tables: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest as plain data. package_path: from the compiled folder to the package. tables: of emit/tables.py."""
    return {
        "format": FORMAT,
        "abi": ABI_VERSION,
        "compiler": version,
        "name": plan.name,
        "dialect": plan.dialect,
        "executor_sha256": hashlib.sha256(executor.encode()).hexdigest(),
        "package": {"path": package_path},
        "files": [_fingerprint(name, file) for name, file in sorted(package_files(package).items())],
        "graphs": {name: each.entry() for name, each in sorted(graphs.items())},
        **_parts(plan),
        "opens": list(executor_view(plan, "").sessions),
        "on_demand": sorted(on_demand(plan) & set(graphs)),
        "tables": dict(tables),
        "speculation": _speculation(plan),
        "policy_graphs": policy_entry(plan),
        "text": _text(package),
        "generation": _generation(plan, package),
        "session": _session(package),
        "kernels": kernels(package),
        "placement": {each.component: _placement(each) for each in plan.placements},
        "inputs": [_input(each.name, plan) for each in plan.inputs],
        "outputs": [_output(each, package) for each in plan.outputs],
        "media": media_facts(plan),
        "speech": speech(package),
        "sound": sound_side(package)[0],
        "owned_inputs": _owned_inputs(plan, package),
        "adapters": lora_data(package),
        "origins": origins(plan, package),
        "text_origin": text_origin(plan),
        "overridable": [
            {"component": each.name, "replacements": [other.component for other in each.replacements]}
            for each in plan.components
            if each.overridable
        ],
        "state_groups": [
            {
                "name": each.name,
                "storage": each.storage,
                "bytes_per_token": each.bytes_per_token,
                **({"bytes_per_row": each.bytes_per_row} if each.bytes_per_row is not None else {}),
                "reason": each.reason,
            }
            for each in plan.groups
        ],
        **task_facts(plan, package),
    }


def _parts(plan: Plan) -> dict[str, Any]:
    """Components that open in several sessions; nothing where none does."""
    found = {each.name: each.parts for each in plan.components if each.parts is not None}
    facts = {
        name: {"graphs": list(each.names), "crossing": [value for value, _ in each.extents]}
        for name, each in found.items()
    }
    return {"parts": facts} if facts else {}


def package_files(package: Package) -> dict[str, Path]:
    """Package-relative name -> file, for everything a run reads or the plan was made from."""
    text = package.text
    names = {
        package.document_file,
        *(name for graph in package.graphs.values() for name in _files_of(graph.artifact, graph)),
        *lora_files(package),
    }
    names |= set(speech_files(package)) | set(_processor_files(package))
    names |= {
        each for each in (text.tokenizer, text.tokenizer_config, text.chat_template, text.special_tokens_map) if each
    }
    names |= {SOUND_PROCESSOR} if sound_side(package)[0] is not None else set()
    return {name: find_artifact(package.root, name).file for name in names}


def _processor_files(package: Package) -> Iterator[str]:
    """Files that adapters' programs were made from."""
    for each in package.workflow.components.values():
        how = each.implementation
        if isinstance(how, AdapterImplementation) and f"{how.abi}@{how.version}" in PROCESSORS and how.artifact:
            yield how.artifact


def _files_of(artifact: str, graph: Any) -> Iterator[str]:
    yield artifact
    yield from graph.signature.external_data


def _fingerprint(name: str, file: Path) -> dict[str, Any]:
    state = file.stat()
    return {"path": name, "size": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": file_hash(file)}


def file_hash(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _text(package: Package) -> dict[str, str | None]:
    text = package.text
    return {
        "tokenizer": text.tokenizer,
        "tokenizer_config": text.tokenizer_config,
        "chat_template": text.chat_template,
        "special_tokens_map": text.special_tokens_map,
    }


def _generation(plan: Plan, package: Package) -> dict[str, Any]:
    metadata, text, context = package.metadata, package.text, context_of(package)
    tokens = next((each.name for each in plan.outputs if each.role == "tokens"), "")
    ids = text.ids
    defaults = metadata.generation.defaults if metadata.generation is not None else None
    return {
        "policy": "runtime" if plan.decoder is not None else "workflow",
        "sampler_mode": _sampler_mode(package),
        "ragged": share_padded(plan),
        "alone": plan.decoder is not None and not share_runs(plan, package),
        "prompt_decoded": prompt_decoded(plan),
        "tokens_output": tokens,
        "tokens_replace": any(
            isinstance(op, Emit) and op.output == tokens and op.mode == "replace" for op in walk(plan.body)
        ),
        "end_ids": _end_ids(plan, package),
        "pad_id": text.pad,
        **_source_end(plan),
        "context_length": context.length,
        "held": None if context.held is None else {"length": context.held[0], "input": context.held[1]},
        "vocab_size": plan.decoder.vocab_size if plan.decoder else (metadata.model and metadata.model.vocab_size) or 0,
        "valid_ids": min((each for each in (ids.count, package.sampled_ids or 0) if each), default=0),
        "holes": list(ids.holes),
        "contract": metadata.generation is not None,
        **({"prefill_chunk": plan.decoder.chunk} if plan.decoder is not None and plan.decoder.chunk else {}),
        "defaults": _defaults(defaults) if defaults is not None else {},
        "overrides": {
            name: {"input": each.input, **(each.constraint.model_dump(exclude_none=True) if each.constraint else {})}
            for name, each in (metadata.generation.overrides if metadata.generation else {}).items()
        },
    }


def _source_end(plan: Plan) -> dict[str, int]:
    """The end id that a step of the document puts behind each source, where one does."""
    ends = [
        dict(each.adapter.parameters) for each in plan.components if each.adapter and each.adapter.abi == END_SOURCE
    ]
    return {"source_end": int(ends[0]["end"])} if ends else {}


def _defaults(defaults: GenerationDefaults) -> dict[str, Any]:
    """The defaults that have an effect, by name."""
    known = {*GenerationDefaults.model_fields, *OWN_FIELDS}
    return {name: value for name, value in defaults.model_dump(exclude_none=True).items() if name in known}


def _speculation(plan: Plan) -> dict[str, Any] | None:
    """Who drafts, how far, and whether requests need to ask; `reason` says why nobody does."""
    found = plan.speculation
    if found is None:
        return None
    return {
        "proposer": found.proposer,
        "target": found.target,
        "kind": "chained" if found.chained else "block",
        "width": found.width,
        "by_itself": found.by_itself,
        "driven": found.drafting is not None,
        "reason": found.reason,
    }


def prompt_decoded(plan: Plan) -> bool:
    """Whether the request's tokens and the output share the decoder's context; else the prompt goes to an encoder."""
    starts = {op.tokens for op in walk(plan.body) if isinstance(op, Decode) and op.phase == "prompt"}
    return not starts or any(each.name in starts and each.role == "prompt_tokens" for each in plan.inputs)


def _owned_inputs(plan: Plan, package: Package) -> list[str]:
    """Inputs of the document whose values the runtime's own decoding forms, by name and application alias."""
    bound = {each.name for each in plan.inputs}
    owned = [(name, each) for name, each in package.workflow.inputs.items() if name not in bound]
    aliases = [each.source.name for _, each in owned if isinstance(each.source, ApplicationSource)]
    return sorted({*(name for name, _ in owned), *aliases})


def _sampler_mode(package: Package) -> str:
    """The mode that the package's own token sampler declares, "" when there is none (standard, 4.1)."""
    contracts = [each.contract for each in package.workflow.components.values() if each.contract is not None]
    modes = [each.parameters.get("mode") for each in contracts if each.id == "onnx-genai.token-sampler"]
    return str(modes[0]) if modes and modes[0] is not None else ""


def _end_ids(plan: Plan, package: Package) -> list[Any]:
    """Tokens that end a row: what the workflow itself gives its input of that role, else what the text files say."""
    stated = next((each.default for each in plan.inputs if each.role == "eos_token_ids"), None)
    if stated is None:
        return list(package.text.eos)
    return list(stated) if isinstance(stated, tuple) else [stated]


def _session(package: Package) -> dict[str, Any]:
    session = package.session
    options = {name: value for name in ATTRIBUTES if (value := getattr(session, name)) is not None}
    return {
        "options": options | dict(session.entries),
        "providers": [{"name": each.name, "options": dict(each.options)} for each in session.providers],
    }


def _placement(each: Placement) -> dict[str, Any]:
    return {"device": each.device, "index": each.index, "memory": each.memory, "cpu_arena": each.cpu_arena}


def _input(name: str, plan: Plan) -> dict[str, Any]:
    each = next(each for each in plan.inputs if each.name == name)
    return {
        "name": each.name,
        "type": str(each.type),
        "dtype": each.type.dtype,
        "rank": each.type.rank,
        "shape": list(each.type.dims),
        "role": each.role,
        "source": each.source,
        "application": each.application_name,
        "required": each.required,
        "default": list(each.default) if isinstance(each.default, tuple) else each.default,
        **({"limits": [list(limit) for limit in each.limits]} if each.limits else {}),
        **({"patches": list(each.patches)} if each.patches is not None else {}),
        **({"entries": each.entries} if each.entries else {}),
    }


def _output(each: Output, package: Package) -> dict[str, Any]:
    declared = package.workflow.outputs[each.name]
    media = declared.media.model_dump(exclude_none=True) if declared.media is not None else {}
    return {
        "name": each.name,
        "type": str(each.type),
        "role": each.role,
        "stage": declared.stage,
        "media": media,
    }


def relative_path(target: Path, start: Path) -> str:
    """A path from one folder to another with `/`; absolute where there is none (other drive).

    Links above either folder are resolved first, because `..` climbs from where a folder really is.
    """
    goal, origin = (each.absolute().parent.resolve() / each.absolute().name for each in (target, start))
    try:
        return Path(os.path.relpath(goal, origin)).as_posix()
    except ValueError:
        return goal.as_posix()
