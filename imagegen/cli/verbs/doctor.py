"""`imagegen doctor`: what stands in a build's way, in words or JSON, and an exit code that a script can ask for."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from imagegen import loading, pipeline
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.cli.show import print_json
from imagegen.doctor import examine
from imagegen.errors import ExitCode
from imagegen.lines import one_line
from imagegen.providers.checks import WRONG, Check

_COLOURS = {"ok": "green", "wrong": "red", "unknown": "yellow"}
_WIDEST_SUBJECT = 44


@click.command()
@options.CONFIG
@click.option("--target", metavar="NAME", help="Only this target; all of the config's by default.")
@options.SET
@options.FORMAT
@options.PLAIN
@options.QUIET
def doctor(config: Path, target: str | None, sets: tuple[str, ...], form: str, plain: bool, quiet: bool) -> None:
    """Ask this machine and the cloud whether a build of CONFIG can succeed. Needs no lock, and makes nothing.

    \b
    It looks at Packer and its plugin, sign-in, regions, base image, builder sizes and quotas,
    permissions, and what the config names of your own (network, keys, gallery, definition):
      imagegen doctor image.yaml --target prod

    \b
    Each check is one of:
      ok       as it has to be
      wrong    the build or its publishing would fail; the hint says what to do
      unknown  could not be asked, for example because a permission is missing

    `imagegen build` asks the quick ones itself. Exit code 5 where something is wrong.
    """
    console, run = asking.console_for(plain, quiet), asking.run_with(())
    loaded = load_config(config_request(config, sets))
    targets = [pipeline.prepare_target(loaded, name) for name in loading.find_targets(loaded, target)]
    found = {each.name: examine(each.spec, each.steps, run, console) for each in targets}
    is_wrong = any(check.verdict == WRONG for checks in found.values() for check in checks)
    if form == "json":
        told = {name: [_as_json(check) for check in checks] for name, checks in found.items()}
        print_json({"ok": not is_wrong, "targets": told})
    else:
        for name, checks in found.items():
            click.echo(_checks_text(f"{loaded.config.name} for {name}", checks))
    if is_wrong:
        raise click.exceptions.Exit(int(ExitCode.REFUSED))


def _as_json(check: Check) -> dict[str, str]:
    return {"subject": check.subject, "verdict": check.verdict, "message": check.message, "hint": check.hint}


def _checks_text(title: str, checks: Sequence[Check]) -> str:
    return "\n".join([one_line(title), *_lines(checks)])


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    width = min(max(len(check.subject) for check in checks), _WIDEST_SUBJECT)
    for check in checks:
        verdict = check.verdict.ljust(len("unknown"))
        if not os.environ.get("NO_COLOR"):
            verdict = click.style(verdict, fg=_COLOURS[check.verdict])
        yield f"  {verdict}  {one_line(f'{check.subject.ljust(width)}  {check.message}')}"
        if check.hint:
            first, *others = check.hint.splitlines()
            yield from (f"{' ' * 11}{one_line(line)}" for line in (f"hint: {first}", *others))
