"""Fetching jars without Maven: with the Apache Ivy that travels in the pyspark package, on any Java."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from clusters.locks import Coordinates
from clusters.repository import Request, laid_down, run_resolver

# Without `root` the resolver's default is Maven Central. Checksums of the repository are asked for only where no lock
# of ours will verify the files: they cost one more request per file.
_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value="{checksums}"/>
  <settings defaultResolver="repository"/>
  <resolvers><ibiblio name="repository" m2compatible="true" usepoms="{poms}"{root}/></resolvers>
</ivysettings>
"""
_ROOT = ' root="${prozess.maven.url}"'
_LAYOUT = "layout/[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def find_ivy() -> Path | None:
    """The Ivy jar inside the installed pyspark, which is not imported for that; None if there is none."""
    spec = find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if jars := sorted(Path(location).glob("jars/ivy-*.jar")):
            return jars[-1]
    return None


def fetch_with_ivy(
    request: Request,
    *,
    ivy: Path,
    java: Path,
    workspace: Path,
    repository: str | None,
    environment: Mapping[str, str] = os.environ,
) -> dict[Coordinates, Path]:
    """The requested jars below `workspace`, from `repository` (an address) or Maven Central. MissingTool if it cannot."""
    (workspace / "ivy.xml").write_text(module_text(request), encoding="utf-8")
    settings = _SETTINGS.format(
        checksums="" if request.exact else "sha1",
        poms="false" if request.exact else "true",
        root=_ROOT if repository else "",
    )
    (workspace / "ivysettings.xml").write_text(settings, encoding="utf-8")
    command = [str(java), "-XX:TieredStopAtLevel=1", f"-Divy.default.ivy.user.dir={workspace / 'user'}"]
    if repository:
        command.append(f"-Dprozess.maven.url={repository.rstrip('/')}/")
    command += ["-jar", str(ivy), "-verbose", "-settings", "ivysettings.xml", "-ivy", "ivy.xml"]
    command += ["-cache", str(workspace / "cache"), "-retrieve", _LAYOUT]
    run_resolver("Ivy", command, workspace=workspace, request=request, environment=environment)
    return laid_down(workspace / "layout")


def module_text(request: Request) -> str:
    """An Ivy module whose dependencies are what is requested."""
    dependencies = "\n".join(_dependency(coordinates, exact=request.exact) for coordinates in request.coordinates)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="prozess" module="kafka-jars"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
{dependencies}
  </dependencies>
</ivy-module>
"""


def _dependency(coordinates: Coordinates, *, exact: bool) -> str:
    head = (
        f"    <dependency org={quoteattr(coordinates.group)} name={quoteattr(coordinates.artifact)} "
        f"rev={quoteattr(coordinates.version)}{' transitive=' + quoteattr('false') if exact else ''}"
    )
    if not coordinates.classifier:
        return head + "/>"
    artifact = f'<artifact name={quoteattr(coordinates.artifact)} type="jar" ext="jar" '
    return f"{head}>{artifact}m:classifier={quoteattr(coordinates.classifier)}/></dependency>"
