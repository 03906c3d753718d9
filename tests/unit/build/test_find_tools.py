"""What find_tools decides, on machines that are made of a few files and of programs that only pretend to run."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ToolError, VerificationError
from imagegen.build.process import Completed, Programs
from imagegen.build.tools import (
    PACKER,
    OfficialReleases,
    Toolchain,
    announcement,
    cache_folder,
    find_tools,
    is_at_least,
    parse_plugins,
    tool_exports_text,
)
from imagegen.fetch.http import UnreachableError
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_BOTH = {"amazon": "1.2.6", "azure": "1.4.5"}

# It says its version, and hangs over its plugins.
HANGS_LATER = "Packer v1.16.1\n"


class Machine:
    """Folders, and what `packer` and `go` on them would do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.built: list[str] = []
        self.go_fails = False
        self.breaks = "nothing"
        self.releases = Releases(self)
        self.plugin_download: Completed | None = None
        self.output = io.StringIO()
        (root / "bin").mkdir()
        self.environ = {"HOME": str(root / "home"), "PATH": str(root / "bin")}

    @property
    def cache(self) -> Path:
        return self.root / "home" / ".cache" / "imagegen"

    def program(self, path: Path, says: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(says)
        path.chmod(0o755)

    def packer(self, says: str) -> None:
        self.program(self.root / "bin" / "packer", says)

    def plugin(self, name: str, version: str, folder: str = "home/.config/packer/plugins") -> Path:
        file = self.root / folder / f"github.com/hashicorp/{name}/packer-plugin-{name}_v{version}_x5.0_linux_amd64"
        self.program(file, "plugin")
        return file

    def find(self, needed: Mapping[str, str] = _BOTH, *, build: bool = True) -> Toolchain:
        console = Console(self.output, plain=True)
        return find_tools(
            environ=self.environ,
            console=console,
            build=build,
            needed=[dataclasses.replace(PLUGINS[name], lowest=lowest) for name, lowest in needed.items()],
            programs=Programs(self.run, self.stream),
            releases=self.releases,
        )

    def run(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        assert timeout > 0
        program, *words = map(str, argv)
        self.asked.append(" ".join([Path(program).name, *words]))
        if words == ["version"]:
            if Path(program).read_text() == "hangs":
                raise TimeoutError(f"{program} version did not end within {timeout:g} s")
            if Path(program).read_text() == "garbage":
                raise ToolError(f"{program} cannot be started: Exec format error")
            return Completed(0, Path(program).read_text(), "")
        if words == ["plugins", "installed"]:
            if Path(program).read_text() == HANGS_LATER:
                raise TimeoutError(f"{program} plugins installed did not end within {timeout:g} s")
            folder = Path(environ.get("PACKER_PLUGIN_PATH", self.root / "home/.config/packer/plugins"))
            files = sorted(folder.glob("github.com/hashicorp/*/packer-plugin-*"))
            return Completed(0, "".join(f"{file}\n" for file in files if not file.name.endswith("SUM")), "")
        if words[:2] == ["plugins", "install"]:
            if words[2] == "--path":
                name, version = words[4].rpartition("/")[2], Path(words[3]).read_text().rpartition("@v")[2]
            else:
                assert self.releases.here, "Packer itself would try for minutes"
                name, version = words[2].rpartition("/")[2], words[3].removeprefix("v")
                if self.plugin_download is not None:
                    return self.plugin_download
            file = self.plugin(name, version, str(Path(environ["PACKER_PLUGIN_PATH"]).relative_to(self.root)))
            file.with_name(file.name + "_SHA256SUM").write_text("sum")
            return Completed(0, "", "")
        assert words[:3] == ["mod", "download", "-json"]
        assert cwd is not None
        if self.go_fails:
            return Completed(1, json.dumps({"Error": "no such host"}), "")
        module = self.root / "modules" / words[3].replace("/", "+")
        module.mkdir(parents=True, exist_ok=True)
        (module / "go.mod").write_text(words[3])
        return Completed(0, json.dumps({"Dir": str(module)}), "")

    def stream(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None,
        timeout: float,
        on_line: Callable[[str], None],
        **_: object,
    ) -> int:
        assert cwd is not None
        assert environ["GOWORK"] == "off"
        assert timeout > 0
        on_line("some/package")
        module = (cwd / "go.mod").read_text()
        if self.breaks in module:
            on_line("it does not compile")
            return 1
        self.built.append(module)
        is_plugin = "packer-plugin" in module
        assert is_plugin == ("-ldflags" in argv)
        self.program(Path(argv[list(argv).index("-o") + 1]), module if is_plugin else "Packer v1.16.0\n")
        return 0


class Releases(OfficialReleases):
    """HashiCorp's releases, which are `here` or away."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.here = False
        self.asked = 0
        self.machine = machine

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        assert environ == self.machine.environ
        self.asked += 1
        if not self.here:
            raise UnreachableError("HashiCorp is away")

    def fetch_packer(self, binary: Path, *, environ: Mapping[str, str], console: Console) -> None:
        assert not console.quiet
        self.check_reachable(environ)
        self.machine.program(binary, "Packer v1.16.0\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_installed_packer_with_its_plugins_is_used(machine: Machine) -> None:
    machine.packer("Packer v1.14.2\n\nYour version of Packer is out of date!\n")
    machine.plugin("amazon", "1.3.4")
    machine.plugin("amazon", "1.10.0")
    machine.plugin("amazon", "1.11.0-dev")
    machine.plugin("azure", "2.6.3")
    tools = machine.find()
    assert (tools.packer, tools.packer_version) == (machine.root / "bin/packer", "1.14.2")
    assert {name: plugin.version for name, plugin in tools.plugins.items()} == {"amazon": "1.10.0", "azure": "2.6.3"}
    assert tools.environment["PACKER_PLUGIN_PATH"] == str(machine.root / "home/.config/packer/plugins")
    assert machine.output.getvalue() == ""


def test_a_plugin_of_the_same_name_from_another_owner_is_another_plugin() -> None:
    name = "packer-plugin-azure_v9.9.9_x5.0_linux_amd64"
    other = f"/home/me/.config/packer/plugins/github.com/somebody/azure/{name}"
    misplaced = f"/home/me/.config/packer/plugins/github.com/hashicorp/amazon/{name}"
    found = parse_plugins(f"{other}\n{misplaced}\n")
    assert {source: plugin.version for source, plugin in found.items()} == {"github.com/somebody/azure": "9.9.9"}


@pytest.mark.parametrize(
    ("packer", "fault"),
    [
        (None, "packer is not on PATH"),
        ("Packer v1.13.9\n", "has version 1.13.9; the lowest supported version is 1.14.0"),
        ("Packer v1.14.0-rc1\n", "has version 1.14.0-rc1; the lowest supported version is 1.14.0"),
        ("cracklib", "is not HashiCorp's Packer"),
        ("hangs", "bin/packer version did not end within 10 s"),
        (HANGS_LATER, "bin/packer plugins installed did not end within 20 s"),
        ("garbage", "bin/packer cannot be started: Exec format error"),
    ],
)
def test_where_there_is_go_what_is_missing_is_built(machine: Machine, packer: str | None, fault: str) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.program(machine.cache / ".building-by-a-run-that-was-killed" / "source" / "main.go", "")
    if packer is not None:
        machine.packer(packer)
    tools = machine.find()
    assert sorted(module.rpartition("/")[2] for module in machine.built) == [
        "packer-plugin-amazon@v1.8.2",
        "packer-plugin-azure@v1.4.5",
        "packer@v1.16.0",
    ]
    assert tools.packer == machine.cache / "packer-v1.16.0" / "packer"
    assert tools.environment["PACKER_PLUGIN_PATH"] == str(machine.cache / "plugins")
    assert {name: plugin.version for name, plugin in tools.plugins.items()} == {"amazon": "1.8.2", "azure": "1.4.5"}
    assert fault in machine.output.getvalue()
    assert sorted(path.name for path in machine.cache.iterdir()) == [
        "packer-v1.16.0",
        "plugins",
        "tools.lock",
    ]


def test_releases_are_taken_where_they_can_be_had(machine: Machine) -> None:
    machine.releases.here = True
    tools = machine.find()
    assert machine.built == []
    assert tools.packer == machine.cache / "packer-v1.16.0" / "packer"
    assert {name: plugin.version for name, plugin in tools.plugins.items()} == {"amazon": "1.8.2", "azure": "1.4.5"}
    installs = [words for words in machine.asked if words.startswith("packer plugins install ")]
    assert installs == [
        "packer plugins install github.com/hashicorp/amazon v1.8.2",
        "packer plugins install github.com/hashicorp/azure v1.4.5",
    ]
    assert sorted(path.name for path in machine.cache.iterdir()) == [
        "packer-v1.16.0",
        "plugins",
        "tools.lock",
    ]


def test_a_packer_that_is_there_downloads_only_its_plugin(machine: Machine) -> None:
    machine.releases.here = True
    machine.packer("Packer v1.15.1\n")
    tools = machine.find({"azure": "1.4.5"})
    assert (tools.packer, set(tools.plugins), machine.built) == (machine.root / "bin/packer", {"azure"}, [])


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Completed(1, "", "no release version found for constraints\n"), "no release version found for constraints"),
        (Completed(1, "", ""), "no reason given"),
    ],
)
def test_a_plugin_that_packer_cannot_download_is_built(machine: Machine, answer: Completed, said: str) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.releases.here = True
    machine.plugin_download = answer
    tools = machine.find({"azure": "1.4.5"})
    assert machine.built == ["github.com/hashicorp/packer-plugin-azure@v1.4.5"]
    assert tools.plugins["azure"].version == "1.4.5"
    assert f"Packer cannot download the plugin azure: {said}" in machine.output.getvalue()


def test_a_plugin_with_a_wrong_checksum_is_not_built_instead(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.releases.here = True
    # Packer 1.16's own words.
    machine.plugin_download = Completed(
        1,
        "",
        "Checksums (*sha256.digest) did not match.\nExpected: aa\nGot     : bb\n. Is the checksum file correct ?\n",
    )
    with pytest.raises(VerificationError, match="the plugin azure that Packer downloads has the wrong checksum"):
        machine.find({"azure": "1.4.5"})
    assert machine.built == []


def test_what_takes_minutes_is_said_before(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.find()
    said = [line.partition(" ")[2] for line in machine.output.getvalue().splitlines()]
    assert said[:3] == [
        "packer is not on PATH",
        "HashiCorp is away",
        "building packer v1.16.0 and 2 plugins from source: about 8 minutes on 2 cores, once",
    ]


@pytest.mark.parametrize(
    ("with_packer", "names", "said"),
    [
        (True, (), "building packer v1.16.0 from source: about 5 minutes on 2 cores, once"),
        (False, ("azure",), "building 1 plugin from source: about 2 minutes on 2 cores, once"),
    ],
)
def test_only_what_is_missing_is_announced(with_packer: bool, names: tuple[str, ...], said: str) -> None:
    jobs = [*([PACKER] if with_packer else []), *(PLUGINS[name].pin for name in names)]
    assert announcement(with_packer, len(names), jobs) == said


def test_a_failed_build_is_what_is_told(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.breaks = "packer-plugin-amazon"
    with pytest.raises(ToolError, match=r"Go cannot build github\.com/hashicorp/packer-plugin-amazon") as caught:
        machine.find()
    assert caught.value.details == ("some/package", "it does not compile", "go build ended with code 1")
    assert not [path for path in machine.cache.iterdir() if path.is_dir()]


def test_only_the_plugin_that_is_needed_is_built_for_an_installed_packer(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.packer("Packer v1.16.0\n")
    tools = machine.find({"azure": "1.4.5"})
    assert machine.built == ["github.com/hashicorp/packer-plugin-azure@v1.4.5"]
    assert tools.packer == machine.root / "bin/packer"


def test_a_built_packer_that_became_too_old_is_built_again(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.program(machine.cache / "packer-v1.16.0" / "packer", "Packer v1.2.3\n")
    assert machine.find({}).packer_version == "1.16.0"
    assert machine.built == ["github.com/hashicorp/packer@v1.16.0"]


def test_a_plugin_appears_only_after_its_checksum(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.program(machine.root / "bin/go", "go")
    placed = []
    replace = Path.replace

    def remembered(self: Path, target: Path) -> Path:
        placed.append(self.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", remembered)
    machine.find({"azure": "1.4.5"})
    plugin = "packer-plugin-azure_v1.4.5_x5.0_linux_amd64"
    assert [name for name in placed if name.startswith(plugin)] == [f"{plugin}_SHA256SUM", plugin]


def test_two_at_once_build_once(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    found: list[Toolchain] = []
    threads = [threading.Thread(target=lambda: found.append(machine.find())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.built) == 3
    assert found[0] == found[1] == found[2]


def test_without_packer_and_go_the_commands_are_told(machine: Machine) -> None:
    with pytest.raises(ToolError) as caught:
        machine.find()
    error = caught.value
    assert (error.message, error.exit_code) == ("Packer is missing or too old", 3)
    assert "install" in error.hint.splitlines()[1]
    assert "  packer plugins install github.com/hashicorp/amazon" in error.hint.splitlines()
    assert "Go" in error.hint.splitlines()[-1]
    assert error.details == ("packer is not on PATH", "HashiCorp is away")


@pytest.mark.parametrize("says", ["hangs", HANGS_LATER, "garbage", "cracklib"])
def test_what_is_called_packer_and_is_none_is_named_with_what_to_do(machine: Machine, says: str) -> None:
    machine.packer(says)
    with pytest.raises(ToolError) as caught:
        machine.find()
    assert str(machine.root / "bin/packer") in caught.value.details[0]
    way = f"  # remove {machine.root}/bin/packer, or put HashiCorp's Packer before it on PATH"
    assert caught.value.hint.splitlines()[1] == way


@pytest.mark.parametrize("says", ["hangs", HANGS_LATER])
def test_a_packer_that_hangs_is_warned_of_where_another_is_used(machine: Machine, says: str) -> None:
    machine.packer(says)
    machine.program(machine.cache / "packer-v1.16.0" / "packer", "Packer v1.16.0\n")
    assert machine.find({}).packer_version == "1.16.0"
    first, rest = machine.output.getvalue().split("; ")
    asked = "version did not end within 10 s" if says == "hangs" else "plugins installed did not end within 20 s"
    assert first.partition(" ")[2] == f"warning: {machine.root}/bin/packer {asked}"
    assert rest.startswith(str(machine.cache))


def test_a_download_of_go_that_hangs_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.packer("Packer v1.16.0\n")
    machine.program(machine.root / "bin/go", "go")
    answer = machine.run

    def hang(
        argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        if list(argv[1:3]) == ["mod", "download"]:
            raise TimeoutError(f"{argv[0]} mod download did not end within {timeout:g} s")
        return answer(argv, environ=environ, cwd=cwd, timeout=timeout)

    monkeypatch.setattr(machine, "run", hang)
    with pytest.raises(ToolError, match="mod download did not end within 900 s") as caught:
        machine.find()
    assert "run this command yourself" in caught.value.hint


def test_a_plugin_newer_than_what_can_be_built_is_for_packer_to_install(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.find()
    machine.built.clear()
    with pytest.raises(ToolError) as caught:
        machine.find({"azure": "2.0.5"})
    assert machine.built == []
    assert caught.value.details[-1] == "Packer finds no plugin azure >= 2.0.5"
    cache = machine.cache
    command = (
        f"PACKER_PLUGIN_PATH={cache}/plugins {cache}/packer-v1.16.0/packer plugins install github.com/hashicorp/azure"
    )
    assert f"  {command}" in caught.value.hint.splitlines()
    installed = machine.plugin("azure", "2.6.3", "home/.cache/imagegen/plugins")
    installed.with_name(f"{installed.name}_SHA256SUM").write_text("sum")
    assert machine.find({"azure": "2.0.5"}).plugins["azure"].version == "2.6.3"


def test_nothing_is_fetched_or_built_when_that_was_not_asked(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.releases.here = True
    with pytest.raises(ToolError, match="Packer is missing"):
        machine.find(build=False)
    assert (machine.built, machine.releases.asked) == ([], 0)


def test_a_build_that_fails_says_why_and_leaves_nothing(machine: Machine) -> None:
    machine.program(machine.root / "bin/go", "go")
    machine.go_fails = True
    with pytest.raises(ToolError, match=r"cannot download .*packer v1\.16\.0") as caught:
        machine.find()
    assert caught.value.details == ("no such host",)
    assert not [path for path in machine.cache.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/imagegen"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/imagegen"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/imagegen"),
    ],
)
def test_the_cache_is_where_the_user_keeps_caches(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder)


def test_without_a_home_there_is_no_cache() -> None:
    with pytest.raises(ToolError, match="imagegen has no cache folder"):
        cache_folder({})


@pytest.mark.parametrize(
    ("version", "lowest", "answer"),
    [
        ("1.8.2", "1.8.2", True),
        ("v1.10.0", "1.9.9", True),
        ("1.9.9", "1.10.0", False),
        ("1.10.0-dev", "1.9.0", False),
        ("", "1.0.0", False),
    ],
)
def test_versions_compare_as_numbers(version: str, lowest: str, answer: bool) -> None:
    assert is_at_least(version, lowest) is answer


def test_exports_are_quoted_for_a_shell() -> None:
    tools = Toolchain(
        Path("/my tools/packer"), "1.16.0", {}, {"PACKER_PLUGIN_PATH": "/it's", "CHECKPOINT_DISABLE": "1"}
    )
    assert tool_exports_text(tools).splitlines() == [
        "export CHECKPOINT_DISABLE=1",
        "export PACKER_PLUGIN_PATH='/it'\"'\"'s'",
        "export PATH='/my tools':\"$PATH\"",
    ]
