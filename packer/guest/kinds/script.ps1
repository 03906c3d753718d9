@{
    Get  = { param($Resource)
        Read-Record -Path "C:\ProgramData\imagegen\scripts\$($Resource.name).json" -Read {
            param($Saved)
            [ordered]@{ sha256 = [string]$Saved.sha256; arguments = [string[]]@($Saved.arguments); exit_code = [long]$Saved.exit_code }
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "the script $($Resource.name) has not run" }
        if ($Now.sha256 -cne $Resource.sha256) { "it ran with sha256 $($Now.sha256), not $($Resource.sha256)" }
        if (-not (Test-SameList -Left $Now.arguments -Right $Resource.arguments)) {
            "it ran with the arguments '$($Now.arguments -join ' ')', not '$($Resource.arguments -join ' ')'"
        }
        if ($Resource.good_exit_codes -notcontains $Now.exit_code) { "it ended with $($Now.exit_code), not with $($Resource.good_exit_codes -join ' or ')" }
    }
    Set  = { param($Resource, $Context)
        $file = [System.IO.Path]::Combine($Context.Bundle, $Resource.source.Replace('/', '\'))
        Assert-Signature -Path $file -Name $Resource.source -Digest $Resource.sha256 -Context $Context
        $arguments = @(Get-ScriptOption) + @('-File', $file) + @($Resource.arguments)
        $left = [Math]::Min([int]$Resource.timeout_s, (Get-SecondsLeft -Context $Context))
        # No exit code is an error yet, so that the output is shown first.
        $ran = Invoke-Native -FilePath (Get-SystemTool -Name 'WindowsPowerShell\v1.0\powershell.exe') -ArgumentList $arguments -GoodExitCode @() -TimeoutSeconds $left
        $lines = @($ran.Output -split '\r?\n' | Where-Object -FilterScript { $_.Trim() -ne '' })
        # With the name in front, no line of the output can be an event.
        foreach ($line in @($lines | Select-Object -Last 30)) { [System.Console]::Out.WriteLine("$($Resource.name): $line") }
        if ($Resource.good_exit_codes -notcontains $ran.ExitCode) {
            # Errors come before all other output.
            $told = if ($lines.Count -gt 6) { @($lines | Select-Object -First 3) + '...' + @($lines | Select-Object -Last 3) } else { $lines }
            throw "$($Resource.name) ended with $($ran.ExitCode), not with $($Resource.good_exit_codes -join ' or '): $($told -join '; ')"
        }
        $null = [System.IO.Directory]::CreateDirectory('C:\ProgramData\imagegen\scripts')
        $mark = [ordered]@{ sha256 = $Resource.sha256; arguments = [string[]]@($Resource.arguments); exit_code = $ran.ExitCode }
        Write-TextFile -Path "C:\ProgramData\imagegen\scripts\$($Resource.name).json" -Text (ConvertTo-AsciiJson -Value $mark)
        $ran.ExitCode -eq 3010
    }
}
