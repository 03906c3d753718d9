"""Reads the log of cloudbase-init: which plugins ran, and what it could not do."""

import re
from collections.abc import Iterable
from typing import Final, Literal

from imagegen.boot.node import Finding

PluginEnd = Literal["done", "failed", "not run"]

USER_DATA: Final = "UserDataPlugin"
_KEYS: Final = "SetUserSSHPublicKeysPlugin"
# At any level, also after a failure of another plugin.
_RAN: Final = re.compile(r"Executing plugin '(?P<name>\w+)'")
_FAILED: Final = re.compile(r"plugin '(?P<name>\w+)' failed with error")
# What the log says, what that means, and its row of docs/reality.md.
_ABOUT_ITSELF: Final = (
    (r"Could not import plugin module '(?P<what>[^']*)'", "there is no plugin {what}", ""),
    (r"reboot failed with error", "it could not restart the machine", ""),
)
_ABOUT_USER_DATA: Final = (
    (r"text/cloud-boothook content is currently not supported", "cloudbase-init does not run a boothook", "B4"),
    (r"Plugin '(?P<what>[^']*)' is currently not supported", "cloudbase-init does not support {what}", "B8"),
    (r"Missing required keys from file information", "a file of the user data has no path or no content", "B8"),
    (r"Fail to de(?:compress gzip|code base64) content", "a file of the user data could not be decoded", "B8"),
    (r"multipart part handling: text/x-shellscript, None", "a script of the user data has no file name", "B8"),
    (r"multipart part handling: (?P<what>(?!text/x-shellscript, None)\S+),", "a part of type {what} failed", ""),
    (r"Unsupported user_data format", "cloudbase-init does not know the form of the user data", ""),
    (r"Userdata plugin not found for content type: (?P<what>\S+)", "a part of type {what} cannot run", ""),
    (r"Could not process part type", "the cloud-config of the user data could not be read", ""),
    (r"Processing plugin (?P<what>\S+) failed", "{what} of the user data failed", ""),
    (r"Unknown encoding, assuming plain text", "a file of the user data has an unknown encoding", "B8"),
    (
        r"An error occurred during (?:runcmd|user_data|file|part) execution",
        "a script of the user data could not be started",
        "",
    ),
    (r"Missing name key from user information|Username cannot be empty", "a user of the user data has no name", ""),
    (r"Group name cannot be empty", "a group of the user data has no name", ""),
    (r"An error occurred during user '(?P<what>[^']*)' creation", "user {what} could not be created", ""),
    (r"Cannot add user \"(?P<what>[^\"]*)\" to group", "user {what} could not be added to its groups", ""),
    # These three codes ask for a restart, or for another run at the next start.
    (
        r"User_data script ended with return code: (?!(?:0|100[123])\b)(?P<what>-?\d+)",
        "a script of the user data ended with code {what}",
        "",
    ),
    (
        r"Script \"(?P<path>[^\"]*)\" ended with exit code: (?!(?:0|100[123])\b)(?P<what>-?\d+)",
        "script {path} ended with code {what}",
        "",
    ),
)


def judge_plugins(plugins: Iterable[str], log: str) -> dict[str, PluginEnd]:
    """What each plugin has done. One failure counts, even if the plugin ran again later."""
    ran, failed = ({match["name"] for match in form.finditer(log)} for form in (_RAN, _FAILED))
    return {name: "failed" if name in failed else "done" if name in ran else "not run" for name in plugins}


def has_run_user_data(log: str) -> bool:
    """Whether the plugin of user data ran in this part of the log."""
    return any(match["name"] == USER_DATA for match in _RAN.finditer(log))


def has_metadata(log: str) -> bool:
    """Whether cloudbase-init found its cloud at each of its starts."""
    return "No metadata service found" not in log


def find_complaints(log: str, *, has_keys: bool) -> tuple[Finding, ...]:
    """What cloudbase-init could not do of its own."""
    failed = {match["name"] for match in _FAILED.finditer(log)}
    # Templates are rendered with all metadata, and the public keys are among them.
    if not has_keys and {USER_DATA, _KEYS} <= failed:
        text = (
            f"{_KEYS} failed, and so do templates in user data: the machine has no key pair. Start it with a key pair"
        )
        return (Finding(text=text, row="B3"), *_find(_ABOUT_ITSELF, log))
    return _find(_ABOUT_ITSELF, log)


def find_user_data_complaints(log: str) -> tuple[Finding, ...]:
    """What cloudbase-init could not do with the user data."""
    return _find(_ABOUT_USER_DATA, log)


def _find(table: Iterable[tuple[str, str, str]], log: str) -> tuple[Finding, ...]:
    found = [
        Finding(text=meaning.format(**match.groupdict()), row=row)
        for form, meaning, row in table
        for match in re.finditer(form, log)
    ]
    return tuple(dict.fromkeys(found))
