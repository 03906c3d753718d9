"""Rules on .NET: types and static members that both 5.1 and 7 have, members that only the newer one has, waits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.powershell.cmdlets import bind
from tests.powershell.dotnet import STATIC_MEMBERS, canonical
from tests.powershell.tables import (
    MOST_ARGUMENTS,
    NETWORK_SCRIPT,
    NETWORK_TYPES,
    NEWER_MEMBERS,
    PROCESS_SCRIPTS,
    PROCESS_TYPES,
    TIMED_WAITS,
    UNTIMED_SCRIPTS,
)

if TYPE_CHECKING:
    from tests.powershell.reader import Node, Script


def _types(script: Script) -> list[tuple[Node, str]]:
    """Every type that the script names, in brackets or to New-Object."""
    found = [(node, canonical(script.text(node)[1:-1])) for node in script.of_type("type_literal")]
    found += [(node, canonical(script.text(node))) for node in script.of_type("attribute_name")]
    for command in script.commands:
        if command.name.lower() == "new-object":
            name = bind(script, command).values.get("TypeName")
            found += [(name.node, canonical(script.text(name.node)))] if name else []
    return found


def known_types(script: Script) -> list[str]:
    return [
        script.at(node, f"[{name}] is no type that we know to be in both 5.1 and 7")
        for node, name in _types(script)
        if name not in STATIC_MEMBERS
    ]


def network_types(script: Script) -> list[str]:
    if script.file_name == NETWORK_SCRIPT:
        return []
    return [
        script.at(node, f"[{name}]: bytes come from a network only in {NETWORK_SCRIPT}")
        for node, name in _types(script)
        if name.startswith(NETWORK_TYPES)
    ]


def process_types(script: Script) -> list[str]:
    if script.file_name in PROCESS_SCRIPTS:
        return []
    return [
        script.at(node, f"[{name}]: a program goes through Invoke-Native")
        for node, name in _types(script)
        if name.startswith(PROCESS_TYPES)
    ]


def new_object_names_a_type(script: Script) -> list[str]:
    return [
        script.at(command.node, "New-Object takes -TypeName and a literal type")
        for command in script.commands
        if command.name.lower() == "new-object" and not _names_a_type(script, command.node)
    ]


def _names_a_type(script: Script, node: Node) -> bool:
    """Windows Update has its API as COM objects only."""
    form = r"New-Object (-TypeName ['\"]?[\w.]+|-ComObject 'Microsoft\.Update\.(Session|UpdateColl)'$)"
    return re.match(form, script.text(node)) is not None


def _accesses(script: Script) -> list[tuple[Node, Node, bool, str, int | None]]:
    """Every use of a member: the node, what it is used on, whether it is static, its name, how many arguments."""
    found = []
    for node in script.of_type("member_access", "invokation_expression"):
        owner, operator, name_ = node.children[:3]
        name = script.text(name_).strip("'\"").lower()
        found.append((node, owner.core(), script.text(operator) == "::", name, _count(node)))
    return found


def _count(node: Node) -> int | None:
    """Arguments of a call; None where nothing is called."""
    arguments = node.child("argument_list")
    if arguments is None:
        # As the word of a command, $x.Trim() is a member and then a list.
        word = node.whole()
        beside = word.parent.children if word.parent is not None else [word]
        following = next(iter(beside[beside.index(word) + 1 :]), None)
        arguments = following if following is not None and following.type == "argument_list" else None
    if arguments is None:
        return None
    return sum(len(items.words) for items in arguments.words)


def static_members(script: Script) -> list[str]:
    found = []
    for node, owner, static, name, count in _accesses(script):
        if not static:
            continue
        if owner.type not in {"type_literal", "type_spec", "type_identifier"}:
            found.append(script.at(node, f"{script.text(node)}: a static member of what is not a literal type"))
            continue
        type_ = canonical(script.text(owner).strip("[]"))
        known = STATIC_MEMBERS.get(type_, {})
        if name not in known:
            found.append(script.at(node, f"[{type_}]::{name} is no member that we know to be in both 5.1 and 7"))
        elif count is not None and count > (known[name] or 0):
            found.append(
                script.at(node, f"[{type_}]::{name} takes {known[name]} arguments at most in 5.1, not {count}")
            )
    return found


def old_members(script: Script) -> list[str]:
    found = []
    for node, _, static, name, count in _accesses(script):
        if static:
            continue
        if name in NEWER_MEMBERS:
            found.append(script.at(node, f".{name}: {NEWER_MEMBERS[name]}"))
        if count is not None and count > MOST_ARGUMENTS.get(name, count):
            found.append(script.at(node, f".{name} takes {MOST_ARGUMENTS[name]} arguments at most in 5.1, not {count}"))
        if name == "split" and re.search(r"""\.split\((['"])[^`'"]{2,}\1\)""", script.text(node), re.IGNORECASE):
            found.append(script.at(node, ".Split of a longer text: 5.1 splits at each character, 7 at the whole"))
    return found


def waits_have_a_time(script: Script) -> list[str]:
    return [
        script.at(node, f".{name} without a time may wait for ever")
        for node, _, _, name, count in _accesses(script)
        if count is not None and count < TIMED_WAITS.get(name, 0) and script.file_name not in UNTIMED_SCRIPTS
    ]


def network_settings(script: Script) -> list[str]:
    """A fixed list of TLS versions shuts out newer ones; HttpClient of .NET Framework knows no HTTPS_PROXY."""
    found = []
    for node in script.of_type("assignment_expression"):
        sets_protocol = script.text(node.children[0]).lower().endswith("::securityprotocol")
        if sets_protocol and not any(above.type == "if_statement" for above in node.ancestors()):
            found.append(
                script.at(node, "SecurityProtocol is set without a look at what it is: 0 is Windows' own choice")
            )
    for node, name in _types(script):
        scope = script.scope(node)
        if name == "net.http.httpclienthandler" and not re.search(r"\.Proxy = ", script.text(scope)):
            found.append(script.at(node, "HttpClientHandler without the plan's proxy"))
    return found


RULES = (
    known_types, network_types, process_types, new_object_names_a_type, static_members, old_members, waits_have_a_time,
    network_settings,
)  # fmt: skip
