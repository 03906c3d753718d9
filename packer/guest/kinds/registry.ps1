@{
    Get  = { param($Resource) Get-RegistryValue -Key $Resource.key -Name $Resource.name }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no value $($Resource.name)" }
        if ($Now.type -cne $Resource.type) { "type is $($Now.type), not $($Resource.type)" }
        $have = @($Now.data)
        $want = @($Resource.data)
        if (-not (Test-SameList -Left $have -Right $want)) { "data is $($have -join ', '), not $($want -join ', ')" }
    }
    Set  = { param($Resource) Write-RegistryValue -Key $Resource.key -Name $Resource.name -Type $Resource.type -Data $Resource.data }
}
