"""`imagegen samples`: writes the cluster's side for an image."""

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import pydantic

from imagegen import pipeline
from imagegen.base.errors import ConfigError, InvalidValue
from imagegen.cli import options
from imagegen.cli.options import check_known, columns, terminal_width
from imagegen.cli.output import print_as
from imagegen.config.problems import quoted
from imagegen.config.value_types import ImageRef
from imagegen.plan import loading
from imagegen.rules.nodes import find_lack_of_host_process
from imagegen.samples.make import (
    POD_SCRIPT,
    Samples,
    SamplesRequest,
    known_networks,
    make_samples,
    sample_scripts,
    write_samples,
)
from imagegen.trust.scripts import sign_samples

_IMAGE_HINT: Final = (
    "write it as --image kube-proxy=registry.example.com/name:tag; only the tag may have capital letters"
)


def _check_range(_context: click.Context, _option: click.Parameter, text: str) -> str:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write an IPv4 range such as 10.244.0.0/16") from None
    if found.num_addresses == 1:
        raise click.BadParameter(f"{found} is a single address; write an IPv4 range such as 10.244.0.0/16")
    return str(found)


@click.command()
@options.CONFIG
@options.TARGETS
@options.SET
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="The folder for the samples."
)
@click.option(
    "--network",
    metavar="PLUGIN",
    help=f"With cni.plugin: none, the plugin that the cluster installs: {', '.join(known_networks())}.",
)
@click.option("--image", "images", multiple=True, metavar="NAME=REF", help="Your own container image; may be repeated.")
@click.option(
    "--cluster-cidr",
    default="10.244.0.0/16",
    show_default=True,
    callback=_check_range,
    help="The address range of the cluster's pods (CIDR).",
)
@click.option(
    "--service-cidr",
    default="10.96.0.0/12",
    show_default=True,
    callback=_check_range,
    help="The address range of the cluster's services (CIDR).",
)
@options.FORMAT
def samples(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    out: Path,
    network: str | None,
    images: tuple[str, ...],
    cluster_cidr: str,
    service_cidr: str,
    form: str,
) -> None:
    """Write what the cluster needs for an image: kube-proxy, flannel, runtime classes, policies, bootstrap configs.

    OUT/README.md says what to apply, and in which order. Only files of an earlier run are replaced.

    \b
      imagegen samples image.yaml --out samples
      imagegen samples image.yaml --out samples --network calico
      imagegen samples image.yaml --out samples --network flannel-vxlan --image flannel=host/flannel:1

    If nobody publishes a container image that a sample needs, imagegen refuses to write the samples (exit code 5)
    until --image names yours.
    """
    if network is not None:
        check_known("network", network, known_networks(), "samples --help")
    _reject_overlap(cluster_cidr, service_cidr)
    loaded = options.load_config(config, sets)
    names = loading.find_targets(loaded, target)
    loading.reject_unimplemented(loaded, names)
    signed = _find_signed_script(loaded, names[0])
    request = SamplesRequest(network, _parse_images(images), cluster_cidr, service_cidr, signed)
    made = make_samples([loaded.specs[name] for name in names], find_lack_of_host_process(loaded.config), request)
    write_samples(made, out)
    print_as(form, _samples_json(made, out), _samples_lines(made, out))


def _find_signed_script(loaded: loading.Loaded, target: str) -> Callable[[], bytes] | None:
    """What takes the signed copy of the script of the pods, if the nodes run only signed scripts."""
    spec, scripts = loaded.specs[target], sample_scripts()
    if not spec.facts.all_signed:
        return None
    return lambda: sign_samples(spec, scripts, pipeline.sign_advice(loaded.file, target))[POD_SCRIPT]


def _reject_overlap(cluster_cidr: str, service_cidr: str) -> None:
    if ipaddress.IPv4Network(cluster_cidr).overlaps(ipaddress.IPv4Network(service_cidr)):
        raise ConfigError(
            f"--cluster-cidr {cluster_cidr} overlaps with --service-cidr {service_cidr}",
            hint="give the two ranges of your cluster, for example --cluster-cidr 10.244.0.0/16 "
            "--service-cidr 10.96.0.0/12",
        )


def _parse_images(words: tuple[str, ...]) -> dict[str, str]:
    images: dict[str, str] = {}
    for word in words:
        name, _, reference = word.partition("=")
        if not name or not reference:
            raise ConfigError(f"--image {word} is not NAME=REF", hint=_IMAGE_HINT)
        if name in images:
            raise ConfigError(
                f"--image names {name} twice: {images[name]} and {reference}", hint="leave one of them out"
            )
        images[name] = _parse_reference(word, reference)
    return images


def _parse_reference(word: str, reference: str) -> str:
    try:
        return pydantic.TypeAdapter(ImageRef).validate_python(reference)
    except pydantic.ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        # Only imagegen's own checks say more than the pattern of a reference.
        known = cause if isinstance(cause, InvalidValue) else None
        raise ConfigError(
            f"--image {word}: {known or f'{quoted(reference)} is not a valid reference of a container image'}",
            hint=known.hint if known else _IMAGE_HINT,
        ) from None


def _samples_json(made: Samples, out: Path) -> dict[str, object]:
    return {
        "folder": str(out),
        "files": [{"name": file.name, "title": file.title, "how": file.how} for file in made.files],
        "images": {image.name: image.reference for image in made.images},
        "left_out": list(made.left_out),
    }


def _samples_lines(made: Samples, out: Path) -> list[str]:
    rows = [(file.name, file.title) for file in made.files]
    left = [f"left out: {reason}" for reason in made.left_out]
    return [
        f"wrote {len(rows) + 1} files to {out}; README.md says how to use them",
        *columns(rows, terminal_width()),
        *left,
    ]
