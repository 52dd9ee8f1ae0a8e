"""What a verdict is made of, as tables: the facts of each partition, and how the guarantee table judges the witnesses of each
finding. The judge computes the same, and keeps only what reports show."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prozess.harness.guarantees.evidence.trial import Evidence
from prozess.harness.guarantees.facts.happened import Happened, with_plan
from prozess.harness.guarantees.facts.registry import FACTS, could_hold
from prozess.harness.guarantees.facts.witnessed import what_happened
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.guarantees.verdict.doubts import not_asked
from prozess.harness.guarantees.verdict.evaluation import Judgement, Tally, tally_of
from prozess.harness.guarantees.verdict.judge import envelopes_of, evaluation_of, results_of
from prozess.harness.interfaces.checking import Finding
from prozess.harness.plan import catalogue
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.result_tables import FACTS as FACT_ROWS
from prozess.harness.result_tables import VERDICT_INPUTS, ResultTable

Values = Mapping[str, Sequence[Any]]
"""The columns of a result table (`prozess.harness.result_tables`): name → values, all of one length."""


@dataclass(frozen=True, slots=True)
class JudgedTables:
    """The two tables that a verdict is made of."""

    facts: Values
    verdict_inputs: Values


def tables_of(
    plan: Plan, findings: Sequence[Finding], evidence: Evidence, *, unreadable: Collection[int] = ()
) -> JudgedTables:
    """Returns the tables of a trial. `findings` are in the order of their numbers. Cells that are `unreadable`, because rows
    of theirs are damaged, have no rows: nothing is known of them."""
    numbers = {(finding.anomaly, finding.partition): number for number, finding in enumerate(findings)}
    found = {(finding.anomaly, finding.partition): finding for finding in findings}
    cells = [cell for cell in plan.cells if cell.cell not in unreadable]
    facts = [row for cell in cells for row in _facts(plan, cell, evidence)]
    inputs = [row for cell in cells for row in _inputs(plan, cell, found, numbers, evidence)]
    return JudgedTables(_columns(FACT_ROWS, facts), _columns(VERDICT_INPUTS, inputs))


def _columns(table: ResultTable, rows: Sequence[tuple[Any, ...]]) -> Values:
    values = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    return dict(zip(table.column_names, values, strict=True))


def _facts(plan: Plan, cell: Cell, evidence: Evidence) -> Iterator[tuple[int, int, str, str, int]]:
    configuration = configuration_of(
        cell, evidence.kafka_version, transaction_version=evidence.feature("transaction.version")
    )
    lived_ns = cell.producer.delivery_timeout_ms * 1_000_000
    # Thousands of partitions, but few things that happened to them.
    held: dict[Happened, list[int]] = {}
    for partition, envelope in envelopes_of(plan, cell, evidence).items():
        happened = with_plan(what_happened(envelope, sends_lived_ns=lived_ns), plan, cell)
        if happened not in held:
            held[happened] = [int(could_hold(name, configuration, happened)) for name in FACTS]
        for (name, fact), holds in zip(FACTS.items(), held[happened], strict=True):
            about = "events" if fact.of_configuration is None else "configuration"
            yield cell.cell, partition, name, about, holds


def _inputs(
    plan: Plan,
    cell: Cell,
    found: Mapping[tuple[str, int], Finding],
    numbers: Mapping[tuple[str, int], int],
    evidence: Evidence,
) -> Iterator[tuple[int, str, int, int, str, str | None, str | None, int]]:
    envelopes = envelopes_of(plan, cell, evidence)
    configuration = configuration_of(
        cell, evidence.kafka_version, transaction_version=evidence.feature("transaction.version")
    )
    for anomaly, guarantee in TABLE.items():
        if not guarantee.applies(cell.traits) or anomaly in not_asked(plan, cell):
            continue
        evaluation = evaluation_of(anomaly, configuration, envelopes)
        rules = [rule.id for rule in guarantee.rules]
        for partition, result in results_of(anomaly, cell, found).items():
            whole = catalogue.CHECKERS[anomaly].of_cells
            number = numbers[anomaly, cell.partitions[0] if whole else partition]
            for judged, rule, defect, count in _groups(tally_of(guarantee, {partition: result}, evaluation)):
                name = judged.name.lower().replace("_", " ")
                rule_id, defect_id = (rules[index] if index >= 0 else None for index in (rule, defect))
                yield number, anomaly, cell.cell, partition, name, rule_id, defect_id, count


def _groups(tally: Tally) -> Iterator[tuple[Judgement, int, int, int]]:
    """Yields each judgement with the indices of the rule that decided and of the possible defect (-1: none), and how many
    witnesses have it."""
    stacked = np.stack([tally.judgement, tally.rule, tally.possible])
    groups, counts = np.unique(stacked, axis=1, return_counts=True)
    for (judgement, rule, defect), count in zip(groups.T.tolist(), counts.tolist(), strict=True):
        yield Judgement(judgement), rule, defect, count
    if tally.overflow:
        yield Judgement.UNKNOWN, -1, -1, tally.overflow
