"""The file of accepted risks: what it must say, until when it counts, and what is stated of entries that accept nothing."""

from contextlib import suppress
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.validation.assumptions import OTHER_CLIENT, Risk, Risks, read_risks

KNOWN = ("lost", "lost/acks-1", "duplicate")
LAST = date(2027, 1, 31)


def written(tmp_path, text):
    path = tmp_path / "risks.toml"
    path.write_text(text)
    return path


def entry(rule="lost/acks-1", reason="clicks may be lost", until="2027-01-31"):
    return f'[[accept]]\nrule = "{rule}"\nreason = "{reason}"\nuntil = {until}\n'


def test_an_entry_counts_to_the_end_of_its_last_day_and_not_after_it(tmp_path):
    risks = read_risks(written(tmp_path, entry()), KNOWN)
    found = risks.accepted("lost/acks-1", LAST)
    assert found is not None
    assert found.sentence() == f"accepted until 2027-01-31: clicks may be lost ({tmp_path}/risks.toml, entry 1)"
    assert risks.remarks(LAST) == []
    assert risks.accepted("lost/acks-1", LAST + timedelta(days=1)) is None
    (said,) = risks.remarks(LAST + timedelta(days=1))
    assert "was accepted until 2027-01-31. That day has passed, so it counts again" in said


def test_an_anomaly_stands_for_every_rule_of_it_and_for_no_other(tmp_path):
    risks = read_risks(written(tmp_path, entry(rule="lost")), KNOWN)
    assert risks.accepted("lost/acks-1", LAST, anomaly="lost") is not None
    assert risks.accepted("duplicate/not-idempotent", LAST, anomaly="duplicate") is None


def test_an_entry_for_what_the_configuration_does_not_have_is_said_to_be_stale(tmp_path):
    risks = read_risks(written(tmp_path, entry() + entry(rule="duplicate")), KNOWN)
    risks.accepted("lost/acks-1", LAST, anomaly="lost")
    (said,) = risks.remarks(LAST)
    assert (
        "entry 2: duplicate is accepted, but your configuration does not have this weakness: remove the entry" in said
    )


@pytest.mark.parametrize("rule", [OTHER_CLIENT, "unknown-property:our.own.switch"])
def test_other_clients_and_properties_of_your_own_can_be_accepted_by_name(tmp_path, rule):
    risks = read_risks(written(tmp_path, entry(rule=rule)), KNOWN)
    assert risks.accepted(rule, LAST) is not None
    assert risks.accepted("unknown-property:another", LAST) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (entry(rule="lost/ack-1"), r"entry 1: rule = 'lost/ack-1' is no rule.*Did you mean lost/acks-1"),
        (entry(rule="unknown-property:"), "is no rule"),
        ('[[accept]]\nreason = "a"\nuntil = 2027-01-31\n', "rule = None is no rule"),
        (entry(reason="  "), "lost/acks-1 is accepted without a reason. Write reason"),
        ('[[accept]]\nrule = "lost"\nuntil = 2027-01-31\n', "lost is accepted without a reason"),
        ('[[accept]]\nrule = "lost"\nreason = "a"\n', "until = None is no date. Write until = 2027-01-31"),
        (entry(until='"2027-01-31"'), "until = '2027-01-31' is no date"),
        (entry(until="2027-01-31T10:00:00"), "is no date"),
        (entry() + "who = 'me'\n", "who is not known. Known: rule, reason, until"),
        (entry() + entry(), "entry 2: lost/acks-1 is accepted twice"),
        ("[accepted]\n", "accepted is not known"),
        ("accept = 1\n", "must be a list of tables"),
        ("[[accept]\n", "cannot be read"),
    ],
)
def test_an_entry_that_does_not_say_what_why_and_until_when_is_refused_with_the_way_out(tmp_path, text, said):
    with pytest.raises(BadInput, match=said):
        read_risks(written(tmp_path, text), KNOWN)


def test_a_file_that_is_missing_is_refused_by_name(tmp_path):
    with pytest.raises(BadInput, match=r"--accept .*nothing\.toml: cannot be read"):
        read_risks(tmp_path / "nothing.toml", KNOWN)


@given(st.binary(max_size=200))
def test_no_garbage_brings_a_traceback(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("garbage") / "risks.toml"
    path.write_bytes(content)
    with suppress(BadInput):
        read_risks(path, KNOWN)


@given(st.dates(), st.dates(), st.sampled_from(KNOWN), st.sampled_from(KNOWN))
def test_nothing_is_accepted_but_what_is_named_and_on_no_day_after_the_last(until, today, rule, asked):
    risks = Risks([Risk(rule, "a reason", until, "here")])
    accepted = risks.accepted(asked, today, anomaly=asked.partition("/")[0])
    assert (accepted is not None) == (today <= until and rule in (asked, asked.partition("/")[0]))
    assert bool(risks.remarks(today)) == (accepted is None)
