@{
    Get  = { param($Resource)
        $output = (Invoke-Native -FilePath $Resource.program -ArgumentLine $Resource.unless.arguments -TimeoutSeconds 600).Output
        # The output itself is no fact: it may have other settings, and words in Windows' language.
        [ordered]@{ matches = @(foreach ($pattern in $Resource.unless.matches) { [regex]::IsMatch($output, $pattern) }) }
    }
    Test = { param($Resource, $Now)
        $patterns = @($Resource.unless.matches)
        for ($index = 0; $index -lt $patterns.Count; $index++) {
            if (-not $Now.matches[$index]) { "$($Resource.name): the output of '$($Resource.program) $($Resource.unless.arguments)' does not match $($patterns[$index])" }
        }
    }
    Set  = { param($Resource, $Context)
        $null = Invoke-Native -FilePath $Resource.program -ArgumentLine $Resource.arguments -GoodExitCode $Resource.good_exit_codes -TimeoutSeconds (Get-SecondsLeft -Context $Context)
    }
}
