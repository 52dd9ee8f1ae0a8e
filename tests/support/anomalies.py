"""The names of the anomalies that are judged, as the registry of checkers has them."""

from prozess.checkers.registry import CHECKERS

OF_PARTITIONS = tuple(name for name, checker in CHECKERS.items() if not checker.fact and not checker.of_cells)
"""Anomalies that are found in one partition: there is a finding of each partition."""
OF_CELLS = tuple(name for name, checker in CHECKERS.items() if not checker.fact and checker.of_cells)
"""Anomalies that concern several partitions of a cell: there is one finding of the cell, whose witnesses name theirs."""
ANOMALIES = (*OF_PARTITIONS, *OF_CELLS)
