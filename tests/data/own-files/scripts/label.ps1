Add-Content -Path C:\run\kubeadm\order.txt -Value label
