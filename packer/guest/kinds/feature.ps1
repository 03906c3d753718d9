@{
    Get  = { param($Resource)
        $feature = @(Get-WindowsFeature -Name $Resource.name)
        if ($feature.Count -ne 1) { throw "this Windows has no feature $($Resource.name)" }
        [ordered]@{ state = [string]$feature[0].InstallState }
    }
    Test = { param($Resource, $Now)
        if ($Now.state -eq 'Installed') { return }
        if ($Now.state -ne 'InstallPending') { return "$($Resource.name) is $($Now.state)" }
        if (-not (Test-RestartPending)) { "$($Resource.name) is InstallPending, but no restart is pending" }
    }
    Set  = { param($Resource)
        $result = Install-WindowsFeature -Name $Resource.name -WarningAction SilentlyContinue
        if (-not $result.Success) { throw "Windows did not install $($Resource.name): $($result.ExitCode)" }
        [string]$result.RestartNeeded -eq 'Yes'
    }
}
