"""Fetching jars with the user's own Maven, which knows their mirrors, proxies and passwords."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from clusters.locks import Coordinates
from clusters.repository import Request, laid_down, run_resolver

# The address stays in the environment: Maven interpolates it, so it is written nowhere.
_SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0">
  <mirrors><mirror><id>prozess</id><mirrorOf>*</mirrorOf><url>${env.PROZESS_MAVEN_URL}</url></mirror></mirrors>
</settings>
"""


def fetch_with_maven(
    request: Request, *, maven: Path, java_home: Path, workspace: Path, environment: Mapping[str, str] = os.environ
) -> dict[Coordinates, Path]:
    """The requested jars below `workspace`. `PROZESS_MAVEN_URL`, if set, stands for every repository; else the user's
    settings apply. MissingTool if it cannot be done."""
    (workspace / "pom.xml").write_text(project_text(request), encoding="utf-8")
    command = [str(maven), "--batch-mode", "--quiet", "--file", "pom.xml", "dependency:copy-dependencies"]
    command += [
        "-DoutputDirectory=layout",
        "-DincludeScope=runtime",
        "-Dmdep.useRepositoryLayout=true",
        "-Dstyle.color=never",
    ]
    if request.exact:
        command.append("-DexcludeTransitive=true")
    if environment.get("PROZESS_MAVEN_URL"):
        (workspace / "settings.xml").write_text(_SETTINGS, encoding="utf-8")
        command += ["--settings", "settings.xml"]
    if not _has_home():
        command.append(f"-Dmaven.repo.local={workspace / 'repository'}")
    run_resolver(
        "Maven", command, workspace=workspace, request=request, environment={"JAVA_HOME": str(java_home), **environment}
    )
    return laid_down(workspace / "layout")


def _has_home() -> bool:
    """Java takes the home directory from the account, not from HOME; accounts of containers may have none, or no right
    to it, and then Maven has nowhere to keep its repository."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return False
    return os.access(home, os.W_OK | os.X_OK)


def project_text(request: Request) -> str:
    """A project whose dependencies are what is requested."""
    dependencies = "\n".join(_dependency(coordinates) for coordinates in request.coordinates)
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>prozess</groupId><artifactId>kafka-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _dependency(coordinates: Coordinates) -> str:
    parts = {
        "groupId": coordinates.group,
        "artifactId": coordinates.artifact,
        "version": coordinates.version,
        "classifier": coordinates.classifier,
    }
    inner = "".join(f"<{name}>{escape(text)}</{name}>" for name, text in parts.items() if text)
    return f"    <dependency>{inner}</dependency>"
