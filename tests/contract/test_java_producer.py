"""Kafka's Java producer by JPype: its errors mean what librdkafka's mean. Without a cluster; with one, the trials
late-connections and late-connections-v2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 120


@pytest.fixture(scope="module")
def seen():
    script = Path(__file__).with_name("java_producer_offline.py")
    done = subprocess.run(
        [sys.executable, str(script), "4.4.0"], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_a_call_that_is_only_late_may_be_made_again(seen):
    assert seen["nobody answers"] == [True, False, False]


def test_a_call_out_of_order_ends_the_producer(seen):
    assert seen["out of order"] == [False, False, True]


def test_a_record_that_nobody_takes_is_reported_as_failed_with_its_value(seen):
    assert (seen["refused"], seen["nothing is reported"], seen["reported"]) == (None, 0, 1)
    assert seen["failed"] == [True, None, [0, 127, 200, 255]]
