from tests.support.command import prozess as prozess
from tests.support.command import pytest_terminal_summary as pytest_terminal_summary
from tests.support.command import run_trial as run_trial
