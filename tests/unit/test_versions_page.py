"""The page of versions: its tables are what runs showed, and new runs leave what stands of others as it is."""

from hypothesis import given
from hypothesis import strategies as st

from tools.versions_page import DOCUMENT, MARK, TRIALS, Row, Shown, fixes_table, rows_in, rows_of, table

VERSIONS = st.builds("{}.{}.{}".format, st.integers(2, 4), st.integers(0, 9), st.integers(0, 3))
MODES = st.sampled_from(["zookeeper", "kraft-isolated"])
SHOWN = st.builds(
    Shown,
    version=VERSIONS,
    mode=MODES,
    trial=st.sampled_from([*TRIALS, "another"]),
    verdict=st.sampled_from(["held", "violated", "unknown"]),
    sentence=st.from_regex(r"[A-Z][a-z ]{0,20}\.", fullmatch=True),
    controls=st.builds("{} of {} controls fired".format, st.integers(0, 4), st.integers(0, 4)),
    ready_s=st.integers(1, 60).map(float),
    seconds=st.integers(1, 999).map(float),
)
RUNS = st.lists(SHOWN, max_size=12)


def merged(*rows):
    """What `main` makes of tables that came one after the other."""
    found = {}
    for some in rows:
        for cluster, row in some.items():
            found[cluster] = found.get(cluster, Row({})).with_newer(row)
    return found


@given(RUNS)
def test_a_table_is_read_as_it_was_written(runs):
    text = table(rows_of(runs))
    assert table(rows_in(text)) == text


@given(RUNS, RUNS)
def test_newer_runs_replace_their_own_cells_alone(older, newer):
    rows = merged(rows_in(table(rows_of(older))), rows_of(newer))
    last = {(one.version, one.mode, one.trial): one for one in [*older, *newer] if one.trial in TRIALS}
    assert {(*cluster, trial) for cluster, row in rows.items() for trial in row.cells} == set(last)
    for (version, mode, trial), one in last.items():
        row = rows[version, mode]
        assert row.cells[trial] == one.cell
        assert row.sentences.get(trial) == (None if one.verdict == "held" else one.sentence)


def test_the_page_has_the_tables():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert fixes_table() in text, "run python -m tools.versions_page"
    _, _, standing = text.partition(MARK)
    assert table(rows_in(standing)) == standing.lstrip("\n")
