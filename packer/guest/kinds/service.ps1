# A Windows service. A field that is null is not checked and not changed.
@{
    Get  = { param($Resource)
        $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Resource.name)"
        # A key without ImagePath is not a service: settings may be written before the service is installed.
        if ($null -eq (Get-RegistryValue -Key $key -Name 'ImagePath')) { return $null }
        $type = [int](Get-RegistryData -Key $key -Name 'Start' -Default -1)
        $start = @{ 2 = 'automatic'; 3 = 'manual'; 4 = 'disabled' }[$type]
        if ($null -eq $start) { $start = "start type $type" }
        if ($start -eq 'automatic' -and (Get-RegistryData -Key $key -Name 'DelayedAutostart' -Default 0) -ne 0) { $start = 'delayed' }
        $depends = Get-RegistryValue -Key $key -Name 'DependOnService'
        # An empty list may be read as one empty string.
        $list = @(if ($null -ne $depends) { @($depends.data) | Where-Object -FilterScript { $_ -ne '' } })
        [ordered]@{
            display_name = Get-RegistryData -Key $key -Name 'DisplayName'; command = Get-RegistryData -Key $key -Name 'ImagePath'; start = $start
            state = ([string](Get-Service -Name $Resource.name).Status).ToLowerInvariant(); depends_on = $list; recovery = Get-ServiceRecovery -Key $key
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no service $($Resource.name)" }
        foreach ($pair in @(@('display_name', $Resource.display_name), @('command', $Resource.command), @('start', $Resource.start), @('state', $Resource.state))) {
            $have = $Now[$pair[0]]
            if ($null -ne $pair[1] -and -not (Test-SameText -Left $have -Right $pair[1])) { "$($pair[0]) is $have, not $($pair[1])" }
        }
        if ($null -ne $Resource.depends_on -and -not (Test-SameList -Left $Now.depends_on -Right $Resource.depends_on -IgnoreCase)) {
            "depends_on is $($Now.depends_on -join ', '), not $($Resource.depends_on -join ', ')"
        }
        if ($null -ne $Resource.recovery) {
            $want, $have = foreach ($one in $Resource.recovery, $Now.recovery) {
                if ($null -eq $one) { 'none of this kind' } else { "restart after $($one.restart_after_s) s, reset after $($one.reset_after_s) s" }
            }
            if ($have -cne $want) { "recovery is $have, not $want" }
        }
    }
    Set  = { param($Resource, $Context)
        $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$($Resource.name)"
        $sc = Get-SystemTool -Name 'sc.exe'
        if ($null -eq (Get-RegistryValue -Key $key -Name 'ImagePath')) {
            if ($null -eq $Resource.command) { throw "there is no service $($Resource.name), and the resource has no command to create it" }
            # New-Service passes the command to Windows unchanged, with its inner quotes.
            $null = New-Service -Name $Resource.name -BinaryPathName $Resource.command -StartupType Manual
        }
        elseif ($null -ne $Resource.command -and $null -ne $Resource.state -and -not (Test-SameText -Left (Get-RegistryData -Key $key -Name 'ImagePath') -Right $Resource.command)) {
            # The running service has the old command. It is started with the new one below.
            Wait-ServiceState -Name $Resource.name -State 'stopped' -Context $Context
        }
        $words = @{ automatic = 'auto'; delayed = 'delayed-auto'; manual = 'demand'; disabled = 'disabled' }
        $config = @('config', $Resource.name, 'start=', $words[$Resource.start])
        if ($null -ne $Resource.command) { $config += 'binPath=', $Resource.command }
        if ($null -ne $Resource.display_name) { $config += 'DisplayName=', $Resource.display_name }
        if ($null -ne $Resource.depends_on) {
            # For sc.exe a single slash means none.
            $config += 'depend=', $(if ($Resource.depends_on.Count -gt 0) { $Resource.depends_on -join '/' } else { '/' })
        }
        $null = Invoke-Native -FilePath $sc -ArgumentList $config -TimeoutSeconds (Get-SecondsLeft -Context $Context)
        if ($null -ne $Resource.recovery) {
            $restart = 'restart/{0}' -f ([long]$Resource.recovery.restart_after_s * 1000)
            $failure = @('failure', $Resource.name, 'reset=', [string]$Resource.recovery.reset_after_s, 'actions=', ($restart, $restart, $restart -join '/'))
            $null = Invoke-Native -FilePath $sc -ArgumentList $failure -TimeoutSeconds (Get-SecondsLeft -Context $Context)
        }
        if ($null -ne $Resource.state) { Wait-ServiceState -Name $Resource.name -State $Resource.state -Context $Context }
    }
}
