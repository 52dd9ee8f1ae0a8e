"""Which engine checks: threads unless something of Spark is given, and a sentence where Spark is asked for and missing."""

import pytest

from prozess.app import run_options
from prozess.app.conduct import recheck
from prozess.app.run_options import ENGINES, RunOptions, engine_name, refuse_without_spark
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.run_directory import RunDirectory


@pytest.fixture
def without_spark(monkeypatch):
    monkeypatch.setattr(run_options, "find_spec", lambda name: None)


@pytest.fixture
def with_spark(monkeypatch):
    monkeypatch.setattr(run_options, "find_spec", lambda name: object())


def options(tmp_path, engine, **more):
    return RunOptions(tmp_path, engine, 2, "auto", quiet=True, as_json=False, **more)


def test_the_default_is_threads_where_spark_is_installed_too(with_spark):
    assert [engine_name(name) for name in ENGINES] == ["local", "local", "spark"]


def test_the_default_is_threads_where_spark_is_not_installed(without_spark):
    assert (engine_name("auto"), engine_name("local")) == ("local", "local")


def test_spark_that_is_asked_for_and_missing_is_a_sentence_with_the_way_out(without_spark, tmp_path):
    said = r"--engine spark needs Spark, which is not installed: pip install 'prozess\[spark\]'\. --engine local checks"
    with pytest.raises(MissingTool, match=said):
        engine_name("spark")
    with pytest.raises(MissingTool, match=said):
        options(tmp_path, "spark").refuse_contradictions()
    with pytest.raises(MissingTool, match=said):
        options(tmp_path, "auto", master="spark://host:7077").refuse_contradictions()
    with pytest.raises(MissingTool, match=r"--master needs Spark, which is not installed: .*\[spark\]'\.$"):
        refuse_without_spark("--master")


def test_the_second_opinion_says_what_it_needs(without_spark, tmp_path):
    with pytest.raises(MissingTool, match=r"The second opinion \(--oracle\) needs Spark"):
        recheck(RunDirectory(tmp_path), options(tmp_path, "auto"), oracle=True)


def test_an_address_or_a_setting_of_spark_asks_for_spark(with_spark, tmp_path):
    assert options(tmp_path, "auto").used_engine == "local"
    assert options(tmp_path, "auto", master="local[2]").used_engine == "spark"
    assert options(tmp_path, "auto", remote="sc://host").used_engine == "spark"
    assert options(tmp_path, "auto", conf={"spark.ui.enabled": "true"}).used_engine == "spark"
    with pytest.raises(BadInput, match="--master says where Spark is, but --engine is 'local'"):
        options(tmp_path, "local", master="local[2]").refuse_contradictions()


def test_an_engine_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(BadInput, match=r"--engine 'flink' is not known\. Known: auto, local, spark"):
        engine_name("flink")
