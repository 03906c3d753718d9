# Starts kubelet with the image's fixed arguments, the configured ones, and those that kubeadm wrote, which are read at every start.
# kube-log-runner is the service's program and runs this script. kubelet itself answers the service manager. Exits with kubelet's exit code.
[CmdletBinding(PositionalBinding = $false)] param(
    [string]$Kubelet = 'C:\k\kubelet.exe', [string]$StateFolder = 'C:\var\lib\kubelet', [string]$ConfigFolder = 'C:\etc\kubernetes',
    [string]$RuntimeEndpoint = 'npipe:////./pipe/containerd-containerd', [string]$ArgumentsFile = '')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("start-kubelet: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }
Import-Module -Name "$PSScriptRoot\common.psm1" -Force -DisableNameChecking

# Before the node has joined, kubelet cannot run. kubeadm starts the service when it has written everything, but not while the service is already starting:
# a start in the middle of a join waits for kubeadm.
$null = Wait-Until -Seconds 60 -Every 1 -Test { [System.IO.File]::Exists("$StateFolder\config.yaml") -or [System.Diagnostics.Process]::GetProcessesByName('kubeadm').Length -eq 0 }
if (-not [System.IO.File]::Exists("$StateFolder\config.yaml")) { throw "this machine has not joined a cluster: there is no $StateFolder\config.yaml" }
# While the first file exists and the second does not, the node is joining. kubeadm writes its arguments after config.yaml, and the service manager may start this script in between.
# Without them kubelet would register the node without its name and taints. Goes on after the limit: whoever joins without kubeadm writes no such file.
$joining = [System.IO.File]::Exists("$ConfigFolder\bootstrap-kubelet.conf") -and -not [System.IO.File]::Exists("$ConfigFolder\kubelet.conf")
# The file is whole when it ends with a quote.
$flags = "$StateFolder\kubeadm-flags.env"
if ($joining) { $null = Wait-Until -Seconds 20 -Every 1 -Test { [System.IO.File]::Exists($flags) -and [string](Get-Content -LiteralPath $flags -Raw -Encoding UTF8) -match '"\s*\z' } }
# One a line. If a file is named, it must exist: kubelet must not start without its arguments.
$configured = @(if ($ArgumentsFile -ne '') { [System.IO.File]::ReadAllLines($ArgumentsFile) })
# kubeadm's arguments come last: kubelet uses the last of a repeated argument, and of a map the last value of each key.
$arguments = @(
    '--windows-service', "--cert-dir=$StateFolder\pki", "--config=$StateFolder\config.yaml"
    "--bootstrap-kubeconfig=$ConfigFolder\bootstrap-kubelet.conf", "--kubeconfig=$ConfigFolder\kubelet.conf"
    "--container-runtime-endpoint=$RuntimeEndpoint", '--cgroups-per-qos=false', '--enforce-node-allocatable=', '--resolv-conf='
    # kubelet runs the programs in this folder as SYSTEM: its default, below C:\usr, need not be closed. It makes the folder itself.
    "--volume-plugin-dir=$PSScriptRoot\volumeplugins"
) + @($configured | Where-Object -FilterScript { $_ -ne '' }) + @(Read-KubeadmArgument -Path $flags)
$line = @(foreach ($one in $arguments) { ConvertTo-NativeArgument -Value $one }) -join ' '
$start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $Kubelet, $line
# Nothing is redirected: kubelet writes directly to kube-log-runner.
$start.UseShellExecute = $false
$process = [System.Diagnostics.Process]::Start($start)
$process.WaitForExit()
exit $process.ExitCode
