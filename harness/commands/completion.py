"""What a shell offers behind a command: names of trials, of what can be explained. Imports nothing until it is asked."""


def trials() -> list[str]:
    """Names of the trials, and of the campaigns, that come with prozess."""
    from harness.trial import known_campaigns, known_trials

    return [*known_trials(), *known_campaigns()]


def matrices() -> list[str]:
    """Names of the matrices that come with prozess."""
    from harness.trial import known_matrices

    return [*known_matrices()]


def subjects() -> list[str]:
    """Anomalies, faults, and numbers of scenarios."""
    from harness import catalogue
    from harness.scenarios import SCENARIOS

    return [*catalogue.KERNELS, *catalogue.CELL_KERNELS, *catalogue.FACT_KERNELS, *catalogue.FAULTS, *SCENARIOS]


def backends() -> list[str]:
    """Where Kafka can run."""
    from harness import catalogue

    return [*catalogue.BACKENDS]


def metadata_modes() -> list[str]:
    """Kinds of cluster."""
    from typing import get_args

    from harness.configuration import MetadataMode

    return [str(mode) for mode in get_args(MetadataMode)]


def engines() -> list[str]:
    """Who checks."""
    from harness import catalogue

    return [*catalogue.ENGINES]
