@echo off
rem Runs as SYSTEM when Windows has set itself up on a node: ends the build's way in, then hands the machine to cloudbase-init.
"%SystemRoot%\System32\WindowsPowerShell\v1.0\powershell.exe" -NoProfile -NonInteractive -ExecutionPolicy Bypass -File "%SystemRoot%\Setup\Scripts\first-boot.ps1" > "%SystemRoot%\Setup\Scripts\first-boot.log" 2>&1
"%SystemRoot%\System32\sc.exe" config cloudbase-init start= auto
"%SystemRoot%\System32\sc.exe" start cloudbase-init
