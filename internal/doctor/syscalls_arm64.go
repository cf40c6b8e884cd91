package doctor

import "golang.org/x/sys/unix"

// calls maps system calls to the object that a waiting thread waits for.
var calls = map[int]call{
	unix.SYS_READ: callFD, unix.SYS_PREAD64: callFD, unix.SYS_READV: callFD, unix.SYS_PREADV: callFD, unix.SYS_PREADV2: callFD,
	unix.SYS_RECVFROM: callFD, unix.SYS_RECVMSG: callFD, unix.SYS_RECVMMSG: callFD, unix.SYS_ACCEPT: callFD, unix.SYS_ACCEPT4: callFD,
	unix.SYS_SENDFILE: callFD, unix.SYS_COPY_FILE_RANGE: callFD, unix.SYS_SPLICE: callFD, unix.SYS_CONNECT: callFD,
	unix.SYS_WRITE: callWrite, unix.SYS_PWRITE64: callWrite, unix.SYS_WRITEV: callWrite, unix.SYS_SENDTO: callWrite, unix.SYS_SENDMSG: callWrite,
	unix.SYS_OPENAT: callFile, unix.SYS_OPENAT2: callFile,
	unix.SYS_FSTATAT: callFile, unix.SYS_STATX: callFile, unix.SYS_GETDENTS64: callFile,
	unix.SYS_FACCESSAT: callFile, unix.SYS_FACCESSAT2: callFile, unix.SYS_READLINKAT: callFile, unix.SYS_FSYNC: callSync, unix.SYS_FDATASYNC: callSync,
	unix.SYS_FSTAT: callFile, unix.SYS_LSEEK: callFile, unix.SYS_MADVISE: callFile, unix.SYS_READAHEAD: callFile, unix.SYS_CLOSE: callFile,
	unix.SYS_PPOLL: callPoll, unix.SYS_PSELECT6: callSelect,
	unix.SYS_EPOLL_PWAIT: callEpoll, unix.SYS_EPOLL_PWAIT2: callEpoll,
	unix.SYS_FUTEX: callLock, unix.SYS_FUTEX_WAITV: callLock, unix.SYS_NANOSLEEP: callSleep, unix.SYS_CLOCK_NANOSLEEP: callSleep,
	unix.SYS_WAIT4: callChild, unix.SYS_WAITID: callChild, unix.SYS_IOCTL: callDevice, unix.SYS_IO_GETEVENTS: callFile,
	unix.SYS_IO_URING_ENTER: callFile,
	unix.SYS_FLOCK:          callFlock, unix.SYS_FCNTL: callFcntl,
}
