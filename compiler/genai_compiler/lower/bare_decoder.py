"""A `model.io` document and its graph -> the one Workflow (metadata standard, 10.1 and 10.3).

The block names ports; everything else is the graph's. What the document says beside that is held against the graph, and
what it says falsely is reported.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from genai_compiler.lower.bare_facts import document_doubts
from genai_compiler.lower.decoder_facts import PROMPT, Aliasing, DecoderFacts, Flag, FrontFacts
from genai_compiler.lower.decoder_workflow import decoder_document
from genai_compiler.lower.headless import headless
from genai_compiler.lower.lowered import Lowered
from genai_compiler.lower.match_io import match_io
from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.match_state import LayerPorts
from genai_compiler.lower.matching import Surroundings, rank_of
from genai_compiler.lower.merge_combined import merge_combined
from genai_compiler.lower.merge_facts import (
    Merge,
    choose_aliasing,
    merge_crossed,
    merge_length,
    merge_states,
    merge_vocabulary,
)
from genai_compiler.lower.merge_fixed import merge_fixed_states
from genai_compiler.lower.merge_paged import merge_paged, with_pages
from genai_compiler.lower.output_start import OF_GENERATION, start_doubts
from genai_compiler.lower.own_tokens import looked_up
from genai_compiler.lower.plain_state import PlainState, plain_state, source_masks
from genai_compiler.lower.row_forms import one_token_a_run
from genai_compiler.lower.stated import Fact, Stated
from genai_compiler.lower.switched_state import SwitchedDecoder, switched_decoder
from genai_compiler.lower.unrunnable import check_graph
from genai_compiler.lower.window_caches import split_windows
from genai_compiler.problem import CompileError, Problem, errors, ordered
from genai_compiler.read.attention import read_counts
from genai_compiler.read.bare import BareDocument, BareIo
from genai_compiler.read.composite import CompositeDocument
from genai_compiler.read.config_json import parse_config
from genai_compiler.read.genai_config import CONFIG_NAME, genai_config_of
from genai_compiler.read.graph_facts import last_token_only, length_switches, mask_use
from genai_compiler.read.one_token import takes_one_token
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.position_tables import table_rows
from genai_compiler.read.session_options import SessionOptions
from genai_compiler.read.signature import Port, Signature, load_graph, signature_of
from genai_compiler.read.text_facts import TextFacts, read_text_facts
from genai_compiler.read.value_flow import Edges

_IO: DocPath = ("model", "io")
_PATHS: dict[Fact, DocPath] = {
    "kv_heads": ("model", "attention", "num_kv_heads"),
    "head_size": ("model", "attention", "head_dim"),
    "vocab_size": ("model", "vocab_size"),
    "context_length": ("model", "max_sequence_length"),
}


def lower_bare(root: Path, document: BareDocument, places: Places) -> Lowered:
    """Lower the document of the package in `root`. Raises CompileError with every problem, warnings included."""
    assert document.model is not None
    assert document.model.io is not None
    source = DecoderSource(root, _graph_file(root, places), document, document.model.io, _IO, places)
    facts, text, problems = source.facts({})
    return source.lowered(facts, decoder_document(facts, text.eos, source.defaults()), text, problems)


@dataclass(frozen=True)
class DecoderSource:
    """A decoder's graph, and where a document describes it. path: of `io`.

    For a document of another form: what it states, how text files are read (None: as beside a `model.io` document),
    and the number of each layer whose caches `io` lists (empty: counted). zeros: inputs that are fed a constant 0.
    combined: caches that hold keys and values together, for which `io` has no word. start_key: what names the token
    that starts an output beside an encoder.
    """

    root: Path
    artifact: str
    document: BareDocument | CompositeDocument
    io: BareIo
    path: DocPath
    places: Places
    stated: Stated | None = None
    texts: Callable[[int | None], tuple[TextFacts, tuple[Problem, ...]]] | None = None
    layers: tuple[int, ...] = ()
    zeros: tuple[Port, ...] = ()
    combined: tuple[LayerPorts, ...] = ()
    start_key: str = OF_GENERATION

    def facts(
        self,
        fed: Mapping[str, str],
        prompt: str = PROMPT,
        front: FrontFacts | None = None,
        tokens: Port | None = None,
    ) -> tuple[DecoderFacts, TextFacts, tuple[Problem, ...]]:
        """The decoder, the text files beside it, and warnings. fed: input -> the value that a stage feeds it with.

        prompt: the workflow input that it starts from. front: what its tokens go through first, at the port `tokens`.
        Raises CompileError with every problem.
        """
        model, signature, networks = self._opened()
        every = [model] if networks is None or networks.flag is not None else [model, *self._beside()]
        counts = sum((read_counts(each.graph) for each in every), Counter[str]())
        unread = frozenset(each.name for each in signature.inputs if not counts[each.name])
        streams = frozenset(taken.name for _, taken in front.streams) if front is not None else frozenset[str]()
        flag, crossed = (networks.flag, networks.state.crossed) if networks is not None else (None, ())

        def told() -> PlainState:
            return networks.state if networks is not None else plain_state(model.graph, signature)

        prompts = model.graph if networks is None else networks.first_graph
        flat = [each for each in signature.inputs if each.dtype in ("int64", "int32") and rank_of(each) == 2]
        alone = any(one_token_a_run(each, signature.inputs, signature.outputs) for each in signature.inputs)
        masks = source_masks(flat, told(), Edges(prompts), alone) if fed else ()  # an encoder beside it, and its mask
        over_source = frozenset(each.name for each in masks)
        together = tuple((each.past.name, each.present.name) for each in self.combined)
        ids = looked_up(model.graph, signature, flat) if front is not None else frozenset[str]()
        around = Surroundings(tokens, streams, fed, unread, self.zeros, flag, crossed, over_source, None, together, ids)
        ports, found = match_io(self.io, signature, around, self.path, self.places, told)
        decoder, static = replace(self._numbered(ports.decoder), combined=self.combined), ports.static
        merge = Merge(self.stated or self._stated(), signature)
        paged = merge_paged(decoder, None, merge)
        dense = decoder if paged is None else replace(decoder, keys=(), values=())
        states, windows = split_windows(merge_states(dense, merge), merge)
        over_encoder = merge_crossed(ports.crossed, merge)
        single = paged is None and decoder.token_ids is not None and rank_of(decoder.token_ids) == 1
        one_token = single or (decoder.token_ids is not None and takes_one_token(every[-1], decoder.token_ids))
        fixed = merge_fixed_states(decoder, one_token, merge)
        aliasing = choose_aliasing(states, dense, merge)
        width, sampled = merge_vocabulary(decoder.logits, merge) if decoder.logits is not None else (None, None)
        text, doubts = self.texts(width) if self.texts else bare_text_facts(self.root, width, self.places)
        capacities = [each.capacity for each in states]
        capacities += [each.capacity for each in static.states] if static is not None else []
        positions = decoder.position_ids.name if decoder.position_ids is not None else ""
        mask = decoder.attention_mask.name if decoder.attention_mask is not None else ""
        table = min((n for each in every if (n := table_rows(each, signature, positions, mask))), default=None)
        length = merge_length(capacities, table, merge, text.context_length)
        combined = merge_combined(decoder, merge)
        has_state = bool(decoder.keys or decoder.values or decoder.fixed or decoder.combined or static)
        problems = [*found, *merge.problems, *doubts]
        if self.io.logits_output is None:
            taken = [each for each in signature.inputs if each.name in streams]
            problems += headless(decoder, model, taken, self.path, self.places)
        problems += [fault for each in every for fault in check_graph(each, self.artifact, has_state, mask)]
        problems += [self._two_networks(flag)] if flag is not None and front is not None else []
        root = self.places.find(()), ""
        problems += start_doubts(prompt, text.decoder_start, root, self.start_key)
        problems += document_doubts(self.document, self.io, self.path, signature, ports, self.places)
        if errors(problems) or decoder.token_ids is None or decoder.logits is None:
            raise CompileError(problems)
        facts = DecoderFacts(
            artifact=self.artifact,
            signature=signature,
            token_ids=decoder.token_ids,
            attention_mask=decoder.attention_mask,
            position_ids=decoder.position_ids,
            logits=decoder.logits,
            hidden=decoder.hidden,
            zero_inputs=decoder.zero_inputs,
            states=states,
            fixed_states=fixed,
            aliasing=_permitted(self.io, aliasing),
            max_sequence_length=length,
            vocab_size=width,
            sampled_ids=sampled,
            mask_use="columns" if mask and any(mask_use(x, mask) == "columns" for x in every) else "lengths",
            last_token_only=all(last_token_only(each, decoder.logits.name) for each in every),
            one_token=one_token,
            length_switches=tuple(each for one in every for each in length_switches(one)),
            static_cache=static,
            windows=windows,
            extras=ports.extras,
            unread=ports.unread,
            front=front,
            prompt=prompt,
            start=text.decoder_start if prompt != PROMPT else None,
            paged=with_pages(paged, length),
            combined=combined,
            flag=Flag(flag, networks.later) if networks is not None and flag is not None else None,
            crossed=over_encoder,
            own_tokens=decoder.own_tokens,
            lengths=decoder.lengths,
        )
        return facts, text, ordered(problems)

    def _opened(self) -> tuple[ModelProto, Signature, SwitchedDecoder | None]:
        """The graph, its ports, and the two networks that it holds, if it does."""
        model = load_graph(self.root / self.artifact, self.root)
        signature = signature_of(model, self.artifact, self.root)
        return model, signature, switched_decoder(model.graph, signature)

    def _beside(self) -> tuple[ModelProto, ...]:
        """The graph that runs with the prompt, where it is another one, with the same names of ports."""
        return ()

    def _two_networks(self, flag: Port) -> Problem:
        what = f"{self.artifact} takes embeddings, and is merged of two networks behind {flag.name!r}: "
        what += "a flag beside embeddings is not compiled yet"
        help = "export one network that takes caches of any length, also empty ones"
        return Problem("unsupported-package-class", self.places.find(self.path), format_path(self.path), what, help)

    def _numbered(self, ports: MatchedPorts) -> MatchedPorts:
        """The ports with their layers' own numbers, where the document tells them."""
        if len(self.layers) != len(ports.keys) or len(self.layers) != len(ports.values):
            return ports
        keys, values = (
            tuple(replace(each, layer=layer) for each, layer in zip(side, self.layers, strict=True))
            for side in (ports.keys, ports.values)
        )
        return replace(ports, keys=keys, values=values)

    def defaults(self) -> dict[str, Any]:
        """`generation.defaults` of the document."""
        generation = self.document.generation
        defaults = generation.defaults if generation is not None else None
        return defaults.model_dump(exclude_none=True) if defaults is not None else {}

    def lowered(
        self, facts: DecoderFacts, document: dict[str, Any], text: TextFacts, problems: tuple[Problem, ...]
    ) -> Lowered:
        """The package in the standard's form. document: the one made of the facts, complete."""
        return Lowered(
            document=document | {"required_capabilities": list(self.document.required_capabilities)},
            problems=problems,
            notes=_notes(facts, text, self.path),
            text=text,
            providers=(),
            session_options=SessionOptions(),
            signature=facts.signature,
            decoder=facts,
        )

    def _stated(self) -> Stated:
        model = self.document.model
        attention = model.attention if model is not None else None
        io = self.path
        return Stated(
            kv_heads=attention.num_kv_heads if attention is not None else None,
            head_size=attention.head_dim if attention is not None else None,
            layers=None,
            vocab_size=model.vocab_size if model is not None else None,
            context_length=model.max_sequence_length if model is not None else None,
            share_buffer=self.io.aliasing == "required",
            window=None,
            paths={
                **_PATHS,
                "layers": io,
                "window": io,
                "share_buffer": (*io, "aliasing"),
                "key": (*io, "kv_inputs"),
                "combined": (*io, "kv_inputs"),
                "value": (*io, "kv_inputs"),
                "state": (*io, "state_pairs"),
            },
            place=self.places.find,
        )


def bare_text_facts(root: Path, width: int | None, places: Places) -> tuple[TextFacts, tuple[Problem, ...]]:
    """What the text files beside the graph say; the document itself names no token.

    width: ids at or above it can't be produced.
    """
    empty, _ = genai_config_of(parse_config(b'{"model": {}}', CONFIG_NAME))
    facts, problems = read_text_facts(root, empty, width)
    return facts, tuple(_of_the_document(each, places) for each in problems)


def _of_the_document(problem: Problem, places: Places) -> Problem:
    """A problem placed in the configuration that such a package lacks, at the document that it has."""
    if problem.where.file != CONFIG_NAME:
        return problem
    help = problem.help
    if problem.code == "no-end-token":
        help = "state eos_token_id in generation_config.json"
    return replace(problem, where=places.find(()), path="", help=help.replace(CONFIG_NAME, "the document"))


def _graph_file(root: Path, places: Places) -> str:
    """The document names no file: the package's only graph, or the one called `model` among several."""
    found = sorted(each.name for each in root.iterdir() if each.name.endswith((".onnx", ".onnx.textproto")))
    named = [each for each in found if each in ("model.onnx", "model.onnx.textproto")]
    if len(found) == 1 or len(named) == 1:
        return (named or found)[0]
    what = f"the package holds several graphs ({', '.join(found[:6])}) and the document names none"
    if not found:
        what = "the package holds no graph beside the document"
    help = "put the decoder's graph beside the document as model.onnx"
    raise CompileError([Problem("missing-file", places.find(()), "", what, help)])


def _permitted(io: BareIo, proved: Aliasing) -> Aliasing:
    """A document may forbid what the graph would allow; without a word of it, the graph decides."""
    return "forbidden" if io.aliasing == "forbidden" and proved == "permitted" else proved


def _notes(facts: DecoderFacts, text: TextFacts, path: DocPath) -> tuple[str, ...]:
    ends = "; ".join(f"{each.id} ({', '.join(each.said_by)})" for each in text.end_ids)
    return (
        f"provenance: lowered from {format_path(path)}; the document holds no workflow of its own",
        f"end tokens: {ends or 'none'}",
        f"positions: up to {facts.max_sequence_length}",
    )
