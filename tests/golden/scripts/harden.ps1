Write-Output hardened
