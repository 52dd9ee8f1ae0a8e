"""What signals do to a command, in processes of their own."""

import io
import os
import pty
import signal
import subprocess
import sys
import textwrap

import pytest

from prozess.app import run_process
from tests.support.paths import ROOT

COMMAND = """
    import signal, sys, threading
    from prozess.app import cli

    def _main(_):
        reported = []
        for _ in range({times}):
            try:
                print("waiting", flush=True)
                for _ in range(600):  # a signal that comes just before a wait does not shorten it
                    threading.Event().wait(0.1)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        return {code}

    cli.run = _main
    cli.main(None)
"""
LATE = """
    import os, sys, threading
    from prozess.app import cli

    def _main(_):
        try:
            os.write({done}, b"began")
            sys.stdin.readline()
            print("nobody reads this", flush=True)
            print("nor this", file=sys.stderr, flush=True)
            sys.stdout.write("and this is left")
            os.write({done}, b"printed")
            threading.Event().wait({wait_s})
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            return 2
        return 1

    cli.run = _main
    cli.main(None)
"""
CAMPAIGN = """
    import sys, threading
    from prozess.app import run_process
    from prozess.app.run_process import listening

    run_process.listen_for_signals()
    with listening() as stop:
        print("waiting", flush=True)
        for _ in range(300):
            if stop.asked:
                break
            threading.Event().wait(0.1)
    print("asked" if stop.asked else "not asked", flush=True)
    sys.exit(run_process.exit_code(2))
"""


def start(code, **how):
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    words = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(words, cwd=ROOT, text=True, start_new_session=True, **how)


@pytest.mark.parametrize(
    ("number", "code", "status"),
    [
        (signal.SIGINT, 2, 2),
        (signal.SIGTERM, 2, 143),
        (signal.SIGHUP, 2, 129),
        (signal.SIGTERM, 1, 1),
        (signal.SIGTERM, 255, 255),
    ],
)
def test_the_exit_code_names_the_signal_that_left_a_run_unknown(number, code, status):
    with start(COMMAND.format(times=1, code=code)) as command:
        assert command.stdout.readline() == "waiting\n"
        command.send_signal(number)
        assert command.stdout.read() == "interrupted\n"
    assert command.returncode == status


def test_a_signal_that_comes_twice_at_once_interrupts_once():
    with start(COMMAND.format(times=1, code=2)) as command:
        assert command.stdout.readline() == "waiting\n"
        os.killpg(command.pid, signal.SIGTERM)
        command.send_signal(signal.SIGTERM)
        assert command.stdout.read() == "interrupted\n"
        assert command.stderr.read() == ""
    assert command.returncode == 143


def test_another_signal_interrupts_again_but_a_closed_terminal_does_not():
    with start(COMMAND.format(times=2, code=2)) as command:
        assert command.stdout.readline() == "waiting\n"
        command.send_signal(signal.SIGTERM)
        assert [command.stdout.readline() for _ in range(2)] == ["interrupted\n", "waiting\n"]
        command.send_signal(signal.SIGHUP)
        command.send_signal(signal.SIGINT)
        assert command.stdout.read() == "interrupted\n"
    assert command.returncode == 143, "the first one is what ended it"


def test_a_hang_up_in_the_middle_of_a_print_is_no_error(monkeypatch):
    class Printing(io.StringIO):
        """What is printed to, while it is in the middle of a flush."""

        def flush(self):
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

    monkeypatch.setattr(sys, "stdout", Printing())
    run_process._into_nothing([])


def test_a_hang_up_that_is_ignored_stays_ignored():
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + textwrap.dedent(COMMAND)
    with start(ignoring.format(times=1, code=2)) as command:
        assert command.stdout.readline() == "waiting\n"
        command.send_signal(signal.SIGHUP)
        command.send_signal(signal.SIGINT)
        assert command.stdout.read() == "interrupted\n"
    assert command.returncode == 2


def test_what_is_said_to_a_terminal_that_was_closed_is_no_error():
    ours, theirs = pty.openpty()
    command = start(COMMAND.format(times=1, code=2), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert b"waiting" in os.read(ours, 1000)
    os.close(ours)  # to write to it is an error from now on
    command.send_signal(signal.SIGHUP)
    assert command.wait(30) == 129


@pytest.mark.parametrize(("wait_s", "status"), [(30, 129), (0, 1)], ids=["and then it comes", "and it never comes"])
@pytest.mark.parametrize("closed", ["while it runs", "before it begins"])
def test_what_is_said_to_a_closed_terminal_before_the_hang_up_comes_is_no_error(closed, wait_s, status):
    ours, theirs = pty.openpty()
    done, end = os.pipe()
    if closed == "before it begins":
        os.close(ours)
    code = LATE.format(done=end, wait_s=wait_s)
    with start(code, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, pass_fds=[end]) as command:
        os.close(theirs)
        os.close(end)
        assert os.read(done, 100) == b"began"
        if closed == "while it runs":
            os.close(ours)
        command.stdin.write("print\n")
        command.stdin.flush()
        assert os.read(done, 100) == b"printed"
        if wait_s:
            command.send_signal(signal.SIGHUP)
        assert command.wait(60) == status
    os.close(done)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 2), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_campaign_is_asked_to_end_by_each_of_them(number, status):
    with start(CAMPAIGN) as command:
        assert command.stdout.readline() == "waiting\n"
        command.send_signal(number)
        assert command.stdout.read() == "asked\n"
    assert command.returncode == status
