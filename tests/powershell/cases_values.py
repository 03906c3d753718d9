"""Cases of the rules on variables and texts."""

from __future__ import annotations

from tests.powershell import rules_values as r
from tests.powershell.cases import Bad, Good

GOOD = (
    Good(r.nothing_unset_is_read, "$a, $b = 1, 2\n$a + $b + ${a}\n[int]$c = 1\n$C\n"),
    Good(r.nothing_unset_is_read, "$script:d = 1\nfunction Get-A { $script:d + $d }\n"),
    Good(r.nothing_unset_is_read, "param($P = 1)\nfunction Get-A { $P + $_ + $env:Y }\n"),
    Good(r.nothing_unset_is_read, "function Get-A {\nparam($Q)\nforeach ($x in $Q) { $x }\n}\n"),
    Good(r.nothing_unset_is_read, "function Get-A { param($Q)\n$b = { param($R) $Q + $R }\n& $b }\n"),
    Good(r.nothing_unset_is_read, "@{\nGet = { $a = 1\n$a }\nSet = { $a = 2\n\"x$a\" }\n}\n"),
    Good(r.nothing_unset_is_read, "$a = $args\n$a\n"),
    Good(r.nothing_is_set_in_vain, "$ErrorActionPreference = 'Stop'\n$null = Get-A\n$a, $b = 1, 2\n\"$b$a\"\n"),
    Good(r.nothing_is_set_in_vain, "$r = @{}\nGet-A @r\n$script:a = 1\nfunction Get-B { $script:a }\n"),
    Good(r.nothing_is_set_in_vain, "function Get-A {\nparam($Q)\nforeach ($x in 1, 2) { 1 }\n}\n"),
    Good(r.nothing_automatic_is_written, "$null = Get-A\n$events = 1\nforeach ($one in $x) { $one }\n$x.args = 1\n"),
    Good(r.no_drive_references, '"${a}: $($b): c:\\ $a"\n$env:X\n$script:y\n"$env:X\\y"\n'),
    Good(r.nothing_leaks, "$null = $list.Add(1)\n$a = New-Item -Path $x\nNew-Item -Path $x | Out-Null\n"),
    Good(r.nothing_leaks, "function Get-A {\n[string]::Equals($a, $b)\n$x.Dispose()\n}\n"),
    Good(r.nothing_leaks, "$a = @(New-Item -Path $x)\n$p.WaitForExit()\n"),
    Good(r.nothing_leaks, "return (New-Item -Path $x)\n"),
    Good(r.texts_expand, '"$a. $(b.c) ${a}.txt `$a.b"\n\'$a.b\'\n$a.b\n$a[0]\n"$($a.b[0])"\n'),
)  # fmt: skip

BAD = (
    Bad(r.nothing_unset_is_read, "$name = 1\n$nmae\n", "$nmae is read", 2),
    Bad(r.nothing_unset_is_read, '"it is $late"\n$late = 1\n', "$late is read"),
    Bad(r.nothing_unset_is_read, "$x = $x + 1\n", "$x is read"),
    Bad(r.nothing_unset_is_read, "$x += 1\n", "$x is read"),
    Bad(r.nothing_unset_is_read, "$x.y = 1\n", "$x is read"),
    Bad(r.nothing_unset_is_read, "function Get-A { $a = 1\n$a }\nfunction Get-B { $a }\n", "$a is read", 3),
    Bad(r.nothing_unset_is_read, "function Get-A { $a = 1\n$a }\n$a\n", "$a is read", 3),
    Bad(r.nothing_unset_is_read, "@{\nGet = { $a = 1\n$a }\nSet = { $a }\n}\n", "$a is read", 4),
    Bad(r.nothing_unset_is_read, "function Get-A { $script:no }\n", "$script:no is read"),
    Bad(r.nothing_unset_is_read, "Get-A @splat\n", "@splat is read"),
    Bad(r.nothing_unset_is_read, "if ($IsWindows) { 1 }\n", "$IsWindows is read"),
    Bad(r.nothing_unset_is_read, "function Get-A { $args }\n", "$args is read"),
    Bad(r.nothing_unset_is_read, "param($P)\n$P + $args\n", "$args is read", 2),
    Bad(r.nothing_is_set_in_vain, "$name = 1\n$naem = 2\n$name\n", "$naem is set", 2),
    Bad(r.nothing_is_set_in_vain, "function Get-A { $a = 1 }\nfunction Get-B { $a }\n", "$a is set"),
    Bad(r.nothing_is_set_in_vain, "$a, $b = 1, 2\n$a\n", "$b is set"),
    Bad(r.nothing_automatic_is_written, "$a = 1\n$args = 1\n", "$args is PowerShell's own", 2),
    Bad(r.nothing_automatic_is_written, "function Get-A { param($Host)\n1 }\n", "$host"),
    Bad(r.nothing_automatic_is_written, "foreach ($input in $x) { 1 }\n", "$input"),
    Bad(r.nothing_automatic_is_written, "$x, $matches = 1, 2\n", "$matches"),
    Bad(r.nothing_automatic_is_written, "$script:error = 1\n", "$script:error"),
    Bad(r.no_drive_references, '$a = 1\n"$a: it is"\n', "$a: is a drive", 2),
    Bad(r.no_drive_references, '"$name:rest"\n', "drive name"),
    Bad(r.no_drive_references, "$global:x = 1\n", "drive global"),
    Bad(r.no_drive_references, '@"\n$a: b\n"@\n', "$a: is a drive", 2),
    Bad(r.nothing_leaks, "$a = 1\n$list.Add(1)\n", "emits", 2),
    Bad(r.nothing_leaks, "[System.IO.Directory]::CreateDirectory($a)\n", "emits"),
    Bad(r.nothing_leaks, "if ($a) { New-Item -Path $x -ItemType Directory }\n", "emits"),
    Bad(r.nothing_leaks, "$x | New-Service -Name 'y'\n", "emits"),
    Bad(r.texts_expand, '"$a.txt"\n', "expands only the variable"),
    Bad(r.texts_expand, '$b = 1\n"x $a[0]"\n', "expands only the variable", 2),
)
