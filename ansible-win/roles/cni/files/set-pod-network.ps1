# Gives a node its part of the pod network. User data calls it after kubeadm join: only then the cluster has given the node its range of addresses.
# It fills the templates in the folder cni beside this script. places.txt there has the path of each, network.json, if there is one, the network that the plugin expects,
# services.txt, if there is one, the services that can run only now, and pod-range.txt, if there is one, the field of the node with its range.
[CmdletBinding(PositionalBinding = $false)] param(
    [string]$ClusterCidr = '', [string]$ServiceCidr = '', [string]$PodCidr = '', [string]$NetworkName = '', [string]$SourceVip = '',
    [string]$StateFolder = 'C:\var\lib\kubelet', [string]$ConfigFolder = 'C:\etc\kubernetes')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Error.WriteLine("set-pod-network: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }
Import-Module -Name "$PSScriptRoot\common.psm1" -Force -DisableNameChecking

# Asks the cluster for the node's range, which a controller assigns some time after the join.
function Get-PodRange { [CmdletBinding()] param([string]$Kubeconfig, [string]$Name, [string]$Field, [int]$TimeoutSeconds)
    # kubelet's kubeconfig may name its certificate without a drive.
    [System.Environment]::CurrentDirectory = 'C:\'
    $arguments = "--kubeconfig=$Kubeconfig", '--request-timeout=10s', 'get', 'node', $Name, "--output=jsonpath=$Field"
    $range = Wait-Until -Seconds $TimeoutSeconds -Every 5 -Test {
        # kubectl asks an unreachable server five times: all of them must end within a minute.
        $asked = Invoke-Native -FilePath "$PSScriptRoot\kubectl.exe" -ArgumentList $arguments -GoodExitCode @() -TimeoutSeconds 60
        # Beside the range, there may be warnings.
        if ($asked.ExitCode -eq 0) { [regex]::Match($asked.Output, '(?m)^\S+/[0-9]+(?=\r?$)').Value }
    }
    if (-not $range) { throw "the cluster gave node $Name no range of pod addresses in $TimeoutSeconds seconds: does its controller allocate them, or is -PodCidr missing?" }
    return $range
}

# The address at this place of a range: at 0 the one that names the range.
function Get-Address { [CmdletBinding()] param([string]$Range, [int]$Place)
    $address, $bits = $Range -split '/'
    $bytes = [System.Net.IPAddress]::Parse($address).GetAddressBytes()
    [array]::Reverse($bytes)
    $number = [long][System.BitConverter]::ToUInt32($bytes, 0)
    $bytes = [System.BitConverter]::GetBytes([uint32]($number - $number % [System.Math]::Pow(2, 32 - [int]$bits) + $Place))
    [array]::Reverse($bytes)
    return $bytes -join '.'
}

function Invoke-Hns { [CmdletBinding()] param([string]$Method, [string]$Path, [string]$Request)
    $response = ''
    [Imagegen.Hns]::HNSCall($Method, $Path, $Request, [ref]$response)
    $answer = ConvertFrom-Json -InputObject $response
    if (-not $answer.Success) { throw "HNS refused $Method ${Path}: $response" }
    # Nothing, where there is nothing: @() of it is then empty.
    if ($answer.PSObject.Properties['Output'] -and $null -ne $answer.Output) { return $answer.Output }
}

# Waits for the adapter with an address, and lets it forward. Meanwhile it asks HNS to attach the endpoint: HNS may refuse at first, and refuses if it is attached.
function Enable-Forwarding { [CmdletBinding()] param([string]$Address, [string]$Endpoint = '')
    $refusal = ''
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $found = @(Get-NetIPAddress -AddressFamily IPv4 | Where-Object -FilterScript { $_.IPAddress -eq $Address })
        # HNS may still be making it.
        try { if ($found.Count -gt 0) { Set-NetIPInterface -InterfaceIndex $found[0].InterfaceIndex -AddressFamily IPv4 -Forwarding Enabled -ErrorAction Stop; return } }
        catch { $refusal = $_.Exception.Message }
        if ($clock.Elapsed.TotalSeconds -ge 60) { throw "no adapter that forwards has the address $Address one minute after its network was created. $refusal" }
        if ($Endpoint -ne '') {
            try { $null = Invoke-Hns -Method POST -Path "/endpoints/$Endpoint/attach" -Request '{"SystemType":"Host","CompartmentId":1}' }
            catch { $refusal = $_.Exception.Message }
        }
        Start-Sleep -Seconds 1
    }
}

# Creates the network that the plugin looks for by its name. On a bridge, pods reach other nodes through an endpoint of the host at the second address.
function Set-Network { [CmdletBinding()] param([string]$Request, [string]$NodeAddress, [string]$EndpointAddress)
    # Windows has no cmdlet that creates such a network.
    Add-Type -Namespace Imagegen -Name Hns -MemberDefinition '[DllImport("vmcompute.dll")] public static extern void HNSCall([MarshalAs(UnmanagedType.LPWStr)] string method, [MarshalAs(UnmanagedType.LPWStr)] string path, [MarshalAs(UnmanagedType.LPWStr)] string request, [MarshalAs(UnmanagedType.LPWStr)] out string response);'
    $wanted = ConvertFrom-Json -InputObject $Request
    $network = @(Invoke-Hns -Method GET -Path '/networks/' -Request '') | Where-Object -FilterScript { $_.Name -eq $wanted.Name } | Select-Object -First 1
    if ($null -eq $network) { $network = Invoke-Hns -Method POST -Path '/networks/' -Request $Request }
    if ($wanted.Type -ne 'L2Bridge') { return }
    # The node's adapter is another one now, with the same address. Its address comes back after some seconds.
    Enable-Forwarding -Address $NodeAddress
    $name = "$($wanted.Name)_ep"
    $endpoint = @(Invoke-Hns -Method GET -Path '/endpoints/' -Request '') | Where-Object -FilterScript { $_.PSObject.Properties['Name'] -and $_.Name -eq $name } | Select-Object -First 1
    if ($null -eq $endpoint) {
        # Without this gateway, HNS gives the node a second default route, to an address that nobody has.
        $endpoint = Invoke-Hns -Method POST -Path '/endpoints/' -Request (ConvertTo-Json -Depth 2 -InputObject @{ Name = $name; VirtualNetwork = $network.ID; IPAddress = $EndpointAddress; GatewayAddress = '0.0.0.0' })
    }
    # Also one that another run only created.
    Enable-Forwarding -Address $EndpointAddress -Endpoint $endpoint.ID
}

# Starts a service now, and at each start of Windows. What nssm starts for it may need a flag or an environment that only a joined node knows.
function Start-NodeService { [CmdletBinding()] param([string]$Line)
    $name, $value, $text = $Line -split ' ', 3
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$name\Parameters"
    if ($value -eq 'AppParameters') { $null = New-ItemProperty -LiteralPath $key -Name $value -PropertyType ExpandString -Value $text -Force }
    elseif ($value) { $null = New-ItemProperty -LiteralPath $key -Name $value -PropertyType MultiString -Value ($text -split '\|') -Force }
    Set-Service -Name $name -StartupType Automatic
    # One that runs has the values of an earlier call.
    $context = @{ Clock = [System.Diagnostics.Stopwatch]::StartNew(); LimitSeconds = 60 }
    Wait-ServiceState -Name $name -State 'stopped' -Context $context
    # nssm runs, and pauses for some seconds whenever its program has ended: then it starts the program again, and nothing needs to wait for it.
    if ($value) { $null = (Get-Service -Name $name).Start() } else { Wait-ServiceState -Name $name -State 'running' -Context $context }
}

# The name under which kubelet registered: kubeadm's argument, or the machine's own name.
$found = [regex]::Match([System.IO.File]::ReadAllText("$StateFolder\kubeadm-flags.env"), '--hostname-override=([^\s"'']+)')
$node = if ($found.Success) { $found.Groups[1].Value } else { [System.Net.Dns]::GetHostName().ToLowerInvariant() }
$folder = "$PSScriptRoot\cni"
$texts = @{}
foreach ($file in [System.IO.Directory]::GetFiles($folder)) { $texts[[System.IO.Path]::GetFileName($file)] = [System.IO.File]::ReadAllText($file) }
# Some plugins get the addresses of pods elsewhere: then nothing waits for a range.
$needed = @($texts.Values) -match '<(POD_CIDR|GATEWAY|ENDPOINT|FIRST_POD)>'
$field = if ($texts.ContainsKey('pod-range.txt')) { $texts['pod-range.txt'].Trim() } else { '{.spec.podCIDR}' }
if ($PodCidr -eq '' -and $needed) { $PodCidr = Get-PodRange -Kubeconfig "$ConfigFolder\kubelet.conf" -Name $node -Field $field -TimeoutSeconds 300 }
if (-not $needed) { $PodCidr = $ClusterCidr }
if ($NetworkName -eq '' -and (@($texts.Values) -match '<NETWORK>')) { throw '-NetworkName is required: the image does not know the name of the pod network' }
foreach ($range in $ClusterCidr, $ServiceCidr, $PodCidr) {
    if ($range -notmatch '^([0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}$') { throw "'$range' is not an IPv4 range such as 10.244.0.0/16: -ClusterCidr and -ServiceCidr are required" }
}
$route = @(Get-NetRoute -DestinationPrefix '0.0.0.0/0' | Sort-Object -Property { $_.RouteMetric + $_.InterfaceMetric })[0]
$own = @(Get-NetIPAddress -InterfaceIndex $route.InterfaceIndex -AddressFamily IPv4 | Where-Object -FilterScript { -not $_.SkipAsSource })[0]
$values = @{
    '<CLUSTER_CIDR>' = $ClusterCidr; '<SERVICE_CIDR>' = $ServiceCidr; '<POD_CIDR>' = $PodCidr
    '<GATEWAY>' = Get-Address -Range $PodCidr -Place 1
    '<ENDPOINT>' = Get-Address -Range $PodCidr -Place 2
    '<FIRST_POD>' = Get-Address -Range $PodCidr -Place 3
    '<NETWORK>' = $NetworkName; '<SOURCE_VIP>' = $SourceVip; '<NODE_NAME>' = $node; '<NODE_ADDRESS>' = $own.IPAddress
    '<NODE_NETWORK>' = "$(Get-Address -Range "$($own.IPAddress)/$($own.PrefixLength)" -Place 0)/$($own.PrefixLength)"
}
foreach ($file in @($texts.Keys)) {
    foreach ($key in $values.Keys) { $texts[$file] = $texts[$file].Replace($key, $values[$key]) }
}
if ($texts.ContainsKey('network.json')) { Set-Network -Request $texts['network.json'] -NodeAddress $own.IPAddress -EndpointAddress $values['<ENDPOINT>'] }
# Last, because the node is ready once its plugin is configured. Moved, so that nobody reads half a file.
foreach ($line in $texts['places.txt'] -split '\r?\n') {
    if ($line -eq '') { continue }
    $file, $path = $line -split ' ', 2
    $null = [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($path))
    Write-TextFile -Path $path -Text $texts[$file]
}
# Without the file there is one empty line.
foreach ($line in [string]$texts['services.txt'] -split '\r?\n') { if ($line -ne '') { Start-NodeService -Line $line } }
exit 0
