# Takes a node out of its cluster, so that it can join again: kubeadm reset, and what kubeadm leaves to people. It keeps what the image has in the folder that kubeadm empties.
[CmdletBinding(PositionalBinding = $false)] param([string]$RuntimeEndpoint = 'npipe:////./pipe/containerd-containerd')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("reset-node: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }
Import-Module -Name "$PSScriptRoot\common.psm1" -Force -DisableNameChecking

$state = 'C:\var\lib\kubelet'
$context = @{ Clock = [System.Diagnostics.Stopwatch]::StartNew(); LimitSeconds = 300 }
$stopped = @()
try {
    foreach ($name in 'kubelet', 'kube-proxy', 'flanneld', 'hybrid-overlay-node', 'CalicoFelix', 'CalicoNode') {
        if (-not (Test-RegistryKey -Key "HKLM:\SYSTEM\CurrentControlSet\Services\$name")) { continue }
        $stopped += $name
        # Windows would start one again that has just ended.
        Set-Service -Name $name -StartupType Disabled
        Wait-ServiceState -Name $name -State 'stopped' -Context $context
    }
    # In a folder that is closed to Users as well. A run that was ended may have left something there.
    $kept = "$PSScriptRoot\reset-node"
    $null = [System.IO.Directory]::CreateDirectory($kept)
    foreach ($name in 'credential-provider', 'credential-provider-config.yaml') {
        if (Test-Path -LiteralPath "$state\$name") { Move-Item -LiteralPath "$state\$name" -Destination $kept }
    }
    # kubeadm uses paths without a drive.
    [System.Environment]::CurrentDirectory = 'C:\'
    try {
        $done = Invoke-Native -FilePath "$PSScriptRoot\kubeadm.exe" -ArgumentList 'reset', '--force', '--cri-socket', $RuntimeEndpoint -TimeoutSeconds 600
        [System.Console]::Out.WriteLine($done.Output)
    }
    finally {
        foreach ($path in [System.IO.Directory]::GetFileSystemEntries($kept)) { Move-Item -LiteralPath $path -Destination $state }
        [System.IO.Directory]::Delete($kept)
    }
    # Pods mount volumes from here as Users, who may read and create, and change what they created. kubelet would make a folder that is closed to them.
    $null = [System.IO.Directory]::CreateDirectory("$state\pods")
    $rights = '*S-1-5-18:(OI)(CI)F', '*S-1-5-32-544:(OI)(CI)F', '*S-1-3-0:(OI)(CI)(IO)F', '*S-1-5-32-545:(OI)(CI)RX', '/grant', '*S-1-5-32-545:(CI)(WD,AD)'
    $null = Invoke-Native -FilePath (Get-SystemTool -Name 'icacls.exe') -ArgumentList (@("$state\pods", '/inheritance:r', '/grant:r') + $rights)
    # kubeadm leaves the configuration and the networks of pods. Last, because the node has no connection while its bridge is removed.
    # HNS may answer with nothing. Without -ErrorAction, a refusal would not end this script where another one calls it: the cmdlets are functions of a module.
    if ([System.IO.Directory]::Exists('C:\etc\cni\net.d')) { foreach ($file in [System.IO.Directory]::GetFiles('C:\etc\cni\net.d')) { [System.IO.File]::Delete($file) } }
    Get-HnsNetwork | Where-Object -FilterScript { $_ -and $_.Type -in 'L2Bridge', 'L2Tunnel', 'Overlay' } | Remove-HnsNetwork -ErrorAction Stop
}
finally {
    # As on the image: set-pod-network.ps1 starts the others when the node has joined again.
    foreach ($name in $stopped) { Set-Service -Name $name -StartupType $(if ($name -eq 'kubelet') { 'Automatic' } else { 'Manual' }) }
}
exit 0
