"""Byteman's agents in the servers of a cluster: how they are started and given rules, and what they say became of these.

An agent listens on the address of the node that no fault touches. It takes one command a connection: a line, the rules'
text, an end. It answers with lines of which the last is OK (Byteman's TransformListener).
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prozess.clusters.methods.class_files import KafkaClasses
from prozess.clusters.methods.rules import CallCount, RuleFiles, done_in_words, read_count, rules_text
from prozess.harness.clock import Clock, wait_until
from prozess.harness.config.impairments import MethodRule
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Node, NodeState
from prozess.harness.schema import Tristate

DIRECTORY = "methods"
"""The directory of a node that has its rules and their counts."""
ANSWER_TIMEOUT_S = 20.0
"""How long an agent may take: it changes classes that were loaded, while a starved machine does much else."""
UP_TIMEOUT_S = 60.0
"""How long a server may take until its agent listens, which it does before anything of Kafka runs."""
GO_ON_TIMEOUT_S = 8.0
"""How long calls may take to go on when they are woken."""
_OK = "OK"


@dataclass(frozen=True, slots=True)
class AgentAddress:
    """Where a node's agent is, and its files."""

    directory: Path
    host: str
    port: int


def agent_options(jar: Path, address: AgentAddress) -> list[str]:
    """Returns the JVM options that start an agent, with the rules that act on the node now."""
    scripts = sorted(address.directory.glob("*.btm"))
    lines = [
        "listener:true",
        f"address:{address.host}",
        f"port:{address.port}",
        *(f"script:{path}" for path in scripts),
    ]
    return [f"-javaagent:{jar}={','.join(lines)}"]


def ask_agent(address: AgentAddress, command: str, script: str | None = None) -> list[str]:
    """Gives an agent a command (LOAD or DELETE with a script, or LIST), and returns the lines that it answers. HarnessFailed
    if it does not answer, or says that it failed."""
    text = command if script is None else f"{command}\nSCRIPT prozess\n{script}\nENDSCRIPT\nEND{command}"
    try:
        with socket.create_connection((address.host, address.port), timeout=ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.sendall(f"{text}\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode(errors="replace")
    except OSError as error:
        raise HarnessFailed(f"Byteman's agent at {address.host}:{address.port} did not answer: {error}.") from error
    lines = answer.splitlines()
    if not lines or lines[-1] != _OK:
        raise HarnessFailed(f"Byteman's agent at {address.host}:{address.port} broke off after {len(lines)} lines.")
    if failed := next((line for line in lines if line.startswith(("EXCEPTION", "ERROR"))), None):
        raise HarnessFailed(f"Byteman refused to {command.lower()} a rule: {failed}.")
    return lines[:-1]


@dataclass(frozen=True, slots=True)
class ListedRule:
    """What an agent says of a rule. `injected`: into so many methods; `failed`: why it does not act, or "" ."""

    injected: int
    failed: str


def listed_rules(lines: Sequence[str]) -> dict[str, ListedRule]:
    """Reads the answer to LIST: the name of a rule → what became of it."""
    found: dict[str, ListedRule] = {}
    name, complaint = "", False
    for line in lines:
        if line.startswith("RULE "):
            name, complaint = line.removeprefix("RULE "), False
            found[name] = ListedRule(0, "")
        elif line.startswith("trigger method: ") and name:
            found[name] = ListedRule(found[name].injected + 1, found[name].failed)
        elif line.startswith("threw ") and name:
            found[name] = ListedRule(found[name].injected, line.removeprefix("threw "))
        elif line == "failed to compile":
            complaint = True
        elif complaint and "Exception: " in line:
            found[name] = ListedRule(found[name].injected, line.partition("Exception: ")[2])
            complaint = False
    return found


class MethodAgents:
    """The agents of a cluster's nodes. `addresses`: node → address of its agent. `classes_of`: node → the classes it runs."""

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, AgentAddress]],
        classes_of: Callable[[str], KafkaClasses],
        clock: Clock,
    ) -> None:
        self._addresses, self._classes_of, self._clock = addresses, classes_of, clock

    def options(self, name: str, jar: Path) -> list[str]:
        """Returns the JVM options with which a node's server is started now: the rules of open faults act from its first
        moment, and go on counting."""
        address = self._addresses()[name]
        address.directory.mkdir(parents=True, exist_ok=True)
        for sign in sorted(address.directory.glob("*.json")):
            rule = MethodRule.model_validate_json(sign.read_text(encoding="utf-8"))
            files = RuleFiles(address.directory, rule.rule)
            with files.count.open("a", encoding="utf-8") as count:
                count.write("start\n")
            files.script.unlink(missing_ok=True)
            with suppress(LookupError):  # of another version, which has no such method: nothing will be called
                files.script.write_text(rules_text(rule, files, self._classes_of(name)), encoding="utf-8")
        return agent_options(jar, address)

    def impair(self, node: Node, impairment: MethodRule) -> None:
        """Gives the node's agent the rules. HarnessFailed if its version has not what they name, or Byteman refuses them."""
        address, files = self._found(node, impairment)
        if files.sign.exists():
            return
        try:
            script = rules_text(impairment, files, self._classes_of(node.name))
        except LookupError as error:
            raise HarnessFailed(f"{node.name}: {error}") from error
        files.directory.mkdir(parents=True, exist_ok=True)
        files.count.touch()
        files.script.write_text(script, encoding="utf-8")
        files.sign.write_text(impairment.model_dump_json(), encoding="utf-8")
        if node.state() is not NodeState.RUNNING:
            return
        try:
            self._await_agent(node, address)
            ask_agent(address, "LOAD", script)
            failed = _failed(address, files)
        except HarnessFailed:
            files.sign.unlink()
            files.script.unlink()
            raise
        if failed:
            self.repair(node, impairment)
            raise HarnessFailed(f"{node.name}: Byteman does not take the rule: {failed}.")

    def repair(self, node: Node, impairment: MethodRule) -> None:
        """Takes the rules away. A process that is paused does not answer: what is left in it acts no more, and goes when
        the process ends."""
        address, files = self._found(node, impairment)
        files.sign.unlink(missing_ok=True)
        files.script.unlink(missing_ok=True)
        if node.state() is not NodeState.RUNNING:
            return
        try:
            self._take_out(node, address, files)
        except HarnessFailed:
            if node.state() is NodeState.RUNNING:  # else it has ended meanwhile, and its rules with it
                raise

    def _take_out(self, node: Node, address: AgentAddress, files: RuleFiles) -> None:
        self._await_agent(node, address)
        wait_until(
            lambda: not _count(files).standing or node.state() is not NodeState.RUNNING,
            awaited=f"calls that stand still in {node.name} to go on",
            timeout_s=GO_ON_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"{_count(files).standing} stand still",
        )
        if left := _listed(address, files):
            ask_agent(address, "DELETE", "\n".join(f"RULE {name}" for name in left))

    def _await_agent(self, node: Node, address: AgentAddress) -> None:
        """Waits until the agent of a server that has just been started listens."""

        def listens() -> bool:
            with suppress(OSError), socket.create_connection((address.host, address.port), timeout=ANSWER_TIMEOUT_S):
                return True
            return node.state() is not NodeState.RUNNING

        wait_until(
            listens,
            awaited=f"Byteman's agent in {node.name} to listen at {address.host}:{address.port}",
            timeout_s=UP_TIMEOUT_S,
            clock=self._clock,
            last_seen=lambda: f"the process is {node.state()}",
        )

    def impaired(self, node: Node, impairment: MethodRule) -> tuple[Tristate, str]:
        """Says what the rules have counted. When the sign is gone: whether something of the rules is left in the JVM."""
        address, files = self._found(node, impairment)
        if not files.sign.exists():
            return self._left(node, address, files)
        count = _count(files)
        seen = "the method was never called"
        if count.called:
            times = "once" if count.called == 1 else f"{count.called:,} times"
            done = done_in_words(impairment, count.acted)
            seen = f"the method was called {times}, and {count.acted or 'none'} of the calls {done}"
        if count.longest_s:
            seen += f", for {count.longest_s:.1f} s at most"
        if count.standing:
            seen += f"; {count.standing} {'stands' if count.standing == 1 else 'stand'} still now"
        if count.acted:
            return Tristate.YES, seen
        try:
            failed = _failed(address, files) if node.state() is NodeState.RUNNING else ""
        except HarnessFailed as error:
            return Tristate.NO, f"{seen} ({error})"
        return (Tristate.UNKNOWN, f"Byteman could not use the rule: {failed}") if failed else (Tristate.NO, seen)

    def _left(self, node: Node, address: AgentAddress, files: RuleFiles) -> tuple[Tristate, str]:
        if node.state() is not NodeState.RUNNING:
            return Tristate.NO, f"nothing is done to calls: the process is {node.state()}"
        if left := _listed(address, files):
            return Tristate.YES, f"{len(left)} {'rule is' if len(left) == 1 else 'rules are'} in the JVM"
        return Tristate.NO, "no rule is in the JVM"

    def _found(self, node: Node, rule: MethodRule) -> tuple[AgentAddress, RuleFiles]:
        address = self._addresses().get(node.name)
        if address is None:
            raise HarnessFailed(f"{node.name} was started without Byteman's agent: no step of the plan needed it then.")
        return address, RuleFiles(address.directory, rule.rule)


def _count(files: RuleFiles) -> CallCount:
    try:
        return read_count(files.count.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return CallCount()


def _listed(address: AgentAddress, files: RuleFiles) -> dict[str, ListedRule]:
    """Returns those of the rules that are in the JVM, and what became of each."""
    return {
        name: found
        for name, found in listed_rules(ask_agent(address, "LIST")).items()
        if name.startswith(f"{files.key} ")
    }


def _failed(address: AgentAddress, files: RuleFiles) -> str:
    """Returns why one of the rules does not act, or "" if none is known to fail."""
    return next((found.failed for found in _listed(address, files).values() if found.failed), "")
