package doctor

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
)

// A call is a class of system calls that a thread can wait in.
type call uint8

const (
	callOther  call = iota
	callFD          // reads the descriptor in its first argument
	callWrite       // writes to it
	callSync        // waits until written bytes are on the disk
	callFile        // looks up, opens or describes a file
	callPoll        // waits for one of several descriptors
	callSelect      // the same, with a bit for each
	callEpoll       // the same, with one descriptor for all of them
	callLock        // a futex
	callSleep       // a timer
	callChild       // the end of a child process
	callDevice      // ioctl: among others, an accelerator's driver
	callFlock       // a lock of a file
	callFcntl       // the same, by one of its commands
)

// A blocker is the kind of object that a sleeping thread waits for.
type blocker uint8

const (
	blockNone    blocker = iota // it runs or could
	blockUnknown                // asleep, for an unknown reason
	blockStorage                // a file
	blockNetwork                // an internet socket
	blockLocal                  // a Unix socket
	blockPipe                   // a pipe or an event descriptor
	blockLock                   // another thread
	blockSleep                  // a timer
	blockChild                  // a child process
	blockDevice                 // a driver
	blockMemory                 // free memory: reclaim, swap
	blockStopped                // a debugger or a signal stopped it
	blockFlock                  // a lock of a file
	blockFault                  // a page that was not in memory: of a mapped file, or swapped out
)

// sockets distinguishes internet sockets from local ones by their inodes.
type sockets struct {
	kinds map[uint64]proc.SocketKind
	asked map[uint64]bool // not found in the lists: do not ask again
}

// maxSockets limits the number of sockets that are remembered.
const maxSockets = 1 << 16

func (s *sockets) kind(fs proc.FS, pid, fd int, inode uint64) proc.SocketKind {
	if k, ok := s.kinds[inode]; ok {
		return k
	}
	if s.asked[inode] {
		return proc.SocketUnknown
	}
	if s.kinds == nil || len(s.kinds) > maxSockets || len(s.asked) > maxSockets {
		s.kinds, s.asked = map[uint64]proc.SocketKind{}, map[uint64]bool{}
	}
	s.asked[inode] = true
	if fs.Proc == proc.Live.Proc {
		// A job that opens a connection for each file would have the lists read
		// in each tick, and they are long then.
		if k := socketKind(pid, fd); k != proc.SocketUnknown {
			s.kinds[inode] = k
			return k
		}
	}
	for _, name := range []string{"net/tcp", "net/tcp6", "net/udp", "net/udp6"} {
		if data, err := fs.Process(nil, pid, name); err == nil {
			proc.ParseSockets(data, func(n uint64) { s.kinds[n] = proc.SocketInternet })
		}
	}
	if data, err := fs.Process(nil, pid, "net/unix"); err == nil {
		proc.ParseUnix(data, func(n uint64) { s.kinds[n] = proc.SocketUnix })
	}
	return s.kinds[inode]
}

// socketKind asks the kernel for the type of a process's socket. It needs the right to trace the process, like reading
// its frames.
func socketKind(pid, fd int) proc.SocketKind {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return proc.SocketUnknown
	}
	defer unix.Close(process)
	own, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return proc.SocketUnknown
	}
	defer unix.Close(own)
	domain, err := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case err != nil:
		return proc.SocketUnknown
	case domain == unix.AF_UNIX:
		return proc.SocketUnix
	case domain == unix.AF_INET || domain == unix.AF_INET6:
		return proc.SocketInternet
	}
	return proc.SocketUnknown
}

// ofDescriptor returns the blocker for waiting on a descriptor, from the target of the descriptor.
func (s *sockets) ofDescriptor(fs proc.FS, pid, fd int) (blocker, string) {
	link := fs.Link(pid, fd)
	switch {
	case link == "":
		return blockUnknown, ""
	case strings.HasPrefix(link, "socket:["):
		inode, _ := strconv.ParseUint(strings.Trim(link[len("socket:"):], "[]"), 10, 64)
		switch s.kind(fs, pid, fd, inode) {
		case proc.SocketInternet:
			return blockNetwork, ""
		case proc.SocketUnix:
			return blockLocal, ""
		}
		return blockUnknown, ""
	case strings.HasPrefix(link, "pipe:"), strings.HasPrefix(link, "anon_inode:"), strings.HasPrefix(link, "/dev/pts"),
		strings.HasPrefix(link, "/dev/tty"), strings.HasPrefix(link, "/memfd:"):
		return blockPipe, ""
	case strings.HasPrefix(link, "/dev/"):
		return blockDevice, ""
	case strings.HasPrefix(link, "/"):
		return blockStorage, link
	}
	return blockUnknown, ""
}

// memoryWaits are kernel functions in which a thread waits for memory.
var memoryWaits = []string{
	"reclaim", "try_to_free", "shrink_", "balance_pgdat", "congestion_wait", "mem_cgroup_handle_over_high", "swap", "compact_zone", "oom",
}

// storageWaits are kernel functions in which a thread waits for a file system
// or a block device.
var storageWaits = []string{
	"folio_wait", "wait_on_page", "io_schedule", "request_wait_answer", "fuse_", "nfs", "rpc_", "ceph_", "cl_sync_io", "blk_", "wait_on_bit",
	"wait_on_buffer", "jbd2", "ext4_", "xfs_", "btrfs", "lock_page", "folio_lock", "dio_", "iomap", "read_pages", "page_cache_", "throtl", "bio_", "submit_bio", "rwsem_down",
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// blockerOf returns the object that a thread waits for. It uses the thread's state, the kernel function that it sleeps
// in ("" or "0" if hidden) and its system call (nil if hidden). The result file is the file that it reads, if known.
func (s *sockets) blockerOf(fs proc.FS, pid int, state byte, wchan string, sc *proc.Syscall) (b blocker, file string) {
	switch state {
	case 'R':
		return blockNone, ""
	case 'T', 't':
		return blockStopped, ""
	}
	if containsAny(wchan, memoryWaits) {
		return blockMemory, ""
	}
	b = blockUnknown
	if sc != nil && !sc.Running {
		switch kind := calls[sc.NR]; {
		case sc.NR < 0:
			return blockFault, ""
		case kind == callFD, kind == callWrite:
			b, file = s.ofDescriptor(fs, pid, int(int32(sc.Args[0])))
		case kind == callFile, kind == callSync:
			b = blockStorage
		case kind == callPoll:
			if b = blockSleep; sc.Args[1]&0xffff != 0 {
				b = s.ofAny(fs, pid, descriptors(fs, pid, sc))
			}
			if fs.Proc != proc.Live.Proc && b != blockSleep {
				b = blockPipe // the list is in the memory of the process
			}
		case kind == callSelect:
			b = blockPipe
		case kind == callEpoll:
			b = s.ofAny(fs, pid, descriptors(fs, pid, sc))
			if (b == blockLocal || b == blockPipe) && int32(sc.Args[3]) > 0 {
				b = blockSleep // an event loop whose next event is a timer
			}
		case kind == callLock:
			b = blockLock
		case kind == callSleep:
			b = blockSleep
		case kind == callChild:
			b = blockChild
		case kind == callDevice:
			b = blockDevice
		case kind == callFlock, kind == callFcntl && (sc.Args[1] == unix.F_SETLKW || sc.Args[1] == unix.F_OFD_SETLKW):
			return blockFlock, fs.Link(pid, int(int32(sc.Args[0])))
		}
	} else {
		b = ofWchan(wchan)
	}
	if state == 'D' && b != blockDevice {
		// Uninterruptible sleep is for devices; of a lock of the address space
		// (mmap_lock) the holder waits for one.
		return blockStorage, file
	}
	if b == blockUnknown && containsAny(wchan, storageWaits) {
		return blockStorage, file
	}
	return b, file
}

// ofWchan guesses from the function of the kernel alone.
func ofWchan(wchan string) blocker {
	switch {
	case containsAny(wchan, storageWaits):
		return blockStorage
	case strings.Contains(wchan, "futex"):
		return blockLock
	case strings.Contains(wchan, "locks_lock"), strings.Contains(wchan, "flock_lock"), strings.Contains(wchan, "fcntl_setlk"):
		return blockFlock
	case strings.Contains(wchan, "nanosleep"):
		return blockSleep
	case strings.Contains(wchan, "sk_wait") || strings.Contains(wchan, "tcp_") || strings.Contains(wchan, "inet_"):
		return blockNetwork
	case strings.Contains(wchan, "unix_") || strings.Contains(wchan, "wait_for_more_packets"):
		return blockLocal
	case strings.Contains(wchan, "pipe_"):
		return blockPipe
	case strings.Contains(wchan, "do_wait"):
		return blockChild
	}
	return blockUnknown
}

// ofAny returns the most significant blocker of several descriptors. A thread that waits for an internet socket and for
// pipes that only wake it up waits for the socket.
func (s *sockets) ofAny(fs proc.FS, pid int, fds []int) blocker {
	best := blockUnknown
	for _, fd := range fds {
		b, _ := s.ofDescriptor(fs, pid, fd)
		switch {
		case b == blockNetwork, best == blockUnknown:
			best = b
		case b == blockLocal && best == blockPipe:
			best = b
		}
	}
	return best
}
