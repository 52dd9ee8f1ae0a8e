"""The museum on real clusters: each exhibit shows its defect on the old release, and holds on the new one."""

import re
import subprocess
import sys

import pytest

from prozess.campaigns.museum.exhibits import museum_trial
from prozess.harness.plan.trial_files import known_exhibits

TICKETS = [museum_trial(path).exhibit.ticket for path in known_exhibits().values()]


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("ticket", TICKETS)
def test_an_exhibit_counts(ticket, tmp_path, need):
    need("java")
    need("namespaces")
    need("iptables")
    command = [sys.executable, "-m", "prozess", "museum", ticket, "--seeds", "1", "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exhibits that count: 1 of 1" in done.stdout
    page = (tmp_path / "museum.html").read_text(encoding="utf-8")
    assert re.search(r"The first witness of <b>[a-z-]+</b>", page)
