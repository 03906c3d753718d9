# A program whose file access Defender does not scan.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

@{
    Get  = {
        param($Resource)
        foreach ($process in @((Get-MpPreference).ExclusionProcess)) {
            if (Test-SameText -Left $process -Right $Resource.process -IgnoreCase) { return [ordered]@{ process = [string]$process } }
        }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { "Defender scans what $($Resource.process) opens" }
    }
    Set  = {
        param($Resource)
        $null = Add-MpPreference -ExclusionProcess $Resource.process
        $false
    }
}
