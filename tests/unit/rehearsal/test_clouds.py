"""The stand-ins' folders: what each of them has to say, and how a provider without one is refused."""

from __future__ import annotations

import pytest

from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.clouds import cloud_faults, cloud_names, import_variables, stand_in
from imagegen.rehearsal.faults.table import FAULTS, find_faults
from tests.conftest import REPOSITORY, load_today

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


def test_a_provider_without_a_stand_in_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "toy", "toy")
    assert "toy" not in cloud_names()
    with pytest.raises(RefusedError, match="toy has no stand-in: it cannot be rehearsed"):
        stand_in("toy")
    with pytest.raises(ConfigError, match="--fault quota: toy has no such fault"):
        find_faults(["quota"], "toy")
