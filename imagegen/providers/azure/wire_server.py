"""The rule about the accounts that can use Azure's wireserver. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import table
from imagegen.providers.azure.settings import Settings
from imagegen.rules.rule import ERROR, Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

# A local group of Windows has no other local group as a member, and what is not of this machine has no local account.
_NOT_ACCOUNTS: Final = frozenset(
    {
        *("administrators", "guests", "users", "remote desktop users", "remote management users", "everyone"),
        *("system", "localsystem", "local service", "localservice", "network service", "networkservice"),
    }
)
# First boot disables the first one, which is the build's, and Windows the others.
_DISABLED: Final = frozenset({"administrator", "guest", "defaultaccount", "wdagutilityaccount"})


@TargetRule(Settings)("azure-wire-server-users", ERROR, "wire_server_users must be accounts that a node can have")
def azure_wire_server_users(target: Spec[Settings]) -> Iterator[Finding]:
    machines, users = table("machines"), target.settings.wire_server_users
    group = machines["restricted_address"]["azure"]["group"].lower()
    disabled = _DISABLED | {machines["access"]["azure"]["build_account"]}
    for index, name in enumerate(users):
        path, plain = ("wire_server_users", index), name.lower()
        if plain in _NOT_ACCOUNTS or plain == group:
            yield Finding(
                path, f"{name} is not a local account", "name the accounts; SYSTEM has access without an entry"
            )
        elif plain in disabled:
            yield Finding(path, f"a node has no {name}, or has it disabled", "leave it out, or name another account")
        elif plain == table("cloudbase-init")["service_account"]:
            yield Finding(path, f"{name} has access without an entry", "leave it out")
        # The rule listed-twice reports a name that is written in the same way.
        elif name not in users[:index] and plain in map(str.lower, users[:index]):
            yield Finding(path, f"{name} is in the list: Windows ignores upper and lower case", "leave one out")
