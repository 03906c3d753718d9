# A drive that uses all the space of its disk. The small disks of clouds are larger than the drive on them.
@{
    Get  = { param($Resource)
        # Soon after a start of Windows, its storage service may know no partition.
        $found = @(Wait-Until -Seconds 60 -Every 2 -Test {
                # DriveLetter is a character, which a filter of WMI cannot compare with text.
                Get-CimInstance -Namespace 'root/Microsoft/Windows/Storage' -ClassName 'MSFT_Partition' -OperationTimeoutSec 300 |
                    Where-Object -FilterScript { [string]$_.DriveLetter -eq $Resource.drive }
            })
        if ($found.Count -ne 1) { throw "there are $($found.Count) partitions with the letter $($Resource.drive)" }
        $limits = Invoke-CimMethod -InputObject $found[0] -MethodName 'GetSupportedSize' -OperationTimeoutSec 300
        if ($limits.ReturnValue -ne 0) { throw "Windows does not say how large drive $($Resource.drive) can be: error $($limits.ReturnValue)" }
        [ordered]@{ size = [long]$found[0].Size; largest = [long]$limits.SizeMax }
    }
    Test = { param($Resource, $Now)
        # Windows extends a partition by at least one MiB.
        if ($Now.largest - $Now.size -ge 1048576) { "drive $($Resource.drive) has $($Now.size) bytes, and there is room for $($Now.largest)" }
    }
    Set  = { param($Resource)
        $partition = @(Get-CimInstance -Namespace 'root/Microsoft/Windows/Storage' -ClassName 'MSFT_Partition' -OperationTimeoutSec 300 |
                Where-Object -FilterScript { [string]$_.DriveLetter -eq $Resource.drive })[0]
        $limits = Invoke-CimMethod -InputObject $partition -MethodName 'GetSupportedSize' -OperationTimeoutSec 300
        $result = Invoke-CimMethod -InputObject $partition -MethodName 'Resize' -Arguments @{ Size = [uint64]$limits.SizeMax } -OperationTimeoutSec 300
        if ($result.ReturnValue -ne 0) { throw "Windows did not extend drive $($Resource.drive): error $($result.ReturnValue)" }
    }
}
