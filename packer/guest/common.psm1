# The engine imports it with -Global, so that the script blocks of the kinds find its functions wherever they run. Scripts of a build import it from the unpacked
# bundle, whose bytes start.ps1 has verified, and scripts on a node from beside them: only SYSTEM and Administrators have access to both folders.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

# Explicitly the 64-bit view: a 32-bit host would otherwise read another registry.
$script:LocalMachine = [Microsoft.Win32.RegistryKey]::OpenBaseKey([Microsoft.Win32.RegistryHive]::LocalMachine, [Microsoft.Win32.RegistryView]::Registry64)

function Get-Failure { [CmdletBinding()] param([int]$ExitCode, [string]$Message)
    $failure = New-Object -TypeName System.InvalidOperationException -ArgumentList $Message
    $failure.Data['ExitCode'] = $ExitCode
    $failure
}

# The innermost message: the exceptions that .NET wraps around it name methods, not causes.
function Get-Cause { [CmdletBinding()] param($ErrorRecord); $ErrorRecord.Exception.GetBaseException().Message }

# Ordinal, because the operators -eq and -ceq compare by culture, which ignores some characters.
function Test-SameText { [CmdletBinding()] param([string]$Left, [string]$Right, [switch]$IgnoreCase)
    if ($IgnoreCase) { return [string]::Equals($Left, $Right, [System.StringComparison]::OrdinalIgnoreCase) }
    [string]::Equals($Left, $Right, [System.StringComparison]::Ordinal)
}

function Test-SameList { [CmdletBinding()] param([object[]]$Left, [object[]]$Right, [switch]$IgnoreCase)
    # A NUL ends every text of Windows, so none has one in it.
    $Left.Count -eq $Right.Count -and (Test-SameText -Left ($Left -join "`0") -Right ($Right -join "`0") -IgnoreCase:$IgnoreCase)
}

# Each text once, in ordinal order: Sort-Object sorts by culture and ignores hyphens.
function Get-SortedText { [CmdletBinding()] param([string[]]$Text)
    $set = New-Object -TypeName 'System.Collections.Generic.SortedSet[string]' -ArgumentList ([System.StringComparer]::Ordinal)
    foreach ($one in $Text) { $null = $set.Add($one) }
    foreach ($one in $set) { $one }
}

function Get-Digest { [CmdletBinding()] param([string]$Path); (Get-FileHash -LiteralPath $Path -Algorithm SHA256 -ErrorAction Stop).Hash.ToLowerInvariant() }

# What a report says of a file.
function Get-FileFact { [CmdletBinding()] param([string]$Path)
    if (-not [System.IO.File]::Exists($Path)) { return $null }
    [ordered]@{ sha256 = Get-Digest -Path $Path; size = (New-Object -TypeName System.IO.FileInfo -ArgumentList $Path).Length }
}

# One line of JSON in ASCII. Without -Depth, 5.1 silently cuts values at two levels.
function ConvertTo-AsciiJson { [CmdletBinding()] param($Value)
    $json = ConvertTo-Json -InputObject $Value -Compress -Depth 10
    [regex]::Replace($json, '[^\x20-\x7e]', { param($Found) '\u{0:x4}' -f [int][char]$Found.Value })
}

# Tries again what fails, because a virus scanner may hold a file for a moment. When the time is over, the last failure is thrown.
function Wait-Success { [CmdletBinding()] param([int]$Seconds, [scriptblock]$Try)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        try { & $Try; return }
        catch { if ($clock.Elapsed.TotalSeconds -gt $Seconds) { throw } }
        Start-Sleep -Milliseconds 250
    }
}

# .NET Framework has no move that overwrites. After a crash in between, $To is missing and $From is complete.
function Move-IntoPlace { [CmdletBinding()] param([string]$From, [string]$To)
    Wait-Success -Seconds 5 -Try {
        # A read-only file cannot be deleted.
        if ([System.IO.File]::Exists($To)) { [System.IO.File]::SetAttributes($To, [System.IO.FileAttributes]::Normal) }
        [System.IO.File]::Delete($To)
        # Until a virus scanner has closed it, a deleted name is still taken.
        [System.IO.File]::Move($From, $To)
    }
}

function Write-TextFile { [CmdletBinding()] param([string]$Path, [string]$Text)
    $new = $Path + '.new'
    # Without BOM: so .NET writes if it is given no encoding.
    [System.IO.File]::WriteAllText($new, $Text)
    Move-IntoPlace -From $new -To $Path
}

# All services but some security services, which deny even administrators access to their keys. None of them runs a file of the plan.
function Get-ServiceCommand { [CmdletBinding()] param()
    $services = 'HKLM:\SYSTEM\CurrentControlSet\Services'
    foreach ($name in Get-RegistrySubKey -Key $services) {
        try { @{ Name = $name; Command = [string](Get-RegistryData -Key "$services\$name" -Name 'ImagePath' -Default '') } }
        catch [System.Security.SecurityException] { continue }
    }
}

# The services that run this file.
function Get-ServiceUsing { [CmdletBinding()] param([string]$Path)
    $pattern = '(^|[\s"=])' + [regex]::Escape($Path) + '($|[\s"])'
    foreach ($service in Get-ServiceCommand) {
        if ($service.Command -notmatch $pattern) { continue }
        foreach ($found in @(Get-Service -Name $service.Name -ErrorAction SilentlyContinue)) { if ([string]$found.Status -ne 'Stopped') { $service.Name } }
    }
}

# A store of the machine. It must be closed.
function Open-CertificateStore { [CmdletBinding()] param([string]$Store, [string]$Flags = 'ReadOnly')
    $machine = [System.Security.Cryptography.X509Certificates.StoreLocation]::LocalMachine
    $opened = New-Object -TypeName System.Security.Cryptography.X509Certificates.X509Store -ArgumentList $Store, $machine
    $opened.Open([System.Security.Cryptography.X509Certificates.OpenFlags]$Flags)
    $opened
}

# All certificates in a store. That of the roots also has those that Windows fetched.
function Get-StoreCertificate { [CmdletBinding()] param([string]$Store)
    $opened = Open-CertificateStore -Store $Store
    try { foreach ($one in $opened.Certificates) { $one } }
    finally { $opened.Close() }
}

# The SHA-256. What Windows calls the thumbprint is the SHA-1.
function Get-CertificateDigest { [CmdletBinding()] param($Certificate)
    $stream = New-Object -TypeName System.IO.MemoryStream -ArgumentList (,[byte[]]$Certificate.RawData)
    try { (Get-FileHash -InputStream $stream -Algorithm SHA256 -ErrorAction Stop).Hash.ToLowerInvariant() }
    finally { $stream.Dispose() }
}

# What is wrong with a signature that Windows found. Nothing, if it is the one by which the host accepted the file.
function Get-SignatureFault { [CmdletBinding()] param($Found, $Wanted)
    $status = [string]$Found.Status
    $signer = if ($null -ne $Found.SignerCertificate) { $Found.SignerCertificate.Subject }
    switch -CaseSensitive ($status) {
        'Valid' {
            if ((Get-CertificateDigest -Certificate $Found.SignerCertificate) -cne $Wanted.thumbprint) { "is signed by $signer, not with the certificate of $($Wanted.signer) in the plan" }
            return
        }
        'NotSigned' { return "is not signed, and the plan has a signature of $($Wanted.signer)" }
        'HashMismatch' { return "was changed after $($Wanted.signer) signed it" }
        'NotTrusted' { return "is signed by $signer, which this Windows distrusts" }
    }
    # Windows names no reason that is the same in every language.
    $known = @(foreach ($root in @(Get-StoreCertificate -Store 'Root')) { Get-CertificateDigest -Certificate $root })
    foreach ($chain in @('signed', $Wanted.root, $Wanted.root_thumbprint), @('timestamped', $Wanted.timestamp_root, $Wanted.timestamp_root_thumbprint)) {
        $how, $root, $thumbprint = $chain
        if ($null -ne $root -and $known -cnotcontains $thumbprint) { return "is $how below $root, a root that this machine neither has nor could fetch: save the certificate with the sha256 $thumbprint beside the config, and add windows.trusted_roots: [FILE]" }
    }
    "has a signature of $signer that Windows does not accept ($status): $($Found.StatusMessage)"
}

# Throws unless Windows accepts the signature that the plan has for these bytes. If Windows shows another one (a nested one, or none because a catalogue signs), the host's verdict and the digest decide.
function Assert-Signature { [CmdletBinding()] param([string]$Path, [string]$Name, [string]$Digest, $Context)
    # A plan that requires signatures names each file that it puts on the machine. $null: this one needs none.
    if ($Context.Signatures.Count -gt 0 -and -not $Context.Signatures.ContainsKey($Digest)) { throw (Get-Failure -ExitCode 4 -Message "$Name has the sha256 ${Digest}: the plan requires signatures, and knows no file with these bytes") }
    $wanted = $Context.Signatures[$Digest]
    if ($null -eq $wanted -or $null -ne $wanted.hidden) { return }
    # Windows knows a script by the extension of its file, and a download has none. Each copy has its own name, because a virus scanner may keep the last one open. A killed run may have left one.
    $file = $Path
    if ([System.IO.Path]::GetExtension($Path) -ne [System.IO.Path]::GetExtension($Name)) { $file = "$($Context.Log)\signed-$Digest$([System.IO.Path]::GetExtension($Name))" }
    try {
        if ($file -cne $Path) { Clear-Tree -Path $file; [System.IO.File]::Copy($Path, $file) }
        $fault = Get-SignatureFault -Found (Get-AuthenticodeSignature -LiteralPath $file -ErrorAction Stop) -Wanted $wanted
        $now = Get-Digest -Path $file
        if ($now -cne $Digest) { $fault = "has the sha256 $now, not $Digest" }
        if ($null -ne $fault) { throw (Get-Failure -ExitCode 4 -Message "$Name $fault") }
        $Context.Checked[$Digest] = $true
    }
    finally {
        # A failure here would hide the fault. Sealing deletes what stays.
        try { if ($file -cne $Path) { Clear-Tree -Path $file } }
        catch { [System.Console]::Out.WriteLine("$file could not be deleted: $(Get-Cause -ErrorRecord $_)") }
    }
}

# A copy inherits the access rights of its folder. A moved file would keep its old rights.
function Copy-IntoPlace { [CmdletBinding()] param([string]$From, [string]$To, [string]$Digest, $Context)
    $new = $To + '.new'
    Assert-Signature -Path $From -Name $To -Digest $Digest -Context $Context
    try {
        # A killed run may have left a read-only file.
        if ([System.IO.File]::Exists($new)) { [System.IO.File]::SetAttributes($new, [System.IO.FileAttributes]::Normal) }
        [System.IO.File]::Copy($From, $new, $true)
        # A read-only file cannot be replaced or deleted, and the copy of a read-only file is read-only.
        [System.IO.File]::SetAttributes($new, [System.IO.FileAttributes]::Normal)
        $found = Get-Digest -Path $new
        if ($found -cne $Digest) { throw "the sha256 of $new is $found, not $Digest" }
        try { Move-IntoPlace -From $new -To $To }
        catch {
            $users = @(Get-ServiceUsing -Path $To) -join ', '
            if ($users -eq '') { throw }
            throw "$To is in use by service ${users}: stop service $users, or rebuild the image"
        }
    }
    finally { Clear-Tree -Path $new -TimeoutSeconds 0 }
}

# Unpacks an artifact into a folder beside it, where nobody else can write, and hands that folder to a block.
function Expand-Artifact { [CmdletBinding()] param($Context, [string[]]$ArgumentList, [scriptblock]$Use)
    $staging = [System.IO.Path]::Combine([System.IO.Path]::GetDirectoryName($Context.Artifact), 'unpacked')
    Clear-Tree -Path $staging
    try {
        $null = [System.IO.Directory]::CreateDirectory($staging)
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'tar.exe') -ArgumentList (@('-xf', $Context.Artifact, '-C', $staging) + $ArgumentList) -TimeoutSeconds (Get-SecondsLeft -Context $Context)
        & $Use $staging
    }
    finally { Clear-Tree -Path $staging }
}

# Everything below a folder, except what is behind a link: that belongs to another folder, and a link to a folder above it has no end.
function Get-TreeEntry { [CmdletBinding()] param([string]$Path)
    if ([System.IO.File]::GetAttributes($Path).HasFlag([System.IO.FileAttributes]::ReparsePoint)) { return }
    foreach ($entry in [System.IO.Directory]::GetFileSystemEntries($Path)) {
        $entry
        if ([System.IO.Directory]::Exists($entry)) { Get-TreeEntry -Path $entry }
    }
}

# Repeats a test until it is true, or finds something, and returns that. When the time is over, returns what the last test did.
function Wait-Until { [CmdletBinding()] param([int]$Seconds, [int]$Every, [scriptblock]$Test)
    $clock = [System.Diagnostics.Stopwatch]::StartNew()
    while ($true) {
        $found = & $Test
        if ($found -or $clock.Elapsed.TotalSeconds -gt $Seconds) { return $found }
        Start-Sleep -Seconds $Every
    }
}

# Deletes a file, or a folder. .NET Framework may delete a link and then say that it failed: then the second try finds nothing.
function Clear-Tree { [CmdletBinding()] param([string]$Path, [int]$TimeoutSeconds = 30)
    Wait-Success -Seconds $TimeoutSeconds -Try {
        if ([System.IO.File]::Exists($Path)) {
            [System.IO.File]::SetAttributes($Path, [System.IO.FileAttributes]::Normal)
            [System.IO.File]::Delete($Path)
        }
        if (-not [System.IO.Directory]::Exists($Path)) { return }
        # Read-only files and folders from an archive cannot be deleted. On a folder, Normal only clears these attributes.
        # An entry that cannot be listed or changed keeps no other: whether it stays, Delete decides.
        try { $entries = @(Get-TreeEntry -Path $Path) }
        catch { $entries = @() }
        foreach ($entry in $entries) {
            try { [System.IO.File]::SetAttributes($entry, [System.IO.FileAttributes]::Normal) }
            catch { continue }
        }
        [System.IO.Directory]::Delete($Path, $true)
    }
}

# The last lines of a log, which its writer may still have open. A missing log has no lines.
function Get-LogTail { [CmdletBinding()] param([string]$Path, [int]$Lines)
    if (-not [System.IO.File]::Exists($Path)) { return }
    # Not with -Tail, which would not see that a log is in UTF-16.
    Get-Content -LiteralPath $Path -Encoding UTF8 | Where-Object -FilterScript { $_.Trim() -ne '' } | Select-Object -Last $Lines
}

# The rest of a step's time in seconds, at least 1, so that a wait checks at least once.
function Get-SecondsLeft { [CmdletBinding()] param($Context); [int][Math]::Max(1, $Context.LimitSeconds - $Context.Clock.Elapsed.TotalSeconds) }

function Get-SystemTool { [CmdletBinding()] param([string]$Name); [System.IO.Path]::Combine($env:SystemRoot, 'System32', $Name) }

# One argument as the Windows C runtime reads it back.
function ConvertTo-NativeArgument { [CmdletBinding()] param([string]$Value)
    if ($Value -ne '' -and $Value -notmatch '[\s"]') { return $Value }
    return '"' + ($Value -replace '(\\*)"', '$1$1\"' -replace '(\\+)$', '$1$1') + '"'
}

# -ArgumentLine is passed unchanged, for programs with their own quoting.
function Invoke-Native { [CmdletBinding()] param([string]$FilePath, [string[]]$ArgumentList = @(), [string]$ArgumentLine = '', [int[]]$GoodExitCode = @(0), [int]$TimeoutSeconds = 120)
    $line = (@(foreach ($one in $ArgumentList) { ConvertTo-NativeArgument -Value $one }) + @($ArgumentLine) -join ' ').Trim()
    $start = New-Object -TypeName System.Diagnostics.ProcessStartInfo -ArgumentList $FilePath, $line -Property @{
        UseShellExecute = $false; CreateNoWindow = $true; RedirectStandardInput = $true; RedirectStandardOutput = $true; RedirectStandardError = $true
    }
    $process = [System.Diagnostics.Process]::Start($start)
    try {
        $out = $process.StandardOutput.ReadToEndAsync()
        $err = $process.StandardError.ReadToEndAsync()
        # A program that asks a question reads the end of its input, so that it cannot wait for ever.
        $process.StandardInput.Close()
        if (-not $process.WaitForExit($TimeoutSeconds * 1000)) {
            $message = "$FilePath did not end within $TimeoutSeconds s"
            # It may end just now.
            try { $process.Kill() }
            catch { $message += ", and could not be ended: $(Get-Cause -ErrorRecord $_)" }
            throw $message
        }
        # A child process may keep the output open. Then the exit code is used without the output.
        $text = 'its output is still open'
        if ([System.Threading.Tasks.Task]::WaitAll([System.Threading.Tasks.Task[]]@($out, $err), 5000)) { $text = ($err.Result + $out.Result).Trim() }
        if ($GoodExitCode.Count -gt 0 -and $GoodExitCode -notcontains $process.ExitCode) { throw "$FilePath ended with $($process.ExitCode): $text" }
        [pscustomobject]@{ ExitCode = $process.ExitCode; Output = $text }
    }
    finally { $process.Dispose() }
}

# Registers a task of SYSTEM, by SID because the name of the account is localised. With the default priority, 7, its reads and writes come after those of all others.
function Register-SystemTask { [CmdletBinding()] param([string]$Name, [string]$Triggers = '<Triggers />', [long]$LimitSeconds, [string]$Program, [string]$Arguments)
    $limit = [System.Xml.XmlConvert]::ToString([System.TimeSpan]::FromSeconds($LimitSeconds))
    $command, $words = [System.Security.SecurityElement]::Escape($Program), [System.Security.SecurityElement]::Escape($Arguments)
    $xml = @(
        '<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">', $Triggers
        '<Principals><Principal id="Author"><UserId>S-1-5-18</UserId><RunLevel>HighestAvailable</RunLevel></Principal></Principals>'
        '<Settings><MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy><DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>'
        "<StopIfGoingOnBatteries>false</StopIfGoingOnBatteries><ExecutionTimeLimit>$limit</ExecutionTimeLimit><Priority>6</Priority></Settings>"
        "<Actions Context=`"Author`"><Exec><Command>$command</Command><Arguments>$words</Arguments></Exec></Actions></Task>"
    ) -join ''
    $null = Register-ScheduledTask -TaskName $Name -TaskPath '\' -Xml $xml -Force -ErrorAction Stop
}

# The options with which powershell.exe runs a script. None overrides the policy of a machine that runs only signed scripts.
function Get-ScriptOption { [CmdletBinding()] param()
    '-NoProfile', '-NonInteractive'
    if ([string](Get-ExecutionPolicy) -cne 'AllSigned') { '-ExecutionPolicy', 'Bypass' }
}

# Runs a script as SYSTEM until its answer is there, and returns that: some parts of Windows refuse a network logon, such as the builder's over WinRM.
function Invoke-AsSystem { [CmdletBinding()] param([string]$Name, [string]$File, [string[]]$ArgumentList, [string]$Answer, [int]$TimeoutSeconds)
    foreach ($path in $Answer, "${Answer}.new") { [System.IO.File]::Delete($path) }
    $words = @(Get-ScriptOption) + @('-File', $File) + $ArgumentList
    $line = @(foreach ($word in $words) { ConvertTo-NativeArgument -Value $word }) -join ' '
    try {
        # Without a trigger it runs only when it is started here.
        Register-SystemTask -Name $Name -LimitSeconds $TimeoutSeconds -Program (Get-SystemTool -Name 'WindowsPowerShell\v1.0\powershell.exe') -Arguments $line
        $null = Start-ScheduledTask -TaskName $Name -TaskPath '\' -ErrorAction Stop
        $clock = [System.Diagnostics.Stopwatch]::StartNew()
        while (-not [System.IO.File]::Exists($Answer)) {
            if ($clock.Elapsed.TotalSeconds -gt $TimeoutSeconds) { throw "the task $Name did not finish within $TimeoutSeconds s" }
            # 267009 is that it runs, 267011 that it has not run yet, and 267045 that it is queued.
            $result = [long](Get-ScheduledTaskInfo -TaskName $Name -TaskPath '\' -ErrorAction Stop).LastTaskResult
            if (@(267009, 267011, 267045) -notcontains $result -and $clock.Elapsed.TotalSeconds -gt 60 -and -not [System.IO.File]::Exists($Answer)) {
                throw "the task $Name ended with $result, and left no answer"
            }
            Start-Sleep -Seconds 5
        }
        return [System.IO.File]::ReadAllText($Answer)
    }
    finally {
        # One that was never registered cannot be removed. Unregister-ScheduledTask would fail if any task of the machine is malformed.
        $null = Stop-ScheduledTask -TaskName $Name -TaskPath '\' -ErrorAction SilentlyContinue
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'schtasks.exe') -ArgumentList '/Delete', '/TN', "\$Name", '/F' -GoodExitCode 0, 1
    }
}

# Opens HKLM:\A\B with .NET, because the PowerShell provider takes '*' and '[' in a name for wildcards, and hands it to a block.
# -Create opens an existing key without changing its other values and subkeys. Without it, nothing is done if there is no such key.
function Use-RegistryKey { [CmdletBinding()] param([string]$Key, [scriptblock]$Use, [switch]$Write, [switch]$Create, [Microsoft.Win32.RegistryOptions]$Options = 'None')
    $path = $Key.Substring('HKLM:\'.Length)
    if ($Create) { $opened = $script:LocalMachine.CreateSubKey($path, [Microsoft.Win32.RegistryKeyPermissionCheck]::Default, $Options) }
    else { $opened = $script:LocalMachine.OpenSubKey($path, [bool]$Write) }
    if ($null -eq $opened) { return }
    try { & $Use $opened }
    finally { $opened.Dispose() }
}

function Test-RegistryKey { [CmdletBinding()] param([string]$Key); [bool](Use-RegistryKey -Key $Key -Use { $true }) }

function Get-RegistrySubKey { [CmdletBinding()] param([string]$Key); Use-RegistryKey -Key $Key -Use { param($Opened) $Opened.GetSubKeyNames() } }

# A value as {type, data}: unexpanded, numbers unsigned; $null if the key or the value does not exist.
function Get-RegistryValue { [CmdletBinding()] param([string]$Key, [string]$Name)
    Use-RegistryKey -Key $Key -Use { param($Opened)
        $data = $Opened.GetValue($Name, $null, [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
        if ($null -eq $data) { return }
        $type = [string]$Opened.GetValueKind($Name)
        if ($type -eq 'DWord') { $data = [long]$data -band 4294967295 }
        if ($type -eq 'QWord' -and $data -lt 0) { $data = [System.BitConverter]::ToUInt64([System.BitConverter]::GetBytes([long]$data), 0) }
        [ordered]@{ type = $type; data = $data }
    }
}

# The data of a value, or $Default if it does not exist. For single values only: a list would be unrolled.
function Get-RegistryData { [CmdletBinding()] param([string]$Key, [string]$Name, $Default = $null)
    $value = Get-RegistryValue -Key $Key -Name $Name
    if ($null -eq $value) { $Default } else { $value.data }
}

function Write-RegistryValue { [CmdletBinding()] param([string]$Key, [string]$Name, [string]$Type, $Data)
    Use-RegistryKey -Key $Key -Create -Use { param($Opened)
        $kind = [Microsoft.Win32.RegistryValueKind]$Type
        # .NET expects a signed number. The same bits are passed, because it rejects a number above 0x7fffffff.
        if ($Type -eq 'DWord') { $Opened.SetValue($Name, [System.BitConverter]::ToInt32([System.BitConverter]::GetBytes([uint32]$Data), 0), $kind) }
        elseif ($Type -eq 'QWord') { $Opened.SetValue($Name, [long]$Data, $kind) }
        elseif ($Type -eq 'MultiString') { $Opened.SetValue($Name, [string[]]@($Data), $kind) }
        else { $Opened.SetValue($Name, [string]$Data, $kind) }
    }
}

function Get-UpdatePackage { [CmdletBinding()] param([int[]]$State = @())
    $packages = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\Packages'
    foreach ($name in Get-RegistrySubKey -Key $packages) {
        # Opened once: a machine that was updated for years has tens of thousands of these keys.
        $current, $place = Use-RegistryKey -Key "$packages\$name" -Use { param($Opened) $Opened.GetValue('CurrentState', 0), $Opened.GetValue('InstallLocation', '') }
        if ($State.Count -gt 0 -and $State -notcontains $current) { continue }
        $revision = $null
        $version = [regex]::Match($name, '\APackage_for_RollupFix~.*~\d+\.(\d+)\.')
        if ($version.Success) { $revision = [int]$version.Groups[1].Value }
        # The name of a cumulative update has no KB number, but its InstallLocation has.
        foreach ($kb in Get-SortedText -Text @(foreach ($found in [regex]::Matches("$name $place", 'KB\d+')) { $found.Value })) { [ordered]@{ kb = $kb; ubr = $revision } }
    }
}

# Hands the JSON of a file to a block that reads it. One that is missing, or that a killed run damaged, counts as none.
function Read-Record { [CmdletBinding()] param([string]$Path, [scriptblock]$Read)
    if (-not [System.IO.File]::Exists($Path)) { return }
    # One that cannot be read for a moment is not damaged.
    $text = Wait-Success -Seconds 5 -Try { [System.IO.File]::ReadAllText($Path) }
    try { & $Read (ConvertFrom-Json -InputObject $text) }
    catch { return }
}

# The record of a resource of updates: its finished rounds, and what they installed.
function Read-UpdateRecord { [CmdletBinding()] param([string]$Path)
    $record = Read-Record -Path $Path -Read { param($Saved) @{ rounds = [int]$Saved.rounds; installed = @($Saved.installed); serviced = @($Saved.serviced) } }
    if ($null -ne $record) { $record } else { @{ rounds = 0; installed = @(); serviced = @() } }
}

# The facts about Windows in the report. The state 112 means installed.
function Get-MachineFact { [CmdletBinding()] param()
    $windows = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion'
    return [ordered]@{
        product = [string](Get-RegistryData -Key $windows -Name 'ProductName')
        edition = [string](Get-RegistryData -Key $windows -Name 'EditionID')
        installation = [string](Get-RegistryData -Key $windows -Name 'InstallationType')
        build = [int](Get-RegistryData -Key $windows -Name 'CurrentBuildNumber')
        ubr = [int](Get-RegistryData -Key $windows -Name 'UBR')
        updates = @(Get-SortedText -Text @(foreach ($one in Get-UpdatePackage -State 112) { $one.kb }))
    }
}

# 1.2 matches 1.2 and every 1.2.x.
function Test-SameVersion { [CmdletBinding()] param([string]$Found, [string]$Wanted); $Found -ceq $Wanted -or $Found.StartsWith($Wanted + '.', [System.StringComparison]::Ordinal) }

# The registered version of an MSI product; $null if there is none. Of several registrations, the matching one counts, or else the last.
function Get-PackageVersion { [CmdletBinding()] param([string]$Product, [string]$Version)
    $found = $null
    foreach ($root in 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Uninstall', 'HKLM:\SOFTWARE\WOW6432Node\Microsoft\Windows\CurrentVersion\Uninstall') {
        foreach ($name in Get-RegistrySubKey -Key $root) {
            $registered = Get-RegistryData -Key "$root\$name" -Name 'DisplayName'
            if ($null -eq $registered -or -not (Test-SameText -Left $registered -Right $Product)) { continue }
            if ($null -eq $found -or -not (Test-SameVersion -Found $found -Wanted $Version)) {
                $found = [string](Get-RegistryData -Key "$root\$name" -Name 'DisplayVersion')
            }
        }
    }
    return $found
}

# A service's failure actions as {restart_after_s, reset_after_s}; $null unless all actions are restarts after the same time.
function Get-ServiceRecovery { [CmdletBinding()] param([string]$Key)
    $value = Get-RegistryValue -Key $Key -Name 'FailureActions'
    if ($null -eq $value -or $value.type -ne 'Binary') { return $null }
    # SERVICE_FAILURE_ACTIONS in the registry, in numbers of four bytes: reset period, two unused ones, count, offset, and (type, milliseconds) for each action.
    $bytes = [byte[]]$value.data
    $numbers = @(for ($at = 0; $at + 4 -le $bytes.Length; $at += 4) { [long][System.BitConverter]::ToUInt32($bytes, $at) })
    if ($numbers.Count -lt 7 -or $numbers[3] -lt 1 -or $numbers.Count -lt 5 + 2 * $numbers[3]) { return $null }
    for ($at = 5; $at -lt 5 + 2 * $numbers[3]; $at += 2) { if ($numbers[$at] -ne 1 -or $numbers[$at + 1] -ne $numbers[6]) { return $null } }
    return [ordered]@{ restart_after_s = $numbers[6] / 1000; reset_after_s = $numbers[0] }
}

# Starts or stops a service and waits for it within the step's time. Fails at once if the service that it started dies.
function Wait-ServiceState { [CmdletBinding()] param([string]$Name, [string]$State, $Context)
    $service = Get-Service -Name $Name
    $up = $State -eq 'running'
    # From a pending state Windows neither starts nor stops a service (errors 1056 and 1061), and one that runs may not accept a stop yet.
    $from = if ($up) { 'Stopped', 'Paused' } else { 'Running', 'Paused' }
    $asked = $false
    while ($true) {
        $service.Refresh()
        $status = [string]$service.Status
        if ($status -eq $State) { return }
        if ($up -and $asked -and $status -eq 'Stopped') { throw "service $Name started and stopped again" }
        if (-not $asked -and $from -contains $status -and ($up -or $service.CanStop)) {
            $asked = $true
            if ($up) { $null = $service.Start() }
            else { $null = Stop-Service -Name $Name -Force -NoWait }
        }
        if ($Context.Clock.Elapsed.TotalSeconds -gt $Context.LimitSeconds) { throw "service $Name is $status, not $State, and the step has no time left" }
        Start-Sleep -Milliseconds 200
    }
}

function Test-RestartPending { [CmdletBinding()] param()
    $current = 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion'
    (Test-RegistryKey -Key "$current\Component Based Servicing\RebootPending") -or (Test-RegistryKey -Key "$current\WindowsUpdate\Auto Update\RebootRequired")
}

# The arguments that kubeadm wrote: KUBELET_KUBEADM_ARGS="..." with Go's quoting. Blanks outside quotes separate arguments, and of several such lines the last counts.
# Before the node has joined there is no file, and there are no arguments. kubeadm may still have the file open for writing: Get-Content reads it all the same.
function Read-KubeadmArgument { [CmdletBinding()] param([string]$Path)
    if (-not [System.IO.File]::Exists($Path)) { return }
    $text = ''
    foreach ($line in @(Get-Content -LiteralPath $Path -Encoding UTF8)) { if ($line -cmatch '\A\s*KUBELET_KUBEADM_ARGS=(.*?)\s*\z') { $text = $Matches[1] } }
    if ($text -match '\A"(.*)"\z') { $text = $Matches[1] -replace '\\([\\"])', '$1' }
    foreach ($word in [regex]::Matches($text, '(?:[^\s"'']|"[^"]*"|''[^'']*''|["''])+')) { $word.Value -replace '"([^"]*)"|''([^'']*)''', '$1$2' }
}

# Asks Windows' network service. No cmdlet creates a network in it, and Microsoft documents those that remove one for Windows Server 2025 only. PowerShell compiles the same text only once.
function Invoke-Hns { [CmdletBinding()] param([string]$Method, [string]$Path, [string]$Request = '')
    Add-Type -Namespace Imagegen -Name Hns -MemberDefinition '[DllImport("vmcompute.dll")] public static extern int HNSCall([MarshalAs(UnmanagedType.LPWStr)] string method, [MarshalAs(UnmanagedType.LPWStr)] string path, [MarshalAs(UnmanagedType.LPWStr)] string request, [MarshalAs(UnmanagedType.LPWStr)] out string response);'
    $response = ''
    $code = [Imagegen.Hns]::HNSCall($Method, $Path, $Request, [ref]$response)
    # Of some failures HNS gives only the code.
    if (-not $response) { throw ('HNS refused {0} {1}: 0x{2:x8}' -f $Method, $Path, $code) }
    $answer = ConvertFrom-Json -InputObject $response
    if (-not $answer.Success) { throw "HNS refused $Method ${Path}: $response" }
    # Nothing, where there is nothing: @() of it is then empty.
    if ($answer.PSObject.Properties['Output'] -and $null -ne $answer.Output) { return $answer.Output }
}
