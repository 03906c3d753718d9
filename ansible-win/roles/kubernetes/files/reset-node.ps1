# Takes a node out of its cluster, so that it can join again: kubeadm reset, and what kubeadm leaves to people. It keeps what the image has in the folder that kubeadm empties.
[CmdletBinding(PositionalBinding = $false)] param([string]$RuntimeEndpoint = 'npipe:////./pipe/containerd-containerd')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("reset-node: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

function Invoke-Program { [CmdletBinding()] param([string]$Path, [string]$Arguments)
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $Path, $Arguments
    # kubeadm uses paths without a drive.
    $start.WorkingDirectory = 'C:\'
    $start.UseShellExecute = $false
    $process = [System.Diagnostics.Process]::Start($start)
    if (-not $process.WaitForExit(600000)) {
        $process.Kill()
        throw "$Path did not end within ten minutes"
    }
    if ($process.ExitCode -ne 0) { throw "$Path ended with $($process.ExitCode)" }
}

$state = 'C:\var\lib\kubelet'
$configurations = 'C:\etc\cni\net.d'
$clock = [System.Diagnostics.Stopwatch]::StartNew()
$stopped = @()
try {
    foreach ($name in 'kubelet', 'kube-proxy', 'flanneld', 'hybrid-overlay-node', 'CalicoFelix', 'CalicoNode') {
        if (-not (Test-Path -LiteralPath "HKLM:\SYSTEM\CurrentControlSet\Services\$name")) { continue }
        $stopped += $name
        # Windows would start one again that has just ended.
        Set-Service -Name $name -StartupType Disabled
        $service = Get-Service -Name $name
        while ([string]$service.Status -ne 'Stopped') {
            if ($clock.Elapsed.TotalMinutes -gt 5) { throw "service $name did not stop within five minutes" }
            # It cannot be stopped while it starts.
            if ($service.CanStop) { $service.Stop() }
            Start-Sleep -Seconds 1
            $service.Refresh()
        }
    }
    # In a folder that is closed to Users as well. A run that was ended may have left something there.
    $kept = "$PSScriptRoot\reset-node"
    $null = [System.IO.Directory]::CreateDirectory($kept)
    foreach ($name in 'credential-provider', 'credential-provider-config.yaml') {
        if (Test-Path -LiteralPath "$state\$name") { Move-Item -LiteralPath "$state\$name" -Destination $kept }
    }
    try { Invoke-Program -Path "$PSScriptRoot\kubeadm.exe" -Arguments "reset --force --cri-socket $RuntimeEndpoint" }
    finally {
        foreach ($path in [System.IO.Directory]::GetFileSystemEntries($kept)) { Move-Item -LiteralPath $path -Destination $state }
        [System.IO.Directory]::Delete($kept)
    }
    # Pods mount volumes from here as Users. kubelet would make a folder that is closed to them.
    $null = [System.IO.Directory]::CreateDirectory("$state\pods")
    Invoke-Program -Path "$env:SystemRoot\System32\icacls.exe" -Arguments "$state\pods /inheritance:r /grant:r *S-1-5-18:(OI)(CI)F *S-1-5-32-544:(OI)(CI)F *S-1-5-32-545:(OI)(CI)M"
    # kubeadm leaves the configuration and the networks of pods. Last, because the node has no connection while its bridge is removed.
    if ([System.IO.Directory]::Exists($configurations)) { foreach ($file in [System.IO.Directory]::GetFiles($configurations)) { [System.IO.File]::Delete($file) } }
    Get-HnsNetwork | Where-Object -FilterScript { $_.Type -in 'L2Bridge', 'L2Tunnel', 'Overlay' } | Remove-HnsNetwork
}
finally {
    # As on the image: set-pod-network.ps1 starts the others when the node has joined again.
    foreach ($name in $stopped) { Set-Service -Name $name -StartupType $(if ($name -eq 'kubelet') { 'Automatic' } else { 'Manual' }) }
}
exit 0
