@{
    Get  = { param($Resource)
        $path = Get-RegistryData -Key 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment' -Name 'Path' -Default ''
        foreach ($part in ([string]$path).Split(';')) {
            $entry = $part.Trim()
            if (Test-SameText -Left $entry.TrimEnd('\') -Right $Resource.entry.TrimEnd('\') -IgnoreCase) { return [ordered]@{ entry = $entry } }
        }
    }
    Test = { param($Resource, $Now) if ($null -eq $Now) { "$($Resource.entry) is not on the PATH" } }
    Set  = { param($Resource)
        $key = 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment'
        $type, $text = 'ExpandString', $Resource.entry
        $value = Get-RegistryValue -Key $key -Name 'Path'
        if ($null -ne $value) {
            $type = $value.type
            $text = (@(([string]$value.data).TrimEnd(';'), $text) | Where-Object -FilterScript { $_ -ne '' }) -join ';'
        }
        Write-RegistryValue -Key $key -Name 'Path' -Type $type -Data $text
    }
}
