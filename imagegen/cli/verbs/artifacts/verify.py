"""`imagegen artifacts verify`: hashes the files in the cache, and removes those that are damaged."""

import click

from imagegen.base.errors import VerificationError
from imagegen.base.lines import counted, shown_size
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as


@click.command("verify")
@options.FORMAT
def artifacts_verify(form: str) -> None:
    """Hash each file in the cache, and remove those with other bytes than they had.

    The exit code is 4 if there was one. The next lock downloads it again. A lock verifies the files that it uses.
    """
    cache = arguments.open_run().cache
    files = cache.files()
    whole = cache.verify([file.sha256 for file in files])
    # Another run may have removed a file meanwhile, which is no damage.
    damaged = sorted(cache.damaged)
    size = shown_size(sum(file.size for file in files))
    print_as(form, {"verified": len(whole), "damaged": damaged}, [f"{counted(len(whole), 'file')} verified, {size}"])
    if damaged:
        raise VerificationError(f"{counted(len(damaged), 'file')} of the cache had other bytes", details=damaged)
