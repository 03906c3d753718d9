@{
    Get  = { param($Resource)
        $kind, $wanted = if ($null -eq $Resource.path) { 'process', $Resource.process } else { 'path', $Resource.path }
        $clock = [System.Diagnostics.Stopwatch]::StartNew()
        while ($true) {
            try { $excluded = @((Get-MpPreference -ErrorAction Stop)."Exclusion$kind"); break }
            catch { $why = $_.Exception.Message }
            $service = 'HKLM:\SYSTEM\CurrentControlSet\Services\WinDefend'
            $there = $null -ne (Get-RegistryValue -Key $service -Name 'ImagePath')
            # Defender is removed or disabled, so nothing is scanned.
            if (-not $there -or (Get-RegistryData -Key $service -Name 'Start' -Default 4) -eq 4) { return [ordered]@{ absent = $true } }
            # Defender starts some minutes after Windows, and pauses when it updates itself. One that does not answer is managed by somebody else: the report has its words.
            # The highest bit is left out, because the count becomes negative after 24 days.
            $limit = if (([System.Environment]::TickCount -band [int]::MaxValue) -gt 600000) { 30 } else { 300 }
            if ($clock.Elapsed.TotalSeconds -gt $limit) { return [ordered]@{ unavailable = $why } }
            Start-Sleep -Seconds 2
        }
        foreach ($known in $excluded) {
            if (Test-SameText -Left $known -Right $wanted -IgnoreCase) { return [ordered]@{ $kind = [string]$known } }
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { if ($null -eq $Resource.path) { "Defender scans the files that $($Resource.process) opens" } else { "Defender scans $($Resource.path)" } }
    }
    Set  = { param($Resource)
        if ($null -eq $Resource.path) { $null = Add-MpPreference -ExclusionProcess $Resource.process -ErrorAction Stop }
        else { $null = Add-MpPreference -ExclusionPath $Resource.path -ErrorAction Stop }
    }
}
