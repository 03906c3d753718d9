# The entry script: verifies the bundle, unpacks it into a folder that only SYSTEM and Administrators can access, and runs one phase.
# It has no parameters: PowerShell's binder would exit with 1 at a wrong argument and would accept abbreviated names. See docs/guest.md.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

function Get-EntryError { [CmdletBinding()] param([int]$ExitCode, [string]$Message)
    $failure = New-Object -TypeName System.InvalidOperationException -ArgumentList $Message
    $failure.Data['ExitCode'] = $ExitCode
    $failure
}

# The valid arguments by name: full names in any case, each once. PowerShell passes -Name:value as two words.
function Read-Argument { [CmdletBinding()] param([string[]]$Word)
    $given = @{}
    for ($index = 0; $index -lt $Word.Count; $index++) {
        $name = $Word[$index].TrimEnd(':')
        # In its canonical spelling: a hashtable of 5.1 compares by culture, and in Turkish i and I are different letters.
        $known = @(@('-Phase', '-Bundle', '-BundleSha256', '-PlanSha256', '-Check') -eq $name)
        if ($known.Count -ne 1) { throw (Get-EntryError -ExitCode 2 -Message "unknown argument: $name") }
        $name = $known[0]
        if ($given.ContainsKey($name)) { throw (Get-EntryError -ExitCode 2 -Message "$name is given twice") }
        $given[$name] = ''
        if ($name -eq '-Check') { continue }
        $index++
        if ($index -ge $Word.Count -or $Word[$index] -match '\A-') { throw (Get-EntryError -ExitCode 2 -Message "$name has no value") }
        $given[$name] = $Word[$index]
    }
    foreach ($name in '-Phase', '-Bundle', '-BundleSha256', '-PlanSha256') {
        if ([string]::IsNullOrEmpty($given[$name])) { throw (Get-EntryError -ExitCode 2 -Message "$name is missing") }
        if ($name.EndsWith('Sha256') -and $given[$name] -cnotmatch '\A[0-9a-f]{64}\z') { throw (Get-EntryError -ExitCode 2 -Message "$name must be 64 lower-case hex digits") }
    }
    if ($given['-Phase'] -ceq 'all' -and -not $given.ContainsKey('-Check')) { throw (Get-EntryError -ExitCode 2 -Message '-Phase all can be used only with -Check') }
    if (-not [System.IO.File]::Exists($given['-Bundle'])) { throw (Get-EntryError -ExitCode 2 -Message "-Bundle: there is no file $($given['-Bundle'])") }
    return $given
}

# Retries, because a virus scanner may hold a file for a moment. A file is overwritten before: the snapshot of a disk also has the blocks of deleted files.
function Remove-Path { [CmdletBinding()] param([string]$Path)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ([System.IO.Directory]::Exists($Path) -or [System.IO.File]::Exists($Path)) {
        try {
            if ([System.IO.Directory]::Exists($Path)) { [System.IO.Directory]::Delete($Path, $true) }
            else {
                $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Write', 'None'
                try { $null = $stream.Write((New-Object -TypeName 'byte[]' -ArgumentList ([int]$stream.Length)), 0, [int]$stream.Length); $null = $stream.Flush($true) }
                finally { $stream.Dispose() }
                [System.IO.File]::Delete($Path)
            }
        }
        catch { if ($clock.Elapsed.TotalSeconds -gt 30) { throw } }
        Start-Sleep -Milliseconds 100
    }
}

# A file that one process at a time can open, until it ends in whatever way. Another process waits.
function Open-Lock { [CmdletBinding()] param([string]$Path, [System.IO.FileOptions]$Options, [int]$Seconds)
    $mode, $access, $share = [System.IO.FileMode]::OpenOrCreate, [System.IO.FileAccess]::ReadWrite, [System.IO.FileShare]::None
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try { return (New-Object -TypeName System.IO.FileStream -ArgumentList $Path, $mode, $access, $share, 1, $Options) }
        # 0x80070020: another process has it open.
        catch { if ($clock.Elapsed.TotalSeconds -ge $Seconds -or $_.Exception.GetBaseException().HResult -ne -2147024864) { throw } }
        if ($clock.Elapsed.TotalSeconds -lt 1) { [System.Console]::Out.WriteLine("another run of the engine is in progress on this machine: waiting until it ends, for up to $Seconds s") }
        Start-Sleep -Seconds 1
    }
}

# Hash and content come from one open file, which nobody can change meanwhile.
function Expand-Bundle { [CmdletBinding()] param([string]$Path, [string]$Digest, [string]$Folder)
    Add-Type -AssemblyName System.IO.Compression
    Add-Type -AssemblyName System.IO.Compression.FileSystem
    $stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Read', 'Read'
    try {
        $found = (Get-FileHash -InputStream $stream -Algorithm SHA256).Hash.ToLowerInvariant()
        if ($found -cne $Digest) { throw (Get-EntryError -ExitCode 4 -Message "the bundle's sha256 is $found, expected $Digest") }
        $stream.Position = 0
        Remove-Path -Path $Folder
        $null = [System.IO.Directory]::CreateDirectory($Folder)
        $zip = New-Object -TypeName System.IO.Compression.ZipArchive -ArgumentList $stream
        foreach ($entry in $zip.Entries) {
            # Only relative names with '/' between the parts, and no part that Windows would read as another name.
            if ($entry.FullName.TrimEnd('/') -cnotmatch '\A([A-Za-z0-9._-]*[A-Za-z0-9_-]/)*[A-Za-z0-9._-]*[A-Za-z0-9_-]\z') {
                throw (Get-EntryError -ExitCode 4 -Message "the bundle has a file with the invalid name '$($entry.FullName)'")
            }
            if ($entry.FullName.EndsWith('/')) { continue }
            $target = [System.IO.Path]::Combine($Folder, $entry.FullName.Replace('/', '\'))
            if ([System.IO.File]::Exists($target)) { throw (Get-EntryError -ExitCode 4 -Message "the bundle has '$($entry.FullName)' twice") }
            $null = [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($target))
            [System.IO.Compression.ZipFileExtensions]::ExtractToFile($entry, $target)
        }
    }
    finally { $stream.Dispose() }
}

function Read-Plan { [CmdletBinding()] param([string]$Folder, [string]$Digest)
    $found = [ordered]@{}
    foreach ($file in [System.IO.Directory]::GetFiles($Folder, '*', [System.IO.SearchOption]::AllDirectories)) {
        $found[$file.Substring($Folder.Length + 1).Replace('\', '/')] = (Get-FileHash -LiteralPath $file -Algorithm SHA256).Hash.ToLowerInvariant()
    }
    $own = $found['plan.json']
    if ($null -eq $own) { throw (Get-EntryError -ExitCode 4 -Message 'the bundle has no plan.json') }
    if ($own -cne $Digest) { throw (Get-EntryError -ExitCode 4 -Message "the sha256 of plan.json is $own, expected $Digest") }
    $plan = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText("$Folder\plan.json"))
    if ($plan.plan_version -ne 1) { throw (Get-EntryError -ExitCode 4 -Message "plan.json has version $($plan.plan_version), but this engine reads version 1") }
    foreach ($listed in $plan.files.PSObject.Properties) {
        $name, $wanted = $listed.Name, $listed.Value
        if (-not $found.Contains($name)) { throw (Get-EntryError -ExitCode 4 -Message "the bundle does not have $name") }
        if ($found[$name] -cne $wanted) { throw (Get-EntryError -ExitCode 4 -Message "the sha256 of $name is $($found[$name]), the plan says $wanted") }
        $null = $found.Remove($name)
    }
    foreach ($name in $found.Keys) { if ($name -ne 'plan.json') { throw (Get-EntryError -ExitCode 4 -Message "the bundle has $name, but the plan does not list it") } }
    return $plan
}

$code = 1
$root = 'C:\ProgramData\imagegen'
$lock, $check = $null, $false
# Base64, of nothing and of {}.
$secrets = @{ REGISTRIES = ''; DOWNLOADS = 'e30=' }
try {
    # Credentials of registries and addresses of private artifacts, from Packer's variables: from here on they are only in memory. On a node, anybody may put a file there.
    $file = 'C:\Windows\Temp\imagegen-credentials.ps1'
    if ([System.IO.File]::Exists($file) -and @($args) -notcontains '-Check') {
        $text = [System.IO.File]::ReadAllText($file)
        Remove-Path -Path $file
        # Packer sends only the rest, or nothing, if it has to repeat the upload. Our variables come first, and each value is base64.
        if ($text -cnotmatch '\A(\$env:IMAGEGEN_[A-Z]+="(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";\s*)+(\$env:(?!IMAGEGEN_)\w+="[^"]*";\s*)*\z') { throw 'Packer did not upload all credentials, because the connection was interrupted: start the build again' }
        foreach ($found in [regex]::Matches($text, 'IMAGEGEN_(REGISTRIES|DOWNLOADS)="([A-Za-z0-9+/=]+)"')) { $secrets[$found.Groups[1].Value] = $found.Groups[2].Value }
    }
    # powershell.exe drops a last argument that ends with a colon: with -Check: the script would change the machine. Long dashes count as hyphens.
    if ([System.Environment]::GetCommandLineArgs()[-1] -match '\A[-\u2013\u2014\u2015]\w+:\z') { throw (Get-EntryError -ExitCode 2 -Message 'the last argument ends with a colon') }
    $given = Read-Argument -Word $args
    $check = $given.ContainsKey('-Check')
    if ($check) {
        # In a folder where only administrators can prepare anything. A second -Check ends at once.
        $root = [System.IO.Path]::Combine($env:SystemRoot, 'imagegen-check')
        $lock = Open-Lock -Path "${root}.lock" -Options DeleteOnClose -Seconds 0
        # A killed -Check left it.
        Remove-Path -Path $root
    }
    $null = [System.IO.Directory]::CreateDirectory($root)
    # Before the folder has content. By SIDs, because names are localised.
    $output = & ([System.IO.Path]::Combine($env:SystemRoot, 'System32', 'icacls.exe')) $root '/inheritance:r' '/grant:r' '*S-1-5-18:(OI)(CI)F' '*S-1-5-32-544:(OI)(CI)F'
    if ($LASTEXITCODE -ne 0) { throw "icacls ended with ${LASTEXITCODE}: $($output -join ' ')" }
    # If the connection breaks, Packer starts a phase again beside the engine that still runs. Packer's own timeout of the phase is shorter.
    if (-not $check) { $lock = Open-Lock -Path "$root\engine.lock" -Options None -Seconds 86400 }
    $folder = [System.IO.Path]::Combine($root, 'bundle')
    Expand-Bundle -Path $given['-Bundle'] -Digest $given['-BundleSha256'] -Folder $folder
    $plan = Read-Plan -Folder $folder -Digest $given['-PlanSha256']
    Import-Module -Name ([System.IO.Path]::Combine($folder, 'engine.psm1')) -Force -DisableNameChecking
    $code = [int](Invoke-Engine -Root $root -Phase $given['-Phase'] -Plan $plan -PlanDigest $given['-PlanSha256'] -Secrets $secrets -Check:$check)
}
catch {
    $known = $_.Exception.Data['ExitCode']
    if ($null -ne $known) { $code = [int]$known }
    [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)")
}
finally {
    # Ctrl-C runs only this block, and no catch block.
    if ($check -and $null -ne $lock) {
        try { Remove-Path -Path $root }
        catch {
            $code = 1
            [System.Console]::Out.WriteLine("failed: $root could not be removed: $($_.Exception.GetBaseException().Message)")
        }
    }
    if ($null -ne $lock) { $lock.Dispose() }
}
exit $code
