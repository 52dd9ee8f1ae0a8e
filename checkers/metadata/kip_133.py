"""KIP-133: what is configured is there."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from prozess.checkers.metadata.rule import KipRule
from prozess.harness.interfaces.witnesses import TransitionCase
from prozess.harness.schema import NONE

Columns = Mapping[str, np.ndarray]


def _setting_of_no_topic(settings: Columns) -> NDArray[np.bool_]:
    """A topic is deleted, and then its retention.ms is set: a topic that is made later would begin with it."""
    return np.asarray((settings["id_high"] == NONE) & (settings["id_low"] == NONE))


SETTING_RULES = (
    KipRule(
        TransitionCase.SETTING_OF_NO_TOPIC,
        "KIP-133: AlterConfigs of a topic that is not there is refused; QuorumController.ConfigResourceExistenceChecker",
        _setting_of_no_topic,
    ),
)
