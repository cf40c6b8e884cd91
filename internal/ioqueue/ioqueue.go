// Package ioqueue reads past the system's cache without a thread that sleeps for each read.
//
// A thread that reads past the system's cache sleeps until the device answers. With reads of 112 KiB, each read costs
// two context switches, plus the work of the Go runtime to take the processor away from the sleeping thread. This
// package therefore passes reads to the kernel's queue (io_submit), all pending ones in one call. One goroutine,
// woken by the runtime's poller, delivers the results to the waiting callers.
package ioqueue

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// mostQueued is the maximum number of reads in a queue at a time. Threads make the remaining reads.
	mostQueued = 128
	// mostParts is the maximum number of pieces of memory for one read.
	mostParts = 3

	cmdReadV  = 7 // IOCB_CMD_PREADV
	flagResFd = 1 // IOCB_FLAG_RESFD
)

// iocb is struct iocb of linux/aio_abi.h, on 64-bit machines. Unnamed fields are 0.
type iocb struct {
	data   uint64
	_      uint64
	opcode uint16
	_      int16
	fd     uint32
	buf    *unix.Iovec
	parts  uint64
	off    int64
	_      uint64
	flags  uint32
	resFd  uint32
}

// ioEvent is struct io_event.
type ioEvent struct {
	data uint64
	_    uint64
	res  int64
	_    int64
}

// queued is a read in the queue. The kernel accesses it until it is done, so it is on the heap and does not move.
type queued struct {
	cb   iocb
	to   [mostParts]unix.Iovec
	done chan int64 // how many bytes there are, or less than 0
}

// Queue is a queue of reads. Its methods are safe for concurrent use, except Close, which must be called after the
// last read.
type Queue struct {
	ctx   uintptr
	wake  *os.File // an eventfd
	reads [mostQueued]queued
	ended chan struct{}

	mu     sync.Mutex
	free   []*queued
	next   []*iocb // that are to be submitted
	spare  []*iocb
	submit bool // somebody does
}

// New makes a queue, nil if the system does not support one.
func New() *Queue {
	q := &Queue{ended: make(chan struct{})}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, mostQueued, uintptr(unsafe.Pointer(&q.ctx)), 0); errno != 0 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		q.destroy()
		return nil
	}
	q.wake = os.NewFile(uintptr(fd), "eventfd")
	for i := range q.reads {
		r := &q.reads[i]
		r.done = make(chan int64, 1)
		r.cb = iocb{data: uint64(i), opcode: cmdReadV, buf: &r.to[0], flags: flagResFd, resFd: uint32(fd)}
		q.free = append(q.free, r)
	}
	go q.reap()
	return q
}

func (q *Queue) destroy() { _, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, q.ctx, 0, 0) }

// Close ends the queue.
func (q *Queue) Close() {
	_ = q.wake.Close()
	<-q.ended
	q.destroy()
}

// Read reads into several pieces of memory, one after the other, aligned as such reads require. It may stop before
// they are full, for example at the end of the file. ok is false if the queue is full or the read failed.
func (q *Queue) Read(fd int, to [][]byte, off int64) (n int, ok bool) {
	q.mu.Lock()
	if len(q.free) == 0 || len(to) > mostParts {
		q.mu.Unlock()
		return 0, false
	}
	r := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	for i, b := range to {
		r.to[i].Base = unsafe.SliceData(b)
		r.to[i].SetLen(len(b))
	}
	r.cb.fd, r.cb.parts, r.cb.off = uint32(fd), uint64(len(to)), off
	q.next = append(q.next, &r.cb)
	mine := !q.submit
	q.submit = true
	q.mu.Unlock()
	if mine {
		runtime.Gosched() // others that are awake by now add theirs
		q.submitNext()
	}
	res := <-r.done
	clear(r.to[:])
	q.mu.Lock()
	q.free = append(q.free, r)
	q.mu.Unlock()
	return int(res), res >= 0
}

// submitNext submits the pending reads to the kernel, and lets another goroutine submit those that arrived in the
// meantime. Each reader waits only for its own result.
func (q *Queue) submitNext() {
	q.mu.Lock()
	list := q.next
	q.next, q.spare = q.spare[:0], list
	q.mu.Unlock()
	for len(list) > 0 {
		n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, q.ctx, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 { // the first one is not taken
			q.reads[list[0].data].done <- -1
			n = 1
		}
		list = list[n:]
	}
	q.mu.Lock()
	q.submit = len(q.next) > 0
	more := q.submit
	q.mu.Unlock()
	if more {
		go q.submitNext()
	}
}

// reap takes the answers, until Close.
func (q *Queue) reap() {
	defer close(q.ended)
	var count [8]byte
	var events [mostQueued]ioEvent
	for {
		if _, err := q.wake.Read(count[:]); err != nil {
			return
		}
		var now unix.Timespec
		n, errno := uintptr(0), unix.EINTR
		for errno == unix.EINTR {
			n, _, errno = unix.Syscall6(unix.SYS_IO_GETEVENTS, q.ctx, 0, mostQueued, uintptr(unsafe.Pointer(&events)), uintptr(unsafe.Pointer(&now)), 0)
		}
		if errno != 0 {
			continue
		}
		for _, e := range events[:n] { // all there are: no more can be out
			q.reads[e.data].done <- e.res
		}
	}
}
