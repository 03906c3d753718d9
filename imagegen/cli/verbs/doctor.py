"""`imagegen doctor`: what would prevent a build, as text or JSON, and with an exit code for scripts."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from imagegen.base.errors import ExitCode
from imagegen.base.lines import one_line
from imagegen.build.doctor import examine
from imagegen.cli import options
from imagegen.cli.arguments import open_run, prepare_targets
from imagegen.cli.output import print_as
from imagegen.providers.checks import WRONG, Check

_COLOURS = {"ok": "green", "wrong": "red", "unknown": "yellow"}
_WIDEST_SUBJECT = 44


@click.command()
@options.CONFIG
@options.TARGETS
@options.SET
@options.FORMAT
@options.PLAIN
@options.QUIET
def doctor(config: Path, target: str | None, sets: tuple[str, ...], form: str, plain: bool, quiet: bool) -> None:
    """Check on this machine and in the cloud whether a build of CONFIG can succeed. Creates nothing, needs no lock.

    \b
    It checks Packer and its plugin, sign-in, regions, base image, builder sizes and quotas,
    permissions, and your own resources in the config (network, keys, gallery, definition):
      imagegen doctor image.yaml --target prod

    \b
    The result of each check is one of:
      ok       as it must be
      wrong    the build or its publishing would fail; the hint says what to do
      unknown  the check was not possible, for example because a permission is missing

    `imagegen build` runs the quick checks itself. The exit code is 5 if something is wrong.
    """
    run = open_run(plain=plain, quiet=quiet)
    loaded = options.load_config(config, sets)
    results = {one.name: examine(one.spec, one.steps, run) for one in prepare_targets(loaded, target)}
    is_wrong = any(check.verdict == WRONG for checks in results.values() for check in checks)
    if form == "json":
        shown = {
            name: [
                {"subject": check.subject, "verdict": check.verdict, "message": check.message, "hint": check.hint}
                for check in checks
            ]
            for name, checks in results.items()
        }
        print_as(form, {"ok": not is_wrong, "targets": shown}, [])
    else:
        for name, checks in results.items():
            click.echo(_checks_text(f"{loaded.config.name} for {name}", checks))
    if is_wrong:
        raise click.exceptions.Exit(int(ExitCode.REFUSED))


def _checks_text(title: str, checks: Sequence[Check]) -> str:
    lines = [one_line(title)]
    width = min(max(len(check.subject) for check in checks), _WIDEST_SUBJECT)
    for check in checks:
        verdict = check.verdict.ljust(len("unknown"))
        if not os.environ.get("NO_COLOR"):
            verdict = click.style(verdict, fg=_COLOURS[check.verdict])
        lines.append(f"  {verdict}  {one_line(f'{check.subject.ljust(width)}  {check.message}')}")
        if check.hint:
            lines += [f"{' ' * 11}{one_line(line)}" for line in f"hint: {check.hint}".splitlines()]
    return "\n".join(lines)
