"""From what was given on the command line to a plan."""

import json
from pathlib import Path
from typing import Any

from harness.errors import BadInput


def load_plan(trial: str, *, seed: int, settings: list[str] | None, isolation: str = "auto") -> Any:  # noqa: ANN401 - Plan, imported late
    """The plan of a trial by name or file, or a plan.json as it stands. BadInput for anything else. `isolation`: what mixes
    can do depends on it."""
    from harness.plan import parse_plan
    from harness.planning import make_plan
    from harness.stages.run import lacking_faults
    from harness.trial import load_trial

    path = Path(trial)
    if path.suffix == ".json" or (path / "plan.json").is_file():
        if settings:
            raise BadInput("--set changes a trial file; a plan.json is run as it stands.")
        file = path if path.suffix == ".json" else path / "plan.json"
        try:
            plan = parse_plan(file.read_text(encoding="utf-8"), source=str(file))
            if plan.origin != "trial":
                raise BadInput(
                    f"{str(file)!r} is of a history that is {plan.origin}: it can be checked, but not run again."
                )
            return plan
        except OSError as error:
            raise BadInput(f"{str(file)!r} cannot be read: {error.strerror}. Give an existing plan.json.") from error
    loaded = load_trial(trial, overrides(settings or []))
    return make_plan(loaded, seed=seed, lacking=lacking_faults(loaded, isolation=isolation))


def chosen(backend: str | None, variant: str | None, settings: list[str] | None) -> list[str] | None:
    """`--backend` and `--variant` as what `--set` would say; what it says itself has the last word."""
    laid_over = []
    if backend is not None:
        laid_over.append(f"backend={json.dumps(backend)}")
    if variant is not None:
        laid_over.append(f"variant.metadata_mode={json.dumps(variant)}")
    if variant == "zookeeper":
        from harness.configuration import LAST_WITH_ZOOKEEPER

        laid_over.append(f"variant.kafka_version={json.dumps(LAST_WITH_ZOOKEEPER)}")
    return [*laid_over, *(settings or [])] or None


def overrides(settings: list[str]) -> dict[str, Any]:
    """`--set KEY=VALUE …` as values; what is no TOML is a string."""
    import tomllib

    laid_over = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {setting!r} is not KEY=VALUE, such as --set traffic.rate_hz=50.")
        try:
            laid_over[key.strip()] = tomllib.loads(f"v = {value}")["v"]
        except tomllib.TOMLDecodeError:
            laid_over[key.strip()] = value.strip()
    return laid_over
