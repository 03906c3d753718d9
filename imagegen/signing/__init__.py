"""The PowerShell scripts that reach the machine: which they are, and the operator's signed copies of them."""
