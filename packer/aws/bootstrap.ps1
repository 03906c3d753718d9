# User data of the builder on AWS: enables WinRM over HTTPS with a new certificate, so that Packer can connect. Holds no secret.
# EC2Launch runs it once at first boot, as SYSTEM.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

Set-Service -Name 'WinRM' -StartupType Automatic
$limit = [System.TimeSpan]::FromSeconds(120)
$service = Get-Service -Name 'WinRM'
# Windows may still be starting or stopping it. A service that is still stopping cannot be started (error 1056).
if ([string]$service.Status -eq 'StopPending') { $service.WaitForStatus('Stopped', $limit) }
if ([string]$service.Status -eq 'Stopped') { $null = $service.Start() }
$service.WaitForStatus('Running', $limit)
$null = Set-WSManInstance -ResourceURI 'winrm/config' -ValueSet @{ MaxTimeoutms = '1800000' }
$null = Set-WSManInstance -ResourceURI 'winrm/config/winrs' -ValueSet @{ MaxMemoryPerShellMB = '2048' }
$null = Set-WSManInstance -ResourceURI 'winrm/config/service' -ValueSet @{ AllowUnencrypted = 'false' }
$null = Set-WSManInstance -ResourceURI 'winrm/config/service/auth' -ValueSet @{ Basic = 'false'; Negotiate = 'true' }
$certificate = New-SelfSignedCertificate -DnsName $env:COMPUTERNAME -CertStoreLocation 'Cert:\LocalMachine\My' -FriendlyName 'imagegen-winrm' `
    -KeyAlgorithm RSA -KeyLength 2048 -HashAlgorithm SHA256 -KeyExportPolicy NonExportable -NotAfter ([System.DateTime]::Now.AddDays(2))
foreach ($listener in @(Get-WSManInstance -ResourceURI 'winrm/config/Listener' -Enumerate)) {
    Remove-WSManInstance -ResourceURI 'winrm/config/Listener' -SelectorSet @{ Address = [string]$listener.Address; Transport = [string]$listener.Transport }
}
$null = New-WSManInstance -ResourceURI 'winrm/config/Listener' -SelectorSet @{ Address = '*'; Transport = 'HTTPS' } `
    -ValueSet @{ Hostname = $env:COMPUTERNAME; CertificateThumbprint = $certificate.Thumbprint }
# Last, because the open port lets Packer connect.
$null = Remove-NetFirewallRule -Name 'imagegen-winrm-https' -ErrorAction SilentlyContinue
$null = New-NetFirewallRule -Name 'imagegen-winrm-https' -DisplayName 'imagegen: WinRM over HTTPS' -Enabled True -Profile Any -Direction Inbound `
    -Action Allow -Protocol TCP -LocalPort 5986 -ErrorAction Stop
exit 0
