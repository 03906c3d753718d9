"""`imagegen render`: the tree for Packer."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.files import write_tree
from imagegen.lines import one_line


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.REHEARSED_LOCK
@options.OUT
def render(
    config: Path, target: str | None, sets: tuple[str, ...], lock_file: Path | None, rehearse: bool, out: Path
) -> None:
    """Write the tree that Packer builds to OUT/<name>/<id>/tree and print its path.

    \b
    The tree is complete for a plain Packer:
      eval "$(imagegen tools --env)"
      packer build OUT/<name>/<id>/tree

    With --rehearse the tree names the rehearsal's base image and artifacts: read it, but do not build it. It goes to
    OUT/rehearsal/<name>/<id>/tree.
    """
    request = config_request(config, sets)
    chosen = asking.choose_target(load_config(request), target)
    lock = asking.lock_for(request, chosen, lock_file, rehearse=rehearse)
    decision = pipeline.decide(chosen, lock)
    folder = pipeline.build_folder(decision.plan, out / "rehearsal" if rehearse else out)
    # A Packer that is running may still read the tree that is there.
    with folder.claimed():
        write_tree(pipeline.render_tree(decision), folder.tree)
    click.echo(one_line(str(folder.tree)))
