"""Cases of the rules on the order of things."""

from __future__ import annotations

from tests.powershell import rules_flow as r
from tests.powershell.cases import Bad, Good

GOOD = (
    Good(r.sleeps_are_polls, "while ($clock.Elapsed.TotalSeconds -lt 9) { Start-Sleep -Seconds 1 }\n"),
    Good(r.sleeps_are_polls, "do {\n$a = Get-SecondsLeft -Context $c\nStart-Sleep -Seconds 1\n} until ($a -lt 1)\n"),
    Good(r.loops_end, "while ($true) {\nif ($deadline -lt 1) { return }\n}\n"),
    Good(r.loops_end, "while ($a) { $a-- }\nfor ($i = 0; $i -lt 3; $i++) { $i }\ndo { $i } until ($i)\n"),
    Good(r.errors_are_seen, "try { 1 }\ncatch { throw }\n"),
    Good(r.errors_are_seen, "try { 1 } catch [System.IO.IOException] { $a = 1 } catch { return }\n"),
    Good(r.errors_are_seen, 'throw "what: $($_.Exception.Message)"\n'),
    Good(r.jumps_land, "foreach ($a in $b) { if ($a) { continue } else { break } }\nfunction Get-A { return 1 }\n"),
    Good(r.jumps_land, "Use-Block -Body { return 1 }\n$a | ForEach-Object -Process { foreach ($b in $_) { break } }\n"),
    Good(r.null_on_the_left, "$null -eq $a -and $null -ne $b.c\n$a -eq 1\nif ($a -contains $null) { 1 }\n"),
)  # fmt: skip

BAD = (
    Bad(r.sleeps_are_polls, "$a = 1\nStart-Sleep -Seconds 1\n", "a sleep belongs", 2),
    Bad(r.sleeps_are_polls, "while ($x) { Start-Sleep -Seconds 1 }\n", "a sleep belongs"),
    Bad(r.sleeps_are_polls, "foreach ($a in $b) {\n$clock = 1\nStart-Sleep -Seconds 1 }\n", "a sleep belongs", 3),
    Bad(r.loops_end, "$a = 1\nwhile ($true) { $a }\n", "must look at a clock", 2),
    Bad(r.loops_end, "for (;;) { $a }\n", "must look at a clock"),
    Bad(r.loops_end, "do { $a } while ($true)\n", "must look at a clock"),
    Bad(r.loops_end, "do { $a } until ($false)\n", "must look at a clock"),
    Bad(r.errors_are_seen, "try { 1 }\ncatch { }\n", "empty catch", 2),
    Bad(r.errors_are_seen, "try { 1 } catch {\n# never mind\n}\n", "empty catch"),
    Bad(r.errors_are_seen, "try { 1 } catch { throw $_.Exception.Message }\n", "loses the error"),
    Bad(r.jumps_land, "if ($a) {\nbreak }\n", "break outside a loop", 2),
    Bad(r.jumps_land, "foreach ($a in $b) { & { continue } }\n", "continue outside a loop"),
    Bad(r.jumps_land, "$a | ForEach-Object -Process { return }\n", "next item"),
    Bad(r.jumps_land, "foreach ($a in $b) { $a | Where-Object { break } }\n", "break outside a loop"),
    Bad(r.null_on_the_left, "if ($a -eq $null) { 1 }\n", "$null belongs on the left"),
    Bad(r.null_on_the_left, "$x = $a.b -cne $null\n", "$null belongs on the left"),
    Bad(r.null_on_the_left, "$x.Set($a -ne $null)\n", "$null belongs on the left"),
)
