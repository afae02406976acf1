"""`generation.logits`, an order of changes to the scores -> keys of `search` and a bias, where the runtime's fits.

The runtime's own order is fixed: bias, minimum length, repetition penalty, then the choice (top_k, temperature, top_p).
What the file lists before the choice may stand in another order where that gives the same scores: a token that the
minimum length forbids stays forbidden whatever is done to it, and a bias of nothing or a penalty of 1 changes nothing.
The choice gathers its three numbers, so their order has no meaning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from genai_compiler.problem import Problem
from genai_compiler.read.pipeline_extensions import OPERATIONS, TAKES, LogitsEntry
from genai_compiler.read.pipeline_form import Resolving
from genai_compiler.read.pipeline_text import PipelineText
from genai_compiler.read.places import DocPath, as_written, format_path
from genai_compiler.read.score_bounds import FORBIDS, bias_fault, is_token
from genai_compiler.read.suggest import closest

LOGITS: DocPath = ("generation", "logits")
MOST_OPERATIONS = 64
_WHOLE = ("min_length", "top_k")
_WAYS_OUT: Mapping[str, tuple[str, str]] = {
    "combine": (
        "mixes the scores of several sessions, which is not compiled",
        "leave it out, or mix them in the graph",
    ),
    "grammar": (
        "needs a grammar in the runtime's own sampler, which has none",
        "leave it out, or write inference_metadata.yaml with a sampler of its own and the grammar-guidance adapter",
    ),
}


@dataclass
class LogitsOrder:
    """What the list comes to. search: keys of version 1's `search`; places: where each stands; bias: id -> delta."""

    search: dict[str, float | bool] = field(default_factory=dict[str, float | bool])
    places: dict[str, DocPath] = field(default_factory=dict[str, DocPath])
    bias: dict[int, float] = field(default_factory=dict[int, float])


def logits_order(text: PipelineText) -> LogitsOrder:
    """What the operations come to, whatever is wrong with them."""
    return _read(text.document.generation.logits, Resolving(text))


def check_logits(resolving: Resolving) -> LogitsOrder:
    """The same; reports what is no operation, has no place in the runtime's order, or lacks its number."""
    operations = resolving.text.document.generation.logits
    if len(operations) > MOST_OPERATIONS:
        what = f"there are {len(operations)} operations; at most {MOST_OPERATIONS} are read"
        resolving.report("too-many-values", LOGITS, what, "state each once")
    return _read(operations, resolving)


def bias_default(text: PipelineText) -> dict[str, dict[str, float]]:
    """The bias for `generation.defaults` of a document, where keys of a map are texts; {} without one."""
    bias = logits_order(text).bias
    return {"logit_bias": {str(token): delta for token, delta in bias.items()}} if bias else {}


def bias_faults(text: PipelineText, *known: int | None) -> tuple[Problem, ...]:
    """Ids of the bias that no token has. known: how many ids there are, from whoever says it (None, 0: unknown)."""
    order, counts = logits_order(text), [each for each in known if each]
    paths = {token: (*order.places["logit_bias"], str(token)) for token in order.bias}
    return tuple(
        Problem(
            "bad-value",
            text.places.find(path),
            format_path(path),
            f"there is no token {token}: ids are 0 to {min(counts) - 1}",
            "remove it",
        )
        for token, path in paths.items()
        if counts and token >= min(counts)
    )


def _read(operations: Sequence[LogitsEntry], resolving: Resolving) -> LogitsOrder:
    made, seen = LogitsOrder(), dict[str, int]()
    for at, each in enumerate(operations[:MOST_OPERATIONS]):
        path = (*LOGITS, at)
        if not _is_known(each, path, resolving):
            continue
        if each.op in seen:
            what = f"{each.op} stands twice: entry {seen[each.op]} has it too"
            resolving.report("bad-value", (*path, "op"), what, "state it once")
            continue
        if "sample" in seen:
            what = f"{each.op} stands behind sample, which has chosen by then"
            resolving.report("unsupported-search", path, what, "put sample last")
        seen[each.op] = at
        if _fits(each, path, resolving):
            _take(each, path, made)
    _check_order(operations, seen, made, resolving)
    return made


def _is_known(each: LogitsEntry, path: DocPath, resolving: Resolving) -> bool:
    if each.op not in OPERATIONS:
        near = closest(each.op, OPERATIONS)
        what = f'Unknown logits operation "{each.op}". Valid options: {", ".join(OPERATIONS)}'
        resolving.report("bad-value", (*path, "op"), what, f"did you mean {near}?" if near else "")
    elif each.op in _WAYS_OUT:
        why, help = _WAYS_OUT[each.op]
        resolving.report("unsupported-search", path, f"{each.op} {why}", help)
    return each.op in OPERATIONS and each.op not in _WAYS_OUT


def _fits(each: LogitsEntry, path: DocPath, resolving: Resolving) -> bool:
    """Whether an operation has what it takes, and nothing else."""
    wanted, stated = TAKES.get(each.op, ""), each.model_dump(exclude_none=True)
    for key in sorted({*stated} - {"op", wanted}):
        resolving.report("bad-value", (*path, key), f"{key!r} means nothing to {each.op}", f"remove {key}")
    if wanted and wanted not in stated:
        resolving.report("missing-key", path, f"{each.op} lacks its {wanted}", f'add "{wanted}"')
        return False
    if wanted == "map":
        return all([*_biases(each, path, resolving)])
    if each.op in _WHOLE and each.value is not None and float(each.value) != int(each.value):
        what = f"{each.op} is {as_written(each.value)}; it is a whole number"
        resolving.report("fractional-number", (*path, "value"), what, f"write {int(each.value)}")
        return False
    return True


def _biases(each: LogitsEntry, path: DocPath, resolving: Resolving) -> Iterator[bool]:
    for token, delta in (each.map or {}).items():
        what, help = (bias_fault(token, delta), FORBIDS) if is_token(token) else (
            f"{token!r} is no token id", 'write ids as "7"')  # fmt: skip
        if what:
            resolving.report("bad-value", (*path, "map", token), what, help)
        yield not what


def _take(each: LogitsEntry, path: DocPath, made: LogitsOrder) -> None:
    if each.op == "logit_bias":
        made.bias = {int(token): float(delta) for token, delta in (each.map or {}).items()}
        made.places["logit_bias"] = (*path, "map")
    elif each.value is not None:
        made.search[each.op] = int(each.value) if each.op in _WHOLE else each.value
        made.places[each.op] = (*path, "value")
    if each.op in ("top_k", "top_p", "sample"):
        made.search["do_sample"] = True
        made.places.setdefault("do_sample", path)


def _check_order(
    operations: Sequence[LogitsEntry], seen: Mapping[str, int], made: LogitsOrder, resolving: Resolving
) -> None:
    """The one pair that two orders give different scores of: a penalty before a bias."""
    penalty, bias = seen.get("repetition_penalty"), seen.get("logit_bias")
    if penalty is None or bias is None or penalty < bias:
        idle = made.search.get("repetition_penalty", 1) == 1 or not any(made.bias.values())
        if penalty is not None and bias is not None and not idle:
            what = "the runtime adds logit_bias before repetition_penalty; in this order the scores would be others"
            help = f"put entry {bias} before entry {penalty}"
            resolving.report("unsupported-search", (*LOGITS, bias), what, help)
