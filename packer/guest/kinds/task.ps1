# A scheduled task that runs a program as SYSTEM when Windows starts, and then repeatedly. A second instance never starts beside a running one.
# Registered as XML: no cmdlet makes a trigger that repeats from the start of Windows on.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

@{
    Get  = {
        param($Resource)
        try { $found = @(Get-ScheduledTask -TaskName $Resource.name -TaskPath '\' -ErrorAction Stop) }
        catch {
            if ($_.CategoryInfo.Category -ne [System.Management.Automation.ErrorCategory]::ObjectNotFound) { throw }
            return $null
        }
        if ($found.Count -eq 0) { return $null }
        $text = [string](Export-ScheduledTask -TaskName $Resource.name -TaskPath '\' -ErrorAction Stop)
        # Without its namespace, so that the paths below need no prefixes.
        $task = [xml]($text -replace '\sxmlns="[^"]*"', '')
        $reader = $task.CreateNavigator()
        # Windows may leave out a value that is its default, and writes the same time in several ways: 60 minutes are PT60M and PT1H.
        $seconds = @{}
        foreach ($pair in @(
                @('every_s', '/Task/Triggers/BootTrigger/Repetition/Interval'), @('repeats_for_s', '/Task/Triggers/BootTrigger/Repetition/Duration'),
                @('limit_s', '/Task/Settings/ExecutionTimeLimit'))) {
            $time = [string]$reader.Evaluate("string($($pair[1]))")
            $seconds[$pair[0]] = $null
            if ($time -ne '') { $seconds[$pair[0]] = [long][System.Xml.XmlConvert]::ToTimeSpan($time).TotalSeconds }
        }
        $parallel = [string]$reader.Evaluate('string(/Task/Settings/MultipleInstancesPolicy)')
        if ($parallel -eq '') { $parallel = 'IgnoreNew' }
        [ordered]@{
            triggers = @(foreach ($node in $task.SelectNodes('/Task/Triggers/*')) { $node.LocalName }) -join ', '
            every_s = $seconds.every_s; repeats_for_s = $seconds.repeats_for_s
            actions = @(foreach ($node in $task.SelectNodes('/Task/Actions/*')) { $node.LocalName }) -join ', '
            program = [string]$reader.Evaluate('string(/Task/Actions/Exec/Command)'); arguments = [string]$reader.Evaluate('string(/Task/Actions/Exec/Arguments)')
            account = [string]$reader.Evaluate('string(/Task/Principals/Principal/UserId)'); limit_s = $seconds.limit_s; parallel = $parallel
            enabled = [bool]$reader.Evaluate("not(/Task/Settings/Enabled = 'false' or /Task/Triggers/*/Enabled = 'false')")
        }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { return "there is no task $($Resource.name)" }
        foreach ($pair in @(
                @('triggers', 'BootTrigger'), @('every_s', $Resource.every_s), @('repeats_for_s', $null), @('actions', 'Exec'), @('program', $Resource.program),
                @('arguments', $Resource.arguments), @('account', 'S-1-5-18'), @('limit_s', $Resource.limit_s), @('parallel', 'IgnoreNew'))) {
            if (-not (Test-SameText -Left $Now[$pair[0]] -Right $pair[1])) { "$($pair[0]) is '$($Now[$pair[0]])', not '$($pair[1])'" }
        }
        if (-not $Now.enabled) { 'it is not enabled' }
    }
    Set  = {
        param($Resource)
        $times = @($Resource.every_s, $Resource.limit_s | ForEach-Object -Process { [System.Xml.XmlConvert]::ToString([System.TimeSpan]::FromSeconds($_)) })
        $texts = @($Resource.program, $Resource.arguments | ForEach-Object -Process { [System.Security.SecurityElement]::Escape($_) })
        # By SID, because the name of the account is localised. Without a Duration the repetition has no end.
        $xml = (@(
                '<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">'
                '<Triggers><BootTrigger><Repetition><Interval>{0}</Interval></Repetition></BootTrigger></Triggers>'
                '<Principals><Principal id="Author"><UserId>S-1-5-18</UserId><RunLevel>HighestAvailable</RunLevel></Principal></Principals>'
                '<Settings><MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy><DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>'
                '<StopIfGoingOnBatteries>false</StopIfGoingOnBatteries><ExecutionTimeLimit>{1}</ExecutionTimeLimit></Settings>'
                '<Actions Context="Author"><Exec><Command>{2}</Command><Arguments>{3}</Arguments></Exec></Actions></Task>'
            ) -join '') -f ($times + $texts)
        $null = Register-ScheduledTask -TaskName $Resource.name -TaskPath '\' -Xml $xml -Force -ErrorAction Stop
        $false
    }
}
