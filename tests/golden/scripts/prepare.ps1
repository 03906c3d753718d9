Write-Output prepared
