"""Which versions of librdkafka have a defect that a later one fixed."""

from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.config.configuration import GroupConfiguration, version_numbers
from prozess.harness.config.known_properties import librdkafka_version
from prozess.harness.config.librdkafka_fixes import (
    FIXES,
    fixed_later,
    later_fixes_note,
    stores_ends,
    takes_ends,
    wants_ends,
)

VERSIONS = st.builds("{}.{}.{}".format, st.integers(1, 3), st.integers(0, 20), st.integers(0, 3))


@given(VERSIONS)
def test_a_version_has_what_was_there_and_was_not_fixed_yet(version):
    numbers = version_numbers(version)
    for fix in FIXES:
        begun = not fix.since or version_numbers(fix.since) <= numbers
        assert (fix in fixed_later(version)) == (begun and numbers < version_numbers(fix.fixed))
    assert bool(later_fixes_note(version)) == bool(fixed_later(version))


@given(VERSIONS, VERSIONS)
def test_no_fix_is_undone(one, other):
    older, newer = sorted((one, other), key=version_numbers)
    assert {fix for fix in fixed_later(newer) if not fix.since} <= {fix for fix in fixed_later(older) if not fix.since}


def test_the_versions_around_a_fix():
    def has(version):
        return "librdkafka#4844" in later_fixes_note(version)

    assert [has(v) for v in ("2.1.1", "2.2.0", "2.13.1", "2.13.2", "2.14.0")] == [False, True, True, False, False]
    assert later_fixes_note(librdkafka_version()) == ""
    assert len({fix.id for fix in FIXES}) == len(FIXES)
    assert all(fix.id.startswith("librdkafka#") and not fix.what.endswith(".") for fix in FIXES)
    fixed = [version_numbers(fix.fixed) for fix in FIXES]
    assert fixed == sorted(fixed, reverse=True)


def test_members_store_ends_if_their_version_does_and_they_commit_what_it_stores():
    def stores(**given):
        return stores_ends(GroupConfiguration(**({"commit": "auto", "client_version": "2.8.0"} | given)))

    assert stores()
    assert not stores(client_version="2.13.2")
    assert not stores(client_version=None), "that with which prozess runs"
    assert not stores(commit="auto-stored"), "the application stores"
    assert not stores(client="java")
    assert takes_ends(GroupConfiguration(commit="async-after", client_version="2.12.1")), "it goes on from there"
    assert not takes_ends(GroupConfiguration(commit="async-after", client_version="2.13.2"))
    assert wants_ends(GroupConfiguration(properties={"enable.partition.eof": True}))
    assert not wants_ends(GroupConfiguration())
