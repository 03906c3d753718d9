"""`imagegen samples` writes its files again, touches no others, and tells people and programs what it wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import RefusedError
from imagegen.samples.make import write_samples
from tests.samples_support import BASE, CASES, make, texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

HINT = "hint: write it as --image kube-proxy=registry.example.com/name:tag"
CALICO, ROUTES = make(CASES["calico"]), make(CASES["flannel-routes"])


def contents(folder: Path, up_to: int = 1 << 30) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.stat().st_size < up_to}


def test_another_run_replaces_only_its_own_files(tmp_path: Path) -> None:
    own = {"notes.md": "mine", "policy.yaml": "kind: Policy"}
    for name, text in own.items():
        (tmp_path / name).write_text(text)
    write_samples(ROUTES, tmp_path)
    assert contents(tmp_path) == {**texts(ROUTES), "README.md": ROUTES.readme, **own}
    for name, copy in (("kube-proxy.yaml", "my-kube-proxy.yaml"), ("bootstrap-aws.yaml", "bootstrap-mine.yaml")):
        own[copy] = texts(ROUTES)[name]
        (tmp_path / copy).write_text(own[copy])
    (tmp_path / "kube-proxy.yaml").write_text(texts(ROUTES)["kube-proxy.yaml"] + "# edited\n")
    write_samples(CALICO, tmp_path)
    assert contents(tmp_path) == {**texts(CALICO), "README.md": CALICO.readme, **own}


def test_files_of_the_operator_may_be_large(tmp_path: Path) -> None:
    for name in ("crds.yaml", "bootstrap-mine.yaml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
    write_samples(CALICO, tmp_path)
    assert contents(tmp_path, up_to=1 << 20) == {**texts(CALICO), "README.md": CALICO.readme}


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, kind: str) -> None:
    place, own = tmp_path / "samples" / "kube-proxy.yaml", tmp_path / "own.yaml"
    place.parent.mkdir()
    own.write_text(texts(CALICO)["kube-proxy.yaml"])
    if kind == "file":
        place.write_text("kind: DaemonSet\n")
    elif kind == "link":
        # Its content does not count: writing through it would change a file elsewhere.
        place.symlink_to(own)
    else:
        place.mkdir()
    with pytest.raises(RefusedError, match=r"kube-proxy\.yaml exists, and imagegen did not write it"):
        write_samples(CALICO, place.parent)
    assert list(place.parent.iterdir()) == [place]


def test_the_command_tells_what_it_wrote(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("samples", BASE, "--out", tmp_path, "--network", "calico", "--target", "aws")
    assert code == 0
    assert out.startswith(f"wrote 4 files to {tmp_path}; README.md says how to use them\n")
    assert "bootstrap-azure.yaml" not in out
    code, out, _ = run("samples", BASE, "--out", tmp_path, "--format", "json")
    told = json.loads(out)
    assert {file["name"] for file in told["files"]} | {"README.md"} == contents(tmp_path).keys()
    assert told["images"] == {}
    assert "kube-proxy.yaml" in told["left_out"][0]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--network", "calicoo"], 2, 'unknown network "calicoo"'),
        *(
            (["--network", "calico", *(part for image in images for part in ("--image", image))], 2, message)
            for images, message in (
                (["kube-proxy=nginx"], '"nginx" has no registry\nhint: write docker.io/library/nginx'),
                (["kube-proxy=Foo"], f'"Foo" is not a valid reference of a container image\n{HINT}'),
                (["kube-proxy=a_b.example.com/x"], f"is not a valid reference of a container image\n{HINT}"),
                (["kube-proxy=example.com:99999/x"], "--image kube-proxy=example.com:99999/x: "),
                (["foo"], f"--image foo is not NAME=REF\n{HINT}"),
                (["=nginx"], f"--image =nginx is not NAME=REF\n{HINT}"),
                (["kube-proxy=a.example/x:1", "kube-proxy=a.example/x:2"], "--image names kube-proxy twice"),
            )
        ),
        (["--cluster-cidr", "10.244.0.1/16"], 2, "has host bits set; write an IPv4 range such as 10.244.0.0/16"),
        (["--cluster-cidr", "10.244.0.1"], 2, "10.244.0.1/32 is a single address; write an IPv4 range"),
        (["--service-cidr", "10.96.0.1/32"], 2, "10.96.0.1/32 is a single address; write an IPv4 range"),
        (["--cluster-cidr", "10.0.0.0/8"], 2, "--cluster-cidr 10.0.0.0/8 overlaps with --service-cidr 10.96.0.0/12"),
        (["--network", "flannel-vxlan"], 5, "hint: build them, and name yours: --image flannel=registry"),
        (["--set", "provisioner=ansible"], 5, "uses settings that are not implemented yet"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    run: Run, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    found, out, err = run("samples", BASE, "--out", tmp_path / "samples", *options)
    assert (found, out) == (code, "")
    assert message in err
    assert not (tmp_path / "samples").exists()
