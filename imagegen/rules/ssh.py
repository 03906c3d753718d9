"""The rules for the SSH server. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import table
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

_KEYS_PLUGIN: Final = "SetUserSSHPublicKeysPlugin"


@rule("ssh-keys-plugin", WARNING, "A plugin of cloudbase-init should write the keys of the metadata for the SSH server")
def ssh_keys_plugin(given: RuleInput) -> Iterator[Finding]:
    """Only where the cloud's own list has it."""
    clouds = table("cloudbase-init")["clouds"]
    for provider in given.providers if given.config.ssh else ():
        listed = getattr(given.config.cloudbase_init.plugins, provider)
        usual = next((name for name in clouds[provider]["plugins"] if name.endswith(f".{_KEYS_PLUGIN}")), None)
        if listed is not None and usual is not None and usual not in listed:
            yield Finding(
                ("cloudbase_init", "plugins", provider),
                f"without {_KEYS_PLUGIN}, only keys of the user data log in to the SSH server",
                f"add {usual}",
            )


@rule("ssh-version-known", ERROR, "An archive of Win32-OpenSSH must have a known address")
def ssh_version_known(given: RuleInput) -> Iterator[Finding]:
    ssh, known = given.config.ssh, table("openssh")["tags"]
    if ssh is None or ssh.source != "zip" or not ssh.version or "ssh_source_url" in given.config.overrides:
        return
    if not any(ssh.version in (version, version.partition("p")[0]) for version in known):
        yield Finding(
            ("ssh", "version"),
            f"imagegen knows no public archive of Win32-OpenSSH {ssh.version}",
            f"set overrides.ssh_source_url, or choose one of {', '.join(known)}",
        )


@rule("ssh-source-of-zip", ERROR, "overrides.ssh_source_url requires ssh.source: zip")
def ssh_source_of_zip(given: RuleInput) -> Iterator[Finding]:
    ssh = given.config.ssh
    if ssh and ssh.source != "zip" and "ssh_source_url" in given.config.overrides:
        yield Finding(
            ("overrides", "ssh_source_url"),
            "the server comes from Windows itself, so this archive would not be used",
            "write ssh.source: zip, or leave it out",
        )


@rule(
    "ssh-from-windows-update",
    WARNING,
    "A builder that reaches only your own hosts should take the SSH server from a zip",
)
def ssh_from_windows_update(given: RuleInput) -> Iterator[Finding]:
    ssh, policy = given.config.ssh, given.config.artifacts
    is_closed = policy.mirror or policy.allowed_hosts
    release = given.config.windows.release
    if ssh and ssh.source == "capability" and is_closed and release not in table("openssh")["installed"]:
        yield Finding(
            ("ssh",),
            f"Windows Server {release} gets its SSH server from Windows Update, not from your hosts",
            "write source: zip",
        )
