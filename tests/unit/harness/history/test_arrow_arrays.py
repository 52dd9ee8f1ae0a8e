"""Arrays go to Arrow and back as they were, and pandas is not imported for it."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.exchange.commands import generate_history
from prozess.harness.history.parquet import from_numpy, from_strings, to_numpy

KINDS = [(np.int32, pa.int32()), (np.int64, pa.int64())]


@pytest.mark.parametrize(("dtype", "kind"), KINDS)
@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9), max_size=4), st.integers(0, 5))
def test_integers_come_back_from_however_many_chunks_and_wherever_they_begin(dtype, kind, parts, skipped):
    made = [from_numpy(np.array(part, dtype=dtype)) for part in parts]
    assert all(array.equals(pa.array(part, kind)) for array, part in zip(made, parts, strict=True))
    column = pa.chunked_array(made, kind).slice(skipped)
    found = to_numpy(column)
    assert (found.tolist(), found.dtype, found.flags.writeable) == (column.to_pylist(), np.dtype(dtype), False)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_are_those_that_pyarrow_makes(values):
    made = from_strings(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


CHECK = """
import sys
from pathlib import Path
from prozess.harness.run_directory import RunDirectory
from prozess.harness.report.reports import report_run
from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
run = RunDirectory(Path(sys.argv[1]))
judge_run(run, check_run(run, CheckOptions(engine="local")))
report_run(run)
print(sorted({"pandas", "scipy", "networkx"} & sys.modules.keys()))
"""


def test_a_small_check_with_its_report_imports_neither_pandas_nor_scipy_nor_networkx(tmp_path):
    path = tmp_path / "run"
    generate_history(path, rows=2000, partitions=2, plant="lost=1", workloads=["log"], seed=1)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
