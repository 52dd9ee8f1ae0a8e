"""Rules applied to what happened at all, or could happen: may an anomaly be permitted, and which known defects could bring
it about? No witness is needed, so this predicts before anything ran."""

from collections.abc import Sequence

from prozess.harness.guarantees.facts.happened import Happened
from prozess.harness.guarantees.facts.registry import could_hold
from prozess.harness.guarantees.table import TABLE, Rule, RuleEffect
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.schema import Tristate


def could_all_hold(facts: Sequence[str], configuration: CellConfiguration, happened: Happened) -> bool:
    """Returns whether these facts of a rule could hold together: none of them certainly does not. "not " before a name
    asks for its opposite."""
    certainly_not = {name: Tristate.YES if name.startswith("not ") else Tristate.NO for name in facts}
    return all(
        could_hold(name.removeprefix("not "), configuration, happened) is not value
        for name, value in certainly_not.items()
    )


def satisfiable_rules(anomaly: str, configuration: CellConfiguration, happened: Happened) -> tuple[Rule, ...]:
    """Returns the rules under which the anomaly could have been permitted, given what happened or could happen. If there
    are none, its absence is guaranteed."""
    return tuple(
        rule
        for rule in TABLE[anomaly].rules
        if rule.effect is RuleEffect.PERMITTED and could_all_hold(rule.when, configuration, happened)
    )


def satisfiable(anomaly: str, configuration: CellConfiguration, happened: Happened) -> bool:
    """Returns whether the anomaly could have been permitted at all."""
    return bool(satisfiable_rules(anomaly, configuration, happened))


def open_defects(anomaly: str, configuration: CellConfiguration, happened: Happened) -> tuple[Rule, ...]:
    """Returns the rules of the known defects that this configuration has, and that could bring the anomaly about."""
    return tuple(
        rule
        for rule in TABLE[anomaly].rules
        if rule.effect is RuleEffect.DEFECT and could_all_hold((*rule.when, *rule.perhaps), configuration, happened)
    )
