# A firewall rule for one port, in every profile. The port is the local port for direction in, and the remote port for out.
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
        $direction = 'in'
        $port = $filter.LocalPort
        if ([string]$rule[0].Direction -eq 'Outbound') {
            $direction = 'out'
            $port = $filter.RemotePort
        }
        [ordered]@{
            display_name = [string]$rule[0].DisplayName; enabled = [string]$rule[0].Enabled -eq 'True'; direction = $direction
            action = ([string]$rule[0].Action).ToLowerInvariant(); protocol = [string]$filter.Protocol; port = @($port) -join ','; profile = [string]$rule[0].Profile
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no rule $($Resource.name)" }
        if (-not (Test-SameText -Left $Now.display_name -Right $Resource.display_name)) { "display_name is '$($Now.display_name)', not '$($Resource.display_name)'" }
        if (-not $Now.enabled) { 'it is not enabled' }
        if ($Now.direction -ne $Resource.direction) { "direction is $($Now.direction), not $($Resource.direction)" }
        if ($Now.action -ne $Resource.action) { "action is $($Now.action), not $($Resource.action)" }
        if ($Now.protocol -ne $Resource.protocol) { "protocol is $($Now.protocol), not $($Resource.protocol)" }
        if ($Now.port -ne [string]$Resource.port) { "port is $($Now.port), not $($Resource.port)" }
        if ($Now.profile -ne 'Any') { "profile is $($Now.profile), not Any" }
    }
    Set  = { param($Resource)
        # A missing rule is not an error. Any other error appears again when the new rule is made.
        $null = Remove-NetFirewallRule -Name $Resource.name -ErrorAction SilentlyContinue
        $rule = @{
            Name = $Resource.name; DisplayName = $Resource.display_name; Enabled = 'True'; Profile = 'Any'; Protocol = $Resource.protocol
            Direction = 'Inbound'; Action = 'Allow'
        }
        if ($Resource.action -eq 'block') { $rule.Action = 'Block' }
        if ($Resource.direction -eq 'out') {
            $rule.Direction = 'Outbound'
            $rule.RemotePort = [string]$Resource.port
        }
        else { $rule.LocalPort = [string]$Resource.port }
        $null = New-NetFirewallRule @rule -ErrorAction Stop
        $false
    }
}
