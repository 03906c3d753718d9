@{
    Get  = { param($Resource) if ([System.IO.Directory]::Exists($Resource.path)) { [ordered]@{ exists = $true; open = $Resource.open } } }
    Test = { param($Resource, $Now) if ($null -eq $Now) { "there is no folder $($Resource.path)" } }
    Set  = { param($Resource) $null = [System.IO.Directory]::CreateDirectory($Resource.path) }
}
