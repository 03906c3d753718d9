"""Verifies Authenticode signatures of PE, MSI, script and catalogue files, without Windows and without the network.

    trust = load_trust(now=...)                                   imagegen.authenticode.trust
    found = verify(file, "kubelet.exe", trust)                    imagegen.authenticode.verify
    found.verdict, found.reason, found.signature.signer           imagegen.authenticode.model
    rule = parse_signer("CN=Microsoft Corporation")               imagegen.authenticode.signer
    rule.matches(found.signature.signer, found.signature.chain)

`model` and `signer` import neither asn1crypto nor cryptography.
"""
