"""What a table says: curves, policies, and where tables come from."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from genai_compiler.costs import WAYS, shipped_costs
from genai_compiler.costs.files import VARIABLE, chosen_costs, costs_text, read_costs, user_costs_file, write_costs
from genai_compiler.costs.table import SHIPPED, at
from genai_compiler.problem import CompileError

from tests.costs.tables import both, data, table
from tests.data import ROOT

CURVE = ((10, 5.0), (20, 9.0), (40, 10.0))


@pytest.mark.parametrize(
    ("extent", "cost"), [(1, 5.0), (10, 5.0), (15, 7.0), (20, 9.0), (30, 9.5), (40, 10.0), (80, 20.0)]
)
def test_a_curve_is_level_then_straight_then_in_proportion(extent: int, cost: float) -> None:
    assert at(CURVE, extent) == pytest.approx(cost)


def test_a_draw_by_way_side_and_vocabulary() -> None:
    costs = table(draws={way: both(at, 2 * at) for at, way in enumerate(WAYS, start=1)})
    assert [costs.draw(way, "graph", 500) for way in WAYS] == [500, 1000, 1500, 2000, 2500]
    assert costs.draw("top_p", "host", 10) == 60
    with pytest.raises(KeyError):
        costs.draw("by lot", "host", 100)


def test_the_shipped_table_is_what_its_file_holds_and_has_what_is_asked_of_it() -> None:
    costs = shipped_costs()
    assert SHIPPED.read_text("utf-8") == costs_text(costs)
    assert set(costs.draws) == set(WAYS)
    assert all(cost > 0 for each in costs.draws.values() for _, cost in (*each.graph, *each.host))
    assert costs.measured in SHIPPED.read_text("utf-8")
    schema = json.loads((ROOT / "schema" / "costs.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(SHIPPED.read_text("utf-8")), schema)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "costs.json"
    write_costs(table(node=0.25), file)
    assert read_costs(file) == table(node=0.25)
    write_costs(table(), file)
    assert read_costs(file) == table()
    assert [each.name for each in file.parent.iterdir()] == ["costs.json"]


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "costs.json"
    write_costs(table(), file)

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_costs(table(node=1), file)
    assert read_costs(file) == table()
    assert [each.name for each in tmp_path.iterdir()] == ["costs.json"]


# ---- which one -------------------------------------------------------------------------------------------------------


def test_the_users_file_is_where_the_platform_keeps_settings(tmp_path: Path) -> None:
    linux = {"XDG_CONFIG_HOME": "/settings"}
    assert user_costs_file(linux, "linux", tmp_path) == Path("/settings/genai-compile/costs.json")
    for environment in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert user_costs_file(environment, "linux", tmp_path) == tmp_path / ".config/genai-compile/costs.json"
    mac = tmp_path / "Library/Application Support/genai-compile/costs.json"
    assert user_costs_file(linux, "darwin", tmp_path) == mac
    roaming = {"APPDATA": str(tmp_path / "roaming")}
    assert user_costs_file(roaming, "win32", tmp_path) == tmp_path / "roaming/genai-compile/costs.json"
    assert user_costs_file({}, "win32", tmp_path) == tmp_path / "AppData/Roaming/genai-compile/costs.json"


def test_the_command_line_counts_more_than_the_environment_and_nothing_is_the_shipped_one(tmp_path: Path) -> None:
    own, other = tmp_path / "genai-compile" / "costs.json", tmp_path / "other.json"
    write_costs(table(node=3), own)
    write_costs(table(node=4), other)
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path), VARIABLE: str(other)}
    assert chosen_costs(None, environment).node == 4
    assert chosen_costs("shipped", environment) is shipped_costs()
    assert chosen_costs(None, {**environment, VARIABLE: ""}) is shipped_costs()
    assert chosen_costs(str(SHIPPED), {}) is shipped_costs()
    if os.name == "nt" or user_costs_file(environment) == own:
        assert chosen_costs("user", environment).node == 3
        assert chosen_costs(None, {**environment, VARIABLE: "user"}).node == 3


def refused(file: Path) -> list[tuple[str, str, str]]:
    with pytest.raises(CompileError) as error:
        read_costs(file)
    return [(each.code, each.path, each.what) for each in error.value.problems]


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    assert [code for code, _, _ in refused(tmp_path / "absent.json")] == ["no-costs"]
    assert [code for code, _, _ in refused(tmp_path)] == ["no-costs"]


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text("{", "utf-8")
    assert all(code != "bad-costs" for code, _, _ in refused(file))


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a field too many": ({"extra": 1}, "extra"),
    "another version": ({"version": 2}, "version"),
    "a text for a number": ({"node": "1"}, "node"),
    "a negative number": ({"node": -1}, "node"),
    "a missing part": ({"host": {"call": 1, "input": 1, "output": 1}}, "host.operator"),
    "an empty curve": ({"searches": {"ArgMax": both(1, 1), "ArgMin": {"graph": [], "host": [[1, 1]]}}},
                       "searches.ArgMin.graph"),
    "extents that fall": ({"searches": {"ArgMax": {"graph": [[2, 1], [1, 1]], "host": [[1, 1]]}, "ArgMin": both(1, 1)}},
                          "searches.ArgMax.graph"),
    "a way that is missing": ({"draws": {"top_k": both(1, 1)}}, "draws"),
    "a way that is none": ({"draws": {way: both(1, 1) for way in (*WAYS, "by lot")}}, "draws"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_a_table_is_named_with_its_place(name: str, tmp_path: Path) -> None:
    parts, path = FAULTS[name]
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(data(**parts)), "utf-8")
    assert [(code, where) for code, where, _ in refused(file)] == [("bad-costs", path)]


def test_all_faults_at_once(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(data(node=-1, extra=1, version=0)), "utf-8")
    assert sorted(where for _, where, _ in refused(file)) == ["extra", "node", "version"]
