@{
    Get  = { param($Resource)
        $program, $question, $service = $Resource.ctr, @('-n', 'k8s.io', 'images', 'ls'), 'containerd'
        if ($null -ne $Resource.docker) { $program, $question, $service = $Resource.docker, @('version', '--format', '{{.Server.Version}}'), 'docker' }
        if (-not [System.IO.File]::Exists($program)) { throw "it could not be looked at: there is no $program" }
        if (@(Get-Service -Name $service -ErrorAction SilentlyContinue | Where-Object -FilterScript { [string]$_.Status -eq 'Running' }).Count -eq 0) { throw "it could not be looked at: service $service does not run" }
        # A runtime answers some seconds after its service has started.
        try { $images = Wait-Success -Seconds 60 -Try { Invoke-Native -FilePath $program -ArgumentList $question } }
        catch { throw "it could not be looked at: $(Get-Cause -ErrorRecord $_)" }
        if ($null -ne $Resource.docker) {
            $found = Invoke-Native -FilePath $program -ArgumentList 'image', 'inspect', '--format', '{{.Id}}', $Resource.name -GoodExitCode @()
            if ($found.ExitCode -ne 0) { return $null }
            return [ordered]@{ digest = [regex]::Match($found.Output, 'sha256:[0-9a-f]{64}').Value }
        }
        # The columns are name, type, digest, size, platforms and labels.
        $row = [regex]::Match($images.Output, '(?m)^' + [regex]::Escape($Resource.name) + '[ \t]+\S+[ \t]+(sha256:[0-9a-f]{64})[ \t]+(.*)$')
        if (-not $row.Success) { return $null }
        $snapshots = (Invoke-Native -FilePath $Resource.ctr -ArgumentList '-n', 'k8s.io', 'snapshots', 'ls').Output
        [ordered]@{
            digest = $row.Groups[1].Value; unpacked = [regex]::IsMatch($snapshots, '(?m)^' + $Resource.layers + '[ \t]')
            pinned = [regex]::IsMatch($row.Groups[2].Value, '(?:^|[ ,])io\.cri-containerd\.pinned=pinned(?:[ ,\r]|$)')
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no image $($Resource.name)" }
        if ($Now.digest -cne $Resource.digest) { "digest is $($Now.digest), not $($Resource.digest)" }
        # Docker has no image without its layers, and pins none.
        if ($null -ne $Resource.docker) { return }
        if (-not $Now.unpacked) { "its layers are not unpacked: there is no snapshot $($Resource.layers)" }
        if ($Resource.pinned -and -not $Now.pinned) { 'it is not pinned' }
    }
    Set  = { param($Resource, $Context)
        $drive = New-Object -TypeName System.IO.DriveInfo -ArgumentList 'C'
        # Unpacked layers need more than compressed ones: with less than this, the pull would fail after a long time.
        if ($drive.AvailableFreeSpace -lt [long]$Resource.size + 1073741824) {
            throw "drive C has $($drive.AvailableFreeSpace) bytes free, and $($Resource.name) needs more than $($Resource.size): choose a larger disk"
        }
        $pipe = 'npipe:////./pipe/containerd-containerd'
        $program, $arguments = $Resource.crictl, @('--runtime-endpoint', $pipe, '--image-endpoint', $pipe, 'pull', $Resource.reference)
        if ($null -ne $Resource.docker) { $program, $arguments = $Resource.docker, @('pull', $Resource.reference) }
        # A tarball was verified after its download: no network can disturb its import.
        $attempts = if ($null -ne $Resource.artifact) { 1 } else { 4 }
        if ($null -ne $Resource.artifact) {
            $program, $arguments = $Resource.ctr, @('-n', 'k8s.io', 'images', 'import', $Context.Artifact)
            if ($null -ne $Resource.docker) { $program, $arguments = $Resource.docker, @('load', '--input', $Context.Artifact) }
        }
        $folder = "$($Context.Log)\docker"
        try {
            # Credentials are in no command line, which Windows can log: crictl takes them from its environment, Docker from a file in a closed folder.
            if ($null -ne $Resource.reference -and $Context.Registries -ne '') {
                $one = (ConvertFrom-Json -InputObject $Context.Registries).auths.PSObject.Properties[($Resource.reference -split '/')[0]]
                if ($null -ne $Resource.docker) {
                    $null = [System.IO.Directory]::CreateDirectory($folder)
                    [System.IO.File]::WriteAllText("$folder\config.json", $Context.Registries)
                    $arguments = @('--config', $folder) + $arguments
                }
                elseif ($null -ne $one) { [System.Environment]::SetEnvironmentVariable('CRICTL_AUTH', $one.Value.auth) }
            }
            for ($attempt = 1; $attempt -le $attempts; $attempt++) {
                [System.Console]::Out.WriteLine("getting $($Resource.name), $($Resource.size) bytes, attempt $attempt of $attempts")
                $left = Get-SecondsLeft -Context $Context
                $ran = Invoke-Native -FilePath $program -ArgumentList $arguments -GoodExitCode @() -TimeoutSeconds $left
                if ($ran.ExitCode -eq 0) { break }
                $why = "$($Resource.name) could not be pulled or imported: $($ran.Output)"
                if ($drive.AvailableFreeSpace -lt 1073741824) { throw "drive C has only $($drive.AvailableFreeSpace) bytes left. $why" }
                if ($attempt -eq $attempts -or $left -le 60) { throw $why }
                [System.Console]::Out.WriteLine($why)
                Start-Sleep -Seconds (15 * $attempt)
            }
        }
        finally {
            [System.Environment]::SetEnvironmentVariable('CRICTL_AUTH', '')
            Clear-Tree -Path $folder
        }
        # By digest, a runtime gives it no other name: pods and the runtime's own configuration look for this one.
        if ($null -ne $Resource.reference -and $Resource.name -cne $Resource.reference) {
            $program, $arguments = $Resource.ctr, @('-n', 'k8s.io', 'images', 'tag', '--force', $Resource.reference, $Resource.name)
            if ($null -ne $Resource.docker) { $program, $arguments = $Resource.docker, @('tag', $Resource.reference, $Resource.name) }
            $null = Invoke-Native -FilePath $program -ArgumentList $arguments
        }
        if ($Resource.pinned) {
            $null = Invoke-Native -FilePath $Resource.ctr -ArgumentList '-n', 'k8s.io', 'images', 'label', $Resource.name, 'io.cri-containerd.pinned=pinned'
        }
    }
}
