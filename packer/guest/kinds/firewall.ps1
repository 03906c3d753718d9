@{
    Get  = { param($Resource)
        try { $rule = @(Get-NetFirewallRule -Name $Resource.name -ErrorAction Stop) }
        catch {
            # Not by its category: a missing module is an ObjectNotFound too.
            if ($_.FullyQualifiedErrorId -notlike 'CmdletizationQuery_NotFound*') { throw }
            return $null
        }
        if ($rule.Count -eq 0) { return $null }
        $filter = Get-NetFirewallPortFilter -AssociatedNetFirewallRule $rule[0] -ErrorAction Stop
        $direction, $port = if ([string]$rule[0].Direction -eq 'Outbound') { 'out', $filter.RemotePort } else { 'in', $filter.LocalPort }
        [ordered]@{
            display_name = [string]$rule[0].DisplayName; enabled = [string]$rule[0].Enabled -eq 'True'; direction = $direction
            action = ([string]$rule[0].Action).ToLowerInvariant(); protocol = [string]$filter.Protocol; port = @($port) -join ','; profile = [string]$rule[0].Profile
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no rule $($Resource.name)" }
        if (-not (Test-SameText -Left $Now.display_name -Right $Resource.display_name)) { "display_name is '$($Now.display_name)', not '$($Resource.display_name)'" }
        if (-not $Now.enabled) { 'it is not enabled' }
        $wanted = [ordered]@{ direction = $Resource.direction; action = $Resource.action; protocol = $Resource.protocol; port = $Resource.port; profile = 'Any' }
        foreach ($name in $wanted.Keys) { if ($Now[$name] -ne [string]$wanted[$name]) { "$name is $($Now[$name]), not $($wanted[$name])" } }
    }
    Set  = { param($Resource)
        # A missing rule is not an error. Any other error appears again when the new rule is made.
        $null = Remove-NetFirewallRule -Name $Resource.name -ErrorAction SilentlyContinue
        $rule = @{
            Name = $Resource.name; DisplayName = $Resource.display_name; Enabled = 'True'; Profile = 'Any'; Protocol = $Resource.protocol; Action = $Resource.action
        }
        if ($Resource.direction -eq 'out') { $rule += @{ Direction = 'Outbound'; RemotePort = [string]$Resource.port } }
        else { $rule += @{ Direction = 'Inbound'; LocalPort = [string]$Resource.port } }
        $null = New-NetFirewallRule @rule -ErrorAction Stop
    }
}
