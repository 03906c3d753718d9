"""WinRM as Packer speaks it: HTTPS, NTLM, WS-Management shells; what the commands mean is the guest's business."""
