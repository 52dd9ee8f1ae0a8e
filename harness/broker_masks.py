"""Sets of brokers as the history holds them: one integer with bit n set for broker n."""

from collections.abc import Iterable

from harness.errors import HistoryUnreadable

BROKER_IDS_MAX = 62


def broker_mask(brokers: Iterable[int]) -> int:
    """Bit n set for broker n. HistoryUnreadable for an id that has no bit."""
    mask = 0
    for broker in brokers:
        if not 0 <= broker <= BROKER_IDS_MAX:
            raise HistoryUnreadable(
                f"Broker id {broker} does not fit the history's broker masks; use ids 0…{BROKER_IDS_MAX}."
            )
        mask |= 1 << broker
    return mask
