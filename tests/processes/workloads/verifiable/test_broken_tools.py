"""Verifiable tools that break: they die, say nothing more, or say what nobody can read. Recognised, and never a pass."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.harness.interfaces import ClientSpec
from prozess.harness.recording.rows import read_segments
from prozess.harness.recording.verifiable_output import EXPIRED
from prozess.harness.schema import SENDS, Outcome
from prozess.workloads.roles import ROLES
from prozess.workloads.settings import Settings
from prozess.workloads.verifiable.clients import UNREPORTED_ERROR, VerifiableConsumer, VerifiableProducer
from prozess.workloads.verifiable.settings import ConsumerToolOptions, ToolCommand
from tests.processes.workloads.verifiable.test_clients import plan_of, tools_of
from tests.support.examples import examples
from tests.support.log_workload import bench

SPOKEN = "spoken"
STARTED = json.dumps({"timestamp": 1, "name": "startup_complete"})
ENDED = json.dumps({"timestamp": 2, "name": "shutdown_complete"})
UNTIL_TOLD = "import pathlib\npathlib.Path(sys.argv[1]).touch()\nsignal.sigwait([signal.SIGTERM])\n"
"""Says by a file that everything was printed, and ends when it is asked to."""


def saying(*texts: str, then: str = "") -> list[str]:
    """A tool that prints these texts as they are, and then does that."""
    # Blocked first: a signal that comes while it still prints must not end it.
    block = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n" if then == UNTIL_TOLD else ""
    printed = f"import sys\nsys.stdout.write({''.join(texts)!r})\nsys.stdout.flush()\n"
    return [sys.executable, "-c", block + printed + then]


@pytest.fixture
def consumer_is(monkeypatch, tmp_path):
    """Every verifiable consumer is this command, which is given the path of the file that says it has spoken."""

    def run(command: list[str]) -> None:
        tool = ToolCommand(command=(*command, str(tmp_path / SPOKEN)), files={})
        made = Settings({}, ConsumerToolOptions(tool=tool, group=0))
        launched = replace(ROLES["verifiable-consumer"], launch=lambda context: made)
        monkeypatch.setitem(ROLES, "verifiable-consumer", launched)

    return run


def test_a_tool_that_exits_with_0_after_a_fatal_error_is_a_dead_client(consumer_is, tmp_path):
    consumer_is(saying(STARTED, "\n", ENDED, "\n"))
    with bench(plan_of(), tmp_path) as made:
        why = made.until_dead("consumer-test")
        made.workload.finish_sends(timeout_s=5)
    assert "the tool ended by itself with exit code 0 and stated shutdown_complete" in why


def test_a_tool_that_is_killed_is_a_dead_client(consumer_is, tmp_path):
    consumer_is(saying(STARTED, "\n", then=UNTIL_TOLD))
    with bench(plan_of(), tmp_path) as made:
        made.until((tmp_path / SPOKEN).exists, "the tool to have spoken")
        os.kill(tools_of(made.pid(made.clients["consumer-test"]))[0], signal.SIGKILL)
        assert "exit code -9 and stated nothing" in made.until_dead("consumer-test")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('{"name": "record_data", "val\n', "1 lines of its output are torn, the first"),
        ('{"timestamp": 3, "name": "records_consu', "1 lines of its output are torn, the first"),
        ('{"name": "record_data", "topic": "elsewhere", "partition": 0, "offset": 3}\n', "an event is not understood"),
        ("{\0\xff" * 30 + "\n", "are torn"),
    ],
    ids=["torn", "truncated last line", "of another topic", "garbage"],
)
def test_what_cannot_be_read_is_told_when_the_tool_is_ended_in_order(consumer_is, tmp_path, said, words):
    consumer_is(saying(STARTED, "\n", said, then=UNTIL_TOLD))
    with bench(plan_of(), tmp_path) as made:
        made.until((tmp_path / SPOKEN).exists, "the tool to have spoken")
        made.workload.close()
        why = made.workload.dead_clients()["consumer-test"]
    assert why.startswith("exit 3")
    assert words in why


def test_notices_between_the_events_are_nothing(consumer_is, tmp_path):
    consumer_is(saying("Option --consumer.config is deprecated\n", STARTED, "\n[1, 2]\n{}\n\n", then=UNTIL_TOLD))
    with bench(plan_of(), tmp_path) as made:
        made.until((tmp_path / SPOKEN).exists, "the tool to have spoken")
        made.workload.close()
        assert "consumer-test" not in made.workload.dead_clients()


# --- events that are well formed and mean nothing -------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(), st.sampled_from([-1, 0, 1, 2**31, 2**63]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), st.text(max_size=5), st.just("5.7"), st.just("cell")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
PLACES = st.fixed_dictionaries(
    {}, optional={"topic": st.one_of(ANYTHING, st.just("cell")), "partition": NUMBERS, "offset": NUMBERS}
)
NAMES = [
    "producer_send",
    "producer_send_success",
    "producer_send_error",
    "record_data",
    "records_consumed",
    "offsets_committed",
]
NAMES += ["partitions_assigned", "partitions_revoked", "shutdown_complete", "something_else"]
OF_TOOLS = st.fixed_dictionaries(
    {"name": st.sampled_from(NAMES)},
    optional={
        "key": st.one_of(ANYTHING, st.just("\ud800")),
        "value": ANYTHING,
        "topic": st.one_of(ANYTHING, st.just("cell")),
        "partition": NUMBERS,
        "offset": NUMBERS,
        "success": ANYTHING,
        "partitions": st.lists(PLACES, max_size=3),
        "offsets": st.one_of(ANYTHING, st.lists(PLACES, max_size=3)),
    },
)


def unstarted(kind):
    """The same client, whose tool is never run: it is fed by hand."""
    return type(kind.__name__, (kind,), {"_begin": lambda self: None})


class HeardTool:
    """What a client asks of a tool when it takes an event."""

    started_ns, read_ns, since_ns = 1, 2, 2


class QuietClient:
    """What a client of a tool asks of its process when it takes an event."""

    def __init__(self, path: Path, **options: object) -> None:
        self.rows = path
        self.spec = ClientSpec(
            client=5,
            role="verifiable-consumer",
            name="fuzzed",
            bootstrap_servers="",
            partitions=((0, "cell", 0), (1, "cell", 1)),
            options={"tool": {"command": [sys.executable, "-c", ""], "files": {}}, **options},
        )

    def now_ns(self) -> int:
        return 1

    def log(self, text: str) -> None:
        assert isinstance(text, str)


@pytest.mark.parametrize(
    ("message", "partition", "code"),
    [
        ("Expiring 2 record(s) for cell-1:3000 ms has passed since batch creation", 1, EXPIRED),
        ("The server disconnected before a response was received.", 0, UNREPORTED_ERROR),
        (None, 0, UNREPORTED_ERROR),
    ],
    ids=["expired", "another error", "none"],
)
def test_the_error_of_a_send_that_expired_names_its_partition(message, partition, code, tmp_path):
    work = unstarted(VerifiableProducer)(QuietClient(tmp_path, report_limit_ms=1))
    event = {"name": "producer_send_error", "topic": "cell", "key": None, "value": "5.7", "exception": "class E"}
    work._take(HeardTool(), event | {"message": message})
    work.close()
    ((row,),) = read_segments(tmp_path, SENDS, 5)[0]
    assert (row["partition"], row["code"], row["outcome"]) == (partition, code, Outcome.INFO)


@pytest.mark.parametrize(
    ("kind", "options"), [(VerifiableProducer, {"report_limit_ms": 1}), (VerifiableConsumer, {"group": 0})]
)
def test_no_event_whatever_it_says_breaks_a_client(kind, options, tmp_path_factory):
    client = QuietClient(tmp_path_factory.mktemp("rows"), **options)
    work = unstarted(kind)(client)

    @settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(OF_TOOLS)
    def check(event):
        work._take(HeardTool(), event)

    try:
        check()
    finally:
        work.close()
