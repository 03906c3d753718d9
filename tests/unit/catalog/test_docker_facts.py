"""Which versions of its API a Docker answers, and in which kubelet and cri-dockerd ask."""

from __future__ import annotations

import pytest

from imagegen.catalog.docker import find_client, find_engine, least_api
from imagegen.catalog.facts import numbers, table


@pytest.mark.parametrize(
    ("version", "line", "api", "least", "newer"),
    [
        ("18.09.9", "18.09", "1.39", "1.12", False),
        ("19.03.15", "19.03", "1.40", "1.12", False),
        ("26.1.4", "26.0", "1.45", "1.24", False),
        ("27.1.2", "27.0", "1.46", "1.24", False),
        ("27.5.0", "27.2", "1.47", "1.24", False),
        ("28.5.1", "28.3", "1.51", "1.24", False),
        ("29.1.3", "29.0", "1.52", "1.44", False),
        ("29.3.0-rc.1", "29.3", "1.54", "1.40", False),
        ("29.5.3", "29.3", "1.54", "1.40", False),
        ("29.7.2", "29.6", "1.55", "1.40", False),
        ("29.8.0", "29.6", "1.55", "1.40", True),
    ],
)
def test_an_engine_has_the_api_of_its_line(version: str, line: str, api: str, least: str, *, newer: bool) -> None:
    found = find_engine(version)
    assert found is not None
    assert (found.line, found.api, found.least_api, found.newer) == (line, api, least, newer)


@pytest.mark.parametrize("version", ["17.12.1", "18.06.3", "30.0.0"])
def test_an_unknown_engine_has_none(version: str) -> None:
    assert find_engine(version) is None


@pytest.mark.parametrize(
    ("kubernetes", "cri_dockerd", "api"),
    [
        ("1.14.10", None, "1.38"),
        ("1.20.15", None, "1.40"),
        ("1.23.17", None, "1.41"),
        ("1.36.2", "0.2.6", "1.41"),
        ("1.36.2", "0.3.12", "1.44"),
        ("1.36.2", "0.3.15", "1.43"),
        ("1.36.2", "0.4.1", "1.46"),
        ("1.36.2", "0.4.3", "1.44"),
        ("1.20.15", "0.3.25", "1.44"),
    ],
)
def test_a_client_asks_in_one_version(kubernetes: str, cri_dockerd: str | None, api: str) -> None:
    found = find_client(kubernetes, cri_dockerd)
    assert found is not None
    assert found.api == api


@pytest.mark.parametrize(
    ("docker", "api", "least"),
    [("29.1.0", "0.3.15", "1.43"), ("29.1.0", "0.3.16", None), ("29.3.0", "0.3.15", None), ("28.5.1", "0.2.6", None)],
)
def test_only_a_docker_that_refuses_a_client_lowers_its_api(docker: str, api: str, least: str | None) -> None:
    assert least_api(docker, find_client("1.36.2", api)) == least


def test_lines_and_their_versions_rise() -> None:
    lines = table("docker")["lines"]
    assert list(lines) == sorted(lines, key=numbers)
    assert [row["api"] for row in lines.values()] == sorted({row["api"] for row in lines.values()}, key=numbers)
    assert all(numbers(row["least_api"]) < numbers(row["api"]) for row in lines.values())
    assert table("docker")["oldest"] == next(iter(lines))
