"""What a test may ask of the plugin, and what is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from prozess.harness.errors import BadInput
from prozess.testing.session import Clusters, TestSettings, new_cluster_directory, settings_from


def test_the_marker_wins_over_the_command_line():
    settings = settings_from({"version": "3.9.2", "brokers": "1"}, {"version": "4.4.0"})
    assert (settings.version, settings.brokers) == ("4.4.0", 1)


def test_without_anything_there_is_a_local_cluster_of_three():
    assert settings_from({}, {}) == TestSettings()


def test_zookeeper_has_the_last_version_that_knows_it_unless_another_one_is_asked_for():
    assert settings_from({"variant": "zookeeper"}, {}).version == "3.9.2"
    assert settings_from({"version": "3.8.1"}, {"variant": "zookeeper"}).version == "3.8.1"


def test_lists_may_be_words_of_an_ini_file():
    assert settings_from({"forbid": "lost duplicate"}, {"faults": ["clock"]}).forbid == ("lost", "duplicate")


def test_clusters_are_shared_by_what_they_are_and_not_by_what_is_forbidden():
    one, other = settings_from({}, {"forbid": ["lost"]}), settings_from({}, {"scope": "module"})
    assert one.cluster == other.cluster
    assert one.cluster != settings_from({}, {"properties": {"num.io.threads": 2}}).cluster


@pytest.mark.parametrize(("given", "strict"), [({}, False), ({"strict": "true"}, True), ({"strict": False}, False)])
def test_a_test_is_strict_where_it_is_asked_to_be(given, strict):
    assert settings_from(given, {}).strict is strict
    assert not settings_from(given, {"strict": False}).strict, "the marker exempts one"


class Running:
    """A cluster that runs, or has died."""

    def __init__(self, *, alive=True):
        self.alive = alive


def clusters_with(session, settings, tmp_path):
    made = Clusters(tmp_path)
    made._session, made._key = session, settings.cluster
    return made


def test_a_cluster_that_a_fixture_of_many_tests_holds_is_not_exchanged_for_another(tmp_path):
    ours, other = settings_from({}, {}), settings_from({}, {"brokers": 1})
    clusters = clusters_with(Running(), ours, tmp_path)
    assert clusters.conflict(other) is None, "nobody holds it"
    clusters.held["servers"] = "session"
    assert clusters.conflict(ours) is None
    assert "the fixture 'servers' (scope session) holds the addresses of the running" in clusters.conflict(other)


@pytest.mark.parametrize("session", [None, Running(alive=False)])
def test_addresses_of_a_cluster_that_is_gone_are_not_passed_over_in_silence(tmp_path, session):
    ours = settings_from({}, {})
    clusters = clusters_with(session, ours, tmp_path)
    clusters.held["servers"] = "module"
    assert "holds the addresses of a cluster that is gone" in clusters.conflict(ours)


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ({"strict": "yes"}, r"strict = 'yes' must be true or false"),
        ({"versoin": "4.4.0"}, r"did you mean 'version'\?"),
        ({"backend": "attach"}, r"backend = 'attach' is not known. Known: local, compose"),
        ({"brokers": "many"}, r"brokers = 'many' must be a number from 1 to 9"),
        ({"scope": "class"}, r"scope = 'class' is not known"),
        ({"unavailable": "ignore"}, r"Known: fail, skip"),
        ({"forbid": ["losst"]}, r"forbid = 'losst' is not known; did you mean 'lost'\?"),
        ({"faults": "clokc"}, r"faults = 'clokc' is not known; did you mean 'clock'\?"),
        ({"properties": {"num.io.thread": 2}}, r"num.io.thread is no property .* did you mean 'num.io.threads'\?"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(marked, said):
    with pytest.raises(BadInput, match=said):
        settings_from({}, marked)


def test_two_sessions_with_one_directory_for_runs_have_a_directory_for_each_cluster(tmp_path):
    with ThreadPoolExecutor(4) as sessions:
        made = list(sessions.map(lambda _: new_cluster_directory(tmp_path / "runs").path.name, range(12)))
    assert sorted(made) == sorted(f"cluster-{number}" for number in range(1, 13))
