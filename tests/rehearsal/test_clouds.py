"""The stand-ins' folders: what each of them has to say, and how a provider without one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers.registry import PROVIDERS
from imagegen.rehearsal.clouds import cloud_faults, cloud_names, import_variables, stand_in
from imagegen.rehearsal.faults.selection import SelectedFaults
from imagegen.rehearsal.faults.table import FAULTS, find_faults
from imagegen.rehearsal.preparation import reject_unsupported
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
    found = stand_in(cloud)
    home, *others = found.regions(spec.settings).values()
    assert {home, *others} <= set(found.known_regions)
    assert others
    assert list(found.sizes(spec.settings))


@pytest.mark.parametrize("cloud", cloud_names())
def test_each_fault_that_a_cloud_injects_is_in_the_table(cloud: str) -> None:
    faults = cloud_faults(cloud)
    injectors = {**faults.shared, **{fault.name: fault.injectors[cloud] for fault in faults.own}}
    assert injectors == {name: FAULTS[name].injectors[cloud] for name in injectors}


def test_nothing_of_the_users_is_read_while_a_stand_in_is_imported() -> None:
    variables = import_variables()
    assert (variables["AWS_PROFILE"], variables["MOTO_EC2_LOAD_DEFAULT_AMIS"]) == (None, "false")


def test_a_target_of_another_name_has_the_stand_in_of_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "image.yaml"
    named = CONFIG.read_text().replace("  aws:\n    region: us-east-1\n", _PROD)
    file.write_text(named)
    loaded = load_today(file)
    settings = SelectedFaults.from_names(["same-client-token"], loaded, "prod").settings
    assert (settings.build_region, settings.publish_region) == ("eu-west-9", "us-west-2")
    with pytest.raises(RefusedError) as raised:
        reject_unsupported(loaded, "prod")
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == (
        "targets.prod.region",
        'a rehearsal does not support the region "eu-west-9"',
    )


def test_a_provider_without_a_stand_in_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "toy", "toy")
    assert "toy" not in cloud_names()
    with pytest.raises(RefusedError, match="toy cannot be rehearsed: it has no stand-in"):
        stand_in("toy")
    with pytest.raises(ConfigError, match='--fault: the fault "quota" is not supported on toy'):
        find_faults(["quota"], "toy")
