@{
    Get  = { param($Resource)
        $found = Get-PackageVersion -Product $Resource.product -Version $Resource.version
        if ($null -eq $found) { return $null }
        $files = [ordered]@{}
        foreach ($path in $Resource.files) { $files[$path] = [System.IO.File]::Exists($path) }
        $services = [ordered]@{}
        foreach ($name in $Resource.services) { $services[$name] = $null -ne (Get-RegistryValue -Key "HKLM:\SYSTEM\CurrentControlSet\Services\$name" -Name 'ImagePath') }
        [ordered]@{ product = $Resource.product; version = $found; files = $files; services = $services }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "$($Resource.product) is not installed" }
        if (-not (Test-SameVersion -Found $Now.version -Wanted $Resource.version)) { "version is $($Now.version), not $($Resource.version)" }
        foreach ($path in $Resource.files) { if (-not $Now.files[$path]) { "there is no file $path" } }
        foreach ($name in $Resource.services) { if (-not $Now.services[$name]) { "there is no service $name" } }
    }
    Set  = { param($Resource, $Context)
        Assert-Signature -Path $Context.Artifact -Name "$($Resource.artifact).msi" -Digest ([System.IO.Path]::GetFileName($Context.Artifact)) -Context $Context
        $log = [System.IO.Path]::Combine($Context.Log, "$($Resource.artifact).msi.log")
        # msiexec reads NAME="a value", but not "NAME=a value", which is the C runtime's form.
        $properties = @(foreach ($argument in $Resource.arguments) {
                $name, $value = $argument -split '=', 2
                if ($value -eq '' -or $value -match '\s') { '{0}="{1}"' -f $name, $value } else { $argument }
            })
        # msiexec /i does not repair an installed product. A lost file comes back only with REINSTALL.
        $found = Get-PackageVersion -Product $Resource.product -Version $Resource.version
        if ($null -ne $found -and (Test-SameVersion -Found $found -Wanted $Resource.version)) { $properties = @('REINSTALL=ALL', 'REINSTALLMODE=amus') + $properties }
        $line = @('/i "{0}" /qn /norestart /l*v "{1}"' -f $Context.Artifact, $log) + $properties -join ' '
        $msiexec = Get-SystemTool -Name 'msiexec.exe'
        # 1618: another installation is running. Wait for it within the step's time.
        while ($true) {
            $left = Get-SecondsLeft -Context $Context
            try { $code = (Invoke-Native -FilePath $msiexec -ArgumentLine $line -GoodExitCode 0, 3010, 1618 -TimeoutSeconds $left).ExitCode }
            catch {
                foreach ($text in Get-LogTail -Path $log -Lines 30) { [System.Console]::Out.WriteLine($text) }
                throw
            }
            if ($code -ne 1618) { break }
            if ($left -le 1) { throw 'another installation is still running, and the step has no time left' }
            Start-Sleep -Seconds ([Math]::Min(5, $left))
        }
        $code -eq 3010
    }
}
