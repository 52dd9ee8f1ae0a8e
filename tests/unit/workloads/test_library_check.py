"""A library is asked for its own defaults, and what it says counts."""

import pytest

from prozess.app.wiring import TOOLBOX
from prozess.harness.config.known_properties import default_of, properties_of
from prozess.harness.config.library_defaults import MEMBER_PROPERTY_OF, PROPERTY_OF
from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.workloads import library_check
from prozess.workloads.library_check import check_libraries, defaults_printed, librdkafka_defaults
from prozess.workloads.roles import ROLES, refuse_bad_clients
from prozess.workloads.settings import LaunchContext


def plan_of(kind="log", **base):
    return make_plan(parse_trial({"name": "t", "title": "t", "workload": kind, "base": base}, source="test"), seed=1)


def test_the_librdkafka_of_this_process_says_what_the_table_says():
    for scope, names in (("producer", PROPERTY_OF), ("consumer", MEMBER_PROPERTY_OF)):
        known = properties_of(scope, "librdkafka", "4.3.1")
        assert librdkafka_defaults()[scope] == {name: default_of(name, known) for name in names.values()}


def test_a_library_that_agrees_with_the_plan_is_taken_and_one_that_does_not_is_refused(monkeypatch):
    plan = plan_of(**{"producer.defaults": "library"})
    check_libraries(plan, toolbox=TOOLBOX)
    asked = library_check._asked

    def otherwise(*arguments, **named):
        told = asked(*arguments, **named)
        told["defaults"]["producer"]["acks"] = "1"
        told["defaults"]["consumer"]["auto.offset.reset"] = "smallest"
        return told

    monkeypatch.setattr(library_check, "_asked", otherwise)
    with pytest.raises(
        BadInput, match=r"librdkafka has other defaults than prozess knows: acks=1, not all\. Set these"
    ):
        check_libraries(plan, toolbox=TOOLBOX)
    check_libraries(plan_of(**{"producer.defaults": "library", "producer.acks": "all"}), toolbox=TOOLBOX)
    with pytest.raises(BadInput, match=r"other defaults than prozess knows: auto\.offset\.reset=smallest, not latest"):
        check_libraries(plan_of("group", **{"group.defaults": "library"}), toolbox=TOOLBOX)


@pytest.mark.parametrize("kind", ["log", "group", "transactions", "compaction", "exactly-once", "errors", "verifiable"])
def test_every_kind_of_workload_runs_clients_on_which_nothing_is_set_and_its_library_takes_them(kind):
    base = {"producer.defaults": "library"}
    base |= {"group.defaults": "library"} if kind == "group" else {}
    base |= {"provocation.error": "serialization"} if kind == "errors" else {}
    plan = plan_of(kind, **base)
    check_libraries(plan, toolbox=TOOLBOX)
    refuse_bad_clients(plan, toolbox=TOOLBOX)
    for client in plan.clients:
        if client.library is None or client.role.startswith("verifiable"):
            continue
        context = LaunchContext(plan=plan, planned=client, servers="h:1", limit_s=1, toolbox=TOOLBOX)
        made = ROLES[client.role].launch(context)
        written = made.options.producer if client.role == "copier" else made.properties
        assert not written.keys() & {"acks", "retries", "linger.ms", "auto.offset.reset", "enable.auto.commit"}, client
        assert ("enable.idempotence" in written) == (kind == "exactly-once" and client.role != "member")


def test_what_a_java_client_prints_is_read_with_and_without_words_behind_a_time():
    page = """<li>
<h4><a id="acks"></a><a id="producerconfigs_acks" href="#producerconfigs_acks">acks</a></h4>
<p>How many.</p>
<table><tbody>
<tr><th>Type:</th><td>string</td></tr>
<tr><th>Default:</th><td>all</td></tr>
</tbody></table></li>
<li><h4><a id="delivery.timeout.ms"></a></h4><table><tr><th>Default:</th><td>120000 (2 minutes)</td></tr></table></li>"""
    assert defaults_printed(page) == {"acks": "all", "delivery.timeout.ms": "120000"}
    assert defaults_printed("") == {}
