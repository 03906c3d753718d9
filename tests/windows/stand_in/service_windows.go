package main

import (
	"syscall"
	"time"
	"unsafe"
)

type entry struct {
	name *uint16
	main uintptr
}

type status struct{ kind, state, accepts, code, own, point, hint uint32 }

var (
	advapi   = syscall.NewLazyDLL("advapi32.dll")
	dispatch = advapi.NewProc("StartServiceCtrlDispatcherW")
	register = advapi.NewProc("RegisterServiceCtrlHandlerExW")
	set      = advapi.NewProc("SetServiceStatus")
	stop     = make(chan struct{}, 1)
	handle   uintptr
	stopping time.Duration
)

const (
	ownProcess               = 0x10
	stopped, pending, runs   = 1, 3, 4
	controlStop, acceptsStop = 1, 1
)

func tell(state, accepts uint32) {
	now := status{kind: ownProcess, state: state, accepts: accepts}
	if state == pending {
		now.hint = uint32((stopping + time.Minute).Milliseconds())
	}
	set.Call(handle, uintptr(unsafe.Pointer(&now)))
}

func onControl(control, _ uint32, _, _ uintptr) uintptr {
	if control == controlStop {
		tell(pending, 0)
		stop <- struct{}{}
	}
	return 0
}

func serviceMain(_ uint32, _ **uint16) uintptr {
	empty, _ := syscall.UTF16PtrFromString("")
	handle, _, _ = register.Call(uintptr(unsafe.Pointer(empty)), syscall.NewCallback(onControl), 0)
	tell(runs, acceptsStop)
	<-stop
	time.Sleep(stopping)
	tell(stopped, 0)
	return 0
}

// Returns when the service was stopped. The service manager ignores the name, because the process has one service.
func serve(slow time.Duration) {
	stopping = slow
	empty, _ := syscall.UTF16PtrFromString("")
	table := []entry{{empty, syscall.NewCallback(serviceMain)}, {}}
	if done, _, err := dispatch.Call(uintptr(unsafe.Pointer(&table[0]))); done == 0 {
		fail(err)
	}
}
