"""The contract of a cluster on machines behind real sshd, and what the ssh backend promises beyond it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.clusters import enter_with_jars

HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("file", ["test_cluster_contract.py", "over_ssh.py"])
def test_over_ssh(tmp_path, need, file):
    need("java")
    need("namespaces")
    need("sshd")
    # PYTHONPATH: the checkout, for children that run in other directories.
    done = subprocess.run(
        enter_with_jars(
            [
                *(sys.executable, "-m", "tests.support.servers.ssh", str(tmp_path / "world")),
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)),
            ]
        ),
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]
    assert " skipped" not in done.stdout
