"""What Byteman's agents are started with and what they say; files of rules through the death of a node."""

import socket
import threading
import zipfile

import pytest

from prozess.clusters.methods.agents import AgentAddress, ListedRule, MethodAgents, ask_agent, listed_rules
from prozess.clusters.methods.class_files import PUBLIC, KafkaClasses
from prozess.clusters.methods.rules import RuleFiles
from prozess.harness.config.impairments import MethodRule
from prozess.harness.config.methods import WAKING_CLASS, CallNumbers, MeantCalls
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import NodeState
from prozess.harness.schema import Tristate
from tests.support.clock import FakeClock
from tests.unit.clusters.methods.test_class_files import class_file

SAID = """# File prozess line 5
RULE prozess-1 0
CLASS Toy
METHOD add
NOCOMPILE
AT ENTRY
IF true
DO throw new java.sql.SQLException("x")
ENDRULE
Transformed in:
loader: jdk.internal.loader.ClassLoaders$AppClassLoader@1dbd16a6
trigger method: Toy.add(int,java.lang.String) int
failed to compile
Rule.ensureTypeCheckedCompiled : error type checking rule prozess-1 0
org.jboss.byteman.rule.exception.TypeException: exception type not declared by trigger method java.sql.SQLException
\tat org.jboss.byteman.rule.Rule.typeCheck(Rule.java:1)
# File prozess line 20
RULE prozess-2 0
CLASS Toy
METHOD poll
AT ENTRY
DO signalWake("x")
ENDRULE
Transformed in:
loader: jdk.internal.loader.ClassLoaders$AppClassLoader@1dbd16a6
trigger class: Toy
threw org.jboss.byteman.rule.exception.ParseException: rule prozess-2 0
# File prozess line 40
RULE prozess-3 0
CLASS Toy
METHOD poll
AT ENTRY
DO signalWake("x")
ENDRULE
Transformed in:
loader: jdk.internal.loader.ClassLoaders$AppClassLoader@1dbd16a6
trigger method: Toy.poll() void
compiled successfully
# File prozess line 50
RULE prozess-4 0
CLASS NotLoaded
METHOD poll
AT ENTRY
DO signalWake("x")
ENDRULE"""


def test_what_an_agent_lists_tells_which_rules_act_and_why_others_do_not():
    assert listed_rules(SAID.splitlines()) == {
        "prozess-1 0": ListedRule(1, "exception type not declared by trigger method java.sql.SQLException"),
        "prozess-2 0": ListedRule(0, "org.jboss.byteman.rule.exception.ParseException: rule prozess-2 0"),
        "prozess-3 0": ListedRule(1, ""),
        "prozess-4 0": ListedRule(0, ""),
    }
    assert listed_rules(["no rules installed"]) == {}


@pytest.fixture
def answered():
    """A server that answers one caller with what a test says, and the address that it listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def says(answer):
            def serve():
                connection, _ = server.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

            threading.Thread(target=serve, daemon=True).start()
            return server.getsockname()[:2]

        yield says


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "broke off after 0 lines"),
        (b"install rule x\n", "broke off after 1 lines"),
        (b"EXCEPTION invalid target location\nOK\n", "refused to load a rule: EXCEPTION invalid target location"),
        (b"ERROR No rule scripts to remove\nOK\n", "ERROR No rule scripts"),
    ],
)
def test_an_agent_that_refuses_or_breaks_off_is_no_success(answered, tmp_path, answer, why):
    with pytest.raises(HarnessFailed, match=why):
        ask_agent(AgentAddress(tmp_path, *answered(answer)), "LOAD", "RULE x\nENDRULE")


def test_an_agent_that_is_not_there_is_told(tmp_path):
    with pytest.raises(HarnessFailed, match="did not answer"):
        ask_agent(AgentAddress(tmp_path, "127.0.0.1", 9), "LIST")


class SilentNode:
    """A node whose process a test stops, and whose agent never answers."""

    name = "broker-1"

    def __init__(self):
        self.observed = NodeState.STOPPED

    def state(self):
        return self.observed


RULE = MethodRule(
    rule="a step",
    meant=MeantCalls(method="kafka.Log#append"),
    numbers=CallNumbers(nth=3),
    action={"do": "pause"},
)


@pytest.fixture
def agents(tmp_path):
    jar = tmp_path / "kafka.jar"
    with zipfile.ZipFile(jar, "w") as opened:
        opened.writestr("kafka/Log.class", class_file("kafka.Log", ("append", "()V", PUBLIC, [])))
        waking = class_file(WAKING_CLASS, ("poll", "(J)V", PUBLIC, []))
        opened.writestr(f"{WAKING_CLASS.replace('.', '/')}.class", waking)
    place = AgentAddress(tmp_path / "methods", "127.0.0.1", 9)
    return MethodAgents(lambda: {"broker-1": place}, lambda name: KafkaClasses("9.9.9", [jar]), FakeClock())


def files_of(tmp_path):
    return RuleFiles(tmp_path / "methods", RULE.rule)


def test_a_process_that_starts_has_the_rules_of_open_faults_and_goes_on_counting(agents, tmp_path):
    jar, files = tmp_path / "byteman.jar", files_of(tmp_path)
    plain = f"-javaagent:{jar}=listener:true,address:127.0.0.1,port:9"
    assert agents.options("broker-1", jar) == [plain]
    agents.impair(SilentNode(), RULE)
    files.count.write_text("call 1 5\nbegin 1 6\n")
    assert agents.options("broker-1", jar) == [f"{plain},script:{files.script}"]
    assert files.count.read_text() == "call 1 5\nbegin 1 6\nstart\n"
    assert "+ 1 : 0" in files.script.read_text()
    agents.repair(SilentNode(), RULE)
    assert agents.options("broker-1", jar) == [plain]


def test_what_a_node_had_counted_when_it_died_is_its_effect(agents, tmp_path):
    node = SilentNode()
    agents.impair(node, RULE)
    assert agents.impaired(node, RULE) == (
        Tristate.NO,
        "the method was never called",
    )
    files_of(tmp_path).count.write_text("call 1 5\ncall 2 5\ncall 3 6\nbegin 3 1000000000\nend 3 3500000000\n")
    seen = "the method was called 3 times, and 1 of the calls stood still, for 2.5 s at most"
    assert agents.impaired(node, RULE) == (Tristate.YES, seen)
    agents.repair(node, RULE)
    agents.repair(node, RULE)
    assert agents.impaired(node, RULE)[0] is Tristate.NO


def test_a_paused_process_does_not_answer_and_its_rule_acts_no_more(agents, tmp_path):
    node = SilentNode()
    agents.impair(node, RULE)
    node.observed = NodeState.PAUSED
    agents.repair(node, RULE)
    assert not files_of(tmp_path).sign.exists(), "by this file a rule acts, and without it calls that stand still go on"
    assert agents.impaired(node, RULE) == (Tristate.NO, "nothing is done to calls: the process is paused")


def test_a_rule_that_the_version_cannot_have_leaves_nothing(agents, tmp_path):
    missing = RULE.model_copy(update={"meant": MeantCalls(method="kafka.Log#apend")})
    with pytest.raises(HarnessFailed, match="has no method apend"):
        agents.impair(SilentNode(), missing)
    assert not (tmp_path / "methods").exists()


def test_an_agent_that_cannot_be_asked_leaves_no_sign(agents, tmp_path):
    node = SilentNode()
    node.observed = NodeState.RUNNING
    agents.options("broker-1", tmp_path / "byteman.jar")
    with pytest.raises(HarnessFailed, match="waited 60 s for Byteman's agent in broker-1 to listen"):
        agents.impair(node, RULE)
    assert not files_of(tmp_path).sign.exists()


def test_a_node_without_an_agent_is_told():
    agents = MethodAgents(dict, lambda name: KafkaClasses("9.9.9", []), FakeClock())
    with pytest.raises(HarnessFailed, match="no step of the plan needed it then"):
        agents.impair(SilentNode(), RULE)
