# Windows updates, by Windows Update's own API in a task as SYSTEM. In each round it is asked once, and the plan has a restart after each.
# A volatile key, which a start of Windows removes, says that it was asked since the last one. The record of the rounds says what must be there.
@{
    Get  = { param($Resource)
        $folder = 'C:\ProgramData\imagegen\updates'
        $record = $null
        # A run that was killed may have left a part of it.
        try {
            if ([System.IO.File]::Exists("$folder\$($Resource.name).json")) { $record = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("$folder\$($Resource.name).json")) }
            $rounds = 0
            $installed = @()
            $serviced = @()
            if ($null -ne $record) {
                $rounds = [int]$record.rounds
                $installed = @($record.installed)
                $serviced = @($record.serviced)
            }
        }
        catch {
            $rounds = 0
            $installed = @()
            $serviced = @()
        }
        $pending = Test-RestartPending
        $packages = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\Packages'
        $there = @(foreach ($name in Get-RegistrySubKey -Key $packages) {
                # 112 is installed, 128 installed for good, and 80 replaced by a later one. 96 and 101 wait for a restart.
                $state = Get-RegistryData -Key "$packages\$name" -Name 'CurrentState' -Default 0
                if (@(80, 112, 128) -notcontains $state -and -not ($pending -and @(96, 101) -contains $state)) { continue }
                $origin = Get-RegistryData -Key "$packages\$name" -Name 'InstallLocation' -Default ''
                foreach ($found in [regex]::Matches("$name $origin", 'KB\d+')) { $found.Value }
            })
        $ubr = [int](Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion' -Name 'UBR' -Default 0)
        # A cumulative update is there too if Windows has its revision, or a later one.
        $lost = @(foreach ($one in $serviced) {
                if ($there -cnotcontains $one.kb -and ($null -eq $one.ubr -or $ubr -lt $one.ubr)) { $one.kb }
            })
        $missing = @(foreach ($one in $Resource.kbs) {
                if ($there -cnotcontains $one.kb -and $installed -cnotcontains $one.kb -and ($null -eq $one.ubr -or $ubr -lt $one.ubr)) { $one.kb }
            })
        [ordered]@{
            rounds = $rounds; asked = (Test-RegistryKey -Key 'HKLM:\SOFTWARE\imagegen-updates'); ubr = $ubr
            installed = [string[]]$installed; lost = [string[]]$lost; missing = [string[]]$missing; proxy_left = [System.IO.File]::Exists("$folder\winhttp.txt")
        }
    }
    Test = { param($Resource, $Now)
        if ($Now.proxy_left) { 'WinHTTP still has the proxy of the updates' }
        if (-not $Now.asked -and $Now.rounds -lt $Resource.rounds) { "Windows Update was asked in $($Now.rounds) of $($Resource.rounds) rounds" }
        foreach ($kb in $Now.lost) { "$kb was installed, and is no longer there: Windows took it back, and has the revision $($Now.ubr)" }
        # An update may be offered only after another one is installed.
        if ($Now.rounds -ge $Resource.rounds) {
            foreach ($kb in $Now.missing) { "$kb is not installed, and Windows Update does not offer it: it may be of another release, withdrawn, or replaced (Windows has the revision $($Now.ubr))" }
        }
    }
    Set  = { param($Resource, $Context)
        $folder = 'C:\ProgramData\imagegen\updates'
        $null = [System.IO.Directory]::CreateDirectory($folder)
        $order = "$folder\order.json"
        $answer = "$folder\answer.json"
        $kept = "$folder\winhttp.txt"
        foreach ($path in $answer, "${answer}.new") { [System.IO.File]::Delete($path) }
        Write-TextFile -Path $order -Text (ConvertTo-AsciiJson -Value ([ordered]@{
                    categories = [string[]]@($Resource.categories); kbs = [string[]]@(foreach ($one in $Resource.kbs) { $one.kb }); exclude = [string[]]@($Resource.exclude)
                }))
        # The 64-bit view, as everywhere.
        $registry = [Microsoft.Win32.RegistryKey]::OpenBaseKey([Microsoft.Win32.RegistryHive]::LocalMachine, [Microsoft.Win32.RegistryView]::Registry64)
        $connections = 'SOFTWARE\Microsoft\Windows\CurrentVersion\Internet Settings\Connections'
        if ($null -ne $Resource.proxy -and -not [System.IO.File]::Exists($kept)) {
            $before = Get-RegistryValue -Key "HKLM:\$connections" -Name 'WinHttpSettings'
            $text = ''
            if ($null -ne $before) { $text = [System.Convert]::ToBase64String([byte[]]$before.data) }
            Write-TextFile -Path $kept -Text $text
        }
        $file = [System.IO.Path]::Combine($Context.Bundle, $Resource.source.Replace('/', '\'))
        $found = Get-Digest -Path $file
        if ($found -cne $Resource.sha256) { throw "the sha256 of $($Resource.source) is $found, not $($Resource.sha256)" }
        $task = 'imagegen-updates'
        $left = Get-SecondsLeft -Context $Context
        $words = @('-NoProfile', '-NonInteractive', '-ExecutionPolicy', 'Bypass', '-File', $file, '-Order', $order, '-Answer', $answer)
        $line = @(foreach ($word in $words) { ConvertTo-NativeArgument -Value $word }) -join ' '
        $program = Get-SystemTool -Name 'WindowsPowerShell\v1.0\powershell.exe'
        # By SID, because the name of the account is localised. Without a trigger it runs only when it is started here.
        $xml = (@(
                '<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task"><Triggers />'
                '<Principals><Principal id="Author"><UserId>S-1-5-18</UserId><RunLevel>HighestAvailable</RunLevel></Principal></Principals>'
                '<Settings><MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy><DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>'
                '<StopIfGoingOnBatteries>false</StopIfGoingOnBatteries><ExecutionTimeLimit>{0}</ExecutionTimeLimit><Priority>6</Priority></Settings>'
                '<Actions Context="Author"><Exec><Command>{1}</Command><Arguments>{2}</Arguments></Exec></Actions></Task>'
            ) -join '') -f [System.Xml.XmlConvert]::ToString([System.TimeSpan]::FromSeconds($left)), [System.Security.SecurityElement]::Escape($program), [System.Security.SecurityElement]::Escape($line)
        try {
            if ($null -ne $Resource.proxy) {
                $settings = "winhttp set proxy proxy-server=`"$($Resource.proxy)`""
                if ($Resource.bypass -ne '') { $settings += " bypass-list=`"$($Resource.bypass)`"" }
                $null = Invoke-Native -FilePath (Get-SystemTool -Name 'netsh.exe') -ArgumentLine $settings
            }
            $null = Register-ScheduledTask -TaskName $task -TaskPath '\' -Xml $xml -Force -ErrorAction Stop
            Start-ScheduledTask -TaskName $task -TaskPath '\' -ErrorAction Stop
            $clock = [System.Diagnostics.Stopwatch]::StartNew()
            while (-not [System.IO.File]::Exists($answer)) {
                if ($clock.Elapsed.TotalSeconds -gt $left) { throw "Windows Update did not finish within $left s" }
                # 267009 is that it runs, and 267011 that it has not run yet.
                $result = [long](Get-ScheduledTaskInfo -TaskName $task -TaskPath '\' -ErrorAction Stop).LastTaskResult
                if (@(267009, 267011) -notcontains $result -and $clock.Elapsed.TotalSeconds -gt 60 -and -not [System.IO.File]::Exists($answer)) {
                    throw "the task of the updates ended with $result, and left no answer"
                }
                Start-Sleep -Seconds 5
            }
        }
        finally {
            # One that was never registered cannot be removed.
            Stop-ScheduledTask -TaskName $task -TaskPath '\' -ErrorAction SilentlyContinue
            Unregister-ScheduledTask -TaskName $task -TaskPath '\' -Confirm:$false -ErrorAction SilentlyContinue
            if ([System.IO.File]::Exists($kept)) {
                $text = [System.IO.File]::ReadAllText($kept)
                $key = $registry.CreateSubKey($connections)
                try {
                    if ($text -eq '') { $key.DeleteValue('WinHttpSettings', $false) }
                    else { $key.SetValue('WinHttpSettings', [System.Convert]::FromBase64String($text), [Microsoft.Win32.RegistryValueKind]::Binary) }
                }
                finally { $key.Dispose() }
                [System.IO.File]::Delete($kept)
            }
        }
        $told = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($answer))
        $failures = @(foreach ($one in $told.failed) { "could not $($one.step) $($one.kb), $($one.title): $($one.code)" })
        if ($told.code -ne '') { $failures += "failed: $($told.code)" }
        if ($failures.Count -gt 0) {
            $codes = @(foreach ($one in $told.failed) { $one.code }) + @($told.code)
            $known = @(foreach ($one in $Resource.codes) {
                    if ($codes -ccontains $one.code) { "$($one.code) means: $($one.means)" }
                })
            throw "Windows Update $((@($failures) + $known) -join '; ')"
        }
        $rounds = 0
        $installed = @()
        $serviced = @()
        # A damaged record counts as none.
        try {
            if ([System.IO.File]::Exists("$folder\$($Resource.name).json")) {
                $record = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("$folder\$($Resource.name).json"))
                $rounds = [int]$record.rounds
                $installed = @($record.installed)
                $serviced = @($record.serviced)
            }
        }
        catch { $rounds = 0 }
        $packages = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\Packages'
        $new = @(foreach ($name in Get-RegistrySubKey -Key $packages) {
                $origin = Get-RegistryData -Key "$packages\$name" -Name 'InstallLocation' -Default ''
                $revision = $null
                $version = [regex]::Match($name, '\APackage_for_RollupFix~.*~\d+\.(\d+)\.')
                if ($version.Success) { $revision = [int]$version.Groups[1].Value }
                foreach ($kb in Get-SortedText -Text @(foreach ($found in [regex]::Matches("$name $origin", 'KB\d+')) { $found.Value })) {
                    if (@($told.installed) -ccontains $kb) { [ordered]@{ kb = $kb; ubr = $revision } }
                }
            })
        # Without anything to install, later rounds would find nothing either: unless a killed run installed something that waits for a restart.
        $rounds++
        if (@($told.found).Count -eq 0 -and -not (Test-RestartPending)) { $rounds = [Math]::Max($rounds, [int]$Resource.rounds) }
        Write-TextFile -Path "$folder\$($Resource.name).json" -Text (ConvertTo-AsciiJson -Value ([ordered]@{
                    rounds = $rounds; installed = [string[]]@(Get-SortedText -Text (@($installed) + @($told.installed))); serviced = @($serviced) + @($new)
                }))
        $mark = $registry.CreateSubKey('SOFTWARE\imagegen-updates', [Microsoft.Win32.RegistryKeyPermissionCheck]::Default, [Microsoft.Win32.RegistryOptions]::Volatile)
        $mark.Dispose()
        [bool]$told.restart
    }
}
