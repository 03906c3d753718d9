"""`imagegen tools`: Packer and its plugins."""

import os

import click

from imagegen.build.toolchain import tool_exports_text
from imagegen.build.tools import find_tools
from imagegen.cli import asking, options
from imagegen.cli.show import print_json, tools_json, tools_text
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS


@click.command()
@click.option(
    "--env", "as_exports", is_flag=True, help='Print shell exports for a plain packer: eval "$(imagegen tools --env)".'
)
@click.option("--no-build", is_flag=True, help="Only look; neither download nor build what is missing.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def tools(as_exports: bool, no_build: bool, form: str, plain: bool, quiet: bool) -> None:
    """Find Packer and its plugins, and put what is missing into a user cache, at fixed versions.

    \b
    Packer is HashiCorp's release (signature and checksum are checked); Packer installs its plugins.
    Where these cannot be reached, Go builds them from source: minutes, once.
    """
    console, needed = asking.console_for(plain, quiet), [provider(name).plugin for name in PROVIDERS]
    found = find_tools(environ=os.environ, console=console, build=not no_build, needed=needed)
    if as_exports:
        click.echo(tool_exports_text(found), nl=False)
    elif form == "json":
        print_json(tools_json(found))
    else:
        click.echo(tools_text(found))
