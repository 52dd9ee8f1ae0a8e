"""Full disks of machines of the ssh backend: a ballast beside Kafka's data, where that has a file system of its own."""

import shlex
from typing import Any

from clusters.disk_parts import PROBE_BYTES
from clusters.ssh_node import SshNode
from harness.errors import HarnessFailed
from harness.impairments import FullDisk
from harness.schema import Tristate

WAY = "a ballast file on the file system of the data directory"
TIMEOUT_S = 120.0
BALLAST = ".prozess-ballast"
NOT_TO_BE_FILLED = "/ /usr /var /tmp /home"
"""Whose file system a data directory must not be on: others write there."""
_PROBLEM = f"""
cd {{directory}} || exit 1
command -v fallocate >/dev/null || {{{{ echo 'fallocate (util-linux) is missing' >&2; exit 1; }}}}
device=$(stat -c %d .)
for other in {NOT_TO_BE_FILLED}; do
    if [ "$(stat -c %d "$other" 2>/dev/null)" = "$device" ]; then
        echo "it is on one file system with $other, where others write: give it one of its own" >&2
        exit 1
    fi
done
"""
# What statfs calls free cannot always be had whole: then half as much, and again.
_FILL = f"""
cd {{directory}} || exit 1
while :; do
    wanted=$(( $(stat -f -c '%f * %S' .) - {{left}} ))
    [ "$wanted" -gt 0 ] || exit 0
    have=$(stat -c %s {BALLAST} 2>/dev/null || echo 0)
    until fallocate -o "$have" -l "$wanted" {BALLAST} 2>/dev/null; do
        wanted=$(( wanted / 2 ))
        [ "$wanted" -ge 4096 ] || exit 0
    done
done
"""
_PROBE = """
cd {directory} || exit 1
LC_ALL=C dd if=/dev/zero of=.prozess-probe bs={size} count=1 conv=fsync 2>&1
rm -f .prozess-probe
"""


class SshFullDisks:
    """`clusters.impairers.Impairer` of `FullDisk`."""

    def impair(self, node: Any, impairment: FullDisk) -> None:  # noqa: ANN401 - SshNode
        self._run(node, _FILL.format(directory=_directory(node), left=impairment.left_bytes))

    def repair(self, node: Any, impairment: FullDisk) -> None:  # noqa: ANN401
        if node.remote_data is not None:
            self._run(node, f"rm -f -- {_directory(node)}/{BALLAST}\n")

    def impaired(self, node: Any, impairment: FullDisk) -> tuple[Tristate, str]:  # noqa: ANN401
        """By a write that really gets ENOSPC."""
        size = impairment.left_bytes + PROBE_BYTES
        said = self._run(node, _PROBE.format(directory=_directory(node), size=size))
        if "No space left on device" in said:
            return Tristate.YES, f"a write of {size} bytes gets ENOSPC"
        if f"{size} bytes" in said:
            return Tristate.NO, f"a write of {size} bytes works"
        return Tristate.UNKNOWN, f"a write of {size} bytes: {said.strip()[-200:]}"

    def _run(self, node: SshNode, script: str) -> str:
        done = node.host.run_with_rights(script, timeout_s=TIMEOUT_S)
        if done.returncode:
            raise HarnessFailed(f"{node.host.where}: the data directory cannot be used: {done.stderr.strip()[-300:]}")
        return done.stdout


def problem_of(node: SshNode) -> str | None:
    """Why the node's disk cannot be filled; None if it can."""
    if node.remote_data is None:
        return f"ssh.data_directory does not say where {node.name} has its data"
    done = node.host.run_with_rights(_PROBLEM.format(directory=_directory(node)))
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["it cannot be looked at"])[-1]
    return f"{node.remote_data} of {node.host.where}: {said}"


def _directory(node: SshNode) -> str:
    return shlex.quote(node.remote_data or "")
