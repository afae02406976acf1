"""`pipeline.roles` and `pipeline.strategy`: which session decodes, which one drafts for it, and what is not compiled.

A draft changes no token, so all that remains of a strategy is who drafts and how many tokens at once. What would make
other drafts, or would accept what the target itself would not choose, is refused by name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from genai_compiler.read.pipeline_config import PipelineEntry, SessionEntry
from genai_compiler.read.pipeline_extensions import ACCEPTANCES, PRODUCERS, STRATEGIES, StrategyEntry
from genai_compiler.read.places import DocPath
from genai_compiler.read.suggest import closest

ROLES: DocPath = ("pipeline", "roles")
STRATEGY: DocPath = ("pipeline", "strategy")
_DRAFT: DocPath = (*STRATEGY, "draft")
_NOT_YET = "unsupported-package-class"
_LEAVE_OUT = "leave it out: the tokens are the same without drafts"
_MOST = 64
"""Tokens drafted at once, at most: beyond what any run of a target verifies at a gain."""

Report = Callable[..., None]
Sessions = Mapping[str, SessionEntry]


@dataclass(frozen=True)
class Drafting:
    """A session that drafts for the decoder, so many tokens at once. path: where it is named."""

    session: str
    width: int
    path: DocPath


def target_of(pipeline: PipelineEntry, sessions: Sessions, report: Report) -> str:
    """The session that decodes, where a role or the strategy says so, else "". Reports names that are none."""
    stated: dict[DocPath, str | None] = {(*ROLES, "target"): pipeline.roles.target}
    if pipeline.strategy is not None:
        stated[*STRATEGY, "verify", "session"] = pipeline.strategy.verify.session
    return _one(stated, sessions, report)


def drafting_of(pipeline: PipelineEntry, sessions: Sessions, target: str, report: Report) -> Drafting | None:
    """Who drafts; None where nobody does, or where it is no session that is compiled, which is reported."""
    for role in ("amateur", "expert", "unconditional"):
        if getattr(pipeline.roles, role) is not None:
            what = f"the role {role} mixes the scores of several sessions, which is not compiled"
            report(_NOT_YET, (*ROLES, role), what, "leave it out, or write inference_metadata.yaml with a workflow")
    strategy = pipeline.strategy
    stated: dict[DocPath, str | None] = {(*ROLES, "draft"): pipeline.roles.draft}
    if strategy is not None:
        stated[*_DRAFT, "session"] = strategy.draft.session
    name = _one(stated, sessions, report) or _meant(stated, {*sessions} - {target})
    path = next((each for each, said in stated.items() if said == name), STRATEGY)
    if name and name == target:
        report("bad-value", path, f"{name!r} is the target of its own drafts", "name another session")
        return None
    if name and not {*sessions} - {name}:
        report("bad-value", path, f"{name!r} drafts, and there is no other session to decode", "add the target")
        return None
    if strategy is None:
        if name:
            what = f"{name!r} drafts, but no strategy asks for drafts: it is not used"
            report("ignored-key", path, what, 'add "strategy": {"kind": "speculative"}', True)
        return Drafting(name, 0, path) if name else None
    refused = list(_refused(strategy))
    for code, where, what, help in refused:
        report(code, where, what, help)
    for where, what in _idle(strategy):
        report("ignored-key", where, what, "remove it", True)
    if strategy.acceptance == "rejection_sampling":
        what = "every token is drawn from the target's own scores, by the generator of its row: the distribution of "
        report("config-read-as", (*STRATEGY, "acceptance"), what + "rejection sampling, and its tokens without drafts",
               "write greedy, which means the same here", True)  # fmt: skip
    if not name and not refused and not any(stated.values()):
        what = "the strategy names no session that drafts"
        report("missing-key", STRATEGY, what, 'add "draft": {"session": ...}, or "roles": {"draft": ...}')
    return Drafting(name, strategy.num_speculative_tokens, path) if name else None


def _one(stated: Mapping[DocPath, str | None], sessions: Sessions, report: Report) -> str:
    """The one session that several places name, "" where none does."""
    found: dict[str, DocPath] = {}
    for path, name in stated.items():
        if name is None:
            continue
        if name not in sessions:
            near = closest(name, sessions)
            what = f'"{name}" is no session that is declared in pipeline.sessions'
            report("unknown-component", path, what, f"did you mean {near}?" if near else "")
        elif found and name not in found:
            report("bad-value", path, f"{name!r} here, but {next(iter(found))!r} elsewhere", "name one session")
        else:
            found.setdefault(name, path)
    return next(iter(found), "")


def _meant(stated: Mapping[DocPath, str | None], others: Collection[str]) -> str:
    """Which session a name that is none was meant for, so that it is not told that nothing runs this one, too."""
    wrong = next((name for name in stated.values() if name is not None), None)
    near = closest(wrong, others) if wrong is not None else None
    return near or (next(iter(others)) if wrong is not None and len(others) == 1 else "")


def _refused(strategy: StrategyEntry) -> Iterator[tuple[str, DocPath, str, str]]:
    """(code, path, what, way out) of words that are none, and of what is not compiled."""
    for kind, path, word, words in (
        ("strategy", (*STRATEGY, "kind"), strategy.kind, STRATEGIES),
        ("producer", (*_DRAFT, "producer"), strategy.draft.producer, PRODUCERS),
        ("acceptance", (*STRATEGY, "acceptance"), strategy.acceptance, ACCEPTANCES),
    ):
        if word not in words:
            near = closest(word, words)
            what = f'Unknown {kind} "{word}". Valid options: {", ".join(words)}'
            yield "bad-value", path, what, f"did you mean {near}?" if near else ""
    if strategy.draft.producer in PRODUCERS[1:]:
        what = f"drafts of the producer {strategy.draft.producer!r} are not compiled: a session of its own drafts"
        help = f'write "draft_model" and name its session, or leave the strategy out; {_proposer()}'
        yield _NOT_YET, (*_DRAFT, "producer"), what, help
    if strategy.acceptance == "typical":
        what = "acceptance typical keeps tokens that the target itself would not have chosen, which is not compiled"
        yield _NOT_YET, (*STRATEGY, "acceptance"), what, "write greedy"
    if strategy.tree is not None:
        what = "drafts that branch (tree) are not compiled: one token follows another"
        yield _NOT_YET, (*STRATEGY, "tree"), what, _LEAVE_OUT
    if strategy.num_speculative_tokens > _MOST:
        what = f"num_speculative_tokens is {strategy.num_speculative_tokens}; {_MOST} at most are drafted at once"
        yield "bad-value", (*STRATEGY, "num_speculative_tokens"), what, "4 to 8 are common"


def _proposer() -> str:
    return "a graph that proposes a block can be stated as speculative in inference_metadata.yaml"


def _idle(strategy: StrategyEntry) -> Iterator[tuple[DocPath, str]]:
    """What belongs to another producer or another acceptance."""
    draft = strategy.draft
    for key, producer in (("depth", "extra_heads"), ("heads", "extra_heads"), ("ngram", "ngram")):
        if getattr(draft, key) is not None and draft.producer == PRODUCERS[0]:
            yield (*_DRAFT, key), f"{key!r} has no effect: it belongs to the producer {producer}"
    if strategy.typical_threshold is not None and strategy.acceptance != "typical":
        yield (*STRATEGY, "typical_threshold"), "'typical_threshold' has no effect: it belongs to acceptance typical"
