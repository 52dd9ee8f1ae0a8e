"""A plan is refused for methods that a version does not have which one of its targets may run."""

import zipfile

import pytest

from prozess.clusters.methods.class_files import PUBLIC
from prozess.clusters.methods.planned import refuse_missing_methods
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from tests.unit.clusters.methods.test_class_files import class_file

OLD, NEW = "3.9.2", "4.4.0"
CLASSES = {OLD: "kafka.log.UnifiedLog", NEW: "org.apache.kafka.storage.internals.log.UnifiedLog"}


@pytest.fixture(scope="module")
def jars(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jars")
    for version, name in CLASSES.items():
        with zipfile.ZipFile(directory / f"{version}.jar", "w") as jar:
            content = class_file(name, ("append", "()V", PUBLIC, ["java.io.IOException"]))
            jar.writestr(f"{name.replace('.', '/')}.class", content)
    return lambda version: [jar] if (jar := directory / f"{version}.jar").exists() else []


def step(version, target="leader(0)", *, action=None, **match):
    parameters = {"match": {"method": f"{CLASSES[version]}#append", **match}, "action": action or {"do": "pause"}}
    return {
        "name": f"as {version} has it",
        "do": {"kind": "fault", "fault": "method", "targets": [target], "parameters": parameters},
    }


def plan(*steps, **variant):
    document = {
        "name": "unit",
        "title": "",
        "variant": {"brokers": 3, "kafka_version": NEW, **variant},
        "topics": {"partitions": 1},
        "base": {"topic.replication_factor": 3},
        "steps": steps,
    }
    return make_plan(parse_trial(document, source="unit"), seed=1)


def refused(jars, *steps, **variant):
    try:
        refuse_missing_methods(plan(*steps, **variant), jars_of=jars)
    except BadInput as error:
        return str(error)
    return None


def test_a_method_that_the_version_has_passes_and_another_is_refused_with_the_nearest(jars):
    assert refused(jars, step(NEW)) is None
    told = refused(jars, step(NEW), step(OLD))
    assert told == (
        "Step 'as 3.9.2 has it': Kafka 4.4.0 has no class kafka.log.UnifiedLog. The nearest: "
        "org.apache.kafka.storage.internals.log.UnifiedLog."
    )


PLUGIN = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def test_a_method_of_the_remote_store_is_one_of_a_cluster_that_has_one(jars, tmp_path):
    plugin = tmp_path / "plugin.jar"
    with zipfile.ZipFile(plugin, "w") as jar:
        jar.writestr(f"{PLUGIN.replace('.', '/')}.class", class_file(PLUGIN, ("copyLogSegmentData", "()V", PUBLIC, [])))
    copying = step(NEW, method=f"{PLUGIN}#copyLogSegmentData")
    for tiered, plugins, words in ((True, [plugin], None), (False, [plugin], "has no class"), (True, [], None)):
        made = plan(copying, tiered_storage=tiered)
        if words is None:
            refuse_missing_methods(made, jars_of=jars, plugin_of=lambda _, found=plugins: found)
        else:
            with pytest.raises(BadInput, match=words):
                refuse_missing_methods(made, jars_of=jars, plugin_of=lambda _, found=plugins: found)
    wrong = plan(step(NEW, method=f"{PLUGIN}#fetchNothing"), tiered_storage=True)
    with pytest.raises(BadInput, match="has no method fetchNothing"):
        refuse_missing_methods(wrong, jars_of=jars, plugin_of=lambda _: [plugin])


def test_a_version_whose_jars_are_not_there_is_not_looked_at(jars):
    assert refused(lambda version: [], step(OLD)) is None


def test_exceptions_are_looked_at_and_what_ends_a_pause(jars):
    thrown = {"do": "throw", "exception": "java.util.concurrent.TimeoutException"}
    assert "a checked exception: it declares java.io.IOException" in refused(jars, step(NEW, action=thrown))
    until = {"do": "pause", "until": {"method": f"{CLASSES[NEW]}#roll"}}
    assert "has no method roll" in refused(jars, step(NEW, action=until))


@pytest.mark.parametrize(
    ("target", "version", "passes"),
    [
        ("node:broker-1", OLD, True),
        ("node:broker-1", NEW, False),
        ("node:broker-2", NEW, True),
        ("leader(0)", NEW, False),
        ("leader(0)", OLD, False),
    ],
)
def test_each_node_that_a_target_may_mean_must_have_it(jars, target, version, passes):
    assert (refused(jars, step(version, target), versions={"broker-1": OLD}) is None) is passes


def test_after_an_upgrade_it_is_enough_that_one_of_the_versions_has_it(jars):
    upgrade = {
        "name": "upgrade",
        "do": {"kind": "fault", "fault": "upgrade", "targets": ["brokers"], "parameters": {"version": NEW}},
    }
    assert refused(jars, upgrade, step(NEW), kafka_version=OLD) is None
    assert refused(jars, upgrade, step(OLD), kafka_version=OLD) is None
    assert refused(jars, step(NEW), upgrade, kafka_version=OLD) is not None
