@{
    Get  = { param($Resource)
        $value = Get-RegistryData -Key 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment' -Name $Resource.name
        if ($null -ne $value) { [ordered]@{ value = [string]$value } }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no variable $($Resource.name)" }
        if (-not (Test-SameText -Left $Now.value -Right $Resource.value)) { "value is '$($Now.value)', not '$($Resource.value)'" }
    }
    Set  = { param($Resource)
        $type = if ($Resource.value.Contains('%')) { 'ExpandString' } else { 'String' }
        Write-RegistryValue -Key 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment' -Name $Resource.name -Type $type -Data $Resource.value
    }
}
