package proc

import (
	"os"
	"strconv"
)

// Identity returns an identity by which other processes can check whether this one still runs. The result machine is
// unique per boot and PID namespace, since each container has its own; "" if unknown. The result start distinguishes
// processes that had the same number.
func Identity() (machine string, pid int, start uint64) {
	boot := Live.Setting("kernel/random/boot_id")
	space, err := os.Readlink(Live.Path(os.Getpid(), "ns/pid"))
	if boot == "" || err != nil {
		return "", os.Getpid(), 0
	}
	return boot + "/" + space, os.Getpid(), startOf(os.Getpid())
}

// Lives reports whether a process of this machine with that Identity is running.
func Lives(pid int, start uint64) bool { return pid > 0 && startOf(pid) == start && start != 0 }

// startOf returns the start time of a process, 0 if there is none.
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
