# Starts kube-proxy on this node, from a pod: in a HostProcess container, or through wins. The DaemonSet says how in the environment.
[CmdletBinding()] param()
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

$code = 1
try {
    $address = ''
    # In an overlay, kube-proxy needs an address of its own: the second one of the node's range, which is reserved.
    if ($env:SUBNET_FILE) {
        $clock = [System.Diagnostics.Stopwatch]::StartNew()
        while (-not [System.IO.File]::Exists($env:SUBNET_FILE)) {
            if ($clock.Elapsed.TotalMinutes -ge 5) { throw "the node has no range of pod addresses: $($env:SUBNET_FILE) does not exist" }
            Start-Sleep -Seconds 5
        }
        $found = [regex]::Match([System.IO.File]::ReadAllText($env:SUBNET_FILE), $env:SUBNET_PATTERN)
        if (-not $found.Success) { throw "$($env:SUBNET_FILE) has no range of pod addresses" }
        $bytes = [System.Net.IPAddress]::Parse($found.Groups[1].Value).GetAddressBytes()
        $bytes[3] = [byte](($bytes[3] -band 252) -bor 2)
        $address = $bytes -join '.'
    }
    $program, $arguments = [System.Environment]::ExpandEnvironmentVariables($env:PROGRAM), [System.Environment]::ExpandEnvironmentVariables($env:ARGUMENTS).Replace('<SOURCE_VIP>', $address)
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $program, $arguments
    $start.UseShellExecute = $false
    $process = [System.Diagnostics.Process]::Start($start)
    # The pod is there as long as the program runs.
    $process.WaitForExit()
    $code = $process.ExitCode
}
catch { [System.Console]::Error.WriteLine("kube-proxy: $($_.Exception.Message)") }
exit $code
