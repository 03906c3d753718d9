"""The command line: its verbs, which are modules of `imagegen.cli.verbs`, and all its exits.

A verb is imported when it runs: `imagegen --help` takes little longer than the import of click.
"""

import errno
import importlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import click

import imagegen
from imagegen.base.errors import ExitCode, ImagegenError
from imagegen.base.lines import joined
from imagegen.cli.messages import Messages
from imagegen.cli.output import error_text, usage_text

# The verbs of each module of `imagegen.cli.verbs`, with their lines of help.
VERBS: Final = {
    "artifacts": {"artifacts": "Inspect, mirror and cache downloads."},
    "builds": {
        "build": "Build, publish and record an image.",
        "doctor": "Check whether a build can succeed in your account.",
        "janitor": "List or remove what killed builds left in the cloud.",
        "lock": "Pin base images and artifacts.",
        "publish": "Publish a built image.",
        "render": "Write the tree for Packer.",
        "tools": "Find or install Packer and its plugins.",
    },
    "facts": {
        "catalog": "Show the known versions, releases and overrides.",
        "kinds": "Show the kinds of resource that steps are made of.",
        "rules": "List the rules, or explain one.",
        "schema": "Print the JSON Schema of a config.",
        "steps": "Show what each step does on the machine.",
    },
    "init": {"init": "Write a first config."},
    "plans": {
        "explain": "Show where every value comes from.",
        "plan": "Show what will be on the machine.",
        "sign-list": "List the scripts to sign.",
    },
    "records": {
        "attest": "Write proof of what was built.",
        "manifest": "Read the manifests of built images.",
        "verify": "Verify proof, a lock or a node against a manifest.",
    },
    "samples": {"samples": "Write what the cluster needs for an image."},
    "validate": {"validate": "Check configs."},
}
# The exit code of a shell for a program that SIGPIPE ended.
READER_LEFT: Final = 141
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Verb(click.Command):
    """A verb's name and its line of help. Its module, which has the command, is imported when the verb is called:
    `--help` needs no more."""

    def __init__(self, module: str, name: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self._module = module

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """The command in the verb's module: `sign-list` is the function `sign_list`."""
        module = importlib.import_module(f"imagegen.cli.verbs.{self._module}")
        command: click.Command = getattr(module, str(self.name).replace("-", "_"))
        return command


class Verbs(click.Group):
    """The group of all verbs. It ends without a message if the reader of its output left."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would exit with 1, the code of a bug.
            _drop(sys.stdout)
            raise click.exceptions.Exit(READER_LEFT) from None


@click.group(
    cls=Verbs,
    commands=[Verb(module, name, line) for module, lines in VERBS.items() for name, line in lines.items()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(imagegen.__version__, prog_name="imagegen")
def cli() -> None:
    """Windows Kubernetes node images for several clouds from one declarative config.

    \b
    Try it without a cloud account:
      imagegen validate configs/windows-2022-containerd.yaml
      imagegen build configs/windows-2022-containerd.yaml --target NAME --rehearse

    The stages of the pipeline are commands: validate, lock, plan, render, build, publish. `build` runs all of them.

    Exit codes: 0 success, 2 invalid command line or config, 3 missing tool, 4 wrong checksum or signature,
    5 refused, 6 build failed or cloud unavailable, 7 publishing or clean-up incomplete, 8 manifest conflict,
    130 interrupted.
    """


def main() -> NoReturn:
    """Run the command line. The only function that turns an error into an exit code."""
    _open_closed_streams()
    # pydantic would search every installed distribution for plugins, and imagegen's models use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name may have bytes that are not text.
            stream.reconfigure(errors="backslashreplace")
    messages = Messages()
    try:
        code = cli.main(prog_name="imagegen", standalone_mode=False, obj=messages)
        # Here, because an error at the exit of the interpreter would have no message and another exit code.
        sys.stdout.flush()
    except click.exceptions.Abort:
        messages.show("interrupted")
        code = ExitCode.INTERRUPTED
    except click.ClickException as error:
        messages.show(usage_text(error))
        code = ExitCode.USAGE
    except OSError as error:
        if not _is_reported(error):
            raise
        code = ExitCode.USAGE
    except ImagegenError as error:
        messages.show(error_text(error))
        code = error.exit_code
    sys.exit(int(code) if isinstance(code, int) else 0)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed: Python sets it to None.

    In this order each stream gets its own number again, so that no other file or socket gets it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the exit


def _is_reported(error: OSError) -> bool:
    """Report a full disk, or a file that cannot be read or written. False for any other error: it is a bug."""
    if error.errno in _FULL:
        _drop(sys.stdout)
        lines = [
            f"error: {error.filename or 'standard output, or a file being written'}: {error.strerror}",
            "hint: free some space there and in the folder for temporary files (TMPDIR), or raise `ulimit -f`",
        ]
    elif error.filename is not None:
        lines = [f"error: {error.filename}: {error.strerror}"]
    elif isinstance(error, FileNotFoundError) and _has_no_temporary_folder():
        lines = [
            "error: no folder for temporary files can be written to, neither TMPDIR nor /tmp nor this folder",
            "hint: free some space in one of them, set TMPDIR to another folder, or raise `ulimit -f`",
        ]
    else:
        return False
    try:
        click.echo(joined(lines), err=True)
    except OSError:
        # Standard error is on the same full disk: only the exit code is left.
        _drop(sys.stderr)
    return True


def _has_no_temporary_folder() -> bool:
    # Python's error for this names no file.
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return True
    return False


def _drop(stream: TextIO) -> None:
    """Discard what is buffered: writing it would fail again when the interpreter exits, with another exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    main()
