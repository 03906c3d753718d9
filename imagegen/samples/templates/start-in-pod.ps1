# Starts flanneld or kube-proxy on this node, from a pod: in a HostProcess container, or through wins. The DaemonSet says how in the environment.
# With NETWORK, the program is flanneld: the script also gives the node flannel's plugin, and its configuration when flanneld has the node's range of pods.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("failed: $($_.Exception.Message)"); exit 1 }

function Start-Program { [CmdletBinding()] param([string]$Address)
    $program = [System.Environment]::ExpandEnvironmentVariables($env:PROGRAM)
    $arguments = [System.Environment]::ExpandEnvironmentVariables($env:ARGUMENTS).Replace('<SOURCE_VIP>', $Address)
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $program, $arguments
    $start.UseShellExecute = $false
    return [System.Diagnostics.Process]::Start($start)
}

# Waits for the file with the node's range of pods, and returns the second address of the range, which no pod gets: it is the host's own, or kube-proxy's.
function Wait-Address { [CmdletBinding()] param([string]$File, [string]$Pattern, $Writer = $null)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while (-not [System.IO.File]::Exists($File)) {
        if ($null -ne $Writer -and $Writer.HasExited) { throw "flanneld ended with exit code $($Writer.ExitCode)" }
        if ($clock.Elapsed.TotalMinutes -ge 5) { throw "the node got no range of pod addresses in 5 minutes: $File does not exist" }
        Start-Sleep -Seconds 1
    }
    $found = [regex]::Match([System.IO.File]::ReadAllText($File), $Pattern)
    if (-not $found.Success) { throw "$File has no range of pod addresses" }
    $bytes = [System.Net.IPAddress]::Parse($found.Groups[1].Value).GetAddressBytes()
    $bytes[3] = [byte](($bytes[3] -band 252) -bor 2)
    return $bytes -join '.'
}

if (-not $env:NETWORK) {
    # Only in an overlay, kube-proxy needs an address of its own.
    $address = if ($env:SUBNET_FILE) { Wait-Address -File $env:SUBNET_FILE -Pattern $env:SUBNET_PATTERN }
    $process = Start-Program -Address $address
}
else {
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
    $process = Start-Program
    $address = Wait-Address -File "$drive\run\flannel\subnet.env" -Pattern 'FLANNEL_SUBNET=([0-9.]+)' -Writer $process
    # host-local gives no address away that has a file.
    [System.IO.File]::WriteAllText("$reserved\$address", 'reserved')
    # Last, because the node is ready once its plugin is configured. Moved, so that nobody reads half a file.
    $path = "$drive\etc\cni\net.d\10-flannel.conflist"
    $text = [System.IO.File]::ReadAllText("$image\cluster\10-flannel.conflist").Replace('<NODE_ADDRESS>', $env:NODE_ADDRESS)
    [System.IO.File]::WriteAllText("${path}.new", $text)
    [System.IO.File]::Delete($path)
    [System.IO.File]::Move("${path}.new", $path)
}
# The pod is there as long as the program runs.
$process.WaitForExit()
exit $process.ExitCode
