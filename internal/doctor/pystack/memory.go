package pystack

import (
	"errors"
	"io"
	"os"

	"github.com/stokerdata/stoker/internal/proc"
	"golang.org/x/sys/unix"
)

// A request is memory to read. ok reports whether all of it was read.
type request struct {
	addr uint64
	buf  []byte
	ok   bool
}

// memory is the memory of a process.
type memory interface {
	// read tries to fill all requests, in as few system calls as it can.
	read(reqs []request)
	// failure returns the reason why nothing can be read any more, or nil.
	failure() error
	close() error
}

// maxVectors is the largest number of buffers per call of the kernel (IOV_MAX is 1024).
const maxVectors = 1000

// processMemory reads with process_vm_readv, or through /proc/PID/mem if a sandbox does not have that call.
type processMemory struct {
	pid    int
	file   *os.File // not nil: use it
	local  []unix.Iovec
	remote []unix.RemoteIovec
	err    error
}

// openMemory checks that the memory at addr, which must be mapped, can be read.
func openMemory(pid int, addr uint64) (*processMemory, error) {
	m := &processMemory{pid: pid}
	var b [8]byte
	one := []request{{addr: addr, buf: b[:]}}
	m.read(one)
	if one[0].ok {
		return m, nil
	}
	denied := m.err
	f, err := os.Open(proc.Live.Path(pid, "mem"))
	if err == nil {
		m.file, m.err = f, nil
		m.read(one)
		if one[0].ok {
			return m, nil
		}
		_ = f.Close() // read only
	}
	switch {
	case errors.Is(denied, unix.ESRCH) || errors.Is(err, os.ErrNotExist):
		return nil, &Error{PID: pid, Kind: Gone, Msg: "there is no such process"}
	case errors.Is(denied, unix.EPERM) || errors.Is(denied, unix.ENOSYS) || errors.Is(err, os.ErrPermission):
		return nil, permissionError(pid)
	}
	return nil, &Error{PID: pid, Kind: Gone, Msg: "its memory cannot be read"}
}

func (m *processMemory) read(reqs []request) {
	if m.file != nil {
		for i := range reqs {
			n, err := m.file.ReadAt(reqs[i].buf, int64(reqs[i].addr))
			reqs[i].ok = n == len(reqs[i].buf) && (err == nil || errors.Is(err, io.EOF))
		}
		return
	}
	for i := range reqs {
		reqs[i].ok = false
	}
	for len(reqs) > 0 {
		n := min(len(reqs), maxVectors)
		m.local, m.remote = m.local[:0], m.remote[:0]
		for i := range reqs[:n] {
			r := &reqs[i]
			if len(r.buf) == 0 {
				n = i
				break
			}
			v := unix.Iovec{Base: &r.buf[0]}
			v.SetLen(len(r.buf))
			m.local = append(m.local, v)
			m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(r.addr), Len: len(r.buf)})
		}
		if n == 0 { // an empty request always succeeds
			reqs[0].ok = true
			reqs = reqs[1:]
			continue
		}
		got, err := unix.ProcessVMReadv(m.pid, m.local, m.remote, 0)
		switch {
		case err == nil:
		case errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM):
			got = 0 // the first address is bad
		default:
			m.err = err
			return
		}
		done := 0
		for done < n && got >= len(reqs[done].buf) {
			got -= len(reqs[done].buf)
			reqs[done].ok = true
			done++
		}
		if done < n {
			done++ // it stopped inside of this one
		}
		reqs = reqs[done:]
	}
}

func (m *processMemory) failure() error {
	switch {
	case m.err == nil:
		return nil
	case errors.Is(m.err, unix.ESRCH):
		return &Error{PID: m.pid, Kind: Gone, Msg: "the process has ended"}
	case errors.Is(m.err, unix.EPERM):
		return permissionError(m.pid)
	}
	return &Error{PID: m.pid, Kind: Gone, Msg: m.err.Error()}
}

func (m *processMemory) close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
