# Gives this node flannel's plugin and its configuration, and starts flanneld, from a pod: in a HostProcess container, or through wins. The DaemonSet says how in the environment.
[CmdletBinding()] param()
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

$code = 1
try {
    # Only a HostProcess container has the variable: in other pods, the image is the drive.
    $image = "$($env:CONTAINER_SANDBOX_MOUNT_POINT)"
    $drive = $env:NODE_DRIVE
    $reserved = "$drive\var\lib\cni\networks\$($env:NETWORK)"
    foreach ($folder in "$drive\opt\cni\bin", "$drive\etc\cni\net.d", "$drive\etc\kube-flannel", "$drive\run\flannel", $reserved) { $null = [System.IO.Directory]::CreateDirectory($folder) }
    foreach ($file in [System.IO.Directory]::GetFiles("$image\cni", '*.exe')) {
        [System.IO.File]::Copy($file, "$drive\opt\cni\bin\$([System.IO.Path]::GetFileName($file))", $true)
    }
    [System.IO.File]::Copy("$image\cluster\net-conf.json", "$drive\etc\kube-flannel\net-conf.json", $true)
    # An earlier flanneld wrote it.
    [System.IO.File]::Delete("$drive\run\flannel\subnet.env")
    $program, $arguments = [System.Environment]::ExpandEnvironmentVariables($env:PROGRAM), [System.Environment]::ExpandEnvironmentVariables($env:ARGUMENTS)
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $program, $arguments
    $start.UseShellExecute = $false
    $process = [System.Diagnostics.Process]::Start($start)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while (-not [System.IO.File]::Exists("$drive\run\flannel\subnet.env")) {
        if ($process.HasExited) { throw "flanneld ended with exit code $($process.ExitCode)" }
        if ($clock.Elapsed.TotalMinutes -ge 5) { throw 'flanneld got no range of pod addresses in 5 minutes' }
        Start-Sleep -Seconds 1
    }
    $found = [regex]::Match([System.IO.File]::ReadAllText("$drive\run\flannel\subnet.env"), 'FLANNEL_SUBNET=([0-9.]+)')
    if (-not $found.Success) { throw 'subnet.env has no range of pod addresses' }
    # The second address is the host's own, or kube-proxy's. host-local gives no address away that has a file.
    $bytes = [System.Net.IPAddress]::Parse($found.Groups[1].Value).GetAddressBytes()
    $bytes[3] = [byte](($bytes[3] -band 252) -bor 2)
    [System.IO.File]::WriteAllText("$reserved\$($bytes -join '.')", 'reserved')
    # Last, because the node is ready once its plugin is configured. Moved, so that nobody reads half a file.
    $path = "$drive\etc\cni\net.d\10-flannel.conflist"
    $text = [System.IO.File]::ReadAllText("$image\cluster\10-flannel.conflist").Replace('<NODE_ADDRESS>', $env:NODE_ADDRESS)
    [System.IO.File]::WriteAllText("${path}.new", $text)
    [System.IO.File]::Delete($path)
    [System.IO.File]::Move("${path}.new", $path)
    # The pod is there as long as the program runs.
    $process.WaitForExit()
    $code = $process.ExitCode
}
catch { [System.Console]::Error.WriteLine("flannel: $($_.Exception.Message)") }
exit $code
