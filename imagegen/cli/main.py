"""The command line: its verbs are in `imagegen.cli.verbs`, and all its exits are in `main`."""

import io
import os
import sys
from typing import NoReturn

import click

import imagegen
from imagegen.cli.ending import end_without_place, open_closed_streams
from imagegen.cli.group import VERBS, Verb, Verbs
from imagegen.cli.show import error_text, usage_text
from imagegen.cli.telling import Voice
from imagegen.errors import ImagegenError


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(imagegen.__version__, prog_name="imagegen")
def cli() -> None:
    """Windows Kubernetes node images for several clouds from one declarative config.

    \b
    Try it without a cloud account:
      imagegen validate configs/windows-2022-containerd.yaml
      imagegen build configs/windows-2022-containerd.yaml --target NAME --rehearse

    Each verb is a longer part of one story: validate, lock, plan, render, build, publish.
    Exit codes: 0 ok, 2 usage or config, 3 a tool is missing, 4 bytes not as they should be, 5 refused,
    6 build failed, 7 publishing incomplete, 8 manifest conflict, 130 interrupted.
    """


for _name, _help in VERBS.items():
    cli.add_command(Verb(_name, short_help=_help))


def main() -> NoReturn:
    """Run the command line; the one place that turns an error into an exit."""
    open_closed_streams()
    # pydantic would look for plugins in every installed distribution, and imagegen's models want none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file's name may hold bytes that are no text.
            stream.reconfigure(errors="backslashreplace")
    voice = Voice()
    try:
        code = cli.main(prog_name="imagegen", standalone_mode=False, obj=voice)
        # Here and not when the interpreter ends: what cannot be printed is an error.
        sys.stdout.flush()
    except click.exceptions.Abort:
        voice.tell("interrupted")
        sys.exit(130)
    except click.ClickException as error:
        voice.tell(usage_text(error))
        sys.exit(2)
    except OSError as error:
        ended = end_without_place(error)
        if ended is None:
            raise
        sys.exit(ended)
    except ImagegenError as error:
        voice.tell(error_text(error))
        sys.exit(int(error.exit_code))
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
