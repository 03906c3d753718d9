# The last provisioner on Azure: seals and generalises the machine. Packer stops the machine afterwards.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'
trap { [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`n$($_.ScriptStackTrace)"); exit 1 }

Import-Module -Name 'C:\ProgramData\imagegen\bundle\seal.psm1' -Force -DisableNameChecking
$answers = 'C:\Program Files\Cloudbase Solutions\Cloudbase-Init\conf\Unattend.xml'
Invoke-Seal -Trim -Assert {
    if (-not [System.IO.File]::Exists($answers)) { throw "there is no $answers" }
    Wait-CloudService -Name 'RdAgent' -TimeoutSeconds 300
    Wait-CloudService -Name 'WindowsAzureGuestAgent' -TimeoutSeconds 300
    Assert-NoAgent -Folder 'C:\Packages\Plugins'
} -Generalise {
    # The builder's account is the built-in administrator, whose number is 500. If Windows marked its password as expired, Setup would wait for a new one at first boot.
    # The policy stays on the nodes.
    $null = Invoke-Native -FilePath (Get-SystemTool -Name 'net.exe') -ArgumentList 'accounts', '/maxpwage:unlimited' -TimeoutSeconds 60
    Write-TextFile -Path 'C:\Windows\Setup\Scripts\accounts.txt' -Text "500`r`n"
    $line = '/oobe /generalize /mode:vm /quiet /quit /unattend:"{0}"' -f $answers
    Invoke-Program -FilePath (Get-SystemTool -Name 'Sysprep\sysprep.exe') -ArgumentLine $line -TimeoutSeconds 1400
} -Finish {
    # Extensions with their settings and scripts, and the builder's custom data. The agents' own programs are in other folders.
    Clear-AgentFolder -Parent 'C:\Packages\Plugins' -Name '*' -TimeoutSeconds 60
    Clear-AgentFolder -Parent 'C:\' -Name 'Packages' -TimeoutSeconds 60
    Clear-AgentFolder -Parent 'C:\' -Name 'AzureData' -TimeoutSeconds 60
    Clear-File -Folder 'C:\WindowsAzure\Logs'
    # A node's agent would take an extension of the builder for one of its own.
    $state = 'SOFTWARE\Microsoft\Windows Azure\HandlerState'
    Clear-Optional -What $state -Clear { [Microsoft.Win32.Registry]::LocalMachine.DeleteSubKeyTree($state, $false) }
}
exit 0
