@{
    Get  = { param($Resource)
        $clock = [System.Diagnostics.Stopwatch]::StartNew()
        while ($true) {
            try { $excluded = @((Get-MpPreference -ErrorAction Stop).ExclusionProcess); break }
            catch { $why = $_.Exception.Message }
            $service = 'HKLM:\SYSTEM\CurrentControlSet\Services\WinDefend'
            $there = $null -ne (Get-RegistryValue -Key $service -Name 'ImagePath')
            # Defender is removed or disabled, so nothing is scanned.
            if (-not $there -or (Get-RegistryData -Key $service -Name 'Start' -Default 4) -eq 4) { return [ordered]@{ absent = $true } }
            # Defender starts some minutes after Windows, and pauses when it updates itself. One that does not answer is managed by somebody else: the report has its words.
            # The highest bit is left out, because the count becomes negative after 24 days.
            $limit = 300
            if (([System.Environment]::TickCount -band [int]::MaxValue) -gt 600000) { $limit = 30 }
            if ($clock.Elapsed.TotalSeconds -gt $limit) { return [ordered]@{ unavailable = $why } }
            Start-Sleep -Seconds 2
        }
        foreach ($process in $excluded) {
            if (Test-SameText -Left $process -Right $Resource.process -IgnoreCase) { return [ordered]@{ process = [string]$process } }
        }
    }
    Test = { param($Resource, $Now) if ($null -eq $Now) { "Defender scans the files that $($Resource.process) opens" } }
    Set  = { param($Resource) $null = Add-MpPreference -ExclusionProcess $Resource.process -ErrorAction Stop }
}
