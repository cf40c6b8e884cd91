package proc

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
)

// CPU is the first line of /proc/stat, in Ticks summed over the cores.
type CPU struct {
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal uint64
	Cores                                                 int // online
	Switches                                              uint64
	Blocked                                               int // processes that wait for I/O now
}

// Total returns the total time.
func (c CPU) Total() uint64 {
	return c.User + c.Nice + c.System + c.Idle + c.IOWait + c.IRQ + c.SoftIRQ + c.Steal
}

// Busy returns the time in which cores of this machine were busy.
func (c CPU) Busy() uint64 { return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ }

// ParseCPU reads /proc/stat.
func ParseCPU(data []byte) (CPU, error) {
	var c CPU
	rest, ok := bytes.CutPrefix(data, []byte("cpu "))
	if !ok {
		return c, malformed("stat", data)
	}
	line, others, _ := bytes.Cut(rest, []byte{'\n'})
	f := fields(line)
	for _, p := range []*uint64{&c.User, &c.Nice, &c.System, &c.Idle, &c.IOWait, &c.IRQ, &c.SoftIRQ, &c.Steal} {
		*p = f.uint()
	}
	eachLine(others, func(line []byte) {
		f := fields(line)
		switch name := f.next(); {
		case bytes.HasPrefix(name, []byte("cpu")):
			c.Cores++
		case string(name) == "ctxt":
			c.Switches = f.uint()
		case string(name) == "procs_blocked":
			c.Blocked = int(f.uint())
		}
	})
	return c, nil
}

// ParseIdle reads the total idle time of some cores, in Ticks, from /proc/stat.
func ParseIdle(data []byte, cpus []int) (ticks uint64, err error) {
	wanted := map[string]bool{}
	for _, c := range cpus {
		wanted["cpu"+strconv.Itoa(c)] = true
	}
	found := false
	eachLine(data, func(line []byte) {
		f := fields(line)
		name := f.next()
		found = found || string(name) == "cpu"
		if wanted[string(name)] {
			f.skip(3) // user nice system
			ticks += f.uint() + f.uint()
		}
	})
	if !found {
		return 0, malformed("stat", data)
	}
	return ticks, nil
}

// Memory has the fields that are read from /proc/meminfo, in bytes.
type Memory struct{ Total, Free, Available, SwapTotal, SwapFree, Cached uint64 }

// ParseMemory reads /proc/meminfo.
func ParseMemory(data []byte) (Memory, error) {
	var m Memory
	eachLine(data, func(line []byte) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		var p *uint64
		switch string(name) {
		case "MemTotal":
			p = &m.Total
		case "MemFree":
			p = &m.Free
		case "MemAvailable":
			p = &m.Available
		case "SwapTotal":
			p = &m.SwapTotal
		case "SwapFree":
			p = &m.SwapFree
		case "Cached":
			p = &m.Cached
		default:
			return
		}
		f := fields(value)
		*p = min(f.uint(), 1<<50) * 1024
	})
	if m.Total == 0 {
		return m, malformed("meminfo", data)
	}
	return m, nil
}

// ParseCounters reads lines of a name and a number: /proc/vmstat, memory.stat, cpu.stat. Only names for which want
// returns true are stored.
func ParseCounters(data []byte, want func(name string) bool) map[string]uint64 {
	out := map[string]uint64{}
	eachLine(data, func(line []byte) {
		f := fields(line)
		name := f.next()
		if want(string(name)) {
			out[string(name)] = f.uint()
		}
	})
	return out
}

// Pressure is a pressure stall file: microseconds in which some, and in which all, tasks were blocked by a lack of the
// resource.
type Pressure struct{ Some, Full uint64 }

// ParsePressure reads /proc/pressure/* or *.pressure of a control group.
func ParsePressure(data []byte) (Pressure, error) {
	var p Pressure
	found := false
	eachLine(data, func(line []byte) {
		f := fields(line)
		kind := string(f.next())
		for b := f.next(); len(b) > 0; b = f.next() {
			total, ok := bytes.CutPrefix(b, []byte("total="))
			if !ok {
				continue
			}
			switch kind {
			case "some":
				p.Some, found = parseUint(total), true
			case "full":
				p.Full = parseUint(total)
			}
		}
	})
	if !found {
		return p, malformed("pressure", data)
	}
	return p, nil
}

// Disk is a line of /proc/diskstats.
type Disk struct {
	Major, Minor   int
	Name           string
	Reads, Writes  uint64 // finished
	ReadBytes      uint64
	WriteBytes     uint64
	ReadMS, BusyMS uint64 // time of the reads summed; time with anything under way
}

// ParseDisks reads /proc/diskstats.
func ParseDisks(data []byte) []Disk {
	var out []Disk
	eachLine(data, func(line []byte) {
		f := fields(line)
		d := Disk{Major: int(f.uint()), Minor: int(f.uint()), Name: string(f.next())}
		if d.Name == "" {
			return
		}
		d.Reads = f.uint()
		f.skip(1)
		d.ReadBytes = f.uint() * 512
		d.ReadMS = f.uint()
		d.Writes = f.uint()
		f.skip(1)
		d.WriteBytes = f.uint() * 512
		f.skip(2)
		d.BusyMS = f.uint()
		out = append(out, d)
	})
	return out
}

// Net is /proc/net/dev summed, the loopback device apart: an object store or a
// proxy on the same machine is reached through it.
type Net struct{ Received, Sent, Loopback uint64 } // bytes

// ParseNet reads /proc/net/dev.
func ParseNet(data []byte) Net {
	var n Net
	eachLine(data, func(line []byte) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return
		}
		f := fields(rest)
		received := f.uint()
		f.skip(7)
		sent := f.uint()
		if string(bytes.TrimSpace(name)) == "lo" {
			n.Loopback += received
			return
		}
		n.Received += received
		n.Sent += sent
	})
	return n
}

// ParseLoad reads the load of the last minute from /proc/loadavg.
func ParseLoad(data []byte) (float64, error) {
	f := fields(data)
	v, err := strconv.ParseFloat(string(f.next()), 64)
	if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, malformed("loadavg", data)
	}
	return v, nil
}

// ParseModel reads the processor's name from /proc/cpuinfo.
func ParseModel(data []byte) string {
	model := ""
	eachLine(data, func(line []byte) {
		name, value, ok := strings.Cut(string(line), ":")
		if ok && model == "" && slices.Contains([]string{"model name", "Model"}, strings.TrimSpace(name)) {
			model = strings.TrimSpace(value)
		}
	})
	return model
}

// SocketKind is the type of a socket.
type SocketKind byte

// The kinds of sockets.
const (
	SocketUnknown SocketKind = iota
	SocketUnix
	SocketInternet
)

// ParseSockets reads /proc/PID/net/tcp, tcp6, udp or udp6 and calls found with
// the inode of each socket.
func ParseSockets(data []byte, found func(inode uint64)) {
	eachLine(data, func(line []byte) {
		f := fields(line)
		if number := f.next(); len(number) < 2 || number[len(number)-1] != ':' {
			return
		}
		f.skip(8) // addresses, state, queues, timer, retransmits, uid, timeout
		if inode := f.uint(); inode > 0 {
			found(inode)
		}
	})
}

// ParsePeers reads /proc/PID/net/tcp or tcp6 and calls found with each connection: its
// inode, and its two ends as the file has them.
func ParsePeers(data []byte, found func(inode uint64, local, remote string)) {
	eachLine(data, func(line []byte) {
		f := fields(line)
		if number := f.next(); len(number) < 2 || number[len(number)-1] != ':' {
			return
		}
		local, remote := f.next(), f.next()
		f.skip(6) // state, queues, timer, retransmits, uid, timeout
		if inode := f.uint(); inode > 0 {
			found(inode, string(local), string(remote))
		}
	})
}

// ParseUnix reads /proc/PID/net/unix and calls found with each inode.
func ParseUnix(data []byte, found func(inode uint64)) {
	eachLine(data, func(line []byte) {
		f := fields(line)
		if number := f.next(); len(number) < 2 || number[len(number)-1] != ':' {
			return
		}
		f.skip(5)
		if inode := f.uint(); inode > 0 {
			found(inode)
		}
	})
}

// Mount is a line of /proc/PID/mountinfo.
type Mount struct {
	Major, Minor int
	Root, Point  string
	Type, Source string
}

// ParseMounts reads /proc/PID/mountinfo.
func ParseMounts(data []byte) []Mount {
	var out []Mount
	eachLine(data, func(line []byte) {
		left, right, ok := strings.Cut(string(line), " - ")
		if !ok {
			return
		}
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 2 {
			return
		}
		major, minor, _ := strings.Cut(l[2], ":")
		out = append(out, Mount{
			Major: int(parseUint([]byte(major))), Minor: int(parseUint([]byte(minor))),
			Root: unescape(l[3]), Point: unescape(l[4]), Type: r[0], Source: unescape(r[1]),
		})
	})
	return out
}

// unescape turns \040 into a space, as mountinfo writes it.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// MountOf returns the mount of a path: the one with the longest mount point, the last of several.
func MountOf(mounts []Mount, path string) (Mount, bool) {
	best, found := Mount{}, false
	for _, m := range mounts {
		inside := m.Point == "/" || path == m.Point || strings.HasPrefix(path, m.Point+"/")
		if inside && (!found || len(m.Point) >= len(best.Point)) {
			best, found = m, true
		}
	}
	return best, found
}
