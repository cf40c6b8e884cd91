package proc

import (
	"os"
	"strconv"
)

// Identity names this process for others to look whether it is still there: machine
// is one boot and one numbering of processes, since a container has its own, and ""
// where that cannot be told; start tells processes apart that had one number.
func Identity() (machine string, pid int, start uint64) {
	boot := Live.Setting("kernel/random/boot_id")
	space, err := os.Readlink(Live.Path(os.Getpid(), "ns/pid"))
	if boot == "" || err != nil {
		return "", os.Getpid(), 0
	}
	return boot + "/" + space, os.Getpid(), startOf(os.Getpid())
}

// Lives says whether a process of this machine, by its Identity, is there.
func Lives(pid int, start uint64) bool { return pid > 0 && startOf(pid) == start && start != 0 }

// startOf is when a process began, 0 when there is none.
func startOf(pid int) uint64 {
	data, err := Live.Read(nil, strconv.Itoa(pid), "stat")
	if err != nil {
		return 0
	}
	s, err := ParseStat(data)
	if err != nil || s.State == 'Z' || s.State == 'X' {
		return 0
	}
	return s.Start
}
