# Before kubeadm.
Write-Output "ready"
