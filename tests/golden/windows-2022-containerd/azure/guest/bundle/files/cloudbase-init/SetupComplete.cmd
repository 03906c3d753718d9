@echo off
rem Runs as SYSTEM at the end of Windows Setup on a node: removes the builder's access and restricts an address of the platform, then starts cloudbase-init.
"%SystemRoot%\System32\WindowsPowerShell\v1.0\powershell.exe" -NoProfile -NonInteractive -ExecutionPolicy Bypass -File "%SystemRoot%\Setup\Scripts\first-boot.ps1" > "%SystemRoot%\Setup\Scripts\first-boot.log" 2>&1
"%SystemRoot%\System32\sc.exe" config cloudbase-init start= auto
"%SystemRoot%\System32\sc.exe" start cloudbase-init
