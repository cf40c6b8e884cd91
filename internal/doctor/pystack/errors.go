package pystack

import (
	"fmt"
	"os"
	"strconv"

	"github.com/stokerdata/stoker/internal/proc"
)

// Kind is why the frames of a process cannot be read.
type Kind int

// The kinds of errors.
const (
	Gone        Kind = iota + 1 // the process has exited
	Permission                  // the kernel does not allow it
	NotPython                   // no CPython was found in it
	Starting                    // the interpreter is not initialised yet, or is ending: try again
	Unknown                     // a version or a build whose layout is not known
	NoSymbols                   // the interpreter's variables cannot be found
	OtherPython                 // a Python that is not CPython, which will not change
)

// Error is the reason why the frames of a process cannot be read, with advice.
type Error struct {
	PID  int
	Kind Kind
	Msg  string
	Hint string // advice; may be empty
}

// Error is one line, without the hint.
func (e *Error) Error() string {
	return fmt.Sprintf("cannot read the Python frames of process %d: %s", e.PID, e.Msg)
}

// permissionError returns the error if the memory of a process may not be read, with the reason.
func permissionError(pid int) *Error {
	e := &Error{PID: pid, Kind: Permission, Msg: "the kernel does not allow it"}
	own, theirs := os.Geteuid(), owner(pid)
	scope := ptraceScope()
	switch {
	case theirs >= 0 && own != theirs && own != 0:
		e.Msg = fmt.Sprintf("it runs as user %d, this program as user %d", theirs, own)
		e.Hint = "run it as the same user, or as root"
	case scope == 3:
		e.Msg = "kernel.yama.ptrace_scope is 3, which forbids it until the next boot"
		e.Hint = "set kernel.yama.ptrace_scope = 1 in /etc/sysctl.d and boot again"
	case scope >= 1 && own != 0:
		e.Msg = fmt.Sprintf("kernel.yama.ptrace_scope is %d, which forbids it for a process that this program has not started", scope)
		e.Hint = "start the job through this program (stoker doctor -- python train.py), or: sudo sysctl kernel.yama.ptrace_scope=0, or run it as root"
	default:
		e.Hint = "in a container, start it with the capability: docker run --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add: [\"SYS_PTRACE\"])"
	}
	return e
}

// owner returns the user of a process, -1 if unknown.
func owner(pid int) int {
	s, err := proc.Live.Status(pid)
	if err != nil {
		return -1
	}
	return s.EUID
}

// ptraceScope returns the setting of Yama, -1 if the kernel has none.
func ptraceScope() int {
	scope, err := strconv.Atoi(proc.Live.Setting("kernel/yama/ptrace_scope"))
	if err != nil {
		return -1
	}
	return scope
}
