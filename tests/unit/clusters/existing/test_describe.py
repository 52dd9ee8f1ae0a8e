"""What a cluster reports its version, and what is made of it where it reports less."""

import pytest

from prozess.clusters.existing.adoption import METADATA_VERSION, release_of_features
from prozess.harness.config.existing_clusters import AttachOptions
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.table.cell_configuration import configuration_of
from prozess.harness.plan.plan import parse_plan
from prozess.harness.report.words import kafka_description
from prozess.harness.run_directory import write_json
from prozess.harness.schema import Tristate
from tests.support.small_runs import make_small


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (6, None),
        (7, "3.3"),
        (19, "3.7"),
        (21, "3.9"),
        (25, "4.0"),
        (27, "4.1"),
        (29, "4.2"),
        (30, "4.3"),
        (33, "4.4"),
        (34, None),
    ],
)
def test_the_highest_supported_metadata_version_tells_the_release_and_a_newer_one_than_is_known_tells_none(
    level, release
):
    assert release_of_features({METADATA_VERSION: level, "group.version": 1}) == release


def test_brokers_with_zookeeper_tell_no_release():
    assert release_of_features({}) is None


def plan_of(small):
    return parse_plan(small.run.plan.read_text(), source="test")


@pytest.mark.parametrize(
    ("fact", "answers"),
    [
        ("brokers to 3.4.0", {"3.3": Tristate.YES, "3.4": Tristate.UNKNOWN, "3.4.1": Tristate.NO, "3.5": Tristate.NO}),
        ("brokers to 3.9.0 or 4.0.0", {"3.9": Tristate.UNKNOWN, "4.0": Tristate.UNKNOWN, "4.1": Tristate.NO}),
        ("brokers to 3.5", {"3.5": Tristate.YES, "3.6": Tristate.NO, None: Tristate.UNKNOWN}),
    ],
)
def test_of_a_release_without_its_patch_only_what_every_patch_has_is_known(tmp_path, fact, answers):
    cell = plan_of(make_small(tmp_path / "run")).cells[0]
    of = FACTS[fact].of_configuration
    assert {version: of(configuration_of(cell, version)) for version in answers} == answers


def test_the_report_says_what_the_cluster_told_and_guesses_nothing(tmp_path):
    small = make_small(tmp_path / "run")
    plan = plan_of(small)
    assert kafka_description(small.run, plan) == "4.4.0, kraft-isolated", "planned: it never came up"
    for told, said in (
        ({"kafka_version": "4.3", "metadata_mode": "kraft"}, "4.3, kraft"),
        ({"kafka_version": None, "metadata_mode": None}, "of an unknown version"),
        ({"kafka_versions": {"broker-1": "4.4.0", "broker-2": "3.9.2"}, "kafka_version": "3.9.2"}, "3.9.2 and 4.4.0"),
    ):
        write_json(small.run.cluster, told)
        assert kafka_description(small.run, plan) == said
    small.run.cluster.unlink()
    for changed in ({"backend": "attach"}, {"origin": "jepsen"}):
        assert kafka_description(small.run, plan.model_copy(update=changed)) == "of an unknown version"


def test_a_plan_names_the_version_it_runs_and_of_what_is_attached_to_only_the_address(tmp_path):
    plan = plan_of(make_small(tmp_path / "run"))
    assert plan.cluster_in_words == "Kafka 4.4.0 kraft-isolated, 3 brokers"
    attached = plan.model_copy(update={"backend": "attach", "attach": AttachOptions(bootstrap_servers=("there:9092",))})
    assert attached.cluster_in_words == "Kafka at there:9092, as it is there"
