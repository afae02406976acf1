"""Tokens drawn by a graph: against the definition, one value at a time in Python floats, and against the host's."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from genai_compiler.emit.policy_graphs import CANDIDATES, KINDS, WIDTH, policy_graph
from genai_runtime import graph_sampler
from genai_runtime.graph_sampler import GraphSampler
from genai_runtime.policy_graphs import PolicyGraphs, graph_of, way_of
from genai_runtime.problem import ExecutionError
from genai_runtime.sample import SamplingOptions, Selector, make_selector, to_float32
from genai_runtime.truncate import Uniforms
from genai_runtime.values import Array, to_bfloat16

from tests.runtime.test_sample import distribution, inverse_cdf, scores, slow_scores

Row = npt.NDArray[np.float32]
CUTS: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 1.9},
    {"temperature": 1e-30},
    {"top_k": 5},
    {"top_k": 5000},
    {"top_k": 20, "top_p": 0.7},
    {"top_k": 12, "top_p": 0.95, "min_p": 0.05, "temperature": 1.3},
    {"top_k": 9, "top_p": 0.0},
    {"top_k": 9, "temperature": 1e-30},
    {"top_p": 0.8},
    {"top_p": 0.3, "temperature": 2.0},
    {"top_p": 0.0},
    {"top_p": 0.9, "min_p": 0.2},
    {"top_p": 0.02, "temperature": 1e5},
    {"top_k": 9, "top_p": 0.3, "temperature": 1e30},
    {"min_p": 0.1},
    {"min_p": 1.0},
]
SIZES = [1, 2, 63, 64, 65, 127, 512, 700, 4133]
"""Under a block, whole blocks, and blocks with a rest."""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> PolicyGraphs:
    """All graphs, each preferred whatever is asked for."""
    folder = tmp_path_factory.mktemp("policy")
    files = {kind: folder / f"{kind}.onnx" for kind in KINDS}
    for kind, file in files.items():
        file.write_bytes(policy_graph(kind))
    return PolicyGraphs(files, None, 0)


def selector(
    size: int, by: PolicyGraphs | None, prompt: Sequence[int] = (), valid: Any = None, **options: Any
) -> Selector:
    return make_selector(
        SamplingOptions(**{"do_sample": True, **options}),
        vocab_size=size,
        valid_ids=size if valid is None else valid,
        end_ids=frozenset({1, 6}),
        prompt=prompt,
        graphs=by,
    )


def sampler(by: PolicyGraphs, uniforms: Callable[[], float], **options: Any) -> GraphSampler:
    """A sampler that takes these numbers in place of a generator's."""
    asked = SamplingOptions(do_sample=True, **options)
    given: Any = uniforms
    return GraphSampler(by.session(asked), asked, given)


def near(exact: Sequence[float], uniform: float, off: float = 3e-6) -> set[int]:
    """The tokens that float32 weights may give for a number: of those at it and `off` to either side."""
    return {inverse_cdf(exact, min(max(each, 0.0), 1.0)) for each in (uniform - off, uniform, uniform + off)}


# ---- against the definition ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_a_draw_is_the_inverse_cdf(graphs: PolicyGraphs, options: dict[str, Any], size: int) -> None:
    choose, uniforms = selector(size, graphs, seed=5, **options), Uniforms(5)
    for step in range(6):
        row = scores(size, seed=step, spread=(0.3, 1.0, 4.0)[step % 3])
        assert choose(row) in near(distribution(row, **options), uniforms())


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_the_tokens_that_can_come_are_those_of_the_definition(graphs: PolicyGraphs, options: dict[str, Any]) -> None:
    """A number from the middle of each token's share gives that token, in order of ids; and nothing else is left."""
    row = scores(333, seed=2, spread=2.0)
    exact = np.array(distribution(row, **options))
    ends = exact.cumsum()
    wanted = [int(each) for each in np.flatnonzero(exact > 1e-5)]
    middles = iter([float(ends[each] - exact[each] / 2) for each in wanted])
    draw = sampler(graphs, lambda: next(middles), **options).over(row)
    assert [draw() for _ in wanted] == wanted
    assert wanted


@pytest.mark.parametrize("options", [each for each in CUTS if each.get("temperature") != 1e-30], ids=str)
def test_frequencies_follow_the_exact_distribution(graphs: PolicyGraphs, options: dict[str, Any]) -> None:
    """Pearson's chi-square below its 1e-6 point, in Wilson and Hilferty's approximation; the seeds are fixed."""
    row = scores(80, seed=3, spread=1.5)
    exact, draws = distribution(row, **options), 6_000
    draw = selector(80, graphs, seed=11, **options).over(row)
    counts = Counter(draw() for _ in range(draws))
    assert all(exact[i] > 0 for i in counts)
    likely = [i for i in range(80) if exact[i] * draws >= 5]
    chi = sum((counts[i] - exact[i] * draws) ** 2 / (exact[i] * draws) for i in likely)
    freedom = max(len(likely) - 1, 1)
    assert chi < freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3


PROCESSORS: list[dict[str, Any]] = [
    {"logit_bias": {2: 1.5, 70: -3.0}},
    {"min_new_tokens": 4},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "penalty_window": 2},
    {"presence_penalty": 0.8},
    {"frequency_penalty": -0.4},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2, "presence_penalty": 0.5, "logit_bias": {3: 2.0}, "repetition_penalty": 1.1},
]


@pytest.mark.parametrize(
    "draw", [{"top_k": 7}, {"top_k": 7, "top_p": 0.8}, {"top_p": 0.8}, {"min_p": 0.1}, {}], ids=str
)
@pytest.mark.parametrize("changes", PROCESSORS, ids=str)
def test_every_change_of_scores_comes_before_the_draw(
    graphs: PolicyGraphs, changes: dict[str, Any], draw: dict[str, Any]
) -> None:
    choose, uniforms = selector(75, graphs, [1, 2, 2, 9, 1, 2], seed=3, **changes, **draw), Uniforms(3)
    made: list[int] = []
    for step in range(12):
        row = scores(75, seed=step, spread=1.0)
        before = row.copy()
        changed = slow_scores(row, [1, 2, 2, 9, 1, 2], made, SamplingOptions(**changes), (1, 6))
        token = choose(row)
        assert token in near(distribution(np.array(changed), **draw), uniforms())
        assert np.array_equal(row, before)
        made.append(token)


# ---- ties, edges, numbers that are none ------------------------------------------------------------------------------


def test_ties_at_a_cut_keep_the_lowest_ids(graphs: PolicyGraphs) -> None:
    row = np.zeros(700, np.float32)
    row[[3, 699]] = 1
    wanted = {0, 1, 3, 699}
    assert {selector(700, graphs, seed=i, top_k=4)(row) for i in range(60)} == wanted
    assert {selector(700, graphs, seed=i, top_p=1e-9)(row) for i in range(9)} == {3}
    assert {selector(700, graphs, seed=i, top_k=9, top_p=0.0)(row) for i in range(9)} == {3}


@pytest.mark.parametrize("size", [300, 5000])
@pytest.mark.parametrize("levels", [1, 2, 3, 8, 200])
def test_ties_across_blocks(graphs: PolicyGraphs, levels: int, size: int) -> None:
    """Few different scores: the k-th largest is shared by many blocks, more of them than k or fewer."""
    for seed in range(12):
        generator = np.random.default_rng(seed)
        row = generator.integers(0, levels, size).astype(np.float32) / max(levels / 8, 1)
        count = int(generator.integers(1, 40)) + 1
        exact = np.array(distribution(row, top_k=count))
        wanted = [int(each) for each in np.flatnonzero(exact > 1e-9)]
        middles = iter([float(exact[: each + 1].sum() - exact[each] / 2) for each in wanted])
        draw = sampler(graphs, lambda middles=middles: next(middles), top_k=count).over(row)  # type: ignore[misc]
        assert [draw() for _ in wanted] == wanted
        assert len(np.flatnonzero(exact)) == count


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_numbers_at_either_end(graphs: PolicyGraphs, options: dict[str, Any]) -> None:
    """0 gives the first token of the kept ones, the largest number below 1 the last one."""
    row = scores(333, seed=2, spread=2.0)
    kept = [i for i, each in enumerate(distribution(row, **options)) if each > 1e-12]
    ends = iter([0.0, 1 - 2.0**-53])
    draw = sampler(graphs, lambda: next(ends), **options).over(row)
    assert [draw(), draw()] == [kept[0], kept[-1]]


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize("place", [0, 70, 599])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_an_error(graphs: PolicyGraphs, options: dict[str, Any], place: int, value: float) -> None:
    row = scores(600)
    row[place] = value
    with pytest.raises(ExecutionError, match="logits-not-finite"):
        selector(600, graphs, **options)(row)


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize("size", [5, 64, 130])
def test_one_token_left_and_none(graphs: PolicyGraphs, options: dict[str, Any], size: int) -> None:
    row = np.full(size, -np.inf, np.float32)
    choose = selector(size, graphs, seed=1, **options)
    assert choose(row) == 0
    row[size - 1] = -1e30
    assert [choose(row) for _ in range(5)] == [size - 1] * 5


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_a_mask_of_tokens_that_leaves_one(graphs: PolicyGraphs, options: dict[str, Any]) -> None:
    allowed = np.zeros(200, np.bool_)
    allowed[77] = True
    row = scores(200)
    row[3] = math.nan  # of an id without a token
    assert [selector(200, graphs, valid=allowed, seed=i, **options)(row) for i in range(5)] == [77] * 5
    banned = selector(200, graphs, [77], valid=allowed, no_repeat_ngram_size=1, **options)
    assert banned(row) == 77, "all are forbidden: the first one that has a token"


def test_a_cut_that_keeps_more_than_the_graph_looks_at_is_the_hosts(graphs: PolicyGraphs) -> None:
    """Flat scores: thousands are within the cut, each as likely as the other."""
    for options in ({"top_p": 0.9}, {"min_p": 0.5}, {"top_p": 0.9, "min_p": 0.5}):
        by_graph, by_host = selector(3000, graphs, seed=2, **options), selector(3000, None, seed=2, **options)
        rows = [scores(3000, seed=step, spread=0.05) for step in range(20)]
        made = [by_graph(row) for row in rows]
        assert made == [by_host(row) for row in rows]
        assert len(set(made)) > CANDIDATES // 8
        assert all(0 <= token < 3000 for token in made)


@pytest.mark.parametrize("kept", [CANDIDATES - 1, CANDIDATES, CANDIDATES + 1])
def test_as_many_tokens_as_the_graph_looks_at(graphs: PolicyGraphs, kept: int) -> None:
    """So many scores of 0 among others of -1: a min_p between keeps just these."""
    row = np.full(900, -1, np.float32)
    places = np.random.default_rng(kept).choice(900, kept, replace=False)
    row[places] = 0
    numbers = iter([(at + 0.5) / kept for at in range(kept)])
    draw = sampler(graphs, lambda: next(numbers), min_p=0.9).over(row)
    assert [draw() for _ in range(kept)] == sorted(int(each) for each in places)


# ---- as the host -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize("size", [65, 700, 5000])
def test_the_same_seed_gives_the_hosts_tokens(graphs: PolicyGraphs, options: dict[str, Any], size: int) -> None:
    """Where the two differ at all, the number lies at the border of both tokens' shares."""
    by_graph, by_host = selector(size, graphs, seed=9, **options), selector(size, None, seed=9, **options)
    assert by_graph.seed == by_host.seed == 9
    uniforms = Uniforms(9)
    for step in range(25):
        row, uniform = scores(size, seed=step, spread=3.0), uniforms()
        tokens = {by_graph(row), by_host(row)}
        assert len(tokens) == 1 or tokens <= near(distribution(row, **options), uniform, 1e-6)


def test_one_number_a_token_also_where_nothing_can_be_drawn(graphs: PolicyGraphs) -> None:
    """A row of -inf takes its number, as on the host: what follows is the same."""
    rows = [scores(300, seed=1), np.full(300, -np.inf, np.float32), scores(300, seed=2), scores(300, seed=3)]
    made = [[choose(row) for row in rows] for choose in (selector(300, by, seed=4, top_k=9) for by in (None, graphs))]
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_scores_of_half_the_width(graphs: PolicyGraphs, kind: str) -> None:
    """The host widens them, exactly; rounded scores have ties."""
    choose, uniforms = selector(500, graphs, seed=1, top_k=30, top_p=0.95), Uniforms(1)
    for step in range(20):
        wide = scores(500, seed=step)
        narrow: Array = wide.astype(np.float16) if kind == "float16" else to_bfloat16(wide)
        row = to_float32(narrow)
        assert len(np.unique(row)) < 500
        assert choose(row) in near(distribution(row, top_k=30, top_p=0.95), uniforms(), 1e-9)


# ---- what is bound, and when -----------------------------------------------------------------------------------------


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Array]]:
    """Arrays whose memory goes into a graph."""
    seen: list[Array] = []
    view = graph_sampler.view

    def noted(array: Array, dtype: str = "") -> Any:
        seen.append(array)
        return view(array, dtype)

    monkeypatch.setattr(graph_sampler, "view", noted)
    return seen  # type: ignore[return-value]


def test_the_logits_go_in_where_they_lie(graphs: PolicyGraphs, bound: list[Array]) -> None:
    """One binding for all tokens: what the decoder writes next is what is drawn from next."""
    logits = np.zeros((3, 700), np.float32)
    draw = selector(700, graphs, top_k=3, top_p=0.0, seed=1).over(logits[1])
    blocks = [each for each in bound if np.shares_memory(each, logits)]
    assert [each.shape for each in blocks] == [(700 // WIDTH, WIDTH)]
    count = len(bound)
    for token in (0, 63, 64, 639, 640, 699):
        logits[1] = 0
        logits[1, token] = 5
        assert draw() == token
    assert len(bound) == count


def test_changed_scores_are_a_copy(graphs: PolicyGraphs, bound: list[Array]) -> None:
    logits = np.zeros(700, np.float32)
    selector(700, graphs, top_k=3, repetition_penalty=1.2).over(logits)
    assert bound
    assert not any(np.shares_memory(each, logits) for each in bound)


@pytest.mark.parametrize(
    ("options", "kind", "way"),
    [
        ({"top_k": 9}, "top_k", "top_k"),
        ({"top_k": 9, "min_p": 0.2}, "top_k", "top_k"),
        ({"top_k": 9, "top_p": 0.5}, "top_k", "top_k+top_p"),
        ({"top_p": 0.5, "min_p": 0.2}, "top_p", "top_p"),
        ({"min_p": 0.2, "temperature": 0.5}, "min_p", "min_p"),
        ({"temperature": 0.5}, "temperature", "temperature"),
    ],
)
def test_a_graph_draws_what_it_is_preferred_for(
    graphs: PolicyGraphs, options: dict[str, Any], kind: str, way: str
) -> None:
    asked = SamplingOptions(**options)
    assert (graph_of(asked), way_of(asked)) == (kind, way)
    alone = PolicyGraphs(graphs.files, frozenset({way}), 9)
    assert alone.session(asked) is not None
    others = PolicyGraphs(graphs.files, frozenset({"top_k", "top_k+top_p", "top_p", "min_p", "temperature"} - {way}), 9)
    assert others.session(asked) is None


def test_many_candidates_are_the_hosts_unless_asked_for(graphs: PolicyGraphs) -> None:
    some = PolicyGraphs(graphs.files, frozenset({"top_k"}), 64)
    assert some.session(SamplingOptions(top_k=64)) is not None
    assert some.session(SamplingOptions(top_k=65)) is None
    assert graphs.session(SamplingOptions(top_k=65)) is not None
