"""Commands about clusters in containers: images, compose-file."""

from typing import Annotated, Any

import typer

from harness.commands.options import VariantOption
from harness.commands.plans import chosen, overrides
from harness.errors import BadInput

app = typer.Typer()
images = typer.Typer(name="images", help="Images of Kafka and ZooKeeper for the compose backend.", no_args_is_help=True)
app.add_typer(images)


@images.command(name="list")
def images_list() -> None:
    """Those that the engine has."""
    from harness import catalogue

    for image in catalogue.service("images")():
        typer.echo(f"{image.name:40} {image.id.removeprefix('sha256:')[:12]} {image.bytes / 1e6:6.0f} MB")


@images.command(name="build")
def images_build(
    version: Annotated[list[str] | None, typer.Option(help="Of Kafka; more than once. Default: 4.3.1.")] = None,
) -> None:
    """Build Kafka's (and for 3.x ZooKeeper's) from Maven's jars and Debian's packages: for where no registry answers."""
    from harness import catalogue

    for name in catalogue.service("build-images")(version or ["4.3.1"], progress=typer.echo):
        typer.echo(f"There is {name}.")


@app.command(name="compose-file")
def compose_file(
    variant: VariantOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: brokers=5, controllers=3, racks=['a','b'], properties.KEY=VALUE"),
    ] = None,
) -> None:
    """A Compose file for a cluster without a trial."""
    from pydantic import ValidationError

    from harness import catalogue
    from harness.configuration import Variant

    values: dict[str, Any] = {"properties": {}}
    for key, value in overrides(chosen(None, variant, None) or []).items():
        values[key.removeprefix("variant.")] = value
    for key, value in overrides(settings or []).items():
        head, _, rest = key.partition(".")
        if head == "properties" and rest:
            values["properties"][rest] = value
        else:
            values[key] = value
    try:
        made = Variant.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"--set {'.'.join(map(str, problem['loc']))}: {problem['msg']}.") from error
    typer.echo(catalogue.service("compose-file")(made, name=made.metadata_mode), nl=False)
