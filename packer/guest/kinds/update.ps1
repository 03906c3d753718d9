# A volatile key, which a start of Windows removes, says that it was asked since the last one. The record of the rounds says what must be there.
@{
    Get  = { param($Resource)
        $folder = 'C:\ProgramData\imagegen\updates'
        $record = Read-UpdateRecord -Path "$folder\$($Resource.name).json"
        # 112 is installed, 128 installed for good, and 80 replaced by a later one. 96 and 101 wait for a restart.
        $states = 80, 112, 128
        if (Test-RestartPending) { $states += 96, 101 }
        $there = @(foreach ($one in Get-UpdatePackage -State $states) { $one.kb })
        $ubr = [int](Get-RegistryData -Key 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion' -Name 'UBR' -Default 0)
        # A cumulative update is there too if Windows has its revision, or a later one.
        $isGone = { $there -cnotcontains $_.kb -and ($null -eq $_.ubr -or $ubr -lt $_.ubr) }
        $lost = @($record.serviced | Where-Object -FilterScript $isGone | ForEach-Object -Process { $_.kb })
        $wanted = @($Resource.kbs | Where-Object -FilterScript $isGone | ForEach-Object -Process { $_.kb })
        $missing = @($wanted | Where-Object -FilterScript { $record.installed -cnotcontains $_ })
        [ordered]@{
            rounds = $record.rounds; asked = (Test-RegistryKey -Key 'HKLM:\SOFTWARE\imagegen-updates'); ubr = $ubr
            installed = [string[]]$record.installed; lost = [string[]]$lost; missing = [string[]]$missing; proxy_left = [System.IO.File]::Exists("$folder\winhttp.txt")
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
        $order, $answer, $kept = "$folder\order.json", "$folder\answer.json", "$folder\winhttp.txt"
        $wanted = [ordered]@{ categories = [string[]]@($Resource.categories); kbs = [string[]]@(foreach ($one in $Resource.kbs) { $one.kb }); exclude = [string[]]@($Resource.exclude) }
        Write-TextFile -Path $order -Text (ConvertTo-AsciiJson -Value $wanted)
        $connections = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Internet Settings\Connections'
        if ($null -ne $Resource.proxy -and -not [System.IO.File]::Exists($kept)) {
            $before = Get-RegistryValue -Key $connections -Name 'WinHttpSettings'
            Write-TextFile -Path $kept -Text $(if ($null -ne $before) { [System.Convert]::ToBase64String([byte[]]$before.data) })
        }
        $file = [System.IO.Path]::Combine($Context.Bundle, $Resource.source.Replace('/', '\'))
        $found = Get-Digest -Path $file
        if ($found -cne $Resource.sha256) { throw "the sha256 of $($Resource.source) is $found, not $($Resource.sha256)" }
        try {
            if ($null -ne $Resource.proxy) {
                $settings = "winhttp set proxy proxy-server=`"$($Resource.proxy)`""
                if ($Resource.bypass -ne '') { $settings += " bypass-list=`"$($Resource.bypass)`"" }
                $null = Invoke-Native -FilePath (Get-SystemTool -Name 'netsh.exe') -ArgumentLine $settings
            }
            $text = Invoke-AsSystem -Name 'imagegen-updates' -File $file -ArgumentList '-Order', $order, '-Answer', $answer -Answer $answer -TimeoutSeconds (Get-SecondsLeft -Context $Context)
            $told = ConvertFrom-Json -InputObject $text
        }
        finally {
            if ([System.IO.File]::Exists($kept)) {
                $text = [System.IO.File]::ReadAllText($kept)
                Use-RegistryKey -Key $connections -Create -Use { param($Opened)
                    if ($text -eq '') { $Opened.DeleteValue('WinHttpSettings', $false) }
                    else { $Opened.SetValue('WinHttpSettings', [System.Convert]::FromBase64String($text), [Microsoft.Win32.RegistryValueKind]::Binary) }
                }
                [System.IO.File]::Delete($kept)
            }
        }
        $codes = @(foreach ($one in $told.failed) { $one.code }) + @($told.code)
        $failures = @(
            foreach ($one in $told.failed) { "could not $($one.step) $($one.kb), $($one.title): $($one.code)" }
            if ($told.code -ne '') { "failed: $("$($told.code) $($told.message)".Trim())" }
            foreach ($one in $Resource.codes) { if ($codes -ccontains $one.code) { "$($one.code) means: $($one.means)" } }
        )
        if ($failures.Count -gt 0) { throw "Windows Update $($failures -join '; ')" }
        $record = Read-UpdateRecord -Path "$folder\$($Resource.name).json"
        $new = @(foreach ($one in Get-UpdatePackage) { if (@($told.installed) -ccontains $one.kb) { $one } })
        # Without anything to install, later rounds would find nothing either: unless a killed run installed something that waits for a restart.
        $rounds = $record.rounds + 1
        if (@($told.found).Count -eq 0 -and -not (Test-RestartPending)) { $rounds = [Math]::Max($rounds, [int]$Resource.rounds) }
        $installed = [string[]]@(Get-SortedText -Text ($record.installed + @($told.installed)))
        $record = [ordered]@{ rounds = $rounds; installed = $installed; serviced = $record.serviced + $new }
        Write-TextFile -Path "$folder\$($Resource.name).json" -Text (ConvertTo-AsciiJson -Value $record)
        Use-RegistryKey -Key 'HKLM:\SOFTWARE\imagegen-updates' -Create -Options Volatile -Use { }
        [bool]$told.restart
    }
}
