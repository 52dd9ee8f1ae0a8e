"""The run stage's own rows and the texts behind their codes."""

import numpy as np
import pytest

from prozess.harness.errors import HistoryUnreadable
from prozess.harness.recording.codes import Dictionaries
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import MISSING, NONE, RECORDER_CLIENT, TABLES
from tests.support.small_runs import START_NS, make_small


@pytest.fixture
def small(tmp_path):
    return make_small(tmp_path / "run")


def test_the_recorder_takes_columns_by_name_and_fills_the_rest(small):
    with Recorder(small.run) as recorder:
        code = recorder.code("fault", "kill")
        recorder.write("faults", time_ns=START_NS + 3, fault=0, kind=code, node=2)
        recorder.write("steps", step=4)
        recorder.extend("metadata", {"time_ns": np.array([START_NS, START_NS + 1]), "leader": np.array([1, 2])})
    history = small.history()
    faults = history.table("faults")
    assert {name: faults[name].tolist() for name in ("client", "time_ns", "node", "peer", "detail")} == {
        "client": [RECORDER_CLIENT], "time_ns": [3], "node": [2], "peer": [NONE], "detail": [NONE],
    }  # fmt: skip
    assert Dictionaries(small.run.dictionaries).text("fault", faults["kind"].tolist()[0]) == "kill"
    assert history.table("steps")["fired_ns"].tolist() == [MISSING]
    assert history.table("metadata")["leader"].tolist() == [1, 2]
    assert history.table("metadata")["partition"].tolist() == [NONE, NONE]


def test_the_recorder_refuses_columns_that_are_not_there(small):
    with Recorder(small.run) as recorder, pytest.raises(AssertionError, match="no columns"):
        recorder.write("faults", tine_ns=3)


def test_codes_stay_the_same_and_are_on_disk_at_once(small):
    first = Dictionaries(small.run.dictionaries)
    codes = [first.code("detail", text) for text in ("a", "b", "a")]
    assert codes == [0, 1, 0]
    again = Dictionaries(small.run.dictionaries)
    assert again.code("detail", "b") == 1
    assert again.code("detail", "ü") == 2
    assert (again.text("detail", 2), again.text("detail", NONE)) == ("ü", "")
    with pytest.raises(HistoryUnreadable, match="no text for code 9"):
        again.text("detail", 9)


def test_dictionaries_that_are_none_are_named(small):
    small.run.dictionaries.write_text('{"detail": 3}')
    with pytest.raises(HistoryUnreadable, match=r"dictionaries\.json"):
        Dictionaries(small.run.dictionaries)


@pytest.mark.parametrize(
    "name", sorted({name for name, table in TABLES.items() if "sequence" not in table.column_names})
)
def test_a_row_of_any_table_is_in_the_history(small, name):
    before = small.history().rows(name)
    with Recorder(small.run) as recorder:
        recorder.write(name, **({"partition": 0} if "partition" in TABLES[name].column_names else {}))
    assert small.history().rows(name) == before + (name not in ("partitions", "cells"))  # those are made from the plan
