package cache

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// Jobs that share a data set publish when they will use its chunks. If the cache is full, the chunk that all jobs
// together need last is then removed. Each job has a file next to the chunks and holds a lock on it. If the file is not
// locked, the job has ended. Numbers are little-endian:
//
//	0   magic       u32
//	4   rank        u32  of the job's processes
//	8   generation  u64  odd while the rest is being written
//	16  length      i64  positions of an epoch
//	24  position    i64  of the last used chunk, in the epoch of the table
//	32  rate        f64  positions per second, 0 if unknown
//	40  count       u64
//	48  zeros
//	64  table       24 bytes each: the chunk's hash u64, its first position in this epoch
//	                and in the next one, i64, -1 for never
//
// A count of 0 means that the uses are unknown. Then no chunk is removed for another one.
const (
	jobMagic  = 0x314a5453 // "STJ1"
	jobsName  = "jobs"
	jobHead   = 64
	jobEntry  = 24
	maxJobs   = 1024
	maxTable  = 1 << 24
	maxPlace  = 1 << 50
	rebuildAt = 128 // candidates are ranked again after 1/rebuildAt of them
)

// Use is the position at which a chunk is first needed in an epoch and in the next one, -1 for never.
type Use struct {
	Key       disk.Key
	Now, Next int64
}

// job is the file that this process publishes.
type job struct {
	mu  sync.Mutex
	f   *os.File
	gen uint64
}

// join writes down that there is a job.
func (c *Chunks) join() error {
	dir := filepath.Join(c.path, jobsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(c.dir.root, lockName), unix.LOCK_EX) // other processes find it locked
	if err != nil {
		return err
	}
	defer unlock()
	f, err := os.CreateTemp(dir, "job-")
	if err != nil {
		return err
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		_ = f.Close()
		return err
	}
	c.job.f = f
	return c.job.head(0, 0, 0)
}

func (j *job) head(rank int, length int64, count int) error {
	var b [jobHead]byte
	le := binary.LittleEndian
	le.PutUint32(b[:], jobMagic)
	le.PutUint32(b[4:], uint32(rank))
	le.PutUint64(b[8:], j.gen)
	le.PutUint64(b[16:], uint64(length))
	minus := int64(-1)
	le.PutUint64(b[24:], uint64(minus))
	le.PutUint64(b[40:], uint64(count))
	_, err := j.f.WriteAt(b[:], 0)
	return err
}

// leave removes the job's file.
func (c *Chunks) leave() {
	_ = os.Remove(c.job.f.Name())
	_ = c.job.f.Close()
}

// Epoch publishes when a process of a job, with its rank, uses the chunks. It is called at the beginning of an epoch of
// length positions.
func (c *Chunks) Epoch(rank int, length int64, uses []Use) error {
	j := &c.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(uses) > maxTable {
		uses = nil
	}
	j.gen++ // odd
	if err := j.head(rank, length, 0); err != nil {
		return err
	}
	b := make([]byte, len(uses)*jobEntry)
	le := binary.LittleEndian
	for i, u := range uses {
		le.PutUint64(b[i*jobEntry:], u.Key.Hash())
		le.PutUint64(b[i*jobEntry+8:], uint64(u.Now))
		le.PutUint64(b[i*jobEntry+16:], uint64(u.Next))
	}
	if _, err := j.f.WriteAt(b, jobHead); err != nil {
		return err
	}
	j.gen++
	return j.head(rank, length, len(uses))
}

// At publishes the job's position and its speed in positions per second.
func (c *Chunks) At(pos int64, rate float64) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(pos))
	binary.LittleEndian.PutUint64(b[8:], math.Float64bits(rate))
	_, _ = c.job.f.WriteAt(b[:], 24)
}

// jobView is another process's view of a job.
type jobView struct {
	gen         uint64
	rank        uint32
	length, pos int64
	rate        float64
	uses        map[uint64][2]int64
}

var errJob = errors.New("not the file of a job")

// readJob reads the file of a job. have is the result of an earlier read. The bytes are untrusted, so every number is
// checked.
func readJob(f io.ReaderAt, size int64, have *jobView) (*jobView, error) {
	var b [jobHead]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	v := &jobView{gen: le.Uint64(b[8:]), rank: le.Uint32(b[4:]), length: int64(le.Uint64(b[16:])), pos: int64(le.Uint64(b[24:])), rate: math.Float64frombits(le.Uint64(b[32:]))}
	count := le.Uint64(b[40:])
	if le.Uint32(b[:]) != jobMagic || v.length < 0 || v.length > maxPlace || v.pos < -1 || v.pos > v.length || count > maxTable || int64(count)*jobEntry+jobHead > size {
		return nil, errJob
	}
	if !(v.rate > 0) || math.IsInf(v.rate, 0) {
		v.rate = 0
	}
	switch {
	case v.gen%2 == 1 || count == 0:
		return v, nil
	case have != nil && have.gen == v.gen && have.uses != nil:
		v.uses = have.uses
		return v, nil
	}
	table := make([]byte, count*jobEntry)
	if _, err := f.ReadAt(table, jobHead); err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(b[:], 0); err != nil || le.Uint64(b[8:]) != v.gen {
		return nil, errJob // it was written meanwhile
	}
	v.uses = make(map[uint64][2]int64, count)
	for e := table; len(e) > 0; e = e[jobEntry:] {
		u := [2]int64{int64(le.Uint64(e[8:])), int64(le.Uint64(e[16:]))}
		if min(u[0], u[1]) < -1 || max(u[0], u[1]) > v.length {
			return nil, errJob
		}
		v.uses[le.Uint64(e)] = u
	}
	return v, nil
}

// next returns the time until a job uses a chunk, infinite for never.
func (v *jobView) next(hash uint64) float64 {
	u, ok := v.uses[hash]
	rate := v.rate
	if rate == 0 {
		rate = 1
	}
	switch {
	case ok && u[0] > v.pos:
		return float64(u[0]-v.pos) / rate
	case ok && u[1] >= 0:
		return float64(v.length-v.pos+u[1]) / rate
	case ok:
		return float64(2*v.length-v.pos) / rate // after the next epoch
	}
	return math.Inf(1)
}

// orders are the orders of all jobs that share a data set, as seen by one of them, and the chunks, ranked by their next
// use.
type orders struct {
	mu     sync.Mutex
	jobs   map[string]*jobView
	ranked []rankedChunk // the last one is needed last
	use    int           // how many of them are used before they are ranked again
	others bool          // there are other jobs, or were
}

type rankedChunk struct {
	path string
	key  disk.Key
	next float64
}

// look reads the files of the jobs, and reports whether there are several whose uses are known. The caller holds the
// lock.
func (c *Chunks) look() bool {
	o := &c.orders
	dir := filepath.Join(c.path, jobsName)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > maxJobs {
		return false
	}
	o.others = len(entries) > 1
	jobs, ranks, several := map[string]*jobView{}, map[uint32]bool{}, false
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "job-") {
			continue
		}
		v, err := c.lookAt(filepath.Join(dir, e.Name()), o.jobs[e.Name()])
		if v == nil && err == nil {
			continue // the job has ended
		}
		if err != nil || v.uses == nil {
			return false
		}
		several = several || ranks[v.rank] // the ranks of one job are one job
		ranks[v.rank] = true
		jobs[e.Name()] = v
	}
	if len(o.jobs) != len(jobs) {
		o.ranked = nil
	}
	o.jobs = jobs
	return several
}

// lookAt reads the file of a job, or removes the file if the job has ended.
func (c *Chunks) lookAt(path string, have *jobView) (*jobView, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if path != c.job.f.Name() && flock(f, unix.LOCK_SH|unix.LOCK_NB) == nil {
		return nil, os.Remove(path)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readJob(f, info.Size(), have)
}

// next is when any of the jobs uses a chunk.
func (o *orders) next(hash uint64) float64 {
	next := math.Inf(1)
	for _, v := range o.jobs {
		next = min(next, v.next(hash))
	}
	return next
}

// wait returns the pause before the next try when the cache is full. If there are other jobs, they may soon publish
// their uses.
func (c *Chunks) wait() time.Duration {
	c.orders.mu.Lock()
	defer c.orders.mu.Unlock()
	if c.orders.others {
		return time.Second
	}
	return fullWait
}

// giveWay frees space for a chunk of size bytes. It removes the chunks that all jobs together need last, if they need
// them later than that chunk. The caller holds the lock.
func (c *Chunks) giveWay(k disk.Key, size int64) (room, several bool) {
	o := &c.orders
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.look() {
		return false, false
	}
	wanted := o.next(k.Hash())
	limit, _ := c.dir.Limit()
	for limit-c.dir.size() < size {
		if o.use == 0 || len(o.ranked) == 0 {
			c.rank()
		}
		if len(o.ranked) == 0 {
			return false, true
		}
		last := o.ranked[len(o.ranked)-1]
		if last.next = o.next(last.key.Hash()); last.next <= wanted {
			o.ranked = nil
			return false, true
		}
		o.ranked = o.ranked[:len(o.ranked)-1]
		o.use--
		c.open.forget(last.key)
		if err := c.dir.change(func() int64 { return -unlink(last.path) }); err != nil {
			return false, true
		}
		c.gone.Add(1)
	}
	return true, true
}

// rank ranks the chunks by when they are needed.
func (c *Chunks) rank() {
	o := &c.orders
	o.ranked = o.ranked[:0]
	eachChunk(c.path, func(path string, k disk.Key, _ int64) {
		if !filling(path) {
			o.ranked = append(o.ranked, rankedChunk{path, k, o.next(k.Hash())})
		}
	})
	slices.SortFunc(o.ranked, func(a, b rankedChunk) int {
		switch {
		case a.next < b.next:
			return -1
		case a.next > b.next:
			return 1
		}
		return strings.Compare(a.path, b.path)
	})
	o.use = len(o.ranked)/rebuildAt + 1
}
