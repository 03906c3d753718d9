"""`imagegen tools`: Packer and its plugins."""

import click

from imagegen.build.tools import find_tools, tool_exports_text
from imagegen.cli import options
from imagegen.cli.arguments import open_run
from imagegen.cli.output import print_as
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS


@click.command()
@click.option(
    "--env", "as_exports", is_flag=True, help='Print shell exports for a plain packer: eval "$(imagegen tools --env)".'
)
@click.option("--no-build", is_flag=True, help="Only search. Download and build nothing.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def tools(as_exports: bool, no_build: bool, form: str, plain: bool, quiet: bool) -> None:
    """Find Packer and its plugins. Missing ones are installed in the user's cache, in fixed versions.

    \b
    Packer is downloaded from HashiCorp (signature and checksum are verified), and installs its
    plugins. If these servers cannot be reached, Go builds them from source. This takes minutes, once.
    """
    run, needed = open_run(plain=plain, quiet=quiet), [provider(name).plugin for name in PROVIDERS]
    found = find_tools(environ=run.environ, console=run.console, build=not no_build, needed=needed)
    if as_exports:
        click.echo(tool_exports_text(found), nl=False)
        return
    shown = {
        "packer": {"version": found.packer_version, "path": str(found.packer)},
        "plugins": {name: {"version": item.version, "path": str(item.path)} for name, item in found.plugins.items()},
        "environment": dict(found.environment),
    }
    lines = [f"plugin {name} {item.version}  {item.path}" for name, item in sorted(found.plugins.items())]
    print_as(form, shown, [f"packer {found.packer_version}  {found.packer}", *lines])
