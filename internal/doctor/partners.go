package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
)

// The processes that feed a step are found by what the trainer waits for. A pipe, a socket or a lock has two sides, and
// the kernel reports which process has the other side. A process that the trainer repeatedly waits for makes its
// batches, whatever its name and parent. Processes that this process waits for also make them.

const (
	// partnerLooks is the number of samples in which a trainer must have waited for a process.
	partnerLooks = 3
	// holdersAge is the age from which the list of holders is rebuilt if an object is missing in it.
	holdersAge = time.Second
	// maxHolders limits the number of processes whose descriptors are listed.
	maxHolders = 512
	// maxOutside limits the number of remembered objects whose other side is not in the job.
	maxOutside = 256
	// futexPrivate is the flag of a futex call for locks that only threads of one process use.
	futexPrivate = 128
)

// partnerState has the holders of the other side of the members' waits.
type partnerState struct {
	holders  map[uint64][]holder // by the inode of a pipe or a socket
	heldAt   time.Time
	heldOf   int               // the number of members that had started and exited then
	heldNext time.Duration     // the pause before the next search for an object without a holder
	peers    map[uint64]uint64 // Unix sockets by the inode of the other end
	tcp      map[uint64]uint64 // connections within the machine by that of the other end
	tcpAt    time.Time
	// The job is in this program's network namespace.
	network, networkAsked bool
	sharers               map[memoryAt][]int // members that map the file with a lock
	sharedAt              time.Time
	sharedOf              int            // the number of members that had started and exited then
	outside               map[uint64]int // samples of waits for objects without a holder in the job, by inode
	outsider              string         // the holder of the most frequent one
	asked                 map[uint64]bool
}

// memoryAt is an address of a process.
type memoryAt struct {
	pid     int
	address uint64
}

type holder struct {
	pid    int
	writes bool
}

// partners returns the members that hold the other side of the object that a thread of p waits for.
func (c *collector) partners(p *process, t *thread) []*process {
	if t == nil || t.call.Running {
		return nil
	}
	var out []*process
	add := func(pid int) {
		q := c.tree.members[pid]
		if q == nil || q == p || slices.Contains(out, q) || c.tree.above(q, p) {
			return
		}
		switch q.role {
		case roleIgnored, roleEngine:
			return
		case roleTrainer:
			if q.trainer != nil || q.stepsSeen > 0 {
				return // another rank
			}
		}
		out = append(out, q)
	}
	switch calls[t.call.NR] {
	case callLock:
		if t.call.Args[1]&futexPrivate == 0 {
			for _, pid := range c.sharersOf(p, t.call.Args[0]) {
				add(pid)
			}
		}
		return out
	case callChild:
		for _, q := range c.tree.childrenOf(p.pid) {
			add(q.pid)
		}
		return out
	}
	ends := t.wait.ends
	if !t.wait.asked || !t.sameWait(c.seconds) {
		ends = c.waitsFor(p.pid, &t.call)
		t.wait.ends, t.wait.asked = ends, true
	}
	for _, e := range ends {
		end := c.otherEnd(p.pid, e)
		if end == 0 {
			continue
		}
		mine, n := false, len(out)
		for _, h := range c.holdersOf(end) {
			mine = mine || h.pid == p.pid && h.writes
			if e.socket || h.writes {
				add(h.pid)
			}
		}
		if len(out) == n && !mine && (len(c.outside) < maxOutside || c.outside[end] > 0) {
			if c.outside == nil {
				c.outside = map[uint64]int{}
			}
			c.outside[end]++
		}
	}
	return out
}

// above reports whether q is an ancestor of p.
func (t *tree) above(q, p *process) bool {
	for n := 0; p != nil && n < 64; n++ {
		if p.ppid == q.pid {
			return true
		}
		p = t.members[p.ppid]
	}
	return false
}

// An end is one side of a pipe or of a connection.
type end struct {
	inode  uint64
	socket bool
	fd     int // of whom waits
}

// waitsFor lists the pipes and sockets that a call waits for.
func (c *collector) waitsFor(pid int, sc *proc.Syscall) []end {
	var out []end
	for _, fd := range descriptors(c.fs, pid, sc) {
		kind, number, ok := strings.Cut(c.fs.Link(pid, fd), ":[")
		if !ok || kind != "pipe" && kind != "socket" {
			continue
		}
		if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
			out = append(out, end{inode, kind == "socket", fd})
		}
	}
	return out
}

// descriptors returns the descriptors that a call waits to read from, as far as they are visible.
func descriptors(fs proc.FS, pid int, sc *proc.Syscall) []int {
	switch calls[sc.NR] {
	case callFD:
		return []int{int(int32(sc.Args[0]))}
	case callEpoll:
		return epolled(fs, pid, int(int32(sc.Args[0])))
	case callPoll:
		return polled(fs, pid, sc.Args[0], int(sc.Args[1]&0xffff))
	case callSelect:
		return selected(fs, pid, sc.Args[1], int(sc.Args[0]&0xffff))
	}
	return nil
}

// maxPoll limits the number of descriptors of one poll call that are looked up.
const maxPoll = 16

// foreign reads memory of a process, which may not be allowed.
func foreign(fs proc.FS, pid int, address uint64, b []byte) int {
	if fs.Proc != proc.Live.Proc || len(b) == 0 || address == 0 {
		return 0
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(b)}}, 0)
	if err != nil {
		return 0
	}
	return n
}

// polled are the descriptors of a poll.
func polled(fs proc.FS, pid int, address uint64, n int) []int {
	b := make([]byte, 8*min(n, maxPoll))
	b = b[:foreign(fs, pid, address, b)]
	var out []int
	for i := range len(b) / 8 {
		out = append(out, int(int32(binary.LittleEndian.Uint32(b[8*i:]))))
	}
	return out
}

// selected are the descriptors that a select waits to read from.
func selected(fs proc.FS, pid int, address uint64, n int) []int {
	b := make([]byte, 8*((min(n, 1024)+63)/64))
	b = b[:foreign(fs, pid, address, b)]
	var out []int
	for i := 0; i < 8*len(b) && len(out) < maxPoll; i++ {
		if b[i/8]&(1<<(i%8)) != 0 {
			out = append(out, i)
		}
	}
	return out
}

// epolled returns the descriptors that an epoll descriptor watches.
func epolled(fs proc.FS, pid, fd int) []int {
	data, err := fs.Process(nil, pid, "fdinfo/"+strconv.Itoa(fd))
	if err != nil {
		return nil
	}
	var out []int
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "tfd:" && len(out) < maxPoll {
			if fd, err := strconv.Atoi(f[1]); err == nil {
				out = append(out, fd)
			}
		}
	}
	return out
}

// otherEnd returns the inode that the other side holds: the same for a pipe, that of the socket at the other end of a
// connection. It is 0 if the other end is not on this machine or not known.
func (c *collector) otherEnd(pid int, e end) uint64 {
	if !e.socket {
		return e.inode
	}
	c.holdersOf(e.inode) // brings the list of Unix sockets up to date
	if other, ok := c.peers[e.inode]; ok {
		return other
	}
	if other, ok := c.tcp[e.inode]; ok {
		return other
	}
	if c.sameNetwork() {
		if len(c.tcp) >= maxOutside || c.tcp == nil {
			c.tcp = map[uint64]uint64{}
		}
		local, remote, err := proc.Connection(pid, e.fd)
		if err == nil {
			var other uint64
			if other, err = proc.ConnectedInode(remote, local); err == nil {
				c.tcp[e.inode] = other
				return other
			}
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPROTONOSUPPORT) {
			return 0 // it listens, or has another type, or is closed: no list has more
		}
	}
	// The kernel walks through its whole connection table, which takes milliseconds.
	if now := time.Now(); now.Sub(c.tcpAt) > 4*max(holdersAge, c.heldNext) {
		c.tcpAt = now
		c.listConnections()
	}
	return c.tcp[e.inode]
}

// sameNetwork reports whether the job's connections can be asked for one by one.
func (c *collector) sameNetwork() bool {
	if !c.networkAsked && c.fs.Proc == proc.Live.Proc {
		c.network = c.fs.SameNetwork(c.opt.PID)
	}
	c.networkAsked = true
	return c.network
}

// holdersOf returns the members that hold a pipe or a socket.
func (c *collector) holdersOf(inode uint64) []holder {
	// New processes may also hold it.
	came := c.tree.started + c.tree.ended
	if _, ok := c.holders[inode]; !ok || came != c.heldOf {
		pause := holdersAge
		if came == c.heldOf {
			pause = max(pause, c.heldNext)
		}
		if now := time.Now(); now.Sub(c.heldAt) > pause {
			c.heldAt, c.heldOf = now, came
			c.listHolders()
			if _, ok := c.holders[inode]; ok {
				c.heldNext = 0
			} else {
				c.heldNext = min(max(holdersAge, 2*c.heldNext), 4*holdersAge)
			}
		}
	}
	return c.holders[inode]
}

// listHolders lists the descriptors of every member, and the pairs of connected sockets from the kernel.
func (c *collector) listHolders() {
	c.holders, c.peers = map[uint64][]holder{}, map[uint64]uint64{}
	asked := 0
	for pid := range c.tree.members {
		if asked++; asked > maxHolders {
			break
		}
		_ = c.fs.Ends(pid, func(inode uint64, writes bool) {
			c.holders[inode] = append(c.holders[inode], holder{pid, writes})
		})
	}
	if c.fs.Proc == proc.Live.Proc {
		if peers, err := proc.UnixPeers(); err == nil {
			c.peers = peers
		}
	}
}

// listConnections gets the connections with both ends on this machine from the kernel.
func (c *collector) listConnections() {
	c.tcp = map[uint64]uint64{}
	ends := map[string]uint64{}
	var pairs [][2]string
	var inodes []uint64
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		data, err := c.fs.Process(nil, c.opt.PID, name)
		if err != nil {
			continue
		}
		proc.ParsePeers(data, func(inode uint64, local, remote string) {
			ends[local+" "+remote] = inode
			pairs, inodes = append(pairs, [2]string{local, remote}), append(inodes, inode)
		})
	}
	for i, p := range pairs {
		if end, ok := ends[p[1]+" "+p[0]]; ok {
			c.tcp[inodes[i]] = end
		}
	}
}

// sharersOf lists the members that map the file at an address of p's memory.
func (c *collector) sharersOf(p *process, address uint64) []int {
	// New processes may also map it.
	came := c.tree.started + c.tree.ended
	if age := time.Since(c.sharedAt); c.sharers == nil || age >= 10*holdersAge || age >= holdersAge && came != c.sharedOf || len(c.sharers) > maxOutside {
		c.sharers, c.sharedAt, c.sharedOf = map[memoryAt][]int{}, time.Now(), came
	}
	key := memoryAt{p.pid, address}
	if found, ok := c.sharers[key]; ok {
		return found
	}
	c.sharers[key] = nil
	at, err := c.fs.Mappings(p.pid, func(m *proc.Mapping) bool { return m.Start <= address && address < m.End })
	if err != nil || len(at) == 0 || !at[0].Shared || at[0].Inode == 0 {
		return nil
	}
	var out []int
	asked := 0
	for pid := range c.tree.members {
		if asked++; asked > maxHolders {
			break
		}
		found, err := c.fs.Mappings(pid, func(m *proc.Mapping) bool {
			return m.Shared && m.Inode == at[0].Inode && m.Device == at[0].Device
		})
		if err == nil && len(found) > 0 {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	c.sharers[key] = out
	return out
}

// meet records that p was seen waiting for others, and reports whether they are members of the job that produce data
// for it.
func (c *collector) meet(p *process) bool {
	found := false
	for _, q := range c.partners(p, p.threads[p.loopThread()]) {
		found = true
		if v := q.frames[q.pid]; v.known && v.part == partImport {
			continue // it has not begun
		}
		q.awaited++
		if q.awaited >= partnerLooks && q.role != roleWorker && q.trainer == nil && (p.trainer != nil || p.partner) {
			q.role, q.partner = roleWorker, true
			p.workerSeen = p.workerSeen || q.isPython
		}
	}
	return found
}

// findOutsider finds the process outside the job that trainers wait for most. It lists the descriptors of every process
// of the machine, once for each such object.
func (c *collector) findOutsider() {
	most, inode := partnerLooks, uint64(0)
	for i, n := range c.outside {
		if i != 0 && (n > most || n == most && i < inode) {
			most, inode = n, i
		}
	}
	if inode == 0 || c.asked[inode] || len(c.asked) > 4 {
		return
	}
	if c.asked == nil {
		c.asked = map[uint64]bool{}
	}
	c.asked[inode] = true
	pids, err := c.fs.Numbers()
	if err != nil {
		return
	}
	for _, pid := range pids[:min(len(pids), 4096)] {
		if c.tree.members[pid] != nil {
			continue
		}
		holds := false
		_ = c.fs.Ends(pid, func(i uint64, _ bool) { holds = holds || i == inode })
		if holds {
			name := "a program"
			if data, err := c.fs.Process(nil, pid, "comm"); err == nil {
				name = printable(string(trimSpace(data)))
			}
			c.outsider = fmt.Sprintf("%s (process %d)", name, pid)
			return
		}
	}
}

// partnersCheck reports the process outside the job that the trainer waits for.
type partnersCheck struct{ remedy }

func (partnersCheck) about() about { return about{name: "partners"} }

func (partnersCheck) evidence(f *findings) {
	if f.c.outsider != "" && f.r.Waiting > 0.05 {
		f.say("what it waits for comes from %s, which is not a part of the job: watch that as well", f.c.outsider)
	}
}

func (partnersCheck) advise(*findings) {}
