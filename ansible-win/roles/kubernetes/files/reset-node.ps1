# Takes a node out of its cluster, so that it can join again: kubeadm reset, and what kubeadm leaves to people. It keeps what the image has in the folder that kubeadm empties.
[CmdletBinding(PositionalBinding = $false)] param([string]$RuntimeEndpoint = 'npipe:////./pipe/containerd-containerd')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("reset-node: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }
Import-Module -Name "$PSScriptRoot\common.psm1" -Force -DisableNameChecking

# Waits for a kubeadm that goes on although its script, or its window, was ended. It may still empty kubelet's folder.
function Wait-Kubeadm { [CmdletBinding()] param([int]$TimeoutSeconds)
    $ended = Wait-Until -Seconds $TimeoutSeconds -Every 1 -Test { @(Get-Process -Name 'kubeadm' -ErrorAction SilentlyContinue).Count -eq 0 }
    if (-not $ended) { throw "kubeadm.exe still runs after $TimeoutSeconds seconds: wait until it has ended, or end it with Stop-Process -Name kubeadm. Then run this script again" }
}

$state, $kept = 'C:\var\lib\kubelet', "$PSScriptRoot\reset-node"
$context = @{ Clock = [System.Diagnostics.Stopwatch]::StartNew(); LimitSeconds = 300 }
$stopped = @()
# Windows closes the file when this process ends, however it ends.
try { $lock = New-Object -TypeName System.IO.FileStream -ArgumentList "$PSScriptRoot\reset-node.lock", 'OpenOrCreate', 'Write', 'None' }
catch { throw "reset-node.ps1 may already be running on this node: $(Get-Cause -ErrorRecord $_)" }
try {
    Wait-Kubeadm -TimeoutSeconds 120
    foreach ($name in 'kubelet', 'kube-proxy', 'flanneld', 'hybrid-overlay-node', 'CalicoFelix', 'CalicoNode') {
        if (-not (Test-RegistryKey -Key "HKLM:\SYSTEM\CurrentControlSet\Services\$name")) { continue }
        $stopped += $name
        # Windows would start one again that has just ended.
        Set-Service -Name $name -StartupType Disabled
        Wait-ServiceState -Name $name -State 'stopped' -Context $context
    }
    # In a folder that is closed to Users as well. It has its name only while it is whole: that of a run that was ended has everything that kubeadm may have deleted since.
    if (-not [System.IO.Directory]::Exists($kept)) {
        Clear-Tree -Path "${kept}.new"
        $null = [System.IO.Directory]::CreateDirectory("${kept}.new")
        foreach ($name in 'credential-provider', 'credential-provider-config.yaml') {
            if (Test-Path -LiteralPath "$state\$name") { Copy-Item -LiteralPath "$state\$name" -Destination "${kept}.new" -Recurse -Force }
        }
        Wait-Success -Seconds 30 -Try { [System.IO.Directory]::Move("${kept}.new", $kept) }
    }
    # kubeadm uses paths without a drive.
    [System.Environment]::CurrentDirectory = 'C:\'
    try {
        [System.Console]::Out.WriteLine((Invoke-Native -FilePath "$PSScriptRoot\kubeadm.exe" -ArgumentList 'reset', '--force', '--cri-socket', $RuntimeEndpoint -TimeoutSeconds 600).Output)
    }
    finally {
        Wait-Kubeadm -TimeoutSeconds 60
        # Pods mount volumes from the second folder as Users, who may read and create, and change what they created. kubelet would make folders with other rights.
        $null = [System.IO.Directory]::CreateDirectory("$state\pods")
        $rights = '/inheritance:r', '/grant:r', '*S-1-5-18:(OI)(CI)F', '*S-1-5-32-544:(OI)(CI)F'
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'icacls.exe') -ArgumentList (@($state) + $rights)
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'icacls.exe') -ArgumentList (@("$state\pods") + $rights + '*S-1-3-0:(OI)(CI)(IO)F', '*S-1-5-32-545:(OI)(CI)RX', '/grant', '*S-1-5-32-545:(CI)(WD,AD)')
        foreach ($path in [System.IO.Directory]::GetFileSystemEntries($kept)) { Copy-Item -LiteralPath $path -Destination $state -Recurse -Force }
        Wait-Success -Seconds 30 -Try { [System.IO.Directory]::Move($kept, "${kept}.new") }
        Clear-Tree -Path "${kept}.new"
    }
    # kubeadm leaves what the networks of pods have: configurations, addresses that were given away, and the files of a plugin, which state.txt lists if there are any.
    $left = @("$PSScriptRoot\pod-network.json", 'C:\run\flannel\subnet.env', 'C:\var\lib\cni\networks')
    if ([System.IO.Directory]::Exists('C:\etc\cni\net.d')) { $left += [System.IO.Directory]::GetFiles('C:\etc\cni\net.d') }
    if ([System.IO.File]::Exists("$PSScriptRoot\cni\state.txt")) { $left += [System.IO.File]::ReadAllLines("$PSScriptRoot\cni\state.txt") }
    foreach ($path in $left) { Clear-Tree -Path $path }
    # kube-proxy's lists first, because they name endpoints in the networks. Last of all, because the node has no connection while its bridge is removed.
    foreach ($one in @(Invoke-Hns -Method GET -Path '/policylists/')) { $null = Invoke-Hns -Method DELETE -Path "/policylists/$($one.ID)" }
    foreach ($one in @(Invoke-Hns -Method GET -Path '/networks/')) { if ($one.Type -in 'L2Bridge', 'L2Tunnel', 'Overlay') { $null = Invoke-Hns -Method DELETE -Path "/networks/$($one.ID)" } }
}
finally {
    # As on the image: set-pod-network.ps1 starts the others when the node has joined again.
    foreach ($name in $stopped) { Set-Service -Name $name -StartupType $(if ($name -eq 'kubelet') { 'Automatic' } else { 'Manual' }) }
    $lock.Dispose()
}
exit 0
