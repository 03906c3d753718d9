# Starts kubelet with the image's fixed arguments, the configured ones, and those that kubeadm wrote, which are read at every start.
# kube-log-runner is the service's program and runs this script. kubelet itself answers the service manager. Exits with kubelet's exit code.
[CmdletBinding(PositionalBinding = $false)] param(
    [string]$Kubelet = 'C:\k\kubelet.exe', [string]$StateFolder = 'C:\var\lib\kubelet', [string]$ConfigFolder = 'C:\etc\kubernetes',
    [string]$RuntimeEndpoint = 'npipe:////./pipe/containerd-containerd', [string]$ArgumentsFile = '')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("start-kubelet: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

# The arguments that kubeadm wrote: KUBELET_KUBEADM_ARGS="..." with Go's quoting. Blanks outside quotes separate arguments.
# Before the node has joined there is no file, and there are no arguments.
function Read-KubeadmArgument { [CmdletBinding()] param([string]$Path)
    if (-not [System.IO.File]::Exists($Path)) { return }
    # kubeadm may still have it open for writing.
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'ReadWrite'
    $reader = New-Object -TypeName System.IO.StreamReader -ArgumentList $stream
    try { $written = $reader.ReadToEnd() }
    finally { $reader.Dispose() }
    $found = [regex]::Match($written, '(?m)^\s*KUBELET_KUBEADM_ARGS=(.*?)\s*$')
    if (-not $found.Success) { return }
    $text = $found.Groups[1].Value
    if ($text.Length -ge 2 -and $text.StartsWith('"') -and $text.EndsWith('"')) {
        $text = [regex]::Replace($text.Substring(1, $text.Length - 2), '\\([\\"])', '$1')
    }
    foreach ($word in [regex]::Matches($text, '(?:[^\s"'']|"[^"]*"|''[^'']*''|["''])+')) {
        [regex]::Replace($word.Value, '"([^"]*)"|''([^'']*)''', '$1$2')
    }
}

# Waits until kubeadm has written its arguments. It writes them after config.yaml, and the service manager may start this script in between.
# Without them kubelet would register the node without its name and taints. Goes on after the limit: whoever joins without kubeadm writes no such file.
function Wait-KubeadmArgument { [CmdletBinding()] param([string]$Path, [int]$TimeoutSeconds)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    do {
        # Before the file is looked at, which is then looked at once more when the time has passed.
        $late = $clock.Elapsed.TotalSeconds -ge $TimeoutSeconds
        $written = [System.IO.File]::Exists($Path) -and (New-Object -TypeName System.IO.FileInfo -ArgumentList $Path).Length -gt 0
        # kubeadm may still be writing the file.
        Start-Sleep -Milliseconds 200
    } until ($written -or $late)
}

# One argument as the Windows C runtime reads it back.
function ConvertTo-NativeArgument { [CmdletBinding()] param([string]$Value)
    if ($Value -ne '' -and $Value -notmatch '[\s"]') { return $Value }
    return '"' + ($Value -replace '(\\*)"', '$1$1\"' -replace '(\\+)$', '$1$1') + '"'
}

# Before the node has joined, kubelet cannot run. kubeadm starts the service when it has written everything, but not while the service is already starting:
# a start in the middle of a join waits for kubeadm.
$clock = [System.Diagnostics.Stopwatch]::StartNew()
while (-not [System.IO.File]::Exists("$StateFolder\config.yaml") -and $clock.Elapsed.TotalSeconds -lt 60) {
    if ([System.Diagnostics.Process]::GetProcessesByName('kubeadm').Length -eq 0) { break }
    Start-Sleep -Milliseconds 200
}
if (-not [System.IO.File]::Exists("$StateFolder\config.yaml")) {
    [System.Console]::Error.WriteLine("start-kubelet: this machine has not joined a cluster: there is no $StateFolder\config.yaml")
    exit 1
}
# While the first file exists and the second does not, the node is joining.
$joining = [System.IO.File]::Exists("$ConfigFolder\bootstrap-kubelet.conf") -and -not [System.IO.File]::Exists("$ConfigFolder\kubelet.conf")
if ($joining) { Wait-KubeadmArgument -Path "$StateFolder\kubeadm-flags.env" -TimeoutSeconds 20 }
# One a line. If a file is named, it must exist: kubelet must not start without its arguments.
$configured = @(if ($ArgumentsFile -ne '') { [System.IO.File]::ReadAllLines($ArgumentsFile) })
# kubeadm's arguments come last: kubelet uses the last of a repeated argument, and of a map the last value of each key.
$arguments = @(
    '--windows-service', "--cert-dir=$StateFolder\pki", "--config=$StateFolder\config.yaml"
    "--bootstrap-kubeconfig=$ConfigFolder\bootstrap-kubelet.conf", "--kubeconfig=$ConfigFolder\kubelet.conf"
    "--container-runtime-endpoint=$RuntimeEndpoint", '--cgroups-per-qos=false', '--enforce-node-allocatable=', '--resolv-conf='
    # kubelet runs the programs in this folder as SYSTEM: its default, below C:\usr, need not be closed. It makes the folder itself.
    "--volume-plugin-dir=$PSScriptRoot\volumeplugins"
) + @($configured | Where-Object -FilterScript { $_ -ne '' }) + @(Read-KubeadmArgument -Path "$StateFolder\kubeadm-flags.env")
$line = @(foreach ($one in $arguments) { ConvertTo-NativeArgument -Value $one }) -join ' '
$start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $Kubelet, $line
# Nothing is redirected: kubelet writes directly to kube-log-runner.
$start.UseShellExecute = $false
$process = [System.Diagnostics.Process]::Start($start)
$process.WaitForExit()
exit $process.ExitCode
