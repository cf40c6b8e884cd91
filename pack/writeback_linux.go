package pack

import "golang.org/x/sys/unix"

// startWriteback asks the kernel to begin writing a range of f to the disk, so
// that the sync at the end of a shard has little left to wait for. It is a
// hint: errors do not matter.
func startWriteback(f file, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}
