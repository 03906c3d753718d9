"""Cases of the rules on a file as a whole."""

from __future__ import annotations

from tests.powershell import rules_form as r
from tests.powershell.cases import Bad, Good

HEAD = "; ".join(r.HEADER) + "\n"
PATH = "packer/guest/kinds/path.ps1"
START = "packer/guest/start.ps1"
KIND = (
    "@{\n    Get = { param($Resource) $Resource.entry }\n    Test = { param($Resource, $Now) $Now }\n"
    "    Set = { param($Resource, $Context) $Context }\n}\n"
)

GOOD = (
    Good(r.plain_bytes, "$a = 1\n"),
    Good(r.parses, "$a = { }\nif ($a) { 'x' } else { 'y' }\nGet-Thing -Name $a.b -Range (1..3)\n"),
    Good(r.only_old_syntax, "try { Get-Thing } catch { throw }\n"),
    Good(r.only_old_syntax, "trap { Write-Thing; exit 1 }\nGet-A\nexit 0\n", path=START),
    Good(r.strict_header, "# what for\n[CmdletBinding()]\nparam()\n" + HEAD + "$a = 1\n"),
    Good(r.strict_header, KIND, path=PATH),
    Good(r.exits_only_at_the_entry, "$code = 1\nexit $code\n", path=START),
    Good(r.exits_only_at_the_entry, "$exit = 1\n# exit 1\n'exit 1'\n"),
    Good(r.function_names, "function Get-Thing {\n[CmdletBinding()]\nparam()\n}\n"),
    Good(r.function_names, "function ConvertTo-Thing2 { [CmdletBinding()]param()\n1 }\n"),
    Good(
        r.entry_parameters,
        "[CmdletBinding()]\nparam([Parameter(ValueFromRemainingArguments = $true)][string[]]$Rest)\n",
    ),
    Good(r.entry_parameters, "function Get-A { param([Parameter(Mandatory = $true)]$B)\n$B }\n"),
    Good(r.kind_shape, KIND, path=PATH),
    Good(r.kind_shape, "function Get-A { 1 }\n"),
    Good(r.kind_fields, KIND, path=PATH),
    Good(r.kind_fields, '"there is no $($Resource.entry)"\n', path=PATH),
    Good(r.kind_fields, "Test-Same -Left $Resource.entry.TrimEnd('x')\n", path=PATH),
)

BAD = (
    Bad(r.plain_bytes, b"\xef\xbb\xbf$a = 1\n", "BOM"),
    Bad(r.plain_bytes, "$a = 1\n$b = '\u2013'\n", "not ASCII", 2),
    Bad(r.plain_bytes, b"$a = 1\r\n", "CR"),
    Bad(r.plain_bytes, "$a = 1", "newline"),
    Bad(r.plain_bytes, "$a = 1 +` \n2\n", "blanks"),
    Bad(r.plain_bytes, "", "empty"),
    Bad(r.parses, "$a = 1\nif ($a { 'x' }\n", "does not parse: if ($a {", 2),
    Bad(r.parses, "$a = $b ? 1 : 2\n", "does not parse"),
    Bad(r.parses, "$a = $b ?? 2\n", "does not parse"),
    Bad(r.parses, "$a = $b?.c\n", "does not parse"),
    Bad(r.only_old_syntax, "Get-A && Get-B\n", "&&"),
    Bad(r.only_old_syntax, "Get-A || Get-B\n", "||"),
    Bad(r.only_old_syntax, "$x = 1\nclass A { $B }\n", "classes", 2),
    Bad(r.only_old_syntax, "trap { Get-A; exit 1 }\n", "trap"),
    Bad(r.only_old_syntax, "trap { Get-A }\n", "trap", path=START),
    Bad(r.only_old_syntax, "function Get-A {\n    trap { Get-B; exit 1 }\n}\n", "trap", 2, path=START),
    Bad(r.strict_header, r.HEADER[1] + "\n", "Set-StrictMode -Version Latest"),
    Bad(r.strict_header, HEAD.replace("'Stop'", "'Continue'"), "lack: $ErrorActionPreference, "),
    Bad(r.strict_header, "function Get-A { 1 }\n" + HEAD, "$ProgressPreference"),
    Bad(r.exits_only_at_the_entry, "function Get-A {\n    exit 1\n}\n", "exit ends the whole process", 2),
    Bad(r.exits_only_at_the_entry, "exit 1\n$a = 1\n", "ends with an explicit exit", 2, path=START),
    Bad(r.exits_only_at_the_entry, "$a = 1\nexit\n", "ends with an explicit exit", 2, path=START),
    Bad(r.function_names, "function Fetch-Thing { [CmdletBinding()]param()\n1 }\n", "approved verb"),
    Bad(r.function_names, "function thing { [CmdletBinding()]param()\n1 }\n", "approved verb"),
    Bad(r.function_names, "function Get-Thing { param($A)\n$A }\n", "[CmdletBinding()]"),
    Bad(r.entry_parameters, "param(\n[Parameter(Mandatory)]$A)\n", "prompts", 2),
    Bad(r.entry_parameters, "param([Parameter(Position = 0, Mandatory = $true)]$A)\n", "prompts"),
    Bad(r.kind_shape, KIND + "$a = 1\n", "not one hashtable", path=PATH),
    Bad(r.kind_shape, HEAD + KIND, "not one hashtable", path=PATH),
    Bad(r.kind_shape, "'x'\n", "not one hashtable", path=PATH),
    Bad(r.kind_shape, KIND.replace("Test =", "Check ="), "keys Check, Get, Set", 1, path=PATH),
    Bad(r.kind_shape, KIND.replace("$Resource, $Now", "$Now"), "(Resource, Now), not (Now)", 3, path=PATH),
    Bad(r.kind_fields, "$Resource.entry + $Resource.mode\n", "no field mode", path=PATH),
    Bad(r.kind_fields, "$Resource.entry\n$Resource.pth.Trim()\n", "no field pth", 2, path=PATH),
    Bad(r.kind_fields, "$Now.entry\n", "never reads the field entry", path=PATH),
    Bad(r.kind_fields, "1\n", "no kind unheard-of", path="packer/guest/kinds/unheard-of.ps1"),
)  # fmt: skip
