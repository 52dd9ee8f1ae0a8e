"""Which variants can be run here at all, and why another cannot. Pure."""

from harness.configuration import Variant, version_numbers
from harness.errors import BadInput

OLDEST_KRAFT = (3, 9)
"""From here on the metadata log is decoded (`clusters.metadata_log`)."""
ZOOKEEPER_VERSIONS = ((3, 9), (4, 0))
"""From, and before: 3.9 is the last line with ZooKeeper (KIP-833), and what older ones write there is not read here."""


def check_variant(variant: Variant) -> None:
    """BadInput, with the reason and a way out, for what is not run."""
    names = variant.server_names().values()
    if strange := sorted(set(variant.versions) - set(names)):
        raise BadInput(f"variant.versions names {strange[0]!r}, which is no node of it. Nodes: {', '.join(names)}.")
    for version in variant.kafka_versions:
        if not version.partition(".")[0].isdigit() or version_numbers(version) < OLDEST_KRAFT:
            raise BadInput(f"kafka_version = {version!r}: Kafka is run from 3.9 on. Use 4.3.1 or 3.9.2.")
    if variant.migration_controllers and variant.metadata_mode != "zookeeper":
        raise BadInput(
            f"variant.migration_controllers = {variant.migration_controllers} is of a cluster that begins with ZooKeeper. "
            'Set metadata_mode = "zookeeper", or remove it.'
        )
    if variant.metadata_mode == "zookeeper":
        _check_zookeeper(variant)
    elif len(variant.kafka_versions) > 1:
        _check_mixed(variant)


def _check_zookeeper(variant: Variant) -> None:
    first, gone = ZOOKEEPER_VERSIONS
    for version in variant.kafka_versions:
        if not first <= version_numbers(version) < gone:
            raise BadInput(
                f"Kafka {version} has no ZooKeeper mode that is run here: 3.9 is its last line (KIP-833). Set "
                'kafka_version = "3.9.2", or metadata_mode = "kraft-isolated".'
            )
    if variant.features:
        raise BadInput(
            f"variant.features sets {min(variant.features)!r}, but features are finalized by KRaft's controllers alone "
            "(KIP-584, KIP-1022). Remove it."
        )


def _check_mixed(variant: Variant) -> None:
    """A cluster in the middle of an upgrade: every server must know the metadata.version, which is the oldest one's."""
    oldest, newest = variant.kafka_versions[0], variant.kafka_versions[-1]
    if version_numbers(newest)[0] - version_numbers(oldest)[0] > 1:
        raise BadInput(
            f"variant.versions mixes {oldest} and {newest}: Kafka can be upgraded from one major version to the next alone "
            "(https://kafka.apache.org/documentation/#upgrade). Choose versions that follow one another."
        )
    if "metadata.version" in variant.features:
        raise BadInput(
            f"variant.features sets metadata.version, which in a mixed cluster is that of {oldest}, the oldest. Remove it."
        )
