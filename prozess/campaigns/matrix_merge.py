"""`prozess matrix merge`: puts the shares of one matrix, which different machines ran, together into one directory.

The directory appears when all of it is there, so that a merge that was killed leaves nothing that looks like results.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from prozess.campaigns.campaign_plan import ALL_TRIALS, BegunCampaign, CampaignDirectory
from prozess.campaigns.engine import TrialAttempt
from prozess.campaigns.matrix_layout import MATRIX_FILE, BegunMatrix, read_matrix_file
from prozess.harness.errors import BadInput, StorageFull

_MAKING = ".merging"
"""The end of the name of a directory that is being made."""


def merge(target: Path, shares: Sequence[Path]) -> None:
    """Copies the trials of all shares into the new directory `target`, which can then be reported, compared and continued
    like any other.

    BadInput if `target` is there, if the shares are not of one matrix, or if two of them ran the same trial; StorageFull if
    the runs cannot be copied.
    """
    if target.exists():
        raise BadInput(f"{target} is there already. Give `matrix merge` a new directory, and then the shares.")
    if not shares:
        raise BadInput(
            "`prozess matrix merge` needs a new directory and then the shares: prozess matrix merge ALL SHARE …"
        )
    directories = [CampaignDirectory(path.resolve()) for path in shares]
    matrix, begun = _one_matrix(directories)
    attempts = _all_attempts(directories)
    making = CampaignDirectory(target.with_name(target.name + _MAKING))
    shutil.rmtree(making.path, ignore_errors=True)
    try:
        making.begin(begun, {MATRIX_FILE: matrix})
        for directory, attempt in attempts:
            if attempt.run is not None and (directory.runs / attempt.run).is_dir():
                shutil.copytree(directory.runs / attempt.run, making.runs / attempt.run, symlinks=True)
            making.append(attempt)
        making.path.rename(target)
    except OSError as error:
        shutil.rmtree(making.path, ignore_errors=True)
        raise StorageFull(f"The shares cannot be copied to {target}: {error}. Nothing is left of the copy.") from error


def _one_matrix(directories: Sequence[CampaignDirectory]) -> tuple[BegunMatrix, BegunCampaign]:
    """Returns the matrix of all shares. BadInput if they belong to different matrices."""
    matrices = [read_matrix_file(directory.path) for directory in directories]
    for directory, matrix in zip(directories[1:], matrices[1:], strict=True):
        if matrix != matrices[0]:
            raise BadInput(
                f"{directory.path} holds results of another matrix than {directories[0].path}, or of the same one before it "
                "was changed. Merge shares of one matrix."
            )
    return matrices[0], directories[0].begun().model_copy(update={"shard": ALL_TRIALS})


def _all_attempts(directories: Sequence[CampaignDirectory]) -> list[tuple[CampaignDirectory, TrialAttempt]]:
    """Returns every attempt and whose it is, in the order of the trials. BadInput if two directories have the same trial."""
    owners: dict[int, CampaignDirectory] = {}
    found = []
    for directory in directories:
        for attempt in directory.attempts():
            owner = owners.setdefault(attempt.job.number, directory)
            if owner.path != directory.path:
                raise BadInput(
                    f"Both {owner.path} and {directory.path} ran trial {attempt.job.number}. Merge shares that have no "
                    "trial in common, such as --shard 1/2 and --shard 2/2."
                )
            found.append((directory, attempt))
    return sorted(found, key=lambda pair: (pair[1].job.number, pair[1].job.attempt))
