"""How the outer process takes the end of the run stage, with real processes."""

import subprocess

import pytest

from prozess.app.run.outside_sandbox import RunResult, _follow

SAID = """echo '{"event": "phase-done", "name": "audit", "took_s": 1.5}'; echo '{"event": "end", "exit_code": 2}'"""


def follow(script):
    result, events = RunResult(exit_code=255), []
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as stage:
        _follow(stage, result, events.append)
    return result, [event["event"] for event in events]


@pytest.mark.parametrize("then", ["exit 2", "kill -KILL $$"])
def test_a_stage_that_said_its_end_has_ended_so_whatever_became_of_it_then(then):
    result, events = follow(f"{SAID}; {then}")
    assert (result.ended, result.exit_code, result.phases) == (True, 2, {"audit": 1.5})
    assert events == ["phase-done", "end"]


def test_a_stage_that_was_killed_before_has_the_code_of_its_death():
    result, _ = follow("""echo '{"event": "ph'; kill -KILL $$""")
    assert (result.ended, result.exit_code) == (False, -9)
