"""What must be so about the SSH server: it lets in who has a key of the machine, and nobody else."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _ssh(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.ssh
    if found is None:
        return
    if not found.is_running:
        yield say(f"sshd does not run{f': {found.failure}' if found.failure else ''}")
        return
    if found.port != found.wanted_port:
        yield say(f"sshd listens on port {found.port}, and the config has {found.wanted_port}")
    elif not found.is_reached:
        yield say(f"Windows' firewall blocks port {found.port} of sshd")
    if found.accepts_passwords:
        yield say("sshd accepts passwords")
    if found.has_key and not found.logs_in:
        yield say(f"nobody can log in with the machine's key: sshd looks for it in {some(found.keys_files)}", "B11")
    if not found.host_keys:
        yield say("sshd has no key of the host")
    if found.keys_of_image:
        yield say(f"every node has the same key of the host: the image has {some(found.keys_of_image)}")
    if found.shell.lower() != found.wanted_shell.lower():
        yield say(f"an SSH session starts {found.shell or 'no program'}, and the config has {found.wanted_shell}")


CHECKS: Final = (
    Check(
        "ssh",
        "sshd lets in who has the machine's key, accepts no password, and has keys of its own",
        _ssh,
        lambda facts: facts.ssh is not None,
    ),
)
