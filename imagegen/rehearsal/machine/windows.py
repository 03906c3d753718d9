"""A Windows machine: its disk, registry and services, and the effect of a restart. It does not know the plan."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import time
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.machine.accounts import Accounts
from imagegen.rehearsal.machine.certificates import CertificateStores
from imagegen.rehearsal.machine.defender import Defender
from imagegen.rehearsal.machine.features import ENABLED, HYPER_V, HYPERVISOR, REBOOT_PENDING, Features, OptionalFeatures
from imagegen.rehearsal.machine.files import Files
from imagegen.rehearsal.machine.firewall import Firewall
from imagegen.rehearsal.machine.host_name import apply_host_name, read_host_name, write_host_name
from imagegen.rehearsal.machine.ports import Ports
from imagegen.rehearsal.machine.registry import Registry
from imagegen.rehearsal.machine.services import AUTOMATIC, Services
from imagegen.rehearsal.machine.tasks import Tasks
from imagegen.rehearsal.machine.triggers import stop_outside_domain
from imagegen.rehearsal.machine.updates import CURRENT_VERSION, REBOOT_REQUIRED, WindowsUpdate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

ENVIRONMENT = r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment"
SYSTEM32 = r"C:\Windows\System32"
# The services that a feature brings.
FEATURE_SERVICES = {"Containers": ("hns", "vmcompute")}
HYPER_V_SERVICE = "vmms"


@dataclasses.dataclass
class Volume:
    """Drive C in bytes, and how large it can be. As on the small disks of clouds, there is room behind it."""

    size: int = 30 * 2**30
    largest: int = 50 * 2**30


@dataclasses.dataclass(frozen=True)
class StoredImage:
    """A container image that the runtime has."""

    digest: str
    pinned: bool


@dataclasses.dataclass
class Progress:
    """What the engine did so far, and the facts of its resources at the end of the build."""

    phases: dict[str, dict[str, object]] = dataclasses.field(default_factory=dict)
    resources: dict[str, str] = dataclasses.field(default_factory=dict)
    """The status of each resource, by its id."""
    facts: dict[str, dict[str, Any] | None] = dataclasses.field(default_factory=dict)
    commands: set[str] = dataclasses.field(default_factory=set)
    """The names of the commands that were taken as run."""
    checked: set[str] = dataclasses.field(default_factory=set)
    """The sha256 of the files whose signature the guest checks."""
    left_out: dict[str, object] = dataclasses.field(default_factory=dict)

    def keep(self, identity: str, status: str) -> None:
        """Keep a status. `changed` is never overwritten: a phase may run again."""
        if self.resources.get(identity) != "changed":
            self.resources[identity] = status


class Machine:
    """The state of Windows."""

    def __init__(self, root: Path, *, features: Mapping[str, str], needing_restart: Iterable[str]) -> None:
        self.files = Files(root)
        self.registry = Registry()
        self.features = Features(self.registry, features, needing_restart)
        self.optional_features = OptionalFeatures()
        self.updates = WindowsUpdate()
        self.services = Services(self.files, self.registry, self.features)
        self.firewall = Firewall()
        self.tasks = Tasks()
        self.ports = Ports()
        self.accounts = Accounts()
        self.certificates = CertificateStores()
        self.date = datetime.datetime.now(datetime.UTC)
        """The date by which signatures are judged. The model's clock has none."""
        self.fetches_roots = False
        """Whether the machine reaches Windows Update, from which it fetches public roots that its store lacks."""
        self.defender = Defender(self.services)
        self.volume = Volume()
        self.progress = Progress()
        self.images: dict[str, StoredImage] = {}
        """The images of the container runtime by their whole names."""
        self.mtu: dict[str, int] = {}
        """The network adapters whose MTU was set."""
        self.refused: dict[str, str] = {}
        """The scripts that the policy of PowerShell refused since the machine was made, with the reasons."""
        self.boot_count = 0
        self.up_s = 0.0
        """The time since the last start, as far as something waited for it: no wait of the model takes real time."""
        self._before_s = 0.0
        """The time before the last start."""
        # Called to inject a fault: with the id of a resource before it is set, with the report before it is written.
        self.before_set: Callable[[str], None] = _undisturbed
        self.before_restart: Callable[[], None] = _undisturbed
        self.before_report: Callable[[dict[str, object]], None] = _undisturbed

    def copy(self, root: Path) -> Machine:
        """The machine that starts from a copy of this one's disk below `root`. No fault and no hook is copied."""
        # Whatever of the machine knows its disk knows the copy's from here on.
        other = copy.deepcopy(self, {id(self.files): self.files.copy(root)})
        other.before_set, other.before_restart = _undisturbed, _undisturbed
        other.before_report = _undisturbed
        other.refused = {}
        other.up_s, other._before_s = 0.0, 0.0
        other.services.on_start = {}
        return other

    @staticmethod
    def clock() -> float:
        """Seconds of a monotonic clock."""
        return time.monotonic()

    @property
    def age_s(self) -> float:
        """The time since the machine was created, over all its starts."""
        return self._before_s + self.up_s

    @property
    def build(self) -> str:
        return self.registry.text(CURRENT_VERSION, "CurrentBuildNumber") or ""

    @property
    def host_name(self) -> str:
        return read_host_name(self.registry)

    def set_host_name(self, name: str) -> None:
        """Give the machine a name, which is in force after its next start."""
        write_host_name(self.registry, name)

    def restart_pending(self) -> bool:
        return any(self.registry.has_key(key) for key in (REBOOT_PENDING, REBOOT_REQUIRED))

    def wait_until(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass up to the limit, unless something is so already. Whether it is so."""
        if not is_so():
            self.up_s += limit_s
        return is_so()

    @property
    def runs_hypervisor(self) -> bool:
        """Whether Windows started its hypervisor: sysprep's specialize pass and the feature let it start."""
        return self.features.nests and self.optional_features.state(HYPERVISOR) == ENABLED

    def restart(self) -> None:
        self.before_restart()
        self.boot_count += 1
        self.features.restarted()
        self.optional_features.restarted()
        self.updates.restarted(self)
        apply_host_name(self.registry)
        self._before_s, self.up_s = self.age_s, 0.0
        for key in (REBOOT_PENDING, REBOOT_REQUIRED):
            if self.registry.has_key(key):
                self.registry.remove_key(key)
        for feature, services in FEATURE_SERVICES.items():
            for name in services:
                if self.features.is_installed(feature) and not self.services.exists(name):
                    self._add_feature_service(name)
        if self.optional_features.state(HYPER_V) == ENABLED and not self.services.exists(HYPER_V_SERVICE):
            self._add_feature_service(HYPER_V_SERVICE)
        self.services.restarted()
        stop_outside_domain(self)

    def _add_feature_service(self, name: str) -> None:
        program = f"{SYSTEM32}\\{name}.exe"
        self.files.write(program, f"{name} of this Windows".encode())
        self.services.create(name, f"%SystemRoot%\\System32\\{name}.exe", name, AUTOMATIC)


def _undisturbed(*_: object) -> None:
    """No fault is injected."""
