"""What the log of cloudbase-init says. Each case is a message of its own source, as it comes into the log."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import re
import warnings
from pathlib import Path

import pytest

from imagegen.boot import log
from imagegen.boot.log import (
    find_complaints,
    find_user_data_complaints,
    has_metadata,
    has_run_user_data,
    judge_plugins,
)
from imagegen.boot.node import Finding

MAIN = "init"
PLUGINS = "plugins.common"
PARTS = f"{PLUGINS}.userdataplugins"
CONFIG = f"{PARTS}.cloudconfigplugins"
EXECUTING, FAILED = r"Executing plugin '%s'", "plugin '%(plugin_name)s' failed with error '%(ex)s'"
NO_METADATA = "No metadata service found"
NOTHING: tuple[Finding, ...] = ()


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of one of cloudbase-init's modules, with its values, and what it means."""

    module: str
    form: str
    values: object
    text: str = ""
    row: str = ""
    level: str = "ERROR"

    @property
    def line(self) -> str:
        said = self.form % self.values if self.values else self.form
        return f"2026-11-19 12:49:30.919 8020 {self.level} cloudbaseinit.{self.module} [-] {said}"

    @property
    def meaning(self) -> tuple[Finding, ...]:
        return (Finding(text=self.text, row=self.row),) if self.text else NOTHING


ENDED = ("User_data script ended with return code: %d", 'Script "%(file_path)s" ended with exit code: %(ret_val)d')
SCRIPT = "C:\\Windows\\Temp\\two words.ps1"
ABOUT_ITSELF = (
    Message(f"{MAIN}", "reboot failed with error '%s'", "denied", "it could not restart the machine"),
    Message("plugins.factory", "Could not import plugin module %r", "x.Y", "there is no plugin x.Y"),
)
ABOUT_USER_DATA = (
    Message(
        f"{PARTS}.cloudboothook",
        "%s content is currently not supported",
        "text/cloud-boothook",
        "cloudbase-init does not run a boothook",
        "B4",
        "INFO",
    ),
    Message(
        f"{PARTS}.cloudconfig",
        "Plugin %r is currently not supported",
        "swap",
        "cloudbase-init does not support swap",
        "B8",
    ),
    Message(
        f"{CONFIG}.write_files",
        "Missing required keys from file information %s",
        {"permissions": "0640"},
        "a file of the user data has no path or no content",
        "B8",
        "WARNING",
    ),
    Message(
        f"{CONFIG}.write_files",
        "Fail to decompress gzip content.",
        None,
        "a file of the user data could not be decoded",
        "B8",
    ),
    Message(
        f"{CONFIG}.write_files",
        "Fail to decode base64 content.",
        None,
        "a file of the user data could not be decoded",
        "B8",
    ),
    Message(
        f"{CONFIG}.write_files",
        "Unknown encoding, assuming plain text.",
        None,
        "a file of the user data has an unknown encoding",
        "B8",
        "WARNING",
    ),
    Message(
        f"{PLUGINS}.userdata",
        "Exception during multipart part handling: %(content_type)s, %(filename)s",
        {"content_type": "text/x-shellscript", "filename": None},
        "a script of the user data has no file name",
        "B8",
    ),
    Message(
        f"{PLUGINS}.userdata",
        "Exception during multipart part handling: %(content_type)s, %(filename)s",
        {"content_type": "text/x-shellscript", "filename": "a.ps1"},
        "a part of type text/x-shellscript failed",
    ),
    Message(
        f"{PLUGINS}.userdata",
        "Exception during multipart part handling: %(content_type)s, %(filename)s",
        {"content_type": "text/cloud-config", "filename": None},
        "a part of type text/cloud-config failed",
    ),
    Message(
        f"{PLUGINS}.userdatautils",
        "Unsupported user_data format",
        None,
        "cloudbase-init does not know the form of the user data",
        level="WARNING",
    ),
    Message(
        f"{PLUGINS}.userdata",
        "Userdata plugin not found for content type: %s",
        "text/jinja2",
        "a part of type text/jinja2 cannot run",
        level="INFO",
    ),
    Message(
        f"{PARTS}.cloudconfig",
        "Could not process part type %(type)r: %(err)r",
        {"type": bytes, "err": "Invalid yaml stream provided."},
        "the cloud-config of the user data could not be read",
    ),
    Message(f"{PARTS}.cloudconfig", "Processing plugin %s failed", "runcmd", "runcmd of the user data failed"),
    *(
        Message(module, form, "denied", "a script of the user data could not be started", level="WARNING")
        for module, form in (
            (f"{CONFIG}.runcmd", "An error occurred during runcmd execution: '%s'"),
            (f"{PLUGINS}.userdatautils", "An error occurred during user_data execution: '%s'"),
            (f"{PARTS}.shellscript", "An error occurred during user_data execution: '%s'"),
            (f"{PLUGINS}.fileexecutils", "An error occurred during file execution: '%s'"),
            (f"{PLUGINS}.execcmd", "An error occurred during part execution: %s"),
        )
    ),
    Message(
        f"{CONFIG}.users",
        "Missing name key from user information %s",
        {"passwd": "1"},
        "a user of the user data has no name",
        level="WARNING",
    ),
    Message(
        f"{CONFIG}.users", "Username cannot be empty", None, "a user of the user data has no name", level="WARNING"
    ),
    Message(
        f"{CONFIG}.groups", "Group name cannot be empty", None, "a group of the user data has no name", level="WARNING"
    ),
    Message(
        f"{CONFIG}.users",
        "An error occurred during user '%s' creation: '%s",
        ("bob", "denied"),
        "user bob could not be created",
        level="WARNING",
    ),
    Message(
        f"{CONFIG}.users",
        'Cannot add user "%s" to group "%s"',
        ("bob", "Nodes"),
        "user bob could not be added to its groups",
    ),
    *(
        Message(
            f"{PLUGINS}.userdatautils",
            ENDED[0],
            code,
            text and f"a script of the user data ended with code {text}",
            level="INFO",
        )
        for code, text in (
            *((code, "") for code in (0, 1001, 1002, 1003)),
            *((code, str(code)) for code in (1, -1, 10, 100, 1000, 1004, 10010, 3221225786)),
        )
    ),
    *(
        Message(
            f"{PLUGINS}.fileexecutils",
            ENDED[1],
            {"file_path": SCRIPT, "ret_val": code},
            text and f"script {SCRIPT} ended with code {text}",
            level="INFO",
        )
        for code, text in (*((code, "") for code in (0, 1001, 1002, 1003)), (3, "3"), (1004, "1004"))
    ),
)
# Messages about failures of user data that need no reason of their own.
HARMLESS = (
    "Fail to process permissions",  # they mean nothing on Windows
    "already exists",  # the user or group is configured all the same
    "Cannot create a user logon session",  # Windows makes the profile when the user logs on
    "Group details could not be parsed",  # followed by the failure of the whole plugin
)

# What stands in a message in the place of a value.
SAMPLES = {"s": "x", "r": "'x'", "d": "3"}


def in_log(*messages: Message, end: str = "\n") -> str:
    return "".join(message.line + end for message in messages)


def executing(name: str) -> Message:
    return Message(MAIN, EXECUTING, name, level="INFO")


def failed(name: str) -> Message:
    return Message(MAIN, FAILED, {"plugin_name": name, "ex": "denied"})


@functools.cache
def body(module: str) -> ast.Module:
    """A module of the installed cloudbase-init, by reading: modules for Windows cannot be imported elsewhere."""
    root = importlib.util.find_spec("cloudbaseinit")
    assert root is not None
    assert root.origin is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(Path(root.origin).parent.joinpath(*module.split(".")).with_suffix(".py").read_bytes())


def texts(node: ast.AST) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


@pytest.mark.parametrize("message", ABOUT_USER_DATA, ids=lambda message: message.line.partition("[-] ")[2])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""], ids=["lf", "crlf", "cut off"])
def test_what_cloudbase_init_says_of_user_data_has_a_meaning(message: Message, end: str) -> None:
    text = in_log(executing("UserDataPlugin"), message, end=end)
    assert find_user_data_complaints(text) == message.meaning
    assert find_complaints(text, has_keys=True) == NOTHING


@pytest.mark.parametrize("message", ABOUT_ITSELF, ids=lambda message: message.form)
def test_what_cloudbase_init_says_of_itself_has_a_meaning(message: Message) -> None:
    assert find_complaints(in_log(message), has_keys=True) == message.meaning
    assert find_user_data_complaints(in_log(message)) == NOTHING


@pytest.mark.parametrize(
    "message",
    [*ABOUT_ITSELF, *ABOUT_USER_DATA, executing("x"), failed("x"), Message(MAIN, NO_METADATA, None)],
    ids=lambda message: f"{message.module}: {message.line.partition('[-] ')[2]}",
)
def test_cloudbase_init_has_this_message(message: Message) -> None:
    assert message.form in texts(body(message.module))


def test_every_form_has_a_message() -> None:
    lines = in_log(*ABOUT_ITSELF, *ABOUT_USER_DATA)
    tables = (*log._ABOUT_ITSELF, *log._ABOUT_USER_DATA)
    assert [form for form, *_ in tables if not re.search(form, lines)] == []


def test_no_failure_of_user_data_is_overlooked() -> None:
    """Each warning and error that cloudbase-init's source has for user data."""
    found = []
    for module in sorted({message.module for message in ABOUT_USER_DATA} | {f"{CONFIG}.set_hostname"}):
        for call in ast.walk(body(module)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            if call.func.attr in ("warning", "error", "exception") and (said := texts(call.args[0])):
                found.append(re.sub(r"%(?:\(\w+\))?([srd])", lambda match: SAMPLES[match[1]], said[0]))
    assert len(found) >= 20
    known = [one for one in found if find_user_data_complaints(one) or any(text in one for text in HARMLESS)]
    assert [one for one in found if one not in known] == []
    assert [text for text in HARMLESS if not any(text in one for one in found)] == []


def test_the_same_complaint_is_one_reason_and_all_are_in_the_tables_order() -> None:
    form = "Plugin %r is currently not supported"
    plugins = [Message(f"{PARTS}.cloudconfig", form, name) for name in ("swap", "bootcmd", "swap")]
    ended = Message(f"{PLUGINS}.userdatautils", ENDED[0], 3, level="INFO")
    assert [one.text for one in find_user_data_complaints(in_log(ended, *plugins))] == [
        "cloudbase-init does not support swap",
        "cloudbase-init does not support bootcmd",
        "a script of the user data ended with code 3",
    ]


def test_each_plugin_is_judged_by_all_its_starts() -> None:
    text = in_log(
        executing("MTUPlugin"),
        executing("CreateUserPlugin"),
        failed("CreateUserPlugin"),
        executing("MTUPlugin"),
        executing("CreateUserPlugin"),
    )
    names = ["UserDataPlugin", "CreateUserPlugin", "MTUPlugin", "UserPlugin"]
    assert list(judge_plugins(names, text).items()) == [
        ("UserDataPlugin", "not run"),
        ("CreateUserPlugin", "failed"),
        ("MTUPlugin", "done"),
        ("UserPlugin", "not run"),
    ]
    assert judge_plugins(["MTUPlugin"], "") == {"MTUPlugin": "not run"}


def test_one_start_without_metadata_counts() -> None:
    loaded = Message(MAIN, "Metadata service loaded: '%s'", "AzureService", level="INFO")
    assert has_metadata(in_log(loaded))
    assert not has_metadata(in_log(loaded, Message(MAIN, NO_METADATA, None), loaded))


@pytest.mark.parametrize(
    ("messages", "ran"),
    [
        ((executing("UserDataPlugin"),), True),
        ((executing("MTUPlugin"), executing("ExtendVolumesPlugin")), False),
        ((failed("UserDataPlugin"),), False),
        ((Message(MAIN, "Plugin '%s' execution already done, skipping", "UserDataPlugin", level="DEBUG"),), False),
        ((), False),
    ],
    ids=["ran", "others ran", "no start", "skipped", "empty"],
)
def test_a_start_that_runs_user_data_is_seen(messages: tuple[Message, ...], ran: bool) -> None:
    assert has_run_user_data(in_log(*messages)) is ran


KEYS_TEXT = (
    "SetUserSSHPublicKeysPlugin failed, and so do templates in user data: the machine has no key pair. "
    "Start it with a key pair"
)


@pytest.mark.parametrize(
    ("names", "has_keys", "expected"),
    [
        (("SetUserSSHPublicKeysPlugin", "UserDataPlugin"), False, (Finding(text=KEYS_TEXT, row="B3"),)),
        (("SetUserSSHPublicKeysPlugin", "UserDataPlugin"), True, NOTHING),
        (("SetUserSSHPublicKeysPlugin",), False, NOTHING),
        (("UserDataPlugin",), False, NOTHING),
        ((), False, NOTHING),
    ],
)
def test_a_missing_key_pair_explains_two_failures(
    names: tuple[str, ...], has_keys: bool, expected: tuple[Finding, ...]
) -> None:
    text = in_log(*map(failed, names), ABOUT_ITSELF[0])
    assert find_complaints(text, has_keys=has_keys) == (*expected, *ABOUT_ITSELF[0].meaning)
