# A container image in containerd's namespace of Kubernetes. containerd pulls it by its digest, with its own settings, proxy and mirrors.
@{
    Get  = { param($Resource)
        # containerd answers some seconds after its service has started.
        $clock = [System.Diagnostics.Stopwatch]::StartNew()
        while ($true) {
            $images = Invoke-Native -FilePath $Resource.ctr -ArgumentList '-n', 'k8s.io', 'images', 'ls' -GoodExitCode @()
            if ($images.ExitCode -eq 0) { break }
            if ($clock.Elapsed.TotalSeconds -gt 60) { throw "containerd does not answer: $($images.Output)" }
            Start-Sleep -Seconds 2
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
        if ($null -eq $Now) { return "containerd has no image $($Resource.name)" }
        if ($Now.digest -cne $Resource.digest) { "digest is $($Now.digest), not $($Resource.digest)" }
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
        $arguments = '--runtime-endpoint', $pipe, '--image-endpoint', $pipe, 'pull', $Resource.reference
        $attempts = 4
        for ($attempt = 1; $attempt -le $attempts; $attempt++) {
            [System.Console]::Out.WriteLine("pulling $($Resource.reference), $($Resource.size) bytes, attempt $attempt of $attempts")
            $left = Get-SecondsLeft -Context $Context
            $pulled = Invoke-Native -FilePath $Resource.crictl -ArgumentList $arguments -GoodExitCode @() -TimeoutSeconds $left
            if ($pulled.ExitCode -eq 0) { break }
            $why = "$($Resource.reference) could not be pulled: $($pulled.Output)"
            if ($drive.AvailableFreeSpace -lt 1073741824) { throw "drive C has only $($drive.AvailableFreeSpace) bytes left. $why" }
            if ($attempt -eq $attempts -or $left -le 60) { throw $why }
            [System.Console]::Out.WriteLine($why)
            Start-Sleep -Seconds (15 * $attempt)
        }
        # By digest, containerd gives it no other name: pods and containerd's own configuration look for this one.
        if ($Resource.name -cne $Resource.reference) {
            $null = Invoke-Native -FilePath $Resource.ctr -ArgumentList '-n', 'k8s.io', 'images', 'tag', '--force', $Resource.reference, $Resource.name
        }
        if ($Resource.pinned) {
            $null = Invoke-Native -FilePath $Resource.ctr -ArgumentList '-n', 'k8s.io', 'images', 'label', $Resource.name, 'io.cri-containerd.pinned=pinned'
        }
        $false
    }
}
