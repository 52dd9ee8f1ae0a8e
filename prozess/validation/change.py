"""This module says what a change of settings does (`prozess validate --old DIRECTORY --new DIRECTORY`): which promises
change, which settings make each broker start anew, and what Kafka refuses to change while brokers run.

Reads the two directories; the comparison is pure. It says what follows from the settings. It runs no trial.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, unique
from functools import cached_property
from pathlib import Path

from rich.markup import escape

from prozess.harness.config.known_properties import Setting, default_of, properties_of, trimmed
from prozess.harness.console import console
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.printable import number_of
from prozess.validation.prediction import Prediction
from prozess.validation.reading import SCOPES, Scope, settings_of
from prozess.validation.remarks import Level, Remark
from prozess.validation.servers import REPLICATION
from prozess.validation.terminal import CLOSING, causes

PARTS: Mapping[str, tuple[str, ...]] = {
    "producer": ("producer",),
    "consumer": ("consumer",),
    "topic": ("topic",),
    "broker": ("broker", "server"),
    "compose": ("compose", "docker-compose"),
    "applications": ("application",),
}
"""Option of `validate` → how the names of its files begin."""
_SUFFIXES = (".properties", ".json", ".yaml", ".yml")
THREADS = (
    *("num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"),
    "background.threads",
)
"""Numbers of threads, which a running broker at most halves or doubles in one step. [DynamicThreadPool, KIP-226]"""


def files_of(directory: Path) -> Mapping[str, tuple[Path, ...]]:
    """Returns the files of a directory by the option of `validate` that they are for (PARTS), known by how their names begin.
    A single file is an application's. BadInput if there is none, or several for one part."""
    if directory.is_file():
        return {"applications": (directory,)}
    if not directory.is_dir():
        raise BadInput(
            f"{str(directory)!r} is not there. Give a directory with the files of a configuration, or a file."
        )
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.suffix in _SUFFIXES)
    found = {part: tuple(path for path in files if path.name.startswith(begins)) for part, begins in PARTS.items()}
    for part, paths in found.items():
        if len(paths) > 1 and part != "applications":
            names = ", ".join(path.name for path in paths)
            raise BadInput(f"{str(directory)!r} has several files for the {part}: {names}. Keep one of them there.")
    if not any(found.values()):
        begins = ", ".join(f"{name}.*" for names in PARTS.values() for name in names)
        raise BadInput(f"{str(directory)!r} has no file of a configuration. Names begin with one of {begins}.")
    return {part: paths for part, paths in found.items() if paths}


@unique
class Standing(IntEnum):
    """Describes what a configuration says of one anomaly, from worse to better."""

    POSSIBLE = 0
    """A rule permits it."""
    NOT_JUDGED = 1
    """Nobody gave the part that it depends on."""
    UNKNOWN = 2
    BROKEN = 3
    """It is promised, and an open defect breaks the promise."""
    PROMISED = 4


_WORDS = {
    Standing.POSSIBLE: "possible",
    Standing.NOT_JUDGED: "not judged",
    Standing.UNKNOWN: "unknown",
    Standing.BROKEN: "promised, but broken by an open defect",
    Standing.PROMISED: "promised",
}


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting whose value differs. A side that does not set it has its default (None: there is none)."""

    scope: Scope
    name: str
    old: Setting | None
    new: Setting | None
    before: str | None
    after: str | None

    def sentence(self) -> str:
        """Returns the change for people: what it was, what it is, and where the new value stands."""
        where = f" ({self.new.origin})" if self.new is not None else " (no longer set)"
        return (
            f"{self.name} of the {self.scope}: {_shown(self.before, self.old)} → {_shown(self.after, self.new)}{where}"
        )


def _shown(value: str | None, setting: Setting | None) -> str:
    shown = "nothing" if value is None else value or "''"
    return shown if setting is not None or value is None else f"{shown}, the default"


@dataclass(frozen=True)
class Change:
    """Two predictions, of the configuration before and after a change."""

    old: Prediction
    new: Prediction

    @cached_property
    def settings(self) -> tuple[SettingChange, ...]:
        """Returns the settings that differ in effect, by part and name."""
        return tuple(change for scope in SCOPES for change in self._of(scope))

    def _of(self, scope: Scope) -> Iterator[SettingChange]:
        sides = [settings_of(prediction.parts.readings, scope) for prediction in (self.old, self.new)]
        if all(side is None for side in sides):
            return
        known = properties_of(scope, "java", self.new.parts.version)
        before, after = (side or {} for side in sides)
        for name in sorted({*before, *after}):
            was, now = before.get(name), after.get(name)
            values = [None if s is None else trimmed(s.value) for s in (was, now)]
            shown = [value if value is not None else _default(name, known) for value in values]
            if shown[0] != shown[1]:
                yield SettingChange(scope, name, was, now, *shown)

    @cached_property
    def standings(self) -> Mapping[str, tuple[Standing, Standing]]:
        """Returns the standing of each anomaly before and after the change."""
        before, after = standings_of(self.old), standings_of(self.new)
        of_neither = Standing.NOT_JUDGED
        return {name: (before.get(name, of_neither), after.get(name, of_neither)) for name in {**before, **after}}

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """Returns all remarks, with what got worse first."""
        found = [*self._promises(), *self._availability(), *self._doubts(), *self._operations()]
        return tuple(sorted(found, key=lambda remark: list(Level).index(remark.level)))

    def _promises(self) -> Iterator[Remark]:
        new_rules = {w.rule.id for w in self.new.weaknesses} - {w.rule.id for w in self.old.weaknesses}
        for name, (before, after) in self.standings.items():
            if before is not after:
                worse = after < before
                certain = worse and after in (Standing.POSSIBLE, Standing.BROKEN)
                level = Level.ERROR if certain else Level.WARNING if worse else Level.NOTE
                why = f": {causes(self.new, name)}" if after is Standing.POSSIBLE else ""
                sentence = f"{name} was {_WORDS[before]}, and is {_WORDS[after]} after the change{why}"
                yield Remark(level, f"change/{name}", sentence, self._origin(name))
            elif after is Standing.POSSIBLE:
                for weakness in self.new.weaknesses:
                    if weakness.guarantee.anomaly == name and weakness.rule.id in new_rules:
                        sentence = f"{name} is possible for one more reason: {weakness.rule.reason}"
                        yield Remark(Level.ERROR, weakness.rule.id, sentence, self._origin(name))

    def _origin(self, anomaly: str) -> str:
        """Returns where the changed setting stands that a remedy of this anomaly would change."""
        weak = next((w for w in self.new.weaknesses if w.guarantee.anomaly == anomaly), None)
        changed = {change.new.origin for change in self.settings if change.new is not None}
        origins = [] if weak is None else [self.new.parts.origins.get(each, "") for each in self.new.remedy(weak)]
        return next((origin for origin in origins if origin in changed), "")

    def _availability(self) -> Iterator[Remark]:
        before, after = ({concern.rule: concern for concern in side.concerns} for side in (self.old, self.new))
        for rule in after.keys() - before.keys():
            yield Remark(Level.ERROR, rule, f"New: {after[rule].sentence()}")
        for rule in before.keys() - after.keys():
            yield Remark(Level.NOTE, rule, f"Gone: {before[rule].what}")

    def _doubts(self) -> Iterator[Remark]:
        known = {(doubt.name, doubt.why) for doubt in self.old.doubts}
        for doubt in self.new.doubts:
            if (doubt.name, doubt.why) not in known:
                yield Remark(Level.WARNING, doubt.rule or f"unclear:{doubt.name}", doubt.sentence(), doubt.origin)

    def _operations(self) -> Iterator[Remark]:
        """Yields what must be done for the change to take effect, and what Kafka refuses."""
        of_broker = properties_of("broker", "java", self.new.parts.version)
        for change in self.settings:
            origin = "" if change.new is None else change.new.origin
            for level, rule, sentence in _operation(change, of_broker, self.new.parts.version):
                yield Remark(level, f"{rule}:{change.name}", f"{change.sentence()}. {sentence}", origin)

    @property
    def exit_code(self) -> ExitCode:
        """Returns 1: something is possible, or breaks, that could not before. 2: something is unknown that was not.
        Else 0."""
        levels = {remark.level for remark in self.remarks if not remark.rule.startswith(OPERATIONS)}
        if Level.ERROR in levels:
            return ExitCode.VIOLATED
        return ExitCode.UNKNOWN if Level.WARNING in levels else ExitCode.HELD

    @property
    def conclusion(self) -> str:
        """Returns the last line for people."""
        pairs = self.standings.values()
        lost = sum(before is Standing.PROMISED and after is not Standing.PROMISED for before, after in pairs)
        gained = sum(after is Standing.PROMISED and before is not Standing.PROMISED for before, after in pairs)
        kept = sum(before is after is Standing.PROMISED for before, after in pairs)
        rolls = sum(remark.rule.startswith("roll:") for remark in self.remarks)
        parts = [number_of(len(self.settings), "setting") + (" differs" if len(self.settings) == 1 else " differ")]
        parts += [f"{number_of(kept, 'promise')} kept, {lost} lost, {gained} gained"]
        parts += [f"{number_of(rolls, 'setting')} of the brokers must be rolled out by restarts"] if rolls else []
        return "; ".join(parts)


OPERATIONS = ("roll:", "alter:", "restart:", "refused:", "reassign:")
"""How the rules of remarks begin that say what is to be done. They do not decide the exit code."""
ChangeLine = tuple[Level, str, str]


def _operation(
    change: SettingChange, of_broker: Mapping[str, Mapping[str, object]], version: str
) -> Iterator[ChangeLine]:
    """Yields (level, rule, sentence) of what makes one changed setting take effect."""
    if change.scope in ("producer", "consumer"):
        yield Level.NOTE, "restart", f"Restart the {change.scope}s: clients read their settings when they start"
    elif change.scope == "topic" and change.name in REPLICATION:
        tool = "kafka-reassign-partitions.sh (KIP-455)"
        yield (
            Level.NOTE,
            "reassign",
            f"Kafka changes the number of copies by a reassignment of partitions alone: {tool}",
        )
    elif change.scope == "topic":
        yield Level.NOTE, "alter", "Brokers take it while they run: kafka-configs.sh --entity-type topics --alter"
    else:
        yield from _of_broker(change, of_broker, version)


def _of_broker(
    change: SettingChange, of_broker: Mapping[str, Mapping[str, object]], version: str
) -> Iterator[ChangeLine]:
    known = of_broker.get(change.name)
    mode = None if known is None else known.get("update")
    if known is None:
        yield (
            Level.WARNING,
            "roll",
            f"Kafka {version} has no such property: whether a running broker takes it is unknown",
        )
    elif mode is None:
        refused = 'kafka-configs.sh is refused ("Cannot update these configs dynamically", KIP-226)'
        yield (
            Level.WARNING,
            "roll",
            f"Restart each broker, one after the other: it reads this when it starts, and {refused}",
        )
    else:
        one = " or for one broker (--entity-name)" if mode == "per-broker" else ""
        how = f"kafka-configs.sh --entity-type brokers --entity-default --alter{one}"
        yield (
            Level.NOTE,
            "alter",
            f"Brokers take it while they run: {how}. Write it into their files, too",
        )
        yield from _refused(change, version)


def _refused(change: SettingChange, version: str) -> Iterator[ChangeLine]:
    before, after = change.before or "", change.after or ""
    if change.name in THREADS and before.isdecimal() and after.isdecimal():
        was, now = int(before), int(after)
        if now < was // 2 or now > was * 2:
            rule = "a running broker at most halves or doubles a number of threads (DynamicThreadPool)"
            yield (
                Level.WARNING,
                "refused",
                f"In one step it is refused: {rule}. Go there in several steps, or by restarts",
            )
    if change.name == "min.insync.replicas" and tuple(map(int, version.split(".")[:2])) >= (4, 0):
        yield (
            Level.WARNING,
            "refused",
            "Where eligible leader replicas are on (eligible.leader.replicas.version=1; new clusters from 4.1 on), it is "
            "refused for single brokers, and a change for the cluster clears the eligible replicas of all partitions "
            "(KIP-966)",
        )


def standings_of(prediction: Prediction) -> dict[str, Standing]:
    """Returns what a configuration says of each anomaly."""
    found = {name: Standing.NOT_JUDGED for names in prediction.not_judged.values() for name in names}
    found |= {guarantee.anomaly: Standing.PROMISED for guarantee in prediction.promised}
    found |= {guarantee.anomaly: Standing.UNKNOWN for guarantee in prediction.unknown}
    found |= {name: Standing.BROKEN for one in prediction.defects for name in one.anomalies if name in found}
    found |= {name: Standing.POSSIBLE for concern in prediction.concerns for name in concern.denies}
    return found | {weakness.guarantee.anomaly: Standing.POSSIBLE for weakness in prediction.weaknesses}


def _default(name: str, known: Mapping[str, Mapping[str, object]]) -> str | None:
    return "1" if name in REPLICATION else default_of(name, known) or None


_STYLES = {"worse": "red", "look": "yellow", "roll": "yellow", "refused": "yellow"}


def show_change(change: Change, *, quiet: bool) -> None:
    """Prints what a change of settings does, what got worse first."""
    out = console()
    for remark in () if quiet else change.remarks:
        word = remark.rule.partition(":")[0] if remark.rule.startswith(OPERATIONS) else ""
        word = word or {"error": "worse", "warning": "look", "note": "note"}[remark.level]
        out.print(f"{word:<10} ", style=_STYLES.get(word), end="", highlight=False)
        out.print(escape(remark.sentence), soft_wrap=True)
    out.print(f"{CLOSING[change.exit_code]} {escape(change.conclusion)}", soft_wrap=True)
