"""Generation overrides and task profiles (standard, 12.3)."""

from genai_compiler.check.fault import Fault, Faults, Path, Rule, Rules, blank
from genai_compiler.read.document import (
    DecodingVocabulary,
    Generation,
    Metadata,
    RequestSource,
    RuntimeRole,
    SequenceDecoding,
    TaskProfile,
    Workflow,
)
from genai_compiler.read.suggest import did_you_mean

RULES: Rules = {
    "V029": Rule("blank-name", "A generation override names its field."),
    "V030": Rule("override-without-workflow", "Generation overrides stand beside a workflow."),
    "V031": Rule("unknown-input", "A generation override names a declared workflow input."),
    "V032": Rule("override-input", "A generation override's input is a request field with a runtime role."),
    "V033": Rule("empty-bounds", "A generation override's minimum is not above its maximum."),
    "V034": Rule("unknown-profile", "A profile of an unknown kind is ignorable."),
    "V035": Rule("undeclared-output", "A profile's roles are declared workflow outputs."),
    "V036": Rule("missing-decoding", "A transcription profile says how it is decoded."),
    "V037": Rule("missing-lengths", "A padding-sensitive profile with decoding names its lengths."),
    "V038": Rule("missing-blank", "CTC decoding names its blank."),
    "V039": Rule("same-axis", "Decoding has its time and its classes on different axes."),
    "V040": Rule("unknown-role", "Decoding lengths are a role of the profile's outputs."),
    "V041": Rule("vocabulary", "An inline vocabulary has tokens."),
    "V042": Rule("vocabulary", "A vocabulary has as many tokens as its size says."),
    "V043": Rule("vocabulary", "The word delimiter is one of the tokens."),
    "V044": Rule("vocabulary", "Ignored tokens are among the tokens."),
    "V045": Rule("vocabulary", "The blank is one of the tokens."),
}

PROFILES = ("generation", "embedding", "reranking", "classification", "reward", "transcription")


def check_generation_profiles(metadata: Metadata) -> Faults:
    """Generation overrides and profiles against the workflow, if there is one."""
    workflow = metadata.pipeline.workflow if metadata.pipeline is not None else None
    if metadata.generation is not None:
        yield from _overrides(metadata.generation, workflow)
    for name, profile in metadata.profiles.items():
        yield from _profile(name, profile, workflow, ("profiles", name))


def _overrides(generation: Generation, workflow: Workflow | None) -> Faults:
    path = ("generation", "overrides")
    if generation.overrides and workflow is None:
        what = "an override is a workflow input, and the document has no workflow"
        yield Fault("V030", path, what, "remove the overrides, or declare pipeline.workflow")
    for name, override in generation.overrides.items():
        if blank(name):
            yield Fault("V029", (*path, name), "an override names no field", "name the generation option it sets")
        if workflow is not None:
            yield from _override_input(override.input, workflow, (*path, name, "input"))
        bounds = override.constraint
        if bounds and bounds.minimum is not None and bounds.maximum is not None and bounds.minimum > bounds.maximum:
            what = f"no value of '{name}' lies between {bounds.minimum:g} and {bounds.maximum:g}"
            yield Fault("V033", (*path, name, "constraint"), what, "swap minimum and maximum")


def _override_input(name: str, workflow: Workflow, path: Path) -> Faults:
    declared = workflow.inputs.get(name)
    if declared is None:
        yield Fault("V031", path, f"no workflow input '{name}' is declared", did_you_mean(name, workflow.inputs))
    elif not isinstance(declared.source, RequestSource) or not isinstance(declared.role, RuntimeRole):
        what = f"a request can't set input '{name}': it is no request field with a runtime role"
        yield Fault("V032", path, what, "give the input source request and a runtime role")


def _profile(name: str, profile: TaskProfile, workflow: Workflow | None, path: Path) -> Faults:
    if profile.kind not in PROFILES:
        if profile.requirement == "required":
            what = f"profile '{name}' has the unknown kind '{profile.kind}' and is required"
            help = did_you_mean(profile.kind, PROFILES) + "; or write requirement: ignorable"
            yield Fault("V034", (*path, "kind"), what, help.removeprefix("; or "))
        return
    outputs = workflow.outputs if workflow is not None else {}
    for role, output in profile.outputs.items():
        if output not in outputs:
            what = f"role '{role}' of profile '{name}' is no declared output: '{output}'"
            yield Fault("V035", (*path, "outputs", role), what, did_you_mean(output, outputs))
    if profile.decoding is None:
        if profile.kind == "transcription":
            yield Fault("V036", path, f"profile '{name}' transcribes and has no decoding", "add decoding")
        return
    yield from _decoding(profile, profile.decoding, (*path, "decoding"))


def _decoding(profile: TaskProfile, decoding: SequenceDecoding, path: Path) -> Faults:
    if profile.batch_invariance == "padding_sensitive" and decoding.lengths is None:
        what = "padding changes the frames, and nothing says how many frames of a row are valid"
        yield Fault("V037", path, what, "add lengths: the role of an output with lengths")
    if decoding.kind == "ctc" and decoding.blank_id is None:
        yield Fault("V038", path, "CTC needs a blank class", "add blank_id")
    if decoding.time_axis == decoding.class_axis:
        what = f"time and classes both lie on axis {decoding.time_axis}"
        yield Fault("V039", (*path, "class_axis"), what, "name two axes")
    if decoding.lengths is not None and decoding.lengths not in profile.outputs:
        what = f"'{decoding.lengths}' is no role of the profile's outputs"
        yield Fault("V040", (*path, "lengths"), what, did_you_mean(decoding.lengths, profile.outputs))
    if decoding.vocabulary is not None:
        yield from _vocabulary(decoding, decoding.vocabulary, path)


def _vocabulary(decoding: SequenceDecoding, vocabulary: DecodingVocabulary, path: Path) -> Faults:
    tokens, place = vocabulary.tokens, (*path, "vocabulary")
    if not tokens:
        if vocabulary.source == "inline":
            yield Fault("V041", place, "an inline vocabulary without tokens is none", "list the tokens in class order")
        return
    if vocabulary.size is not None and vocabulary.size != len(tokens):
        what = f"size says {vocabulary.size} and {len(tokens)} tokens are listed"
        yield Fault("V042", (*place, "size"), what, "correct size, or remove it")
    if vocabulary.word_delimiter is not None and vocabulary.word_delimiter not in tokens:
        what = f"the word delimiter '{vocabulary.word_delimiter}' is none of the tokens"
        yield Fault("V043", (*place, "word_delimiter"), what, did_you_mean(vocabulary.word_delimiter, tokens))
    for at, each in enumerate(vocabulary.ignored_tokens):
        if each not in tokens:
            what = f"the ignored token '{each}' is none of the tokens"
            yield Fault("V044", (*place, "ignored_tokens", at), what, did_you_mean(each, tokens))
    if decoding.blank_id is not None and decoding.blank_id >= len(tokens):
        what = f"blank_id is {decoding.blank_id} and the last class {len(tokens) - 1}"
        yield Fault("V045", (*path, "blank_id"), what, "name a class of the vocabulary")
