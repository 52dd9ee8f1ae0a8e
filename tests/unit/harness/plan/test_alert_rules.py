"""Alert rules: the language, and the judgement over metrics, three-valued."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.columns import empty_rows
from prozess.harness.errors import BadInput
from prozess.harness.impact.alerts import (
    Truth,
    aggregate,
    compare,
    evaluate_expression,
    intervals,
    judge_alerts,
    lasting,
    must_be_silent_in,
    with_alerts,
)
from prozess.harness.plan.alerts import (
    AGGREGATES,
    COMPARISONS,
    AlertCombination,
    AlertRule,
    AlertSpec,
    check_alerts,
    parse_expression,
)
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.metric_series import MetricSeries, MetricTable
from prozess.harness.recording.metrics import METRICS, code_of
from prozess.harness.schema import METRICS as METRICS_TABLE
from prozess.harness.verdict import AlertResult, FaultShown, TrialVerdict, Verdict

URP = "under_replicated_partitions"
GRID = np.arange(0.0, 30.0, 0.25)
KILL = FaultShown(step="kill", fault="kill", nodes=("broker-1",), begin_s=10.0, end_s=20.0, effective=True)


def table(*samples: tuple[float, str, int, float | None]) -> MetricTable:
    """(seconds, metric, node, value or None) → the metrics of a run."""
    rows = empty_rows(METRICS_TABLE)
    columns = {
        "client": [1_000_000] * len(samples),
        "time_ns": [round(at_s * 1e9) for at_s, *_ in samples],
        "metric": [code_of(metric) for _, metric, *_ in samples],
        "node": [node for _, _, node, _ in samples],
        "partition": [-1] * len(samples),
        "value_micro": [0 if value is None else round(value * 1e6) for *_, value in samples],
        "absent": [int(value is None) for *_, value in samples],
    }
    return MetricTable({name: np.array(columns[name], dtype=rows[name].dtype) for name in rows}, [])


def every_second(
    node: int, value_at: dict[tuple[int, int], float | None]
) -> list[tuple[float, str, int, float | None]]:
    """Samples of one node over 30 s: zero, but for what is stated of [begin, end)."""
    found = []
    for second in range(-2, 31):
        value: float | None = 0.0
        for (begin, end), other in value_at.items():
            value = other if begin <= second < end else value
        found.append((float(second), URP, node, value))
    return found


def alert(**fields: object) -> AlertSpec:
    return AlertSpec.model_validate(
        {"name": "a", "expr": f"sum({URP}) > 0 for 2s", "during": "kill", "silent": ["before", "after"], **fields}
    )


def judged(
    spec: AlertSpec, *samples: tuple[float, str, int, float | None], faults: tuple[FaultShown, ...] = (KILL,)
) -> AlertResult:
    (result,) = judge_alerts([spec], table(*samples), faults, schedule_end_s=21.0)
    return result


# --- the language ---------------------------------------------------------------------------------------------------


def test_a_rule_says_aggregate_metric_comparison_number_and_duration() -> None:
    assert parse_expression("max(isr_size) <= 2.5 for 500ms") == AlertRule("max", "isr_size", False, "<=", 2.5, 0.5)


def test_and_binds_more_tightly_than_or() -> None:
    found = parse_expression("max(leaders) > 1 or min(leaders) > 2 and sum(leaders) > 3")
    assert isinstance(found, AlertCombination)
    assert found.word == "or"
    assert isinstance(found.parts[1], AlertCombination)


def test_errors_are_named_by_request_and_code() -> None:
    found = parse_expression("sum(rate(errors(Produce, NOT_ENOUGH_REPLICAS))) > 0")
    assert found == AlertRule("sum", "errors(Produce,NOT_ENOUGH_REPLICAS)", True, ">", 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the end"),
        ("sum(under_replicated) > 0", "did you mean 'under_replicated_partitions'"),
        ("sum(messages_in) > 0", r"write rate\(messages_in\)"),
        ("sum(rate(leaders)) > 0", "no counter"),
        ("sum(leaders) > 0 0", "does not belong there"),
        ("sum(leaders) > 0 for 2", "2s"),
        ("sum(leaders) = 0", "not understood"),
        ("__import__('os').system('true')", "not understood|must be"),
        ("avg(leaders) > 0", "'mean'"),
        ("(" * 50 + "sum(leaders) > 0" + ")" * 50, "parentheses"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_way_out(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_expression(text)


rules = st.builds(
    lambda a, m, c, n, d: (
        f"{a}({f'rate({m.name})' if m.counter else m.name}) {c} {n}" + (f" for {d}s" if d else ""),
        AlertRule(a, m.name, m.counter, c, float(n), float(d)),
    ),
    st.sampled_from(AGGREGATES),
    st.sampled_from(METRICS),
    st.sampled_from(COMPARISONS),
    st.integers(-1000, 1000),
    st.integers(0, 60),
)


@given(rules)
def test_every_rule_of_every_metric_is_understood(rule: tuple[str, AlertRule]) -> None:
    assert parse_expression(rule[0]) == rule[1]


@given(st.text(alphabet="sumax()<>=! 019.for_leadrtn-", max_size=60))
def test_any_text_is_a_rule_or_a_value_error(text: str) -> None:
    try:
        parse_expression(text)
    except ValueError:
        return


def test_an_alert_must_fire_in_a_step_that_makes_a_fault() -> None:
    steps = [Step(name="kill", do=FaultAction(kind="fault", fault="kill", targets=("leader(0)",))), Step(name="wait")]
    check_alerts([alert(), alert(name="b", during="fault")], steps, metrics=True, source="t")
    for wrong, said in (
        (alert(during="wait"), "no step that makes a fault"),
        (alert(during=(), silent=()), "asks for nothing"),
    ):
        with pytest.raises(BadInput, match=said):
            check_alerts([wrong], steps, metrics=True, source="t")
    with pytest.raises(BadInput, match="differ"):
        check_alerts([alert(), alert()], steps, metrics=True, source="t")
    with pytest.raises(BadInput, match="metrics = false"):
        check_alerts([alert()], steps, metrics=False, source="t")


# --- three values ---------------------------------------------------------------------------------------------------

known = st.integers(0, 5).map(float)
maybe = st.one_of(known, st.none())


@given(st.lists(maybe, min_size=1, max_size=5), st.sampled_from(["sum", "max", "min", "mean", "count"]), st.data())
def test_whatever_is_absent_the_truth_is_what_every_possible_value_says(
    values: list[float | None], name: str, data: st.DataObject
) -> None:
    number = data.draw(st.integers(-1, 8).map(float))
    comparison = data.draw(st.sampled_from(COMPARISONS))
    at = np.array([0.0])

    def truth(of: list[float | None]) -> int:
        series = [MetricSeries(at, np.array([np.nan if v is None else v]), 5.0) for v in of]
        return int(compare(*aggregate(name, series, at), comparison, number)[0])

    found = truth(values)
    if name == "count":
        assert found != Truth.UNKNOWN
        return
    possible = {truth([data.draw(known) if v is None else v for v in values]) for _ in range(8)}
    if found != Truth.UNKNOWN:
        assert possible == {found}
    elif None not in values:
        pytest.fail("unknown, and nothing is absent")


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=2, max_size=40), st.integers(0, 8))
def test_lasting_is_the_worst_of_the_last_moments(truth: list[int], steps: int) -> None:
    grid = np.arange(len(truth)) * 0.25
    found = lasting(np.array(truth, dtype=np.int8), steps * 0.25, grid)
    padded = [1] * steps + truth
    assert found.tolist() == [min(padded[i : i + steps + 1]) for i in range(len(truth))]


def test_a_sample_stands_until_the_next_but_not_for_ever() -> None:
    values, exists = MetricSeries(np.array([1.0, 2.0]), np.array([7.0, 8.0]), 5.0).at(np.array([0.5, 1.5, 6.9, 7.1]))
    assert exists.all()
    assert np.array_equal(values, [np.nan, 7.0, 8.0, np.nan], equal_nan=True)


def test_a_counter_that_begins_anew_grew_from_zero() -> None:
    rate = MetricSeries(np.arange(5.0), np.array([10.0, 14.0, np.nan, 3.0, 2.0]), 5.0).rate()
    assert np.array_equal(rate.value, [np.nan, 4.0, np.nan, np.nan, 2.0], equal_nan=True)


def test_a_closed_client_is_no_absence() -> None:
    _, exists = MetricSeries(np.array([1.0, 2.0]), np.array([7.0, 8.0]), 5.0, ends=True).at(np.array([0.5, 1.5, 7.5]))
    assert exists.tolist() == [False, True, False]


def test_what_a_dead_node_would_say_does_not_hide_what_the_others_say() -> None:
    series = {
        (URP, False): [
            MetricSeries(GRID, np.full(len(GRID), np.nan), 5.0),
            MetricSeries(GRID, np.full(len(GRID), 3.0), 5.0),
        ]
    }
    for text, truth in (("> 0", Truth.TRUE), ("> 3", Truth.UNKNOWN), ("< 3", Truth.FALSE), ("== 2", Truth.FALSE)):
        found = evaluate_expression(parse_expression(f"sum({URP}) {text}"), series, GRID)
        assert set(found.tolist()) == {truth}, text


def test_intervals_are_runs() -> None:
    assert intervals(np.array([1, 1, 0, 1], dtype=bool), np.array([0.0, 1.0, 2.0, 3.0])) == ((0.0, 1.0), (3.0, 3.0))


# --- judging --------------------------------------------------------------------------------------------------------


def test_an_alert_that_fires_in_the_fault_alone_held() -> None:
    result = judged(alert(), *every_second(1, {(12, 20): None}), *every_second(2, {(13, 21): 4.0}))
    assert result.verdict is Verdict.HELD
    assert result.fired == ((15.0, 20.75),)


def test_an_alert_that_does_not_fire_is_violated() -> None:
    assert judged(alert(), *every_second(1, {})).verdict is Verdict.VIOLATED


def test_an_alert_too_short_for_its_duration_does_not_fire() -> None:
    assert judged(alert(), *every_second(1, {(13, 14): 4.0})).verdict is Verdict.VIOLATED


def test_an_alert_before_the_fault_is_violated() -> None:
    result = judged(alert(), *every_second(1, {(3, 7): 1.0, (13, 18): 4.0}))
    assert result.verdict is Verdict.VIOLATED
    assert "before" in result.reason


def test_an_alert_that_goes_on_is_violated_only_if_it_must_stop() -> None:
    samples = every_second(1, {(13, 31): 4.0})
    assert judged(alert(), *samples).verdict is Verdict.VIOLATED
    assert judged(alert(silent=["before"]), *samples).verdict is Verdict.HELD


def test_a_fault_that_was_over_when_the_trial_began_asks_for_silence_no_longer() -> None:
    for end_s, until_s in ((0.0, 0.0), (None, 30.0)):
        fault = KILL.model_copy(update={"begin_s": -5.0, "end_s": end_s})
        [window] = must_be_silent_in(alert(silent=["during"]), [fault], 30.0, schedule_end_s=None)
        assert (window.begin_s, window.end_s) == (-5.0, until_s)


def test_absence_before_is_unknown_never_silence() -> None:
    result = judged(alert(), *every_second(1, {(4, 7): None, (13, 18): 4.0}))
    assert result.verdict is Verdict.UNKNOWN
    assert result.unknown


def test_an_absence_too_short_for_the_duration_does_not_matter() -> None:
    assert judged(alert(), *every_second(1, {(4, 6): None, (13, 18): 4.0})).verdict is Verdict.HELD


def test_absence_during_is_unknown_never_a_failure_to_fire() -> None:
    assert judged(alert(), *every_second(1, {(11, 20): None})).verdict is Verdict.UNKNOWN


def test_a_metric_that_nobody_told_is_unknown_and_named() -> None:
    result = judged(alert(expr="max(offline_partitions) > 0"), *every_second(1, {}))
    assert result.verdict is Verdict.UNKNOWN
    assert "nobody ever reported offline_partitions" in result.reason


def test_no_metrics_at_all_are_unknown() -> None:
    assert judged(alert()).verdict is Verdict.UNKNOWN


def test_a_fault_without_effect_proves_nothing() -> None:
    lame = KILL.model_copy(update={"effective": None})
    samples = every_second(1, {(13, 18): 4.0})
    assert judged(alert(), *samples, faults=(lame,)).verdict is Verdict.UNKNOWN
    assert judged(alert(), *samples, faults=()).verdict is not Verdict.HELD


def test_the_end_of_a_node_can_be_an_alert_itself() -> None:
    spec = alert(expr=f"count({URP}) < 2 for 1s")
    assert judged(spec, *every_second(1, {(12, 20): None}), *every_second(2, {})).verdict is Verdict.HELD


def test_alerts_count_for_the_verdict_of_the_trial() -> None:
    verdict = TrialVerdict(verdict=Verdict.HELD, sentence="Held.", trial="t", title="t", seed=1, cells=())
    bad, good = judged(alert(), *every_second(1, {})), judged(alert(), *every_second(1, {(13, 18): 4.0}))
    assert with_alerts(verdict, ()) == verdict
    assert with_alerts(verdict, (good,)).verdict is Verdict.HELD
    assert with_alerts(verdict, (good, bad)).verdict is Verdict.VIOLATED
    assert "did not fire" in with_alerts(verdict, (good, bad)).sentence
    violated = verdict.model_copy(update={"verdict": Verdict.VIOLATED})
    assert with_alerts(violated, (good,)).verdict is Verdict.VIOLATED
