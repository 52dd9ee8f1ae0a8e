"""Runs pytest with the words it is given, and then once more those few tests that failed, by themselves.

For tests with processes and servers: a machine that stands still at the wrong moment can fail one of a thousand. Nothing is
hidden by it: both results are printed, a test that fails twice has failed, and so have more than FAILED_MAX at once. What
failed once still has a cause, which is to be found: it may be a window of microseconds in our own code. `make unit` and the
nightly job do without this.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

FAILED_MAX = 3


def main(words: Sequence[str]) -> int:
    """Returns the exit code of pytest: that of the second run, if there was one."""
    with TemporaryDirectory() as cache:  # with nothing of earlier runs in it
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *words]
        code = subprocess.run(command, check=False).returncode
        if code != pytest.ExitCode.TESTS_FAILED:
            return code
        failed = json.loads((Path(cache) / "v" / "cache" / "lastfailed").read_text(encoding="utf-8"))
        if len(failed) > FAILED_MAX:
            return code
        say(f"FAILED ONCE, and run again by itself: {', '.join(sorted(failed))}")
        code = subprocess.run([*command, "--last-failed", "-n", "0", "-rap"], check=False).returncode
        say("FAILED TWICE" if code else f"PASSED THE SECOND TIME. Find out why it failed: {', '.join(sorted(failed))}")
        return code


def say(line: str) -> None:
    print(f"\n{line}\n", flush=True)  # noqa: T201 - a command's output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
