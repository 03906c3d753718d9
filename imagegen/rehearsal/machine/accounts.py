"""The machine's own accounts and groups, compared without case. A group holds accounts of this machine only."""

from __future__ import annotations

import dataclasses
import secrets

from imagegen.rehearsal.machine.access import ADMINISTRATORS, EVERYONE, SYSTEM, USERS
from imagegen.rehearsal.machine.refusal import RefusedByWindows

GUESTS = "S-1-5-32-546"
BUILT_IN_ADMINISTRATOR = 500
# Windows gives an account that is made later a number from here on.
_FIRST_OWN = 1000
# In local groups as in users: a name may not have these, and not more than 20 characters.
_FORBIDDEN = frozenset('"/\\[]:;|=,+*?<>')
_LONGEST_NAME = 20


@dataclasses.dataclass
class User:
    """An account. `number` is the last part of its SID, which no renaming changes."""

    name: str
    number: int
    password: str = dataclasses.field(repr=False)
    enabled: bool = True
    password_expires: bool = True
    must_change_password: bool = False
    """Whether Windows wants a new password at the next logon."""


@dataclasses.dataclass
class Group:
    """A local group. `members` are the numbers of accounts."""

    name: str
    sid: str
    members: set[int] = dataclasses.field(default_factory=set)


class Accounts:
    """The accounts and groups of a Windows Server after Setup. `passwords_expire` is the policy for all of them."""

    def __init__(self) -> None:
        self.passwords_expire = True
        self._machine_sid = _new_machine_sid()
        built_in = {"Administrator": (500, True), "Guest": (501, False), "DefaultAccount": (503, False)}
        self._users = {
            name.lower(): User(name, number, secrets.token_hex(16), enabled=enabled)
            for name, (number, enabled) in built_in.items()
        }
        self._groups = {
            group.name.lower(): group
            for group in (
                Group("Administrators", ADMINISTRATORS, {BUILT_IN_ADMINISTRATOR}),
                Group("Users", USERS),
                Group("Guests", GUESTS, {501}),
                Group("Remote Desktop Users", "S-1-5-32-555"),
                Group("Remote Management Users", "S-1-5-32-580"),
            )
        }

    @property
    def users(self) -> tuple[User, ...]:
        return tuple(self._users.values())

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple(self._groups.values())

    def user(self, name: str) -> User | None:
        return self._users.get(name.lower())

    def group(self, name: str) -> Group | None:
        return self._groups.get(name.lower())

    def sid(self, user: User) -> str:
        return f"{self._machine_sid}-{user.number}"

    def add_user(self, name: str, password: str, *, password_expires: bool = True) -> User:
        """Make an account, which is a member of no group yet."""
        _check_name(name)
        self._need_free(name)
        user = User(name, self._next_number(), password, password_expires=password_expires)
        self._users[name.lower()] = user
        return user

    def rename_user(self, name: str, new_name: str) -> None:
        _check_name(new_name)
        user = self.need_user(name)
        if name.lower() != new_name.lower():
            self._need_free(new_name)
        del self._users[name.lower()]
        user.name = new_name
        self._users[new_name.lower()] = user

    def add_group(self, name: str) -> Group:
        self._need_free(name)
        group = Group(name, f"{self._machine_sid}-{self._next_number()}")
        self._groups[name.lower()] = group
        return group

    def add_member(self, group: str, user: str) -> None:
        """Add an account to a group. A member that is there already is an error in Windows too."""
        members, number = self.need_group(group).members, self.need_user(user).number
        if number in members:
            raise RefusedByWindows(f"account {user} is a member of group {group} already (error 1378)")
        members.add(number)

    def groups_of(self, user: User) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if user.number in group.members)

    def token(self, name: str) -> frozenset[str]:
        """The SIDs that Windows sees in a process of an account, or of SYSTEM."""
        if name.lower() == "system":
            return frozenset({SYSTEM, ADMINISTRATORS, EVERYONE})
        user = self.need_user(name)
        return frozenset({self.sid(user), *(group.sid for group in self.groups_of(user)), EVERYONE})

    def need_user(self, name: str) -> User:
        user = self.user(name)
        if user is None:
            raise RefusedByWindows(f"there is no account {name} (error 2221)")
        return user

    def need_group(self, name: str) -> Group:
        group = self.group(name)
        if group is None:
            raise RefusedByWindows(f"there is no group {name} (error 1376)")
        return group

    def generalised(self) -> None:
        """Sysprep gives the machine another SID at its next start. Accounts and groups keep their numbers, and groups
        their members."""
        old, self._machine_sid = self._machine_sid, _new_machine_sid()
        for group in self.groups:
            if group.sid.startswith(f"{old}-"):
                group.sid = self._machine_sid + group.sid.removeprefix(old)

    def _need_free(self, name: str) -> None:
        if self.user(name) or self.group(name):
            raise RefusedByWindows(f"there is an account or a group {name} already (error 2224)")

    def _next_number(self) -> int:
        own = [int(group.sid.rpartition("-")[2]) for group in self.groups if group.sid.startswith(self._machine_sid)]
        return max(_FIRST_OWN - 1, *own, *(user.number for user in self.users)) + 1


def _check_name(name: str) -> None:
    if not name.strip(" .") or len(name) > _LONGEST_NAME or _FORBIDDEN & set(name):
        raise RefusedByWindows(f"an account cannot have the name '{name}' (error 2202)")


def _new_machine_sid() -> str:
    return "S-1-5-21-" + "-".join(str(secrets.randbelow(2**32)) for _ in range(3))
