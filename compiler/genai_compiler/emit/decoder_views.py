"""Views of a decoder whose step and policy the runtime supplies (standard, 4.3 and 10.3)."""

from collections.abc import Iterator
from dataclasses import replace

from genai_compiler.emit.adapter_views import extras_argument
from genai_compiler.emit.draft_table import decoder_class
from genai_compiler.emit.names import comment, literal
from genai_compiler.emit.op_view import OpView, Writing
from genai_compiler.plan.ir import Decode, Emit, Loop, Plan, SelectToken, SpeculativeBlock


class DecoderViews:
    """Turns the ops of such a decoder into views."""

    def __init__(self, writing: Writing) -> None:
        self._plan, self._names, self._uses, self._call = writing.plan, writing.names, writing.uses, writing.call
        self._limits: dict[str, str] = {}

    def prompt(self, op: Decode, loop: Loop) -> OpView:
        """The pass over the prompt, and what begins with it: the loop's bound, the decoder's state, the policy."""
        limit = self._limits[loop.origin] = self._names.fresh("limit")
        self._uses.imports.update((decoder_class(self._plan), "DecoderSpec", "TokenPolicy"))
        return OpView(
            "_decode_prompt.py.j2",
            {
                "origin": comment(op.origin),
                "loop": comment(loop.origin),
                "component": comment(op.component),
                "bound": f"{limit} = "
                + self._call("iteration_limit", self._names.of(loop.max_iterations), literal(loop.origin)),
                "within": tuple(self._within(op)),
                "start": f"decoding = self.decoder.start({', '.join(self._start(op, loop, limit))})",
                "policy": f"policy = TokenPolicy(request, decoding, {literal(_selection(loop))})",
            },
        )

    def _within(self, op: Decode) -> Iterator[str]:
        """The prompt's length against its bound: the sequence cell's law, which later steps of one token keep."""
        if op.maximum:
            tokens = self._names.of(op.tokens)
            yield self._call(
                "bounded", literal("sequence"), tokens, tokens, "1", self._names.of(op.maximum), literal(op.origin)
            )

    def _start(self, op: Decode, loop: Loop, limit: str) -> Iterator[str]:
        """Arguments of the decoder's start: tokens, request, bound, and the document's own ports where it has any."""
        yield from (self._names.of(op.tokens), "request", limit)
        if not any(each.name == op.tokens and each.role == "prompt_tokens" for each in self._plan.inputs):
            yield "own_prompt=False"
        if op.positions:
            yield f"positions={self._names.of(op.positions)}"
        yield from extras_argument(op, self._names)
        step = next((each for each in loop.advance if isinstance(each, Decode)), None)
        for name, pairs in (("media", op.media), ("later", step.media if step is not None else ())):
            if pairs:
                yield f"{name}={{{', '.join(f'{literal(port)}: {self._names.of(value)}' for port, value in pairs)}}}"

    def loop(self, op: Loop) -> OpView:
        """The loop of one token a row and step; twice, where one row has a loop of its own."""
        self._uses.publishes = True
        select = next(each for each in op.body if isinstance(each, SelectToken))
        decode = next(each for each in op.advance if isinstance(each, Decode))
        emits = [each for each in op.body if isinstance(each, Emit)]
        step, facts = self._names.fresh("step"), self._plan.decoder
        fields: dict[str, str | tuple[str, ...]] = {
            "origin": comment(op.origin),
            "limit": self._limits[op.origin],
            "select": comment(select.origin),
            "emit": comment(", ".join(each.origin for each in emits)),
            "decode": comment(decode.origin),
            "places": "written" if facts is not None and facts.lengths is not None else "mask",
        }
        outputs = tuple(each.output for each in emits)
        of_rows = tuple(f"yield out.token({literal(output)}, row, tokens, {step})" for output in outputs)
        rows = OpView("_decoder_loop.py.j2", {**fields, "step": step, "emits": of_rows})
        if not has_one_row_loop(self._plan) or len(set(outputs)) < len(outputs):
            return rows
        self._uses.imports.add("RUN_FAILURES")
        of_one = tuple(f"yield out.only_token({literal(output)}, chosen, place - first)" for output in outputs)
        return OpView(
            "_one_row_loop.py.j2", {**fields, "outputs": literal(outputs), "emits": of_one}, {"rows": (rows,)}
        )

    def block_loop(self, op: Loop) -> OpView:
        """Blocks where drafts are asked for; else the single-token body that a block stands for."""
        block = next(each for each in op.body if isinstance(each, SpeculativeBlock))
        emits = tuple(replace(each, valid_length="") for each in op.body if isinstance(each, Emit))
        plain = self.loop(replace(op, body=(block.select, *emits), advance=(block.decode,)))
        lines = tuple(f"yield out.accepted({literal(each.output)}, block, accepted)" for each in emits)
        fields: dict[str, str | tuple[str, ...]] = {
            "origin": comment(op.origin),
            "block": comment(f"{block.origin} and {block.select.origin}"),
            "limit": self._limits[op.origin],
            "emit": comment(", ".join(each.origin for each in emits)),
            "emits": lines,
        }
        return OpView("_block_loop.py.j2", fields, {"plain": (plain,)})


_WHOLE = ("int64", "int32", "bool")


def has_one_row_loop(plan: Plan) -> bool:
    """Whether a step of one row is two stores and a run: nothing but the token and what tells its place changes.

    So it is where past and present share a buffer, the operators take lengths as they are or from a mask of constant
    width, and the graph asks for no positions and gives logits as they are compared.
    """
    facts = plan.decoder
    if facts is None or not plan.groups:
        return False
    mask = facts.mask
    counted = mask is not None and mask.constant_width and mask.use == "lengths" and mask.dtype in _WHOLE
    bound = (facts.lengths is not None or counted) and facts.positions is None
    shared = all(group.storage == "shared-buffer" for group in plan.groups)
    plain = facts.front is None and not facts.counts and not facts.one_token and not facts.switched
    plain = plain and not facts.prompt_component and facts.window is None and not facts.switch
    return bound and shared and facts.logits_dtype == "float32" and plain


def _selection(loop: Loop) -> str:
    """The document's place of the step that chooses tokens."""
    steps = (each.select if isinstance(each, SpeculativeBlock) else each for each in loop.body)
    return next(each.origin for each in steps if isinstance(each, SelectToken))
