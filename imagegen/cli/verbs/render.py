"""`imagegen render`: writes the tree for Packer."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.base.files import write_tree
from imagegen.base.lines import one_line
from imagegen.cli import options
from imagegen.cli.arguments import decide_plan


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.FROZEN
@options.REHEARSED_LOCK
@options.OUT
def render(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    frozen: bool,
    rehearse: bool,
    out: Path,
) -> None:
    """Write the tree that Packer builds to OUT/<name>/<id>/tree and print its path.

    \b
    The tree is all that a plain Packer needs:
      eval "$(imagegen tools --env)"
      packer build OUT/<name>/<id>/tree

    With --rehearse the tree has the base image and the artifacts of a rehearsal, so it cannot be built. It is written
    to OUT/rehearsal/<name>/<id>/tree.
    """
    decision = decide_plan(config, target, sets, lock_file, rehearse=rehearse, frozen=frozen)
    folder = pipeline.build_folder(decision.plan, out / "rehearsal" if rehearse else out)
    # A running Packer may still read the existing tree.
    with folder.claimed():
        write_tree(pipeline.render_tree(decision), folder.tree)
    click.echo(one_line(str(folder.tree)))
