"""What the rules know of PowerShell and Windows beyond the cmdlets: words as data, each group with its reason."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Where scripts lie.
SCRIPT_GLOBS = (
    *("packer/**/*.ps1", "packer/**/*.psm1", "ansible-win/**/*.ps1", "ansible-win/**/*.psm1"),
    "imagegen/samples/**/*.ps1",
)

# The scripts that Windows or Packer starts: they alone end the process, and say with which code.
ENTRY_SCRIPTS = frozenset(
    {
        *("start.ps1", "logs.ps1", "generalise.ps1", "bootstrap.ps1"),
        *("start-kubelet.ps1", "rotate-logs.ps1", "first-boot.ps1", "register-plugin.ps1", "add-ssh-server.ps1"),
        "install-updates.ps1",
        *("set-pod-network.ps1", "reset-node.ps1"),
        "start-in-pod.ps1",
    }
)

# What the grammar misreads, by file and line as written, with the reason why Windows reads it right. Best none.
FALSE_ALARMS: dict[tuple[str, str], str] = {}

# Scripts that call programs themselves and not through Invoke-Native, and why.
DIRECT_NATIVE = {"start.ps1": "runs before the bundle that holds Invoke-Native is verified and unpacked"}
PROCESS_SCRIPTS = {
    "common.psm1": "holds Invoke-Native",
    "logs.ps1": "runs without the bundle, which the builder may not have",
    "start-kubelet.ps1": "stays for as long as the kubelet that it starts",
    "start-in-pod.ps1": "runs in a pod, and stays for as long as the program that it starts",
}
# Scripts that compile a call of Windows, and why.
COMPILING_SCRIPTS = {"common.psm1": "no cmdlet creates a network of HNS: only its own function does"}
PROCESS_TYPES = ("diagnostics.process",)

# Programs that a script may name: in System32 of every release, or of EC2Launch and the image.
NATIVE_TOOLS = _words(
    "defrag.exe dism.exe ec2launch.exe icacls.exe kubeadm.exe kubectl.exe kubelet.exe msiexec.exe net.exe netsh.exe "
    "ngen.exe schtasks.exe powershell.exe reg.exe sc.exe sshd.exe sysprep.exe tar.exe wevtutil.exe"
)

COMMON_PARAMETERS = _words("""
    Debug ErrorAction ErrorVariable InformationAction InformationVariable OutBuffer OutVariable PipelineVariable
    Verbose WarningAction WarningVariable
""")

# Parameters without a value, of any cmdlet that a script here uses; none of them has a value in another such cmdlet.
SWITCHES = _words("""
    all allowclobber allowstartifonbatteries append asjob asplaintext asstring autosize casesensitive compress
    confirm container debug deletekey descending directory disablenamechecking dontstopifgoingonbatteries enumerate
    file force global hidden includeallsubfeature includemanagementtools isvalid leaf line listavailable noclobber
    nonewline nonewwindow noqualifier norestart notypeinformation nowait off online parent passthru qualifier quiet
    raw readonly recurse resolve restart runasadministrator skipnetworkprofilecheck strict system unique
    usebasicparsing usessl verbose wait whatif word
""")

# Cmdlets that may take words without a parameter's name, and how many: their first words cannot be misread.
POSITIONAL = {"foreach-object": 1, "join-path": 2, "where-object": 1, "write-output": 1}

# Has -LiteralPath, which 5.1 does not let stand beside -Parent, -Leaf and the like.
NO_LITERAL_PATH = frozenset({"split-path"})

_NETWORK = "bytes come from a network only in download.psm1"
_TEXT = "5.1 writes UTF-16, ANSI or a BOM: write with [System.IO.File]"
FORBIDDEN_COMMANDS = {
    "add-content": _TEXT,
    "out-file": _TEXT,
    "set-content": _TEXT,
    "tee-object": _TEXT,
    "export-csv": _TEXT,
    "invoke-expression": "text is not code",
    "iex": "text is not code",
    "read-host": "nobody is there to answer",
    "write-error": "it is non-terminating for a caller with another preference: throw",
    "write-host": "wraps at the host's width: [System.Console]::Out.WriteLine",
    "get-wmiobject": "absent from 7: Get-CimInstance",
    "invoke-wmimethod": "absent from 7: Invoke-CimMethod",
    "get-eventlog": "absent from 7: Get-WinEvent",
    "restart-computer": "the host restarts the machine; a script says that a restart is due",
    "stop-computer": "the host stops the machine",
    "new-webserviceproxy": "absent from 7",
    "start-process": "judges no exit code, and -Wait waits for all descendants: Invoke-Native",
    "set-acl": "writes owner and group too, which needs privileges: icacls",
    "using": "parsed before the script runs: write the whole name of a type",
}
NETWORK_COMMANDS = dict.fromkeys(
    ("invoke-webrequest", "invoke-restmethod", "start-bitstransfer", "curl.exe", "bitsadmin.exe", "wget.exe"), _NETWORK
)
# Parameters that 5.1 has and 7 has not.
GONE_PARAMETERS = frozenset({"usetransaction"})

NETWORK_TYPES = (
    "net.http.",
    "net.webclient",
    "net.webrequest",
    "net.httpwebrequest",
    "net.sockets.",
    "net.servicepointmanager",
)
NETWORK_SCRIPT = "download.psm1"

# Instance members that .NET Framework 4.7 lacks, or has with fewer arguments: the most that both take.
NEWER_MEMBERS = {
    "argumentlist": "ProcessStartInfo has it in .NET Core only: Arguments",
    "waitforexitasync": "in .NET 5 and later only",
    "getvalueordefault": "of a dictionary in .NET Core only",
    "tryadd": "of a dictionary in .NET Core only",
    "readasstream": "in .NET 5 and later only",
}
MOST_ARGUMENTS = {"contains": 1, "kill": 0, "replace": 2}

# What writes to the output whoever calls it, when nothing takes it: a function returns all of that.
LEAKY_MEMBERS = _words("""
    add append appendline createdirectory remove wait waitall waitany waitforexit waitone
""")
LEAKY_COMMANDS = _words("""
    install-windowsfeature new-item new-itemproperty new-netfirewallrule new-selfsignedcertificate
    new-service new-wsmaninstance register-scheduledtask set-wsmaninstance uninstall-windowsfeature
""")

# Waits that never end without a time, and how many arguments they have when they have one.
TIMED_WAITS = {"waitforexit": 1, "wait": 1, "waitone": 1, "waitforstatus": 2, "waitall": 2, "waitany": 2}
UNTIMED_SCRIPTS = {
    "start-kubelet.ps1": "stays for as long as the service that it is runs",
    "start-in-pod.ps1": "stays for as long as the pod that it is runs",
}
CLOCK_WORD = re.compile(r"clock|deadline|watch|elapsed", re.IGNORECASE)
# Functions that read the step's clock.
CLOCK_FUNCTIONS = frozenset({"get-secondsleft"})

VERBS = _words("""
    Add Assert Clear Close Complete Compress Confirm Connect Convert ConvertFrom ConvertTo Copy Debug Deny Disable
    Disconnect Dismount Edit Enable Enter Exit Expand Export Find Format Get Grant Group Import Initialize Install
    Invoke Join Limit Lock Measure Merge Mount Move New Open Optimize Out Ping Pop Protect Publish Push Read Receive
    Redo Register Remove Rename Repair Request Reset Resize Resolve Restart Restore Resume Revoke Save Search Select
    Send Set Show Skip Split Start Step Stop Submit Suspend Switch Sync Test Trace Unblock Undo Uninstall Unlock
    Unprotect Unpublish Unregister Update Use Wait Watch Write
""")

# Set by PowerShell itself: readable...
AUTOMATIC = _words("""
    _ errorrecord false lastexitcode matches myinvocation null psboundparameters pscmdlet pscommandpath psitem
    psscriptroot psversiontable true
""")
# ...and never to be written, as a variable, a parameter or a loop's: what is assigned is another thing, or an error.
UNTOUCHABLE = _words("""
    _ args consolefilename error event eventargs eventsubscriber executioncontext false foreach home host input
    iscoreclr islinux ismacos iswindows lastexitcode matches myinvocation nestedpromptlevel pid profile
    psboundparameters pscmdlet pscommandpath psculture psdebugcontext psedition pshome psitem psscriptroot
    pssenderinfo psuiculture psversiontable pwd sender shellid sourceargs sourceeventargs stacktrace switch this
    true
""")
PREFERENCES = _words("""
    erroractionpreference progresspreference warningpreference informationpreference
""")
NAMESPACES = frozenset({"script", "env"})

# Tables above whose keys are cmdlets; FORBIDDEN_COMMANDS has other words too.
CMDLET_TABLES = (POSITIONAL, NO_LITERAL_PATH, LEAKY_COMMANDS)
