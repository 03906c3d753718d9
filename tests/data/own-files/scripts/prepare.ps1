$ErrorActionPreference = 'Stop'
if (Test-Path -Path C:\etc\kubernetes\kubelet.conf) {
  Add-Content -Path C:\run\kubeadm\order.txt -Value after
}
else {
  Add-Content -Path C:\run\kubeadm\order.txt -Value before
}
