"""WinRM as Packer uses it: HTTPS, NTLM, WS-Management shells. The guest interprets the commands."""
