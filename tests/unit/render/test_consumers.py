"""Rendered configuration read by those who will read it: cloudbase-init's own parser, TOML, YAML."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import json
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import ruamel.yaml

from imagegen.base import contents
from imagegen.catalog.facts import paths, table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[3]
GOLDEN = REPOSITORY / "tests" / "golden"
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
CONFS = ("cloudbase-init.conf", "cloudbase-init-unattend.conf")
CASES = [
    (file, target, conf) for file in (SHIPPED, GOLDEN / "maximal.yaml") for target in ("aws", "azure") for conf in CONFS
]


@pytest.fixture
def text_of(decide: Callable[..., Any]) -> Callable[[Path, str, str], str]:
    """A rendered text of the bundle."""

    def text(file: Path, target: str, path: str) -> str:
        data: bytes = decide(file, target).decision.bundle[f"files/{path}"]
        return data.decode()

    return text


def _cloudbase_init(file: Path) -> Any:  # noqa: ANN401 - oslo_config has no types
    """What cloudbase-init makes of a file; its own options, in a registry of this call's."""
    with warnings.catch_warnings():
        # The package's warnings about Python are its authors' business.
        warnings.simplefilter("ignore")
        from cloudbaseinit.conf import factory  # type: ignore[import-untyped]  # the package has no types
        from oslo_config import cfg
        from oslo_log import log

        conf = cfg.ConfigOpts()
        log.register_options(conf)
        for options in factory.get_options():
            options(conf).register()
        conf(args=[], project="cloudbase-init", default_config_files=[str(file)], default_config_dirs=[])
    return conf


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-{case[1]}-{case[2]}")
def conf_file(
    request: pytest.FixtureRequest, text_of: Callable[[Path, str, str], str], tmp_path: Path
) -> tuple[str, str, Path]:
    config, target, name = request.param
    file = tmp_path / name
    file.write_text(text_of(config, target, f"cloudbase-init/{name}"))
    return target, name, file


def test_every_key_is_an_option_that_cloudbase_init_knows(conf_file: tuple[str, str, Path]) -> None:
    assert _unknown_options(conf_file[2]) == set()


def test_an_option_that_cloudbase_init_does_not_define_is_seen(conf_file: tuple[str, str, Path]) -> None:
    """It stands in cloudbase-init's own samples, and no release since 1.1.4 defines it."""
    _, _, file = conf_file
    file.write_text(f"{file.read_text()}\nverbose=false\n")
    assert _unknown_options(file) == {"verbose"}


def _unknown_options(file: Path) -> set[str]:
    """The keys of a file that cloudbase-init, and what it logs with, do not define."""
    conf = _cloudbase_init(file)
    options = [info["opt"] for info in conf._opts.values()]  # the registry has no public list of its options
    known = {name for opt in options for name in (opt.name, opt.dest, *(old.name for old in opt.deprecated_opts))}
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # documented way to keep the case of keys
    parser.read(file)
    assert parser.sections() == []
    return set(parser.defaults()) - {name.replace("-", "_") for name in known if name}


def test_nothing_of_user_data_reaches_a_log(conf_file: tuple[str, str, Path]) -> None:
    _, _, file = conf_file
    conf = _cloudbase_init(file)
    assert conf.debug is False
    assert conf.log_dir == f"{paths()['cloudbase_init']}\\log\\"


@pytest.mark.parametrize("conf_file", [case for case in CASES if case[0] == SHIPPED], indirect=True)
def test_values_come_out_as_meant(conf_file: tuple[str, str, Path]) -> None:
    target, name, file = conf_file
    conf = _cloudbase_init(file)
    assert conf.log_file == name.replace(".conf", ".log")
    assert conf.groups == ["Administrators"]
    assert conf.inject_user_password is False
    assert conf.check_latest_version is False
    assert conf.stop_service_on_exit is False
    assert conf.mtu_use_dhcp_config is True
    if name == "cloudbase-init.conf":
        cloud = table("cloudbase-init")["clouds"][target]
        assert conf.metadata_services == [cloud["metadata_service"]]
        assert conf.plugins == cloud["plugins"]
        assert conf.plugins[-1].endswith("UserDataPlugin")
        assert conf.allow_reboot is True
        # Azure takes a machine that reports nothing for one that failed.
        assert conf.metadata_report_provisioning_started is True
        assert conf.metadata_report_provisioning_completed is True
        assert conf.first_logon_behaviour == "no"
        assert conf.rename_admin_user is False
        assert conf.user_password_length == 123
        assert conf.bsdtar_path == f"{paths()['cloudbase_init']}\\bin\\bsdtar.exe"
        assert conf.local_scripts_path == f"{paths()['cloudbase_init']}\\LocalScripts\\"
    else:
        assert conf.metadata_services == ["cloudbaseinit.metadata.services.base.EmptyMetadataService"]
        assert conf.plugins == ["cloudbaseinit.plugins.common.mtu.MTUPlugin"]
        assert conf.allow_reboot is False


@pytest.mark.parametrize(("config", "user"), [(SHIPPED, "capi"), (GOLDEN / "maximal.yaml", "operator")])
@pytest.mark.parametrize("name", CONFS)
def test_user_is_the_configs(
    config: Path, user: str, name: str, text_of: Callable[[Path, str, str], str], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(text_of(config, "azure", f"cloudbase-init/{name}"))
    assert _cloudbase_init(file).username == user


def _first_boot(asked: dict[str, Any], target: str, name: str, folder: Path) -> Any:  # noqa: ANN401 - has no types
    """What cloudbase-init reads in the file of a config that asks for this."""
    gallery = {"resource_group": "images", "name": "images", "definition": "windows"}
    config = ImageConfig.model_validate(
        {
            "name": "asked",
            "windows": {"release": "2022"},
            "kubernetes": {"version": "1.36.4"},
            "runtime": {"containerd": {"version": "2.3.4"}},
            "targets": {"aws": {"region": "us-east-1"}, "azure": {"location": "westeurope", "gallery": gallery}},
            **asked,
        }
    )
    step = next(
        item
        for item in evaluate_steps(
            settle(config, Document("asked.yaml", {}, {}), target), load_steps(contents.SHIPPED.step_roots)
        )
        if item.step.name == "cloudbase-init"
    )
    file = folder / name
    file.write_bytes(step.texts[f"files/cloudbase-init/{name}"])
    assert _unknown_options(file) == set()
    return _cloudbase_init(file)


PLUGINS = ["cloudbaseinit.plugins.common.userdata.UserDataPlugin", "cloudbaseinit.plugins.common.mtu.MTUPlugin"]
SERVICES = ["cloudbaseinit.metadata.services.httpservice.HttpService"]
ASKED: dict[str, Any] = {
    "host_names": {"netbios_compatible": False},
    "cloudbase_init": {
        "user": "operator",
        "groups": ["Remote Desktop Users", "Users"],
        "plugins": {"azure": PLUGINS},
        "metadata_services": {"azure": [*SERVICES, "cloudbaseinit.metadata.services.azureservice.AzureService"]},
        "logging": {"file": "first-boot.log", "debug": True, "serial_port": "COM2,9600,E,7"},
        "real_time_clock_utc": True,
    },
}


def test_all_that_is_asked_for_comes_out(tmp_path: Path) -> None:
    conf = _first_boot(ASKED, "azure", "cloudbase-init.conf", tmp_path)
    asked = ASKED["cloudbase_init"]
    assert conf.username == "operator"
    assert conf.groups == asked["groups"]
    assert conf.plugins == PLUGINS
    assert conf.metadata_services == asked["metadata_services"]["azure"]
    assert conf.log_file == "first-boot.log"
    assert conf.debug is True
    assert conf.logging_serial_port_settings == "COM2,9600,E,7"
    assert conf.real_time_clock_utc is True
    assert conf.netbios_host_name_compatibility is False


def test_before_setup_as_asked_too_but_without_user_data(tmp_path: Path) -> None:
    conf = _first_boot(ASKED, "azure", "cloudbase-init-unattend.conf", tmp_path)
    assert (conf.username, conf.groups) == ("operator", ASKED["cloudbase_init"]["groups"])
    assert (conf.debug, conf.logging_serial_port_settings) == (True, "COM2,9600,E,7")
    assert conf.log_file == "cloudbase-init-unattend.log"
    assert conf.metadata_services == ["cloudbaseinit.metadata.services.base.EmptyMetadataService"]


def test_a_list_of_another_cloud_is_not_this_ones(tmp_path: Path) -> None:
    conf = _first_boot(ASKED, "aws", "cloudbase-init.conf", tmp_path)
    cloud = table("cloudbase-init")["clouds"]["aws"]
    assert (conf.plugins, conf.metadata_services) == (cloud["plugins"], [cloud["metadata_service"]])


def test_without_being_asked_nothing_is_told_or_changed(tmp_path: Path) -> None:
    conf = _first_boot({}, "aws", "cloudbase-init.conf", tmp_path)
    assert (conf.debug, conf.logging_serial_port_settings) == (False, None)
    assert (conf.real_time_clock_utc, conf.netbios_host_name_compatibility) == (False, True)
    assert conf.ephemeral_disk_volume_label == "Temporary Storage"


def test_every_class_is_in_the_package(conf_file: tuple[str, str, Path]) -> None:
    _, _, file = conf_file
    conf = _cloudbase_init(file)
    named = [*conf.plugins, *conf.metadata_services]
    assert named
    assert [path for path in named if path.rpartition(".")[2] not in _classes(path.rpartition(".")[0])] == []


def _classes(module: str) -> set[str]:
    """Names of a module's classes, by reading: a module for Windows cannot be imported elsewhere."""
    root = importlib.util.find_spec("cloudbaseinit")
    assert root is not None
    assert root.origin is not None
    file = Path(root.origin).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module_body = ast.parse(file.read_bytes()).body
    return {node.name for node in module_body if isinstance(node, ast.ClassDef)}


CONTAINERDS = [
    (SHIPPED, 3, "registry.k8s.io/pause:3.10.2", True),
    (GOLDEN / "minimal.yaml", 3, "registry.k8s.io/pause:3.10.2", True),
    (GOLDEN / "maximal.yaml", 2, "registry.example.com/pause:3.10.2", False),
]


@pytest.mark.parametrize(
    ("config", "version", "pause", "discard"), CONTAINERDS, ids=lambda value: getattr(value, "stem", value)
)
def test_containerd_reads_its_config(
    config: Path, version: int, pause: str, discard: bool, text_of: Callable[[Path, str, str], str]
) -> None:
    read = tomllib.loads(text_of(config, "aws", "containerd/config.toml"))
    assert read["version"] == version
    assert read["root"] == "C:\\ProgramData\\containerd\\root"
    assert read["state"] == "C:\\ProgramData\\containerd\\state"
    assert read["imports"] == ["C:\\Program Files\\containerd\\conf.d\\*.toml"]
    plugins = read["plugins"]
    if version == 2:
        cri = plugins["io.containerd.grpc.v1.cri"]
        assert cri["sandbox_image"] == pause
        assert cri["containerd"]["discard_unpacked_layers"] == discard
        assert cri["cni"] == {"bin_dir": "C:\\opt\\cni\\bin", "conf_dir": "C:\\etc\\cni\\net.d"}
    else:
        images = plugins["io.containerd.cri.v1.images"]
        assert images == {"discard_unpacked_layers": discard, "pinned_images": {"sandbox": pause}}
        cni = plugins["io.containerd.cri.v1.runtime"]["cni"]
        assert cni == {"bin_dirs": ["C:\\opt\\cni\\bin"], "conf_dir": "C:\\etc\\cni\\net.d"}


def test_ec2launch_leaves_user_data_to_cloudbase_init(text_of: Callable[[Path, str, str], str]) -> None:
    text = text_of(SHIPPED, "aws", "cloudbase-init/agent-config.yml")
    read = ruamel.yaml.YAML(typ="safe").load(text)
    assert read["version"] == 1.0
    assert [stage["stage"] for stage in read["config"]] == ["boot", "preReady", "postReady"]
    tasks = [task["task"] for stage in read["config"] for task in stage["tasks"]]
    assert "executeScript" not in tasks
    assert {"extendRootPartition", "activateWindows", "startSsm"} <= set(tasks)


def test_azure_has_no_ec2launch(decide: Callable[..., Any]) -> None:
    assert not [path for path in decide(SHIPPED, "azure").decision.bundle if "agent-config" in path]


def test_catalogue_names_the_class_for_each_cloud() -> None:
    clouds = table("cloudbase-init")["clouds"]
    assert json.dumps(clouds["aws"]["metadata_service"]).count("ec2service.EC2Service") == 1
    assert json.dumps(clouds["azure"]["metadata_service"]).count("azureservice.AzureService") == 1
