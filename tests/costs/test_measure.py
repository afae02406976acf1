"""A measured table follows from its times by arithmetic; measuring tells how far it is; the command writes it whole."""

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
from genai_compiler.cli import main
from genai_compiler.costs import WAYS, calibrate, measure
from genai_compiler.costs.files import read_costs
from genai_compiler.costs.table import Costs
from genai_compiler.costs.timed_draws import ASKED, draw, graphs_in, scores
from genai_compiler.costs.timed_graphs import LONG, PORTS, SHORT
from genai_runtime.policy_graphs import way_of
from genai_runtime.sample import SamplingOptions

from tests.conftest import FIXTURES
from tests.costs.tables import table

EXTENTS = (64, 512)
CALL, IN, OUT, NODE = 5.0, 0.5, 0.25, 0.125
HOST, TAKEN, GIVEN, ADDED = 2.0, 0.375, 1.5, 0.75


def times() -> dict[str, float]:
    """What every call would take if these numbers were the truth."""
    found = {
        "one": CALL + IN + OUT + NODE,
        "taking": CALL + PORTS * IN + OUT + NODE,
        "giving 1": CALL + PORTS * IN + OUT + PORTS * NODE,
        "giving": CALL + PORTS * IN + PORTS * OUT + PORTS * NODE,
        "short": CALL + 2 * IN + OUT + SHORT * NODE,
        "long": CALL + 2 * IN + OUT + LONG * NODE,
        "host": HOST + TAKEN + GIVEN + ADDED,
        "host taking": HOST + PORTS * TAKEN + GIVEN + ADDED,
        "host adding": HOST + TAKEN + GIVEN + PORTS * ADDED,
        "host giving": HOST + TAKEN + PORTS * GIVEN + PORTS * ADDED,
    }
    for extent in EXTENTS:
        for name in ("ArgMax", "ArgMin"):
            found[f"{name} {extent}"] = CALL + IN + OUT + extent
            found[f"host {name} {extent}"] = HOST + TAKEN + GIVEN + extent / 8
        for at, way in enumerate(WAYS, start=1):
            found[f"{way} {extent}"] = 3.0 * at * extent
            found[f"host {way} {extent}"] = 2.0 * at * extent
    return found


def test_the_table_is_what_the_times_were_made_of() -> None:
    made = measure.table_of(times(), EXTENTS)
    assert (made.session.call, made.session.input, made.session.output, made.node) == (CALL, IN, OUT, NODE)
    assert (made.host.call, made.host.input, made.host.output, made.host.operator) == (HOST, TAKEN, GIVEN, ADDED)
    assert made.searches.ArgMax.graph == made.searches.ArgMin.graph == ((64, 64.0), (512, 512.0))
    assert made.searches.ArgMax.host == ((64, 8.0), (512, 64.0))
    assert list(made.draws) == list(WAYS)
    assert made.draws["top_k"].graph == ((64, 192.0), (512, 1540.0))  # three digits
    assert made.draws["top_p"].host == ((64, 384.0), (512, 3070.0))


def test_noise_makes_no_number_negative() -> None:
    made = measure.table_of(dict.fromkeys(times(), 1.0), EXTENTS)
    assert min(made.session.call, made.session.input, made.session.output, made.node, made.host.call) >= 0


def test_measuring_tells_how_far_it_is_and_gives_a_table_that_is_read_back(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = measure.measured(lambda done, whole: told.append((done, whole)), rounds=2, extents=(64, 256))
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert [extent for extent, _ in made.searches.ArgMax.graph] == [64, 256]
    assert all(cost > 0 for each in made.draws.values() for _, cost in (*each.graph, *each.host))
    assert Costs.model_validate_json(made.model_dump_json()) == made


def test_every_timed_draw_is_of_its_way_and_both_sides_draw_the_same(tmp_path: Path) -> None:
    graphs, row = graphs_in(tmp_path), scores(256)
    for way in WAYS:
        assert way_of(SamplingOptions(**ASKED[way])) == way  # type: ignore[arg-type]
        host, graph = draw(way, row, None), draw(way, row, graphs)
        assert [graph() for _ in range(8)] == [host() for _ in range(8)]


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_measured", lambda shown: table(node=0.5))


@pytest.mark.usefixtures("quick")
def test_calibrating_writes_a_file_that_the_compiler_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deep" / "costs.json"
    assert main(["--calibrate", "-o", str(file)]) == 0
    out, err = capsys.readouterr()
    assert f"written: {file}" in out
    assert f"--costs {file}" in out
    assert err == ""
    assert read_costs(file).node == 0.5
    assert main([str(FIXTURES / "wide-search"), "--costs", str(file), "--print", "choose_forms"]) == 0
    assert "decision choose_forms: greedy: host" in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_the_users_own_file_is_used_only_when_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    package = str(FIXTURES / "wide-search")
    texts: list[str] = []
    for arguments in ([], ["--costs", "shipped"]):
        assert main([package, "--print", "choose_forms", *arguments]) == 0
        texts.append(capsys.readouterr().out)
    assert main(["--calibrate", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert [each.name for each in tmp_path.rglob("*.json")] == ["costs.json"]
    assert main([package, "--print", "choose_forms"]) == 0
    texts.append(capsys.readouterr().out)
    assert texts == texts[:1] * 3
    assert main([package, "--print", "choose_forms", "--costs", "user"]) == 0
    by_option = capsys.readouterr().out
    assert by_option != texts[0]
    monkeypatch.setenv("GENAI_COMPILE_COSTS", "user")
    assert main([package, "--print", "choose_forms"]) == 0
    assert capsys.readouterr().out == by_option


def test_an_interrupt_while_measuring_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "fastest", interrupted)
    assert main(["--calibrate", "-o", str(tmp_path / "costs.json")]) == 3
    assert capsys.readouterr().err == "interrupted: nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_what_stands_in_the_way_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--calibrate", "-o", str(tmp_path)]) == 2
    assert " bad-output: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--calibrate", str(FIXTURES / "wide-search")])
    assert "compiles nothing" in capsys.readouterr().err


def test_bad_costs_and_forms_refuse_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package, file = str(FIXTURES / "wide-search"), tmp_path / "costs.json"
    file.write_text(json.dumps({"version": 1}), "utf-8")
    for arguments, code in (
        (["--costs", str(file)], "bad-costs"),
        (["--costs", str(tmp_path / "none")], "no-costs"),
        (["--form", "greedy=hosted"], "unknown-form"),
        (["--form", "greedy=host", "--without", "choose_forms"], "impossible-form"),
    ):
        assert main([package, "--check", *arguments]) == 2
        assert f" {code}: " in capsys.readouterr().err
    assert main([package, "--check", "-q", "--form", "greedy=own", "--form", "fused"]) == 0


def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(measure, "fastest", never)
    (tmp_path / "file").write_text("", "utf-8")
    assert main(["--calibrate", "-o", str(tmp_path / "file" / "costs.json")]) == 2
    assert " bad-output: " in capsys.readouterr().err

    def denied(**asked: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)  # root may write everywhere
    assert main(["--calibrate", "-o", str(tmp_path / "new" / "costs.json")]) != 0
    assert " disk-failed: " in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
