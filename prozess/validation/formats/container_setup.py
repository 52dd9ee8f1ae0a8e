"""Says what of a container may set properties of its broker unread, and whether its log outlives the container.

A broker's properties are its variables only if the image's own start makes properties of them, and nothing lies over the
files that this start reads. Whatever else starts it, or lies there, is not understood. Compose and Kubernetes are alike."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from prozess.harness.config.known_properties import Setting
from prozess.validation.formats.images import KafkaImage
from prozess.validation.reading import placeholder_in

_LOG_DIRECTORIES = {
    "apache": "/tmp/kafka-logs",
    "confluent": "/var/lib/kafka/data",
    "bitnami": "/bitnami/kafka/data",
    "another": "/tmp/kafka-logs",
    "strimzi": "/tmp/kafka-logs",
}
"""Where each image keeps its log if nothing says it: Kafka's default; `configure` of cp-kafka; libkafka.sh of Bitnami."""
_GONE = re.compile(r"/(dev/shm|run|tmp)(/|$)")
"""Directories of a host that a restart of it may empty."""
_READ = tuple(
    PurePosixPath(path)
    for path in (
        *("/mnt/shared/config", "/opt/kafka", "/opt/bitnami", "/bitnami/kafka/config", "/etc/kafka", "/etc/confluent"),
        *("/__cacert_entrypoint.sh", "/usr/bin", "/usr/share/java", "/bin"),
    )
)
"""What the starts of the images read or run: properties, scripts and jars."""
_NOT_READ = tuple(PurePosixPath(path) for path in ("/etc/kafka/secrets", "/opt/kafka/logs", "/opt/bitnami/kafka/logs"))
_PROPERTIES = re.compile(r".*/(server|broker|controller|kafka)\.properties")
_OWN_STARTS = re.compile(
    r"/etc/(kafka|confluent)/docker/run|/opt/bitnami/scripts/kafka/(entrypoint|run)\.sh|/__cacert_entrypoint\.sh|/?run\.sh|"
    r"(/usr/bin/)?start-kafka\.sh"
)
"""What makes properties of variables: entrypoints and commands of the images of Apache, Confluent, Bitnami and wurstmeister.
Kafka's own kafka-server-start.sh does not. [docker/jvm/launch of Apache's; libkafka.sh of Bitnami's]"""
_STARTS = re.compile(r"kafka-server-start|/run(\.sh)?$|start-kafka|entrypoint|configure")
_TOOLS = re.compile(
    r"kafka-(?!server-start)[a-z]+(-[a-z]+)*(\.sh)?\b|\bconnect-(distributed|standalone|mirror-maker)|\bcub\b|\bkcat\b|\bkaf\b"
)
_SHELL = re.compile(r"(.*/)?(ba|da|k|z)?sh")
_WAITS = re.compile(r"sleep [\d.]+[smh]?|set [-+\w ]+|true|echo [^<>|&`$()]*")


MAKES_TOPICS = "makes topics with settings of its own, and is not read: say with --topic what the topic has"


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that lies over a directory or a file of the container."""

    target: str
    source: str
    """A path of the host, a volume's name, or what else it is; empty: nothing."""
    lasts: bool
    """It outlives the container, and belongs to it alone."""
    fresh: bool = False
    """It is a volume, which begins empty and which only the container fills."""
    read_only: bool = False

    @classmethod
    def of_host(cls, target: str, path: str, *, lasts: bool = True) -> "Mount":
        """Returns a path of the host, which lasts unless a restart of the host empties it."""
        return cls(target, path, lasts and not _GONE.match(path))


def words_of(*lines: object) -> list[str]:
    """Returns the words of an entrypoint and a command, each a list of words or a line that is split as a shell splits it."""
    found: list[str] = []
    for line in lines:
        try:
            found += map(str, line) if isinstance(line, list) else shlex.split(str(line)) if line else []
        except ValueError:
            found.append(str(line))
    return found


def is_tool(words: Sequence[str]) -> bool:
    """Returns whether a command line runs one of Kafka's tools and no broker."""
    line = " ".join(words)
    return bool(_TOOLS.search(line)) and not _STARTS.search(line)


def starts_broker(words: Sequence[str]) -> bool:
    """Returns whether a container of Kafka's image runs a broker: nothing else is known to be run."""
    return not words or bool(_STARTS.search(" ".join(words)))


def overrides(words: Sequence[str]) -> dict[str, str]:
    """Returns what `--override name=value` sets. [kafka.Kafka.getPropsFromArgs]"""
    try:
        split = [part for word in words for part in (shlex.split(word) if " --override " in f" {word} " else [word])]
    except ValueError:
        return {}
    found = {}
    for word, after in zip(split, [*split, None][1:], strict=True):
        override = word.removeprefix("--override=") if word.startswith("--override=") else None
        if word == "--override":
            override = after
        if override is not None:
            name, _, value = override.partition("=")
            found[name] = value
    return found


def changes_settings(words: Sequence[str]) -> str | None:
    """Returns what a command does to the settings of a running cluster, as the end of a sentence; None: nothing known."""
    line = " ".join(words)
    if re.search(r"kafka-configs|kafka-features|kafka-leader-election", line) and re.search(
        r"--alter|--add-config|upgrade|downgrade|disable|--election-type", line
    ):
        return "changes settings of the cluster while it runs, and is not read"
    return None


def makes_topics(words: Sequence[str]) -> bool:
    """Returns whether a command makes or changes topics, which then have what it says."""
    line = " ".join(words)
    return "kafka-topics" in line and bool(re.search(r"--create|--alter", line))


# What is not understood of a broker's container.


def doubts_of_start(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields why a command line may set what is not read: a name and why. `words`: its entrypoint, then its command; none:
    the image's own."""
    if not words or _is_own_start(words):
        return
    line = " ".join(words)
    if re.search(r"KAFKA_\w+=|\bexport\b|\bsed\b|>>", line):
        yield "command", "sets properties of the broker, or variables, by itself: write them into the environment"
    elif "kafka-server-start" in line:
        why = "starts Kafka past the start of its image, which alone makes properties of variables"
        yield "command", f"{why}: give the file that it names as --broker"
    else:
        what = f"runs {line[:60]!r}, and whether this starts a broker with these settings alone is not known"
        yield "command", what


def _is_own_start(words: Sequence[str]) -> bool:
    """Whether this is the image's own start, perhaps after a pause.

    Example: `sh -c "sleep 5; exec /etc/kafka/docker/run"` is; `/scripts/run.sh` is not."""
    if not _SHELL.fullmatch(words[0]):
        return all(_OWN_STARTS.fullmatch(word) for word in words)
    flags, script = words[1:-1], words[-1]
    if not flags or not all(re.fullmatch(r"-[a-z]*", flag) for flag in flags) or "c" not in "".join(flags):
        return False
    steps = [step.strip().removeprefix("exec ").strip() for step in re.split(r";|&&|\n", script)]
    steps = [step for step in steps if step]
    known = all(_OWN_STARTS.fullmatch(step) or _WAITS.fullmatch(step) for step in steps)
    return known and any(_OWN_STARTS.fullmatch(step) for step in steps)


def doubts_of_mounts(
    mounts: Sequence[Mount], image: KafkaImage, settings: Mapping[str, Setting]
) -> Iterator[tuple[str, str]]:
    """Yields what lies over files that set properties, and logs that end with the container: a name and why."""
    directories = log_directories(image, settings)
    for mount in mounts:
        if _lies_over_what_is_read(mount, directories):
            why = f"lies over {mount.target}, which may set properties: give that file as --broker, or write them here"
            yield f"volumes {mount.source or mount.target}", why
    for directory in directories:
        if placeholder_in(directory):
            yield "log.dirs", f"is {directory}: whether it outlives the container is not known"
            continue
        over = mount_over(mounts, directory)
        if over is not None and over.read_only:
            yield "volumes", f"are read-only where the broker writes, {directory}: it does not start"
        elif over is None or not over.lasts:
            what = "no volume lies over it" if over is None else "what lies over it ends with the container"
            yield (
                "volumes",
                f"do not keep the log: {directory} is where the broker writes, and {what}. Then the end of a container is a "
                f"wiped disk, which no promise takes into account: put a volume that lasts over {directory}",
            )


def log_directories(image: KafkaImage, settings: Mapping[str, Setting]) -> list[str]:
    """Returns where the broker keeps its logs, those of the metadata too."""
    name = next((name for name in ("log.dirs", "log.dir") if name in settings), None)
    listed = _LOG_DIRECTORIES[image.maker] if name is None else settings[name].value
    metadata = settings.get("metadata.log.dir")
    all_of_them = listed if metadata is None else f"{listed},{metadata.value}"
    if placeholder_in(all_of_them):
        return [all_of_them]
    return list(dict.fromkeys(each.strip() for each in all_of_them.split(",") if each.strip()))


def mount_over(mounts: Sequence[Mount], directory: str) -> Mount | None:
    """Returns what the directory really is: of what lies over it, the innermost."""
    over = [mount for mount in mounts if PurePosixPath(directory).is_relative_to(mount.target)]
    return max(over, key=lambda each: len(each.target), default=None)


def lies_over_properties(mounts: object) -> str | None:
    """Returns the first directory or file in a list of `volumeMounts` that may set properties; None: there is none."""
    for each in mounts if isinstance(mounts, list) else []:
        target = str(each.get("mountPath", "")) if isinstance(each, Mapping) else ""
        if _lies_over_what_is_read(Mount(target, "", lasts=True), ()):
            return target
    return None


def _lies_over_what_is_read(mount: Mount, directories: Sequence[str]) -> bool:
    target = PurePosixPath(mount.target)
    if _PROPERTIES.fullmatch(mount.target):
        return True
    if any(target.is_relative_to(each) for each in _NOT_READ):
        return False
    if mount.fresh and any(PurePosixPath(each).is_relative_to(target) for each in directories):
        return target in (PurePosixPath("/"), PurePosixPath("/opt/kafka"), PurePosixPath("/opt"))
    return any(target.is_relative_to(read) or read.is_relative_to(target) for read in _READ)
