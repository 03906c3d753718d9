# Gives a node its part of the pod network. User data calls it after kubeadm join: only then the cluster has given the node its range of addresses.
# It fills the templates in the folder cni beside this script. places.txt there has the path of each, network.json, if there is one, the network that the plugin expects,
# services.txt, if there is one, the services that can run only now, and pod-range.txt, if there is one, the field of the node with its range.
# With -Restore, which a task calls at each start of Windows, it only makes the network of network.json again where that is missing.
[CmdletBinding(PositionalBinding = $false)] param(
    [switch]$Restore, [string]$ClusterCidr = '', [string]$ServiceCidr = '', [string]$PodCidr = '', [string]$NetworkName = '', [string]$SourceVip = '',
    [string]$StateFolder = 'C:\var\lib\kubelet', [string]$ConfigFolder = 'C:\etc\kubernetes')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
# The task scheduler discards what the script writes to its console.
trap { [System.Console]::Error.WriteLine("set-pod-network: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); if ($Restore) { [System.IO.File]::WriteAllText("$PSScriptRoot\pod-network.failed", $_.Exception.Message) }; exit 1 }
Import-Module -Name "$PSScriptRoot\common.psm1" -Force -DisableNameChecking

# Asks the cluster for the node's range, which a controller assigns some time after the join.
function Get-PodRange { [CmdletBinding()] param([string]$Kubeconfig, [string]$Name, [string]$Field, [int]$TimeoutSeconds)
    # kubelet's kubeconfig may name its certificate without a drive.
    [System.Environment]::CurrentDirectory = 'C:\'
    $arguments = "--kubeconfig=$Kubeconfig", '--request-timeout=10s', 'get', 'node', $Name, "--output=jsonpath=$Field"
    $last = @{ Output = '' }
    $range = Wait-Until -Seconds $TimeoutSeconds -Every 5 -Test {
        # kubectl asks an unreachable server five times: all of them must end within a minute.
        $asked = Invoke-Native -FilePath "$PSScriptRoot\kubectl.exe" -ArgumentList $arguments -GoodExitCode @() -TimeoutSeconds 60
        $last.Output = $asked.Output
        # Beside the range, there may be warnings.
        if ($asked.ExitCode -eq 0) { [regex]::Match($asked.Output, '(?m)^\S+/[0-9]+(?=\r?$)').Value }
    }
    if (-not $range) { throw "the cluster gave node $Name no range of pod addresses in $TimeoutSeconds seconds: does its controller allocate them, or is -PodCidr missing? $($last.Output)".Trim() }
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

# The node's own address, with its adapter: soon after a start of Windows, or while HNS replaces the adapter, there is none.
function Get-NodeAddress { [CmdletBinding()] param()
    $found = Wait-Until -Seconds 60 -Every 1 -Test {
        $route = Get-NetRoute -DestinationPrefix '0.0.0.0/0' -ErrorAction SilentlyContinue | Sort-Object -Property { $_.RouteMetric + $_.InterfaceMetric } | Select-Object -First 1
        if ($route) { Get-NetIPAddress -InterfaceIndex $route.InterfaceIndex -AddressFamily IPv4 -ErrorAction SilentlyContinue | Where-Object -FilterScript { -not $_.SkipAsSource } | Select-Object -First 1 }
    }
    if (-not $found) { throw 'this machine has no default route (0.0.0.0/0), or no IPv4 address on its adapter: Get-NetRoute and Get-NetIPAddress show what it has' }
    return $found
}

# Waits for the adapter with an address, and lets it forward. Meanwhile it asks HNS to attach the endpoint: HNS may refuse at first, and refuses if it is attached.
function Enable-Forwarding { [CmdletBinding()] param([string]$Address, [string]$Endpoint = '')
    Wait-Success -Seconds 60 -Try {
        $found = @(Get-NetIPAddress -AddressFamily IPv4 | Where-Object -FilterScript { $_.IPAddress -eq $Address })
        # HNS may still be making it.
        if ($found.Count -gt 0) { Set-NetIPInterface -InterfaceIndex $found[0].InterfaceIndex -AddressFamily IPv4 -Forwarding Enabled -ErrorAction Stop; return }
        $refusal = ''
        try { if ($Endpoint -ne '') { $null = Invoke-Hns -Method POST -Path "/endpoints/$Endpoint/attach" -Request '{"SystemType":"Host","CompartmentId":1}' } }
        catch { $refusal = $_.Exception.Message }
        throw "no adapter has the address $Address one minute after its network was created. $refusal"
    }
}

# Creates the network that the plugin looks for by its name. On a bridge, pods reach other nodes through an endpoint of the host at the second address.
function Set-Network { [CmdletBinding()] param([string]$Request, [string]$NodeAddress)
    $wanted = ConvertFrom-Json -InputObject $Request
    $range = $wanted.Subnets[0].AddressPrefix
    $network = @(Invoke-Hns -Method GET -Path '/networks/') | Where-Object -FilterScript { $_.Name -eq $wanted.Name } | Select-Object -First 1
    if ($null -eq $network) { $network = Invoke-Hns -Method POST -Path '/networks/' -Request $Request }
    elseif ($network.Subnets[0].AddressPrefix -ne $range) { throw "the network $($wanted.Name) has the range $($network.Subnets[0].AddressPrefix), not ${range}: run reset-node.ps1, which removes it, and join again" }
    if ($wanted.Type -ne 'L2Bridge') { return }
    # The node's adapter is another one now, with the same address. Its address comes back after some seconds.
    Enable-Forwarding -Address $NodeAddress
    $name = "$($wanted.Name)_ep"
    $address = Get-Address -Range $range -Place 2
    $endpoint = @(Invoke-Hns -Method GET -Path '/endpoints/') | Where-Object -FilterScript { $_.PSObject.Properties['Name'] -and $_.Name -eq $name } | Select-Object -First 1
    if ($null -eq $endpoint) {
        # Without this gateway, HNS gives the node a second default route, to an address that nobody has.
        $endpoint = Invoke-Hns -Method POST -Path '/endpoints/' -Request (ConvertTo-Json -Depth 2 -InputObject @{ Name = $name; VirtualNetwork = $network.ID; IPAddress = $address; GatewayAddress = '0.0.0.0' })
    }
    # Also one that another run only created.
    Enable-Forwarding -Address $address -Endpoint $endpoint.ID
}

# Starts a service now, and at each start of Windows. What nssm starts for it may need a flag or an environment that only a joined node knows.
function Start-NodeService { [CmdletBinding()] param([string]$Line)
    $name, $value, $text = $Line -split ' ', 3
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$name\Parameters"
    if ($value) { $null = New-ItemProperty -LiteralPath $key -Name $value -PropertyType $(if ($value -eq 'AppParameters') { 'ExpandString' } else { 'MultiString' }) -Value ($text -split '\|') -Force }
    Set-Service -Name $name -StartupType Automatic
    # One that runs has the values of an earlier call.
    $context = @{ Clock = [System.Diagnostics.Stopwatch]::StartNew(); LimitSeconds = 60 }
    Wait-ServiceState -Name $name -State 'stopped' -Context $context
    # nssm runs, and pauses for some seconds whenever its program has ended: then it starts the program again, and nothing needs to wait for it.
    if ($value) { $null = (Get-Service -Name $name).Start() } else { Wait-ServiceState -Name $name -State 'running' -Context $context }
}

$folder, $request = "$PSScriptRoot\cni", "$PSScriptRoot\pod-network.json"
if ($Restore) {
    [System.IO.File]::Delete("$PSScriptRoot\pod-network.failed")
    # Before the node has joined there is nothing to restore. HNS may still be starting.
    if ([System.IO.File]::Exists($request)) { Wait-Success -Seconds 300 -Try { Set-Network -Request ([System.IO.File]::ReadAllText($request)) -NodeAddress (Get-NodeAddress).IPAddress } }
    exit 0
}
if (-not [System.IO.File]::Exists("$StateFolder\kubeadm-flags.env")) { throw "this machine has not joined a cluster: there is no $StateFolder\kubeadm-flags.env" }
# The name under which kubelet registered: the last one of kubeadm's arguments, or the machine's own name, in lower case.
$node = [System.Net.Dns]::GetHostName()
foreach ($one in Read-KubeadmArgument -Path "$StateFolder\kubeadm-flags.env") { if ($one.StartsWith('--hostname-override=', [System.StringComparison]::Ordinal)) { $node = $one.Substring(20) } }
$node = $node.Trim().ToLowerInvariant()
$texts = @{}
# Only what the image has here: any other file in the folder is somebody else's.
$places = @([System.IO.File]::ReadAllLines("$folder\places.txt") | Where-Object -FilterScript { $_ -ne '' })
foreach ($file in @('places.txt') + @(foreach ($line in $places) { ($line -split ' ', 2)[0] })) { $texts[$file] = [System.IO.File]::ReadAllText("$folder\$file") }
foreach ($file in 'network.json', 'services.txt', 'pod-range.txt') { if ([System.IO.File]::Exists("$folder\$file")) { $texts[$file] = [System.IO.File]::ReadAllText("$folder\$file") } }
# Some plugins get the addresses of pods elsewhere: then nothing waits for a range.
$needed = @($texts.Values) -match '<(POD_CIDR|GATEWAY|ENDPOINT|FIRST_POD)>'
$field = if ($texts.ContainsKey('pod-range.txt')) { $texts['pod-range.txt'].Trim() } else { '{.spec.podCIDR}' }
if ($PodCidr -eq '' -and $needed) { $PodCidr = Get-PodRange -Kubeconfig "$ConfigFolder\kubelet.conf" -Name $node -Field $field -TimeoutSeconds 300 }
if (-not $needed) { $PodCidr = $ClusterCidr }
if ($NetworkName -eq '' -and (@($texts.Values) -match '<NETWORK>')) { throw '-NetworkName is required: the image does not know the name of the pod network' }
foreach ($range in $ClusterCidr, $ServiceCidr, $PodCidr) {
    $first = try { Get-Address -Range $range -Place 0 } catch { '' }
    if ($range -notmatch '\A[0-9.]+/([1-9]|[12][0-9])\z' -or $range -notlike "$first/*") { throw "'$range' is not an IPv4 range with its first address, such as 10.244.0.0/16 (/1 to /29): -ClusterCidr and -ServiceCidr are required" }
}
$own = Get-NodeAddress
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
if ($texts.ContainsKey('network.json')) {
    Set-Network -Request $texts['network.json'] -NodeAddress $own.IPAddress
    Write-TextFile -Path $request -Text $texts['network.json']
}
# Last, because the node is ready once its plugin is configured. Moved, so that nobody reads half a file.
foreach ($line in $texts['places.txt'] -split '\r?\n' -ne '') {
    $file, $path = $line -split ' ', 2
    $null = [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($path))
    Write-TextFile -Path $path -Text $texts[$file]
}
foreach ($line in [string]$texts['services.txt'] -split '\r?\n' -ne '') { Start-NodeService -Line $line }
exit 0
