"""Where prozess keeps what can be fetched or made again: Kafka's jars, class-data archives, wrapped Java homes.

Everything in it may be deleted at any time while nothing runs. Nothing in it names a repository or a user's settings.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from harness.errors import BadInput, MissingTool


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """`$PROZESS_CACHE`, else `$XDG_CACHE_HOME/prozess`, else `~/.cache/prozess`: absolute, perhaps not there yet.

    BadInput if PROZESS_CACHE is relative: the run stage may have another working directory. (A relative XDG_CACHE_HOME is
    ignored, as the XDG base directory specification says.)
    """
    if chosen := environment.get("PROZESS_CACHE"):
        if not Path(chosen).is_absolute():
            raise BadInput(f"PROZESS_CACHE = {chosen!r} is relative; give an absolute path, or unset it.")
        return Path(chosen)
    shared = environment.get("XDG_CACHE_HOME", "")
    if shared and Path(shared).is_absolute():
        return Path(shared) / "prozess"
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "prozess"


def make_cache(*parts: str, environment: Mapping[str, str] = os.environ) -> Path:
    """A directory in the cache, made if need be. MissingTool if it cannot be made or written."""
    directory = cache_directory(environment).joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error.strerror or str(error)) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "not writable")
    return directory


def _unusable(directory: Path, why: str) -> MissingTool:
    return MissingTool(
        f"The cache directory {str(directory)!r} cannot be used ({why}); it must be writable. "
        "Set PROZESS_CACHE to a directory of your own."
    )
