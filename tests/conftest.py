"""Shared by all tests: parts of the machine that a test needs, skipped loudly, or failed where CI requires them."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

from tests.support.examples import examples

# A machine that stands still for a moment has not made a test wrong: no case has a deadline. Whoever runs the tests to see
# whether it works finds the same each time; other cases each time are for whoever looks for what is wrong: `make fuzz`.
settings.register_profile(
    "same-each-time",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=examples(settings.get_profile("default").max_examples),
)
settings.register_profile("by-chance", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("by-chance" if os.environ.get("PROZESS_FUZZ") else "same-each-time")
if not os.environ.get("PROZESS_FUZZ") and hasattr(providers, "_get_local_constants"):
    # Hypothesis tries numbers and words that it finds in the modules of this project, of which each worker has loaded others.
    providers._get_local_constants = lambda: providers._local_constants

# Byte code is kept, also where an image of a container says otherwise: without it each of the many processes that tests start
# compiles every module again, which is a third of the cost of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What tests make is written down where it goes with them, and not among what this machine's user made.
if "PROZESS_TESTS_STATE" not in os.environ:
    os.environ["XDG_STATE_HOME"] = os.environ["PROZESS_TESTS_STATE"] = tempfile.mkdtemp(prefix="prozess-state-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# What ignores Ctrl-C or a hang-up has children that do: behind a script's `&`, or `nohup`, tests of both would fail.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# As the command does: what is imported is in few cycles, and to look for them so often is a twentieth of all unit tests.
gc.set_threshold(50_000)

REQUIRED = frozenset(filter(None, os.environ.get("PROZESS_REQUIRE", "").split(",")))


def _namespaces() -> str | None:
    from prozess.clusters.machine.sandbox import probe

    support = probe()
    return None if support.level == "namespaces" else support.reason


def _chromium() -> str | None:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return None if found else "no chromium on PATH"


def _java() -> str | None:
    from prozess.clusters.install.tools import find_java
    from prozess.harness.errors import MissingTool

    try:
        find_java()
    except MissingTool as error:
        return str(error)
    return None


def _docker() -> str | None:
    from prozess.clusters.compose.network import network_problem
    from tests.support.tools import engine_problem

    return engine_problem() or network_problem()


def _loop_disks() -> str | None:
    from prozess.clusters.disks.volumes import disk_support

    support = disk_support()
    return None if support.kind == "loop" else support.reason


def _shim() -> str | None:
    from prozess.clusters.disks.shim import shim_support

    support = shim_support()
    return None if support.path is not None else support.reason


def _sshd() -> str | None:
    if os.geteuid() != 0:
        return "sshd for several users' machines needs root"
    if not Path("/usr/sbin/sshd").exists() or shutil.which("ssh-keygen") is None:
        return "no /usr/sbin/sshd (Debian: openssh-server)"
    return _iptables()


def _iptables() -> str | None:
    where = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return None if shutil.which("iptables", path=where) else "no iptables (Debian: iptables)"


def _toxiproxy() -> str | None:
    from prozess.clusters.install.tools import ensure_toxiproxy
    from prozess.harness.errors import MissingTool

    try:
        ensure_toxiproxy()
    except MissingTool as error:
        return str(error)
    return None


def _disk_groups() -> str | None:
    from prozess.clusters.disks.volumes import groups_support

    where, how = groups_support()
    return None if where is not None else how


PARTS: dict[str, Callable[[], str | None]] = {
    "namespaces": _namespaces,
    "chromium": _chromium,
    "java": _java,
    "docker": _docker,
    "loop-disks": _loop_disks,
    "shim": _shim,
    "iptables": _iptables,
    "toxiproxy": _toxiproxy,
    "disk-groups": _disk_groups,
    "sshd": _sshd,
}


@pytest.fixture(scope="session")
def need() -> Callable[[str], None]:
    """`need("chromium")`: go on if the machine has it; else skip with the reason, or fail if CI requires it."""
    lacking: dict[str, str | None] = {}

    def check(part: str) -> None:
        if part not in lacking:
            lacking[part] = PARTS[part]()
        why = lacking[part]
        if why is None:
            return
        if part in REQUIRED:
            pytest.fail(f"PROZESS_REQUIRE names {part!r}, which is missing: {why}", pytrace=False)
        pytest.skip(f"needs {part}: {why}")

    return check


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Puts the handlers of signals back after each test: a command that a test calls ignores them once it has its exit code,
    and every process that a later test starts would ignore them, too."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        return (yield)
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """What is there before the first test is looked through for cycles once, and never again."""
    gc.collect()
    gc.freeze()


TOGETHER = {"tests/system/spark/": "spark"}
"""Files that `--dist loadfile` gives to one worker, by how their paths begin → what they share, which is dear to start: a JVM
of Spark stays with the process that started it, and its next session costs a tenth of the first."""


LONGEST = ("tests/system/commands/test_documentation.py", "tests/system/commands/test_in_pytest.py")
"""Files that begin first: later ones of their folder would leave one worker alone at the end."""
WAITING = "tests/processes/"
"""Files that mostly wait, for clients and a cluster that is one thread, by how their paths begin."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spreads the files that mostly wait among those that compute: all at the end they would leave the machine
    idle, while the others before them are in each other's way. The order of each sort stays."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    waiting = [name for name in files if name.startswith(WAITING)]
    others = sorted((name for name in files if name not in waiting), key=lambda name: name not in LONGEST)
    place = {name: (number + 0.5) / len(some) for some in (waiting, others) for number, name in enumerate(some)}
    items[:] = [item for name in sorted(files, key=lambda name: place[name]) for item in files[name]]


class FilesTogether(LoadFileScheduling):
    """Gives each worker whole files, and some of them together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((name for path, name in TOGETHER.items() if nodeid.startswith(path)), super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesTogether | None:
    """With `--dist loadfile`, some files go to one worker together."""
    return FilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None
