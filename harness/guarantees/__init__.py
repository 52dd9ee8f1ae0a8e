"""What a configuration promises, and whether what happened broke it. Stage judge: findings and evidence in, verdict out.

table.py is the authority; facts.py names what its rules are made of, envelope.py and the modules that ask it (tails, cutoffs,
epochs, deposed, retention, delays, settled, reasons) say what happened; evaluate.py applies one to the other. Pure values.
"""

from harness.guarantees.evaluate import satisfiable
from harness.guarantees.evidence import Evidence
from harness.guarantees.judge import judge
from harness.guarantees.table import TABLE

__all__ = ["TABLE", "Evidence", "judge", "satisfiable"]
