"""Reports topics apart that had one name, one after the other, by the rows of `metadata`."""

from collections.abc import Mapping

import numpy as np

from prozess.harness.schema import NONE, MetadataKind

# Each topic has an id, and a log of its own that ends when the topic is deleted. [KIP-516, topic identifiers]


def life_of_rows(kind: np.ndarray, topic_id_high: np.ndarray, topic_id_low: np.ndarray) -> np.ndarray:
    """Returns int64[n]: which topic of its name, counted from 0, each row of one partition's metadata is about. The rows
    are in the order of the controllers' log. The next topic begins with the row behind a deletion, or with another topic
    id. A row without an id belongs to the topic before."""
    assert len(kind) == len(topic_id_high) == len(topic_id_low), "columns of one length"
    named = (topic_id_high != NONE) | (topic_id_low != NONE)
    before = np.maximum.accumulate(np.where(named, np.arange(len(named)), 0))
    previous = np.append(before[:1], before[:-1])
    other = (topic_id_high != topic_id_high[previous]) | (topic_id_low != topic_id_low[previous])
    # Example: ids A ? A B. Before each row the last one with an id is A A A A: only B differs, and begins another topic.
    begins = named & named[previous] & other
    begins[1:] |= (kind[:-1] == MetadataKind.DELETED) & (kind[1:] != MetadataKind.DELETED)
    return np.cumsum(begins[: len(kind)]).astype(np.int64)


def made_anew_ns(time_ns: np.ndarray, life: np.ndarray) -> np.ndarray:
    """Returns when each topic but the first was created (ns, ascending). `life` is what `life_of_rows` returned for
    these rows."""
    assert len(time_ns) == len(life), "a time for each row"
    return np.asarray(time_ns[np.flatnonzero(np.diff(life)) + 1])


def lives_of(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns `life_of_rows` for columns of `metadata`."""
    return life_of_rows(rows["kind"], rows["topic_id_high"], rows["topic_id_low"])
