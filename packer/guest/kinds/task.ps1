# A scheduled task that runs a program as SYSTEM again and again, or at each start of Windows if it has no every_s. A second instance never starts beside a running one.
# The trigger of every_s begins at a time that has passed, and has no end: Windows derives each run from that time, so the task also runs after the clock was set, as at a node's first boot.
@{
    Get  = { param($Resource)
        # Not Get-ScheduledTask, which reads all tasks of the machine and fails if any of them is malformed or is deleted meanwhile.
        try { $text = [string](Export-ScheduledTask -TaskName $Resource.name -TaskPath '\' -ErrorAction Stop) }
        catch {
            # 0x80070002: there is no such file. Not by its category: a missing module is an ObjectNotFound too.
            $id = $_.FullyQualifiedErrorId
            if ($id -notlike 'HRESULT 0x80070002,*' -and $id -notlike 'CmdletizationQuery_NotFound*') { throw }
            return $null
        }
        # Without its namespace, so that the paths below need no prefixes.
        $task = [xml]($text -replace '\sxmlns="[^"]*"', '')
        $reader = $task.CreateNavigator()
        $found = [ordered]@{}
        foreach ($name in 'Triggers', 'Actions') { $found[$name.ToLowerInvariant()] = @(foreach ($node in $task.SelectNodes("/Task/$name/*")) { $node.LocalName }) -join ', ' }
        # Windows may leave out a value that is its default, which comes last, and writes the same time in several ways: 60 minutes are PT60M and PT1H.
        foreach ($value in @(
                @('every_s', '/Task/Triggers/*/Repetition/Interval', $null), @('repeats_for_s', '/Task/Triggers/*/Repetition/Duration', $null),
                @('delay_s', '/Task/Triggers/*/*[self::Delay or self::RandomDelay]', 0), @('limit_s', '/Task/Settings/ExecutionTimeLimit', 259200),
                @('start', '/Task/Triggers/*/StartBoundary', ''), @('ends', '/Task/Triggers/*/EndBoundary', ''),
                @('program', '/Task/Actions/Exec/Command', ''), @('arguments', '/Task/Actions/Exec/Arguments', ''), @('account', '/Task/Principals/Principal/UserId', ''),
                @('parallel', '/Task/Settings/MultipleInstancesPolicy', 'IgnoreNew'), @('priority', '/Task/Settings/Priority', 7))) {
            $given = [string]$reader.Evaluate("string($($value[1]))")
            if ($given -eq '') { $given = $value[2] }
            elseif ($value[0].EndsWith('_s')) { $given = [long][System.Xml.XmlConvert]::ToTimeSpan($given).TotalSeconds }
            $found[$value[0]] = $given
        }
        # In UTC, in whatever zone Windows gives it.
        if ($found.start -ne '') { $found.start = [System.Xml.XmlConvert]::ToDateTimeOffset($found.start).UtcDateTime.ToString('s') + 'Z' }
        $found.priority = [int]$found.priority
        $found.enabled = [bool]$reader.Evaluate("not(/Task/Settings/Enabled = 'false' or /Task/Triggers/*/Enabled = 'false')")
        # The defaults of the last two are true.
        $found.unconditional = [bool]$reader.Evaluate(
            "not(/Task/Settings/RunOnlyIfIdle = 'true' or /Task/Settings/RunOnlyIfNetworkAvailable = 'true' or /Task/Settings/AllowHardTerminate = 'false')" +
            " and /Task/Settings/DisallowStartIfOnBatteries = 'false' and /Task/Settings/StopIfGoingOnBatteries = 'false'")
        $found
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no task $($Resource.name)" }
        $trigger, $start = if ($null -ne $Resource.every_s) { 'TimeTrigger', '2020-01-01T00:00:00Z' } else { 'BootTrigger', '' }
        foreach ($pair in @(
                @('triggers', $trigger), @('start', $start), @('ends', ''), @('delay_s', 0), @('every_s', $Resource.every_s), @('repeats_for_s', $null),
                @('actions', 'Exec'), @('program', $Resource.program), @('arguments', $Resource.arguments), @('account', 'S-1-5-18'), @('limit_s', $Resource.limit_s),
                @('parallel', 'IgnoreNew'), @('priority', 6))) {
            if (-not (Test-SameText -Left $Now[$pair[0]] -Right $pair[1])) { "$($pair[0]) is '$($Now[$pair[0]])', not '$($pair[1])'" }
        }
        if (-not $Now.enabled) { 'it is not enabled' }
        if (-not $Now.unconditional) { 'a setting can keep it from running, or from being ended' }
    }
    Set  = { param($Resource)
        $trigger = '<BootTrigger />'
        # Without a Duration the repetition has no end.
        if ($null -ne $Resource.every_s) { $trigger = '<TimeTrigger><Repetition><Interval>{0}</Interval></Repetition><StartBoundary>2020-01-01T00:00:00Z</StartBoundary></TimeTrigger>' -f [System.Xml.XmlConvert]::ToString([System.TimeSpan]::FromSeconds($Resource.every_s)) }
        Register-SystemTask -Name $Resource.name -Triggers "<Triggers>$trigger</Triggers>" -LimitSeconds $Resource.limit_s -Program $Resource.program -Arguments $Resource.arguments
    }
}
