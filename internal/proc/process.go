package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Ticks is the number of units per second for the CPU times of /proc/PID/stat (USER_HZ): 100 on every supported
// architecture.
const Ticks = 100

// Stat is the content of /proc/PID/stat, or of that file of a thread.
type Stat struct {
	PID     int
	Comm    string // name, at most 15 bytes
	State   byte   // 'R', 'S', 'D', 'Z', 'T', ...
	PPID    int
	MajFlt  uint64 // page faults that waited for a disk
	UTime   uint64 // CPU time in Ticks
	STime   uint64
	CUTime  uint64 // those of children that have ended and were waited for
	CSTime  uint64
	Threads int
	Start   uint64 // after boot, in Ticks: with the PID it names a process for ever
	RSS     uint64 // pages
	Stack   uint64 // start address of the stack: it differs after each exec; 0 if hidden
	Rank    int    // real-time priority, 1 to 99; 0 for the others
	Policy  Policy // how its main thread is scheduled
	Blkio   uint64 // time waited for block devices in Ticks; 0 if delay accounting is off
}

// Policy is the scheduling policy of a thread.
type Policy uint8

// RealTime returns the name of a policy whose threads run before all others, "" for other policies.
func (p Policy) RealTime() string {
	switch p {
	case 1:
		return "SCHED_FIFO"
	case 2:
		return "SCHED_RR"
	case 6:
		return "SCHED_DEADLINE"
	}
	return ""
}

// ParseStat reads a stat file. The name may contain spaces and parentheses, so
// the last parenthesis ends it.
func ParseStat(data []byte) (Stat, error) {
	var s Stat
	left, right := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if left < 2 || right < left || right+3 >= len(data) {
		return s, malformed("stat", data)
	}
	s.PID = int(parseUint(bytes.TrimSpace(data[:left])))
	s.Comm = string(data[left+1 : right])
	f := fields(data[right+1:])
	state := f.next()
	if len(state) != 1 || state[0] < 'A' || state[0] > 'z' || s.PID <= 0 {
		return s, malformed("stat", data)
	}
	s.State = state[0]
	s.PPID = int(parseSigned(f.next()))
	f.skip(7) // pgrp session tty tpgid flags minflt cminflt
	s.MajFlt = f.uint()
	f.skip(1)
	s.UTime, s.STime = f.uint(), f.uint()
	s.CUTime, s.CSTime = f.uint(), f.uint()
	f.skip(2) // priority nice
	s.Threads = int(f.uint())
	f.skip(1)
	s.Start = f.uint()
	f.skip(1)
	s.RSS = f.uint()
	f.skip(3) // rsslim startcode endcode
	s.Stack = f.uint()
	f.skip(11) // kstkesp ... processor: fields 29 to 39
	s.Rank, s.Policy = int(f.uint()), Policy(f.uint())
	s.Blkio = f.uint()
	return s, nil
}

// StateOf returns only the state of a stat file, 0 if there is none.
func StateOf(data []byte) byte {
	right := bytes.LastIndexByte(data, ')')
	if right < 0 || right+2 >= len(data) {
		return 0
	}
	return data[right+2]
}

// Sched is /proc/PID/schedstat: time on a core and time waiting for one.
type Sched struct{ Run, Delay uint64 } // nanoseconds

// ParseSched reads a schedstat file.
func ParseSched(data []byte) (Sched, error) {
	f := fields(data)
	a, b := f.next(), f.next()
	if len(b) == 0 {
		return Sched{}, malformed("schedstat", data)
	}
	return Sched{Run: parseUint(a), Delay: parseUint(b)}, nil
}

// IO is /proc/PID/io.
type IO struct {
	ReadChars  uint64 // bytes that read calls returned, from the page cache, pipes and sockets too
	ReadBytes  uint64 // bytes fetched from block devices
	WriteBytes uint64 // bytes sent to block devices
	ReadCalls  uint64
}

// ParseIO reads an io file.
func ParseIO(data []byte) (IO, error) {
	var v IO
	found := false
	eachLine(data, func(line []byte) {
		name, value, ok := bytes.Cut(line, []byte(": "))
		if !ok {
			return
		}
		var p *uint64
		switch string(name) {
		case "rchar":
			p = &v.ReadChars
		case "read_bytes":
			p = &v.ReadBytes
		case "write_bytes":
			p = &v.WriteBytes
		case "syscr":
			p = &v.ReadCalls
		default:
			return
		}
		found = true
		*p = parseUint(value)
	})
	if !found {
		return v, malformed("io", data)
	}
	return v, nil
}

// Status has the fields that are read from /proc/PID/status.
type Status struct {
	UID, EUID              int // real and effective; -1 if missing
	Inner                  int // its number in its own PID namespace; 0 if missing
	TracerPID              int
	RSS, Swap, Shmem       uint64 // bytes
	Peak                   uint64 // of RSS, bytes
	Mapped, Data           uint64 // address space, and the private writable part of it, bytes
	Voluntary, Involuntary uint64 // context switches
	CPUs                   int    // cores that the process may run on; 0 if missing
}

// ParseStatus reads a status file.
func ParseStatus(data []byte) Status {
	s := Status{UID: -1, EUID: -1}
	eachLine(data, func(line []byte) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return
		}
		f := fields(value)
		switch string(name) {
		case "Uid":
			s.UID, s.EUID = int(f.uint()), int(f.uint())
		case "NSpid":
			for id := f.next(); len(id) > 0; id = f.next() {
				s.Inner = int(parseUint(id)) // the last is the innermost
			}
		case "TracerPid":
			s.TracerPID = int(f.uint())
		case "VmRSS":
			s.RSS = f.uint() * 1024
		case "VmSize":
			s.Mapped = f.uint() * 1024
		case "VmData":
			s.Data = f.uint() * 1024
		case "VmHWM":
			s.Peak = f.uint() * 1024
		case "VmSwap":
			s.Swap = f.uint() * 1024
		case "RssShmem":
			s.Shmem = f.uint() * 1024
		case "voluntary_ctxt_switches":
			s.Voluntary = f.uint()
		case "nonvoluntary_ctxt_switches":
			s.Involuntary = f.uint()
		case "Cpus_allowed":
			s.CPUs = bitsIn(f.next())
		}
	})
	return s
}

// Program returns the path of the program that a process runs; "" if it may not be read.
func (fs FS) Program(pid int) string {
	name, err := os.Readlink(fs.Path(pid, "exe"))
	if err != nil {
		return ""
	}
	return name
}

// Status reads the status file of a process.
func (fs FS) Status(pid int) (Status, error) {
	data, err := fs.Process(nil, pid, "status")
	if err != nil {
		return Status{}, err
	}
	return ParseStatus(data), nil
}

// bitsIn counts the bits of a mask such as "ff,ffffffff".
func bitsIn(mask []byte) int {
	n := 0
	for _, c := range mask {
		d := 0
		switch {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c >= 'a' && c <= 'f':
			d = int(c-'a') + 10
		}
		for ; d > 0; d >>= 1 {
			n += d & 1
		}
	}
	return n
}

// Syscall is the system call in which a thread waits.
type Syscall struct {
	Running bool // it runs or could run; the file has nothing else
	NR      int  // number of the call; -1 when it waits in a page fault
	Args    [6]uint64
	PC      uint64 // the instruction of the call or page fault; 0 if missing
}

// ParseSyscall reads /proc/PID/syscall.
func ParseSyscall(data []byte) (Syscall, error) {
	f := fields(data)
	first := f.next()
	if string(first) == "running" {
		return Syscall{Running: true}, nil
	}
	nr, err := strconv.Atoi(string(first))
	if err != nil || nr < -1 {
		return Syscall{}, malformed("syscall", data)
	}
	s := Syscall{NR: nr}
	pc := func() uint64 {
		f.next() // the stack
		v, _ := strconv.ParseUint(strings.TrimPrefix(string(f.next()), "0x"), 16, 64)
		return v
	}
	if nr < 0 {
		s.PC = pc()
		return s, nil
	}
	for i := range s.Args {
		b := f.next()
		if len(b) < 3 || b[0] != '0' || b[1] != 'x' {
			return Syscall{}, malformed("syscall", data)
		}
		v, err := strconv.ParseUint(string(b[2:]), 16, 64)
		if err != nil {
			return Syscall{}, malformed("syscall", data)
		}
		s.Args[i] = v
	}
	s.PC = pc()
	return s, nil
}

// ParsePSS reads the proportional set size of smaps_rollup, in bytes.
func ParsePSS(data []byte) uint64 {
	var pss uint64
	eachLine(data, func(line []byte) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			f := fields(rest)
			pss += f.uint() * 1024
		}
	})
	return pss
}

// Statm is /proc/PID/statm, in pages.
type Statm struct{ Size, Resident, Shared uint64 }

// ParseStatm reads a statm file.
func ParseStatm(data []byte) Statm {
	f := fields(data)
	return Statm{f.uint(), f.uint(), f.uint()}
}

// Resident returns this process's resident memory in bytes, and the part that is not shared with a file or other
// process.
func Resident() (rss, private int64) {
	data, err := Live.Process(nil, Self, "statm")
	if err != nil {
		return 0, 0
	}
	m := ParseStatm(data)
	page := int64(os.Getpagesize())
	return int64(m.Resident) * page, (int64(m.Resident) - int64(m.Shared)) * page
}

// eachLine calls do with each line, without its end.
func eachLine(data []byte, do func(line []byte)) {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		do(line)
		data = rest
	}
}
