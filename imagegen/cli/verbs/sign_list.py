"""`imagegen sign-list`: the scripts of an image to sign, for machines that run only signed ones."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from imagegen.base.errors import RefusedError
from imagegen.base.files import write_file
from imagegen.base.lines import counted
from imagegen.cli import options
from imagegen.cli.arguments import choose_targets
from imagegen.cli.output import print_as
from imagegen.samples.make import sample_scripts
from imagegen.trust.block import is_signed, without_signature
from imagegen.trust.scripts import ListedScript, SignedCopies, list_own_scripts, look_for_copies
from imagegen.trust.shipped import read_shipped


@click.command("sign-list")
@options.CONFIG
@options.TARGET
@options.SET
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the scripts that have no signed copy yet.",
)
@options.FORMAT
def sign_list(config: Path, target: str | None, sets: tuple[str, ...], out: Path | None, form: str) -> None:
    """List the PowerShell scripts of an image, to sign them for the execution policy AllSigned.

    Each line has the sha256 of a script, its path, and `signed` if artifacts.signatures.own_scripts has a signed copy.
    Your own scripts are listed too, and those of `imagegen samples`, which run in pods.

    \b
      imagegen sign-list image.yaml --target NAME --out to-sign
      (sign the files in to-sign, and move them to the folder of own_scripts)
      imagegen sign-list image.yaml --target NAME

    The list needs no lock. It changes with imagegen, with the config and with your scripts.
    """
    [chosen] = choose_targets(options.load_config(config, sets), target, one=True)
    shipped = read_shipped(chosen.loaded.contents.packer, chosen.spec.provider)
    sources = shipped.to_sign(chosen.cloud.boot_files)
    scripts = list_own_scripts(chosen.spec, chosen.loaded.steps, sources, sample_scripts())
    copies = look_for_copies(scripts, chosen.spec)
    if out is not None:
        _write([script for script in scripts if script.path in copies.faults], out)
    rows = [_row(script, copies) for script in scripts]
    print_as(
        form, rows, [*map(_line, rows), "", *_summary(rows, out), *_reasons(copies, chosen.trust_sources.crl_urls)]
    )


def _row(script: ListedScript, copies: SignedCopies) -> dict[str, object]:
    fault, judged = copies.faults.get(script.path), copies.judged.get(script.path)
    return {
        "path": script.path,
        "sha256": hashlib.sha256(script.data).hexdigest(),
        "size": len(script.data),
        "needed_by": "build" if script.on_image else "samples",
        "signed": fault is None,
        "reason": fault.text if fault else "",
        "signed_until": judged.end.strftime("%Y-%m-%d") if judged and judged.end else None,
    }


def _line(row: dict[str, object]) -> str:
    # The form of sha256sum, of which only the first two columns count.
    return f"{row['sha256']}  {row['path']}{'  signed' if row['signed'] else ''}"


def _summary(rows: list[dict[str, object]], out: Path | None) -> Iterator[str]:
    signed = sum(bool(row["signed"]) for row in rows)
    missing = len(rows) - signed
    written = f", written to {out}" if out and missing else ""
    yield f"{counted(len(rows), 'script')}: {signed} signed, {missing} to sign{written}"
    ends = [str(row["signed_until"]) for row in rows if row["signed_until"]]
    if ends:
        yield f"{counted(len(ends), 'signature')} without a timestamp: PowerShell accepts them until {min(ends)}"


def _reasons(copies: SignedCopies, crl_urls: tuple[str, ...]) -> Iterator[str]:
    """Why scripts have no copy that counts, each reason once, and what was not checked."""
    reasons = Counter(fault.summary for fault in copies.faults.values() if fault.summary)
    yield from (f"{counted(number, 'script')}: {reason}" for reason, number in reasons.most_common())
    if copies.data and crl_urls:
        yield f"not checked here: the CRLs at URLs ({', '.join(crl_urls)}), which `imagegen build` downloads"


def _write(scripts: list[ListedScript], out: Path) -> None:
    """Write the scripts. A signed copy of the same script is kept; any other file is refused."""
    for script in scripts:
        file = out / script.path
        if file.is_file() and without_signature(file.read_bytes()) != script.data:
            raise RefusedError(
                f"{file} exists, and has another text", hint="choose another folder for --out, or delete the file"
            )
    for script in scripts:
        file = out / script.path
        if not (file.is_file() and is_signed(file.read_bytes())):
            write_file(file, script.data)
