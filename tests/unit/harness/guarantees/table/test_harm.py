from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.harm import HARM, harm_rank, worst_first


def test_every_anomaly_has_one_rank_of_harm():
    ranked = [anomaly for anomalies in HARM.values() for anomaly in anomalies]
    assert sorted(ranked) == sorted(TABLE)


def test_records_that_are_gone_come_before_a_greater_number_of_dirty_reads():
    assert worst_first([("dirty-read", 1_140), ("lost", 570)]) == [("lost", 570), ("dirty-read", 1_140)]


def test_of_what_harms_alike_the_most_frequent_comes_first():
    assert harm_rank("lost") == harm_rank("skipped")
    assert worst_first([("lost", 1), ("late", 9), ("skipped", 2)]) == [("skipped", 2), ("lost", 1), ("late", 9)]
