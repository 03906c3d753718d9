"""The stand-ins' folders: what each of them has to say, and how a provider without one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.clouds import cloud_faults, cloud_names, import_variables, stand_in
from imagegen.rehearsal.faults.injected import Injected
from imagegen.rehearsal.faults.table import FAULTS, find_faults
from imagegen.rehearsal.scenery import refuse_what_is_not_played
from tests.conftest import REPOSITORY, load_today

if TYPE_CHECKING:
    from pathlib import Path

_PROD = "  prod:\n    provider: aws\n    region: eu-west-9\n"
CONFIG = REPOSITORY / "configs" / "windows-2022-containerd.yaml"


def test_every_provider_has_a_stand_in() -> None:
    assert cloud_names() == tuple(PROVIDERS)


@pytest.mark.parametrize("cloud", cloud_names())
def test_a_stand_in_reads_its_providers_settings(cloud: str) -> None:
    spec = load_today(CONFIG).specs[cloud]
    played = stand_in(cloud)
    home, *others = played.regions(spec.settings).values()
    assert {home, *others} <= set(played.known_regions)
    assert others
    assert list(played.sizes(spec.settings))


@pytest.mark.parametrize("cloud", cloud_names())
def test_each_fault_that_a_cloud_arranges_is_in_the_table(cloud: str) -> None:
    faults = cloud_faults(cloud)
    arranged = {**faults.shared, **{fault.name: fault.arrange[cloud] for fault in faults.own}}
    assert arranged == {name: FAULTS[name].arrange[cloud] for name in arranged}


def test_nothing_of_the_users_is_read_while_a_stand_in_is_imported() -> None:
    variables = import_variables()
    assert (variables["AWS_PROFILE"], variables["MOTO_EC2_LOAD_DEFAULT_AMIS"]) == (None, "false")


def test_a_target_of_another_name_is_played_by_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "image.yaml"
    named = CONFIG.read_text().replace("  aws:\n    region: us-east-1\n", _PROD)
    file.write_text(named)
    loaded = load_today(file)
    place = Injected.of(["same-client-token"], loaded, "prod").place
    assert (place.home, place.away) == ("eu-west-9", "us-west-2")
    with pytest.raises(RefusedError) as raised:
        refuse_what_is_not_played(loaded, "prod")
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == ("targets.prod.region", "a rehearsal has no region eu-west-9")


def test_a_provider_without_a_stand_in_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "toy", "toy")
    assert "toy" not in cloud_names()
    with pytest.raises(RefusedError, match="toy has no stand-in: it cannot be rehearsed"):
        stand_in("toy")
    with pytest.raises(ConfigError, match="--fault quota: toy has no such fault"):
        find_faults(["quota"], "toy")
