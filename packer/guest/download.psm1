# Uses the system's certificates, and the system's proxy if the plan has none. Needs common.psm1, which the engine imports before.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

Add-Type -AssemblyName System.Net.Http
# 0 is SystemDefault: Windows chooses, and includes the newest version. Only an explicit older set may lack TLS 1.2.
$script:Protocol = [System.Net.ServicePointManager]::SecurityProtocol
if ([int]$script:Protocol -ne 0) { [System.Net.ServicePointManager]::SecurityProtocol = $script:Protocol -bor [System.Net.SecurityProtocolType]::Tls12 }
# The default of 5.1 is two connections for each host.
[System.Net.ServicePointManager]::DefaultConnectionLimit = 16

$script:MaxTries = 8
$script:MaxWrongBytes = 2
$script:MaxRedirects = 10
$script:StallSeconds = 60

# The URL without query and credentials, which may hold a secret.
function Get-PublicAddress { [CmdletBinding()] param([System.Uri]$Address); '{0}://{1}{2}' -f $Address.Scheme, $Address.Authority, $Address.AbsolutePath }

function Get-PartLength { [CmdletBinding()] param($Item)
    if ([System.IO.File]::Exists($Item.Part)) { (New-Object -TypeName System.IO.FileInfo -ArgumentList $Item.Part).Length } else { [long]0 }
}

function Open-Attempt { [CmdletBinding()] param($Item, [System.Uri]$Address, [double]$Now)
    if ($Address.Scheme -ne 'https') { throw (Get-Failure -ExitCode 6 -Message "$(Get-PublicAddress -Address $Address) is not https") }
    $handler = New-Object -TypeName System.Net.Http.HttpClientHandler
    # Redirects are followed by this module, because .NET Framework would follow one to http.
    $handler.AllowAutoRedirect = $false
    if ($null -ne $Item.Proxy) { $handler.Proxy = $Item.Proxy }
    $Item.Client = New-Object -TypeName System.Net.Http.HttpClient -ArgumentList $handler
    $Item.Client.Timeout = [System.TimeSpan]::FromSeconds($script:StallSeconds)
    $headers = $Item.Client.DefaultRequestHeaders
    $headers.UserAgent.ParseAdd('imagegen')
    # Credentials go to the first host only, wherever it redirects to.
    if ($Item.Authorization -ne '' -and $Address.Authority -eq $Item.From.Authority) { $null = $headers.TryAddWithoutValidation('Authorization', $Item.Authorization) }
    $Item.Offset = Get-PartLength -Item $Item
    if ($Item.Offset -gt 0) { $headers.Range = New-Object -TypeName System.Net.Http.Headers.RangeHeaderValue -ArgumentList $Item.Offset, $null }
    $Item.Address = $Address
    # Reset, because the state of the last response does not apply: a 416 has no body.
    $Item.LengthKnown = $true
    $Item.Seen, $Item.SeenAt = [long]-1, $Now
    $Item.Send = $Item.Client.GetAsync($Address, [System.Net.Http.HttpCompletionOption]::ResponseHeadersRead)
}

# Ends an attempt in any state. Closes the file last, because nothing may write to it afterwards.
function Close-Attempt { [CmdletBinding()] param($Item)
    if ($null -ne $Item.Response) { $Item.Response.Dispose() }
    if ($null -ne $Item.Client) { $Item.Client.Dispose() }
    if ($null -ne $Item.Copy) { $null = [System.Threading.Tasks.Task]::WaitAny([System.Threading.Tasks.Task[]]@($Item.Copy), 5000) }
    if ($null -ne $Item.File) { $Item.File.Dispose() }
    foreach ($name in 'Response', 'Client', 'Send', 'Copy', 'File') { $Item[$name] = $null }
}

# Checks status and headers. True if there is nothing to read: the partial file has all bytes, or too many.
function Receive-Head { [CmdletBinding()] param($Item, [double]$Now)
    $response = $Item.Send.GetAwaiter().GetResult()
    $Item.Response = $response
    $code = [int]$response.StatusCode
    if ($code -in 301, 302, 303, 307, 308 -and $null -ne $response.Headers.Location) {
        $Item.Redirects++
        if ($Item.Redirects -gt $script:MaxRedirects) { throw (Get-Failure -ExitCode 6 -Message 'it has too many redirects') }
        $next = New-Object -TypeName System.Uri -ArgumentList $Item.Address, $response.Headers.Location
        Close-Attempt -Item $Item
        Open-Attempt -Item $Item -Address $next -Now $Now
        return $false
    }
    if ($code -eq 416) { return $true }
    if ($code -ge 500 -or $code -in 408, 429) { throw "HTTP $code" }
    if ($code -notin 200, 206) { throw (Get-Failure -ExitCode 6 -Message "HTTP $code") }
    $mode = [System.IO.FileMode]::Create
    if ($code -eq 206) {
        $range = $response.Content.Headers.ContentRange
        $mode = [System.IO.FileMode]::Append
        if ($null -eq $range -or $range.From -ne $Item.Offset) {
            [System.IO.File]::Delete($Item.Part)
            throw 'HTTP 206 with another part than requested'
        }
    }
    $Item.LengthKnown = $null -ne $response.Content.Headers.ContentLength
    $Item.File = New-Object -TypeName System.IO.FileStream -ArgumentList $Item.Part, $mode, ([System.IO.FileAccess]::Write)
    $Item.Copy = $response.Content.CopyToAsync($Item.File)
    return $false
}

function Step-Attempt { [CmdletBinding()] param($Item, [double]$Now)
    if ($null -eq $Item.Copy) { return ($Item.Send.IsCompleted -and (Receive-Head -Item $Item -Now $Now)) }
    if ($Item.Copy.IsCompleted) {
        $null = $Item.Copy.GetAwaiter().GetResult()
        return $true
    }
    $reached = $Item.File.Position
    if ($reached -gt $Item.Size) { throw (Get-Failure -ExitCode 4 -Message "it has more than the $($Item.Size) bytes of the plan") }
    if ($reached -ne $Item.Seen) { $Item.Seen, $Item.SeenAt = $reached, $Now }
    if ($Now - $Item.SeenAt -gt $script:StallSeconds) { throw "no bytes arrived for $script:StallSeconds s" }
    return $false
}

function Complete-Item { [CmdletBinding()] param($Item)
    $known = $Item.LengthKnown
    Close-Attempt -Item $Item
    $length = Get-PartLength -Item $Item
    if ($length -lt $Item.Size -and -not $known) { throw "it ended after $length of $($Item.Size) bytes" }
    if ($length -ne $Item.Size) { throw (Get-Failure -ExitCode 4 -Message "size is $length, the plan says $($Item.Size)") }
    $digest = Get-Digest -Path $Item.Part
    if ($digest -cne $Item.Digest) { throw (Get-Failure -ExitCode 4 -Message "sha256 is $digest, the plan says $($Item.Digest)") }
    Move-IntoPlace -From $Item.Part -To $Item.Path
    $Item.Done = $true
}

function Resolve-Attempt { [CmdletBinding()] param($Item, $ErrorRecord, [double]$Now)
    Close-Attempt -Item $Item
    $code = $ErrorRecord.Exception.Data['ExitCode']
    $why = Get-Cause -ErrorRecord $ErrorRecord
    if ($code -eq 4) {
        [System.IO.File]::Delete($Item.Part)
        $Item.WrongBytes++
    }
    $length = Get-PartLength -Item $Item
    # An attempt that brought bytes does not count, so that a download over a bad line still ends.
    if ($length -gt $Item.Best) { $Item.Best, $Item.Tries = $length, 0 }
    $Item.Tries++
    if ($code -eq 6 -or $Item.WrongBytes -ge $script:MaxWrongBytes -or $Item.Tries -ge $script:MaxTries) {
        if ($null -eq $code) { $code = 6 }
        $from = Get-PublicAddress -Address $Item.Url
        if ($null -ne $Item.Proxy -and -not $Item.Proxy.IsBypassed($Item.Url)) { $from = "$from through $($Item.Proxy.Address)" }
        $failure = Get-Failure -ExitCode $code -Message "artifact $($Item.Name) from ${from}: $why"
        $failure.Data['Artifact'] = $Item.Name
        throw $failure
    }
    $Item.Redirects, $Item.NotBefore = 0, ($Now + [Math]::Min(30, [Math]::Pow(2, $Item.Tries) / 4))
}

# Downloads all artifacts in parallel, each with its own retries. An artifact has Name, Url, Digest, Size and Path, and From and Authorization, which differ from its Url if it is private. $Proxy is the plan's. $Announce is called with name, status and size.
function Receive-Artifact { [CmdletBinding()] param([object[]]$Artifact, $Proxy, [int]$TimeoutSeconds, [scriptblock]$Announce)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    # HttpClient of .NET Framework does not read HTTPS_PROXY.
    $through = $null
    if ($null -ne $Proxy) {
        $through = New-Object -TypeName System.Net.WebProxy -ArgumentList $Proxy.url
        $through.BypassList = [string[]]@($Proxy.bypass)
    }
    $items = @(foreach ($one in $Artifact) {
            $one + @{
                Proxy = $through; Part = $one.Path + '.part'; Done = $false; Address = $null; Offset = [long]0; Client = $null; Send = $null; Response = $null
                LengthKnown = $true; File = $null; Copy = $null; Seen = [long]-1; SeenAt = [double]0; NotBefore = [double]0
                Redirects = 0; Tries = 0; WrongBytes = 0; Best = [long]0
            }
        })
    foreach ($item in $items) {
        $item.Done = [System.IO.File]::Exists($item.Path) -and (Get-Digest -Path $item.Path) -ceq $item.Digest
        if (-not $item.Done) { [System.IO.File]::Delete($item.Path) }
        $null = & $Announce $item.Name $(if ($item.Done) { 'ready' } else { 'fetching' }) $item.Size
    }
    try {
        while ($true) {
            $open = @($items | Where-Object -FilterScript { -not $_.Done })
            if ($open.Count -eq 0) { return }
            if ($clock.Elapsed.TotalSeconds -gt $TimeoutSeconds) {
                throw (Get-Failure -ExitCode 6 -Message "not downloaded within $TimeoutSeconds s: $(@($open | ForEach-Object -Process { $_.Name }) -join ', ')")
            }
            foreach ($item in $open) {
                $now = $clock.Elapsed.TotalSeconds
                try {
                    if ($null -ne $item.Send) { if (Step-Attempt -Item $item -Now $now) { Complete-Item -Item $item } }
                    elseif ($now -ge $item.NotBefore) { Open-Attempt -Item $item -Address $item.From -Now $now }
                }
                catch { Resolve-Attempt -Item $item -ErrorRecord $_ -Now $now }
                if ($item.Done) { $null = & $Announce $item.Name 'ready' $item.Size }
            }
            Start-Sleep -Milliseconds 50
        }
    }
    finally { foreach ($item in $items) { Close-Attempt -Item $item } }
}
