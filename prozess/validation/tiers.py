"""Says of the settings of tiered storage (KIP-405) what Kafka refuses, and what trials and predictions make of them. Pure."""

from collections.abc import Iterator, Mapping

from prozess.harness.config.client_settings import Translated
from prozess.harness.config.known_properties import Property, Setting, Settings, default_of, is_true, number, trimmed

STORE_FACTOR = "rlmm.config.remote.log.metadata.topic.replication.factor"
STORE_MINIMUM = "rlmm.config.remote.log.metadata.topic.min.isr"
OF_STORE: Mapping[str, str] = {STORE_FACTOR: "3", STORE_MINIMUM: "2"}
"""Settings of `__remote_log_metadata` → their defaults. [TopicBasedRemoteLogMetadataManagerConfig]"""
_OF_PLUGINS = ("rsm.config.", "rlmm.config.")
"""What the names of settings of the two plugins begin with, unless somebody has chosen another beginning."""
ENABLED, SYSTEM = "remote.storage.enable", "remote.log.storage.system.enable"
_DISABLED = "remote.log.copy.disable"
_UNCLEAN = "unclean.leader.election.enable"


def of_plugin(name: str) -> bool:
    """Returns whether this is a setting of the remote store's plugins, on which no promise of Kafka's depends."""
    return name.startswith(_OF_PLUGINS) and name not in OF_STORE


def is_tiered(topic: Settings) -> bool:
    """Returns whether segments of the topic go to a remote store."""
    return ENABLED in topic and is_true(topic[ENABLED].value)


def refused_tiers(
    topic: Settings, broker: Settings, of_topic: Mapping[str, Property]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the settings that Kafka refuses together for a topic with tiered storage, and why. `of_topic`: what is known of
    the properties of topics; where the topic has none, its brokers' own default counts."""
    if not is_tiered(topic) or ENABLED not in of_topic:
        return
    ends = ": no such topic is made"

    def value(name: str) -> tuple[str, str]:
        """Returns the value that counts, and by which name."""
        server = str(of_topic[name].get("server") or name)
        if name in topic or server not in broker:
            return (topic[name].value if name in topic else default_of(name, of_topic)), name
        return broker[server].value, server

    if broker and (SYSTEM not in broker or not is_true(broker[SYSTEM].value)):
        why = f"{ENABLED} = true needs brokers and controllers with {SYSTEM} = true"
        yield (ENABLED, SYSTEM), f"{why}{ends} (LogConfig.validateRemoteStorageOnlyIfSystemEnabled)"
    policy, where = value("cleanup.policy")
    if trimmed(policy) != "delete":
        why = f"{where} = {trimmed(policy)}: only topics with cleanup.policy = delete have tiered storage"
        yield (where, ENABLED), f"{why}{ends} (LogConfig.validateRemoteStorageRequiresDeleteCleanupPolicy)"
    copied = _DISABLED not in topic or not is_true(topic[_DISABLED].value)
    for unit, rule in (("ms", "Time"), ("bytes", "Size")):
        (all_text, all_name), (own_text, own_name) = value(f"retention.{unit}"), value(f"local.retention.{unit}")
        whole, own = number(all_text), number(own_text)
        if whole is None or own is None or own == -2:
            continue  # -2: as long as the whole
        if whole != -1 and (own == -1 or own > whole):
            why = f"{own_name} = {own} is more than {all_name}, {whole}"
            yield (own_name, all_name), f"{why}{ends} (LogConfig.validateRemoteStorageRetention{rule})"
        elif not copied and own != whole:
            why = f"with {_DISABLED} = true {own_name} = {own} must be {all_name}, {whole}, or -2"
            yield (own_name, _DISABLED), f"{why}{ends} (LogConfig.validateRetentionConfigsWhenRemoteCopyDisabled)"


def set_tiers(found: Translated, topic: Settings, broker: Settings) -> None:
    """Gives the trials' brokers a remote store if the topic has one, and says what is not tried of it."""
    if is_tiered(topic):
        found.set("variant.tiered_storage", True, topic[ENABLED])
        found.notes.append(
            f"{ENABLED}=true: the trials' remote store is LocalTieredStorage, a directory; what your own store loses is "
            "lost, since segments that local retention has let go are nowhere else, and a consumer that comes to a lost one "
            "waits without an exception"
        )
        unclean = topic.get(_UNCLEAN) or broker.get(_UNCLEAN)
        if unclean is not None and is_true(unclean.value):
            found.notes.append(
                f"{_UNCLEAN}=true with {ENABLED}=true: after an unclean election consumers that are served from the "
                "remote store get what the election cut away, and not what was acknowledged since; run the trial "
                "tiered-unclean"
            )
        size: Setting | None = topic.get("segment.bytes") or broker.get("log.segment.bytes")
        if size is None or (number(size.value) or 0) > 2**20:
            found.notes.append(
                "the trials fill no segment of this size (segment.bytes), so nothing is copied to their remote store; run "
                "the trial tiered for that"
            )
    elif own := [name for name in ("local.retention.ms", "local.retention.bytes", _DISABLED) if name in topic]:
        verb = "does" if len(own) == 1 else "do"
        found.notes.append(f"{', '.join(own)} {verb} nothing without {ENABLED}=true")
