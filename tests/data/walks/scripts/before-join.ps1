New-Item -ItemType Directory -Force C:\walk | Out-Null
Add-Content -Path C:\walk\order.txt -Value before
