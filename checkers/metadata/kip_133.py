"""KIP-133: what is configured is there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import NONE

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class SettingRule:
    """A rule that a setting of a topic must keep."""

    case: TransitionCase
    source: str
    """The KIP with the words that say it."""
    forbids: Callable[[Columns], NDArray[np.bool_]]
    """Returns for each row of a setting whether the rule forbids it (bool)."""


def _setting_of_no_topic(settings: Columns) -> NDArray[np.bool_]:
    """A topic is deleted, and then its retention.ms is set: a topic that is made later would begin with it."""
    return np.asarray((settings["id_high"] == NONE) & (settings["id_low"] == NONE))


SETTING_RULES = (
    SettingRule(
        TransitionCase.SETTING_OF_NO_TOPIC,
        "KIP-133: AlterConfigs of a topic that is not there is refused; QuorumController.ConfigResourceExistenceChecker",
        _setting_of_no_topic,
    ),
)
