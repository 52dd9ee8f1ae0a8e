"""The page's data as tables of texts, for readers without scripts: the timeline coarsely, partitions, clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS_MAX = 60


@dataclass(frozen=True, slots=True)
class PlainTable:
    """One table."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def plain_tables(data: Mapping[str, Any]) -> list[PlainTable]:
    """Of what `overview` and the figures hold."""
    tables = [_timeline(figure, data["faults"]) for figure in data["figures"]]
    partitions, clients = data["partitions"], data["clients"]
    return [
        *tables,
        _columns("Partitions", partitions, ("name", "cell", "replicas", "sent", "ok", "unknown", "refused", "read")),
        _columns("Clients", clients, ("name", "role", "started", "ended", "exit")),
    ]


def _columns(title: str, columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> PlainTable:
    rows = zip(*(columns[name] for name in names), strict=True)
    return PlainTable(title, names, [["" if value is None else str(value) for value in row] for row in rows])


def _timeline(figure: Mapping[str, Any], faults: Sequence[Mapping[str, Any]]) -> PlainTable:
    """Every line at a few moments, with the faults that were active."""
    lines = [(panel, series) for panel in figure["panels"] if panel["kind"] != "lanes" for series in panel["series"]]
    moments = np.linspace(figure["begin"], figure["end"], ROWS_MAX + 1)[:-1]
    places = {id(panel): np.searchsorted(panel["at"], moments, side="right") - 1 for panel, _ in lines}
    rows = []
    for number, at_s in enumerate(moments.tolist()):
        active = [f["name"] for f in faults if f["begin"] <= at_s and (f["end"] is None or f["end"] >= at_s)]
        values = (
            (series["y"][place] if (place := int(places[id(panel)][number])) >= 0 else None) for panel, series in lines
        )
        rows.append([f"{at_s:.2f}", ", ".join(active), *("" if value is None else str(value) for value in values)])
    headings = ["s", "faults", *(f"{panel['title']}: {series['name']}" for panel, series in lines)]
    return PlainTable("The timeline in numbers", headings, rows)
