# The entry: verifies the bundle byte by byte, unpacks it where only SYSTEM and Administrators reach, and runs one phase. See docs/guest.md.
[CmdletBinding(PositionalBinding = $false)]
param(
    [string]$Phase = '',
    [string]$Bundle = '',
    [string]$BundleSha256 = '',
    [string]$PlanSha256 = '',
    [switch]$Check,
    [switch]$WhatIf,
    # Whatever else was said: refused with the exit code for wrong arguments, not by the binder.
    [Parameter(ValueFromRemainingArguments = $true)]
    [string[]]$Rest = @()
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

$root = 'C:\ProgramData\imagegen'

function Get-EntryError {
    [CmdletBinding()]
    param([int]$ExitCode, [string]$Message)
    $failure = New-Object -TypeName System.InvalidOperationException -ArgumentList $Message
    $failure.Data['ExitCode'] = $ExitCode
    $failure
}

# Every argument, judged before anything is touched. Returns the full path of the bundle.
function Resolve-Argument {
    [CmdletBinding()]
    param([string]$Name, [string]$Path, [string]$ZipDigest, [string]$PlanDigest, [bool]$Both, [bool]$Looking, [string[]]$Unknown)
    if ($Unknown.Count -gt 0) { throw (Get-EntryError -ExitCode 2 -Message "unknown arguments: $($Unknown -join ' ')") }
    if ($Name -eq '') { throw (Get-EntryError -ExitCode 2 -Message '-Phase is missing') }
    if ($Path -eq '') { throw (Get-EntryError -ExitCode 2 -Message '-Bundle is missing') }
    if ($ZipDigest -cnotmatch '\A[0-9a-f]{64}\z') { throw (Get-EntryError -ExitCode 2 -Message '-BundleSha256 must be 64 lower-case hex digits') }
    if ($PlanDigest -cnotmatch '\A[0-9a-f]{64}\z') { throw (Get-EntryError -ExitCode 2 -Message '-PlanSha256 must be 64 lower-case hex digits') }
    if ($Both) { throw (Get-EntryError -ExitCode 2 -Message '-Check and -WhatIf exclude each other') }
    if ($Name -ceq 'all' -and -not $Looking) { throw (Get-EntryError -ExitCode 2 -Message '-Phase all goes with -Check or -WhatIf only') }
    # Exists first: 5.1's GetFullPath throws at what cannot be a path.
    if (-not [System.IO.File]::Exists($Path)) { throw (Get-EntryError -ExitCode 2 -Message "-Bundle: there is no file $Path") }
    return [System.IO.Path]::GetFullPath($Path)
}

# Access first, content after: by SID, since names are localised.
function Initialize-Root {
    [CmdletBinding()]
    param([string]$Path)
    $null = [System.IO.Directory]::CreateDirectory($Path)
    $output = & ([System.IO.Path]::Combine($env:SystemRoot, 'System32', 'icacls.exe')) $Path '/inheritance:r' '/grant:r' '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F'
    if ($LASTEXITCODE -ne 0) { throw "icacls ended with ${LASTEXITCODE}: $($output -join ' ')" }
}

# Only plain relative names; '/' between the parts, and no part that Windows would read as another.
function Test-EntryName {
    [CmdletBinding()]
    param([string]$Name)
    foreach ($part in $Name.Split('/')) {
        if ($part -notmatch '\A[A-Za-z0-9._-]*[A-Za-z0-9_-]\z') { return $false }
    }
    return $true
}

# Hash and content come from one open file that nobody can write meanwhile.
function Expand-Bundle {
    [CmdletBinding()]
    param([string]$Path, [string]$Digest, [string]$Folder)
    Add-Type -AssemblyName System.IO.Compression
    Add-Type -AssemblyName System.IO.Compression.FileSystem
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'Read'
    try {
        $found = (Get-FileHash -InputStream $stream -Algorithm SHA256).Hash.ToLowerInvariant()
        if ($found -cne $Digest) { throw (Get-EntryError -ExitCode 4 -Message "the bundle's sha256 is $found, expected $Digest") }
        $stream.Position = 0
        if ([System.IO.Directory]::Exists($Folder)) { [System.IO.Directory]::Delete($Folder, $true) }
        $null = [System.IO.Directory]::CreateDirectory($Folder)
        $zip = New-Object -TypeName System.IO.Compression.ZipArchive -ArgumentList $stream
        foreach ($entry in $zip.Entries) {
            if (-not (Test-EntryName -Name $entry.FullName.TrimEnd('/'))) {
                throw (Get-EntryError -ExitCode 4 -Message "the bundle holds a file of the name '$($entry.FullName)'")
            }
            if ($entry.FullName.EndsWith('/')) { continue }
            $target = [System.IO.Path]::Combine($Folder, $entry.FullName.Replace('/', '\'))
            if ([System.IO.File]::Exists($target)) { throw (Get-EntryError -ExitCode 4 -Message "the bundle holds '$($entry.FullName)' twice") }
            $null = [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($target))
            [System.IO.Compression.ZipFileExtensions]::ExtractToFile($entry, $target)
        }
    }
    finally { $stream.Dispose() }
}

function Get-FileDigest {
    [CmdletBinding()]
    param([string]$Path)
    (Get-FileHash -LiteralPath $Path -Algorithm SHA256).Hash.ToLowerInvariant()
}

# plan.json by its own digest, every other file by the plan's list, and nothing beside them. Returns the plan.
function Read-Plan {
    [CmdletBinding()]
    param([string]$Folder, [string]$Digest)
    $path = [System.IO.Path]::Combine($Folder, 'plan.json')
    if (-not [System.IO.File]::Exists($path)) { throw (Get-EntryError -ExitCode 4 -Message 'the bundle holds no plan.json') }
    $found = Get-FileDigest -Path $path
    if ($found -cne $Digest) { throw (Get-EntryError -ExitCode 4 -Message "the sha256 of plan.json is $found, expected $Digest") }
    $plan = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($path))
    if ($plan.plan_version -ne 1) { throw (Get-EntryError -ExitCode 4 -Message "plan.json is of version $($plan.plan_version), this engine reads version 1") }
    foreach ($listed in $plan.files.PSObject.Properties) {
        $file = [System.IO.Path]::Combine($Folder, $listed.Name.Replace('/', '\'))
        if (-not [System.IO.File]::Exists($file)) { throw (Get-EntryError -ExitCode 4 -Message "the bundle lacks $($listed.Name)") }
        $found = Get-FileDigest -Path $file
        if ($found -cne $listed.Value) { throw (Get-EntryError -ExitCode 4 -Message "the sha256 of $($listed.Name) is $found, the plan says $($listed.Value)") }
    }
    foreach ($file in [System.IO.Directory]::GetFiles($Folder, '*', [System.IO.SearchOption]::AllDirectories)) {
        $name = $file.Substring($Folder.Length + 1).Replace('\', '/')
        if ($name -ne 'plan.json' -and $null -eq $plan.files.PSObject.Properties[$name]) {
            throw (Get-EntryError -ExitCode 4 -Message "the bundle holds $name, and the plan does not")
        }
    }
    return $plan
}

$code = 1
try {
    $looking = $Check.IsPresent -or $WhatIf.IsPresent
    $both = $Check.IsPresent -and $WhatIf.IsPresent
    $zip = Resolve-Argument -Name $Phase -Path $Bundle -ZipDigest $BundleSha256 -PlanDigest $PlanSha256 -Both $both -Looking $looking -Unknown $Rest
    $mode = 'apply'
    if ($Check) { $mode = 'check' }
    if ($WhatIf) { $mode = 'whatif' }
    Initialize-Root -Path $root
    $folder = [System.IO.Path]::Combine($root, 'bundle')
    Expand-Bundle -Path $zip -Digest $BundleSha256 -Folder $folder
    $plan = Read-Plan -Folder $folder -Digest $PlanSha256
    Import-Module -Name ([System.IO.Path]::Combine($folder, 'engine.psm1')) -Force -DisableNameChecking
    $code = [int](Invoke-Engine -Root $root -Phase $Phase -Plan $plan -PlanDigest $PlanSha256 -Mode $mode)
}
catch {
    $known = $_.Exception.Data['ExitCode']
    if ($null -ne $known) { $code = [int]$known }
    [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)")
    [System.Console]::Out.WriteLine($_.ScriptStackTrace)
}
exit $code
