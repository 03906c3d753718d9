# In Root, Windows trusts what leads to it. In TrustedPublisher, PowerShell runs the scripts that it signed.
@{
    Get  = { param($Resource)
        foreach ($one in @(Get-StoreCertificate -Store $Resource.store)) {
            if ($one.Thumbprint -eq $Resource.thumbprint) { return [ordered]@{ sha256 = Get-CertificateDigest -Certificate $one } }
        }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "the store $($Resource.store) does not have $($Resource.subject)" }
        if ($Now.sha256 -cne $Resource.sha256) { "sha256 is $($Now.sha256), not $($Resource.sha256)" }
    }
    Set  = { param($Resource, $Context)
        $file = [System.IO.Path]::Combine($Context.Bundle, $Resource.source.Replace('/', '\'))
        # Before the policy applies: from then on, PowerShell would only say that a script cannot be loaded. And before the certificate is there: the next run would find it, and check nothing.
        foreach ($script in $Context.Files.PSObject.Properties) {
            $wanted = $Context.Signatures[$script.Value]
            if ($Resource.store -cne 'TrustedPublisher' -or $null -eq $wanted -or $wanted.thumbprint -cne $Resource.sha256) { continue }
            Assert-Signature -Path ([System.IO.Path]::Combine($Context.Bundle, $script.Name.Replace('/', '\'))) -Name $script.Name -Digest $script.Value -Context $Context
        }
        $certificate = New-Object -TypeName System.Security.Cryptography.X509Certificates.X509Certificate2 -ArgumentList $file
        $store = Open-CertificateStore -Store $Resource.store -Flags ReadWrite
        try { $null = $store.Add($certificate) }
        finally { $store.Close() }
    }
}
