"""The .NET types that scripts may name: all are in .NET Framework 4.7.2 (Server 2019) and in the .NET of PowerShell 7.

Static members stand beside their type. A method's number is the most arguments that both know: .NET has overloads that
.NET Framework lacks, and PowerShell tells them apart only when it runs.
"""

from __future__ import annotations

# PowerShell's own words for types; `[regex]`, `[array]` and the like have static members too.
_WORDS = """
array: IndexOf/4 Sort/2 Reverse/1 Copy/3
bool: Parse/1
int: MaxValue
byte byte[] char double hashtable int[] int64 long object object[] ordered pscustomobject ref scriptblock
string[] switch type[] uint32 uint64 version xml
environment: CurrentDirectory ExpandEnvironmentVariables/1 GetCommandLineArgs/0 GetFolderPath/1
environment: SetEnvironmentVariable/2 TickCount
guid: NewGuid/0
convert: ToBase64String/1 FromBase64String/1 ToString/2 ToInt32/2
datetime: Now UtcNow
math: Max/2 Min/2 Floor/1 Ceiling/1 Pow/2 Abs/1 Round/1
regex: Replace/3 Match/2 Matches/2 Escape/1 IsMatch/2 Split/2
string: Equals/3 Join/2 IsNullOrEmpty/1 IsNullOrWhiteSpace/1 Compare/3 CompareOrdinal/2 Format/2 Empty
invalidoperationexception
bitconverter: GetBytes/1 ToInt32/2 ToUInt32/2 ToInt64/2 ToUInt64/2 ToString/1
console: Out Error OutputEncoding
stringcomparer: Ordinal OrdinalIgnoreCase
stringcomparison: Ordinal OrdinalIgnoreCase
timespan: FromSeconds/1 FromMilliseconds/1 FromMinutes/1
uri: TryCreate/3 EscapeDataString/1
cmdletbinding parameter
"""

# With their namespace; a leading `System.` is left out.
_TYPES = """
collections.generic.list[string] collections.generic.sortedset[string]
collections.specialized.ordereddictionary
diagnostics.eventing.reader.eventlogsession: GlobalSession
diagnostics.process: Start/1 GetCurrentProcess/0 GetProcessesByName/1
diagnostics.processstartinfo
diagnostics.stopwatch: StartNew/0
globalization.cultureinfo: InvariantCulture
io.compression.zipfileextensions: ExtractToFile/3
io.compression.ziparchive
io.binaryreader
io.directory: CreateDirectory/1 Delete/2 Exists/1 GetFiles/3 GetDirectories/3 GetFileSystemEntries/3 Move/2
io.file: AppendAllText/3 Copy/3 Delete/1 Exists/1 GetAttributes/1 GetLastWriteTimeUtc/1 Move/2 OpenRead/1
io.file: ReadAllBytes/1 ReadAllLines/2
io.file: ReadAllText/2 SetAttributes/2 WriteAllBytes/2 WriteAllLines/3 WriteAllText/3
io.fileaccess: Read Write ReadWrite
io.fileattributes: Normal ReadOnly ReparsePoint
io.driveinfo
io.fileinfo
io.fileoptions: DeleteOnClose None
io.filemode: Append Create CreateNew Open OpenOrCreate
io.fileshare: None Read ReadWrite
io.filestream
io.ioexception
io.memorystream
io.path: Combine/4 GetDirectoryName/1 GetExtension/1 GetFileName/1 GetFileNameWithoutExtension/1 GetFullPath/1
io.path: GetPathRoot/1 GetTempPath/0 GetRandomFileName/0 IsPathRooted/1
io.searchoption: AllDirectories TopDirectoryOnly
io.streamreader
microsoft.win32.registry: LocalMachine GetValue/3
microsoft.win32.registryhive: LocalMachine
microsoft.win32.registrykey: OpenBaseKey/2
microsoft.win32.registrykeypermissioncheck: Default
microsoft.win32.registryoptions: Volatile
microsoft.win32.registryvaluekind: Binary String ExpandString DWord QWord MultiString
microsoft.win32.registryvalueoptions: DoNotExpandEnvironmentNames
microsoft.win32.registryview: Registry64
net.dns: GetHostName/0
net.http.headers.rangeheadervalue
net.http.httpclient
net.http.httpclienthandler
net.http.httpcompletionoption: ResponseHeadersRead
net.http.httpmethod: Get Head
net.http.httprequestmessage
net.ipaddress: Parse/1
net.securityprotocoltype: Tls12
net.webproxy
net.servicepointmanager: SecurityProtocol DefaultConnectionLimit
runtime.interopservices.comexception
security.accesscontrol.accesscontrolsections
security.accesscontrol.registryrights
security.accesscontrol.registrysecurity
security.cryptography.x509certificates.openflags: ReadOnly ReadWrite
security.cryptography.x509certificates.storelocation: LocalMachine
security.cryptography.x509certificates.x509certificate2
security.cryptography.x509certificates.x509store
security.principal.securityidentifier
security.securityelement: Escape/1
security.securestring
security.securityexception
text.utf8encoding
threading.tasks.task: WaitAll/2 WaitAny/2
threading.tasks.task[]
xml.xmlconvert: ToDateTimeOffset/1 ToString/1 ToTimeSpan/1
"""


# Compiled by a script itself.
_COMPILED = """
imagegen.hns: HNSCall/4
"""


def _read(table: str) -> dict[str, dict[str, int | None]]:
    types: dict[str, dict[str, int | None]] = {}
    for line in table.strip().splitlines():
        names, _, members = line.partition(":")
        for name in names.split():
            known = types.setdefault(name, {})
            for member in members.split():
                word, _, most = member.partition("/")
                known[word.lower()] = int(most) if most else None
    return types


# By lower-case name: the static members, each with the most arguments it takes; None for a property.
STATIC_MEMBERS = _read(_WORDS) | _read(_TYPES) | _read(_COMPILED)


def canonical(name: str) -> str:
    """A type's name as the table has it."""
    return name.strip("'\"").lower().removeprefix("system.").replace(", ", ",")
