# Adds the OpenSSH server of Windows. Windows Update serves no network logon, such as the builder's over WinRM: a scheduled task runs this script again as SYSTEM, with -Result, the file for
# what became of it. With -Show it only prints whether the server is there: some releases already have it.
[CmdletBinding(PositionalBinding = $false)] param([switch]$Show, [string]$Result = '')
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)"); exit 1 }

if ($Show) {
    $program = [System.IO.File]::Exists([System.IO.Path]::Combine($env:SystemRoot, 'System32', 'OpenSSH', 'sshd.exe'))
    $service = Test-Path -LiteralPath 'HKLM:\SYSTEM\CurrentControlSet\Services\sshd'
    [System.Console]::Out.WriteLine("installed=$($program -and $service)")
}
else {
    Import-Module -Name 'C:\ProgramData\imagegen\bundle\common.psm1' -Force -DisableNameChecking
    $answer = [System.IO.Path]::Combine($PSScriptRoot, 'result.txt')
    if ($Result -ne '') {
        $said = 'done'
        try { $null = Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0' -ErrorAction Stop }
        catch { $said = '{0} (0x{1:X8})' -f $_.Exception.Message, $_.Exception.HResult }
        Write-TextFile -Path $Result -Text $said
    }
    else {
        # Less than the time of the step.
        $said = Invoke-AsSystem -Name 'imagegen-add-ssh-server' -File $PSCommandPath -ArgumentList '-Result', $answer -Answer $answer -TimeoutSeconds 1500
        [System.IO.File]::Delete($answer)
        if ($said -ne 'done') { throw "Windows Update gave no OpenSSH server: $said. Where the builder cannot reach Windows Update, write ssh.source: zip" }
    }
}
exit 0
