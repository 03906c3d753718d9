Add-Content -Path C:\walk\order.txt -Value after
