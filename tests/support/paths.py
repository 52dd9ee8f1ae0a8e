"""Where the repository and the data of tests are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "support" / "data"
EXAMPLES = ROOT / "docs" / "examples"
