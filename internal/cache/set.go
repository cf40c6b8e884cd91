package cache

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
)

// refreshEvery is the interval at which a Set looks for records from other processes.
const refreshEvery = 2 * time.Second

// Set is the cache of one data set. Its methods may be called concurrently, except Close, which is called once and
// last.
type Set struct {
	dir  *Dir
	id   string
	path string
	// also are the folders of data sets that may have the same files, see Dir.related.
	also []string
	say  func(string)
	use  func() // ends the use

	mu       sync.RWMutex
	find     map[uint64]int32
	claimed  map[Key]struct{} // by batches that are not written yet
	chunks   []*[chunk]Record
	n        int32
	segments []segment
	known    map[string]int

	w       writer
	stop    chan struct{}
	wg      sync.WaitGroup
	saidOne sync.Once
}

const chunk = 4096

type segment struct {
	path string
	read int64 // of its list
	mine bool
}

// Record is a cached record. It does not change, except for State.
type Record struct {
	Meta
	Segment int
	// Offset and Size locate the value. Size is 0 if no value is worth caching.
	Offset, Size int64
	sum          uint64
	name         uint16
	list         int64 // its place in the list
	state        atomic.Uint32
}

const (
	unseen = iota
	checked
	damaged
)

// Open opens the cached records of the data of origin, such as the path of a folder. say is called once when nothing
// can be cached.
func Open(dir *Dir, origin string, say func(string)) (*Set, error) {
	s := &Set{
		dir: dir, id: ID(origin), say: say, find: map[uint64]int32{}, claimed: map[Key]struct{}{}, known: map[string]int{}, stop: make(chan struct{}),
	}
	var err error
	if s.path, s.use, err = dir.begin(origin); err != nil {
		return nil, err
	}
	for _, id := range dir.related(origin) {
		if path, end, err := dir.use(id); err == nil {
			own := s.use
			s.also, s.use = append(s.also, path), func() { end(); own() }
		}
	}
	for _, path := range s.listed() {
		recoverSegment(path)
	}
	s.refresh()
	s.w.init(s)
	s.wg.Go(s.w.run)
	s.wg.Go(s.follow)
	return s, nil
}

// follow looks for records from other processes until Close.
func (s *Set) follow() {
	t := time.NewTicker(refreshEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.refresh()
		case <-s.stop:
			return
		}
	}
}

// listed returns the segments of the data set and of related ones that may have the same files.
func (s *Set) listed() (paths []string) {
	for _, dir := range append([]string{s.path}, s.also...) {
		for _, name := range segmentsOf(dir) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// refresh reads the new entries of the lists.
func (s *Set) refresh() {
	for _, path := range s.listed() {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		i, ok := s.segment(path, false)
		if !ok {
			continue
		}
		s.mu.RLock()
		seg := s.segments[i]
		s.mu.RUnlock()
		if seg.mine {
			continue
		}
		var heads []head
		var places []int64
		end := readList(listName(path), seg.read, info.Size(), func(h *head, at int64) {
			heads, places = append(heads, *h), append(places, at)
		})
		if end == seg.read {
			continue
		}
		s.mu.Lock()
		s.segments[i].read = end
		for k := range heads {
			s.addLocked(&heads[k], i, places[k], unseen)
		}
		s.mu.Unlock()
	}
}

// segment is the number of a segment.
func (s *Set) segment(path string, mine bool) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.known[path]
	if !ok {
		if len(s.segments) == MaxSegments {
			return 0, false
		}
		i = len(s.segments)
		s.known[path] = i
		s.segments = append(s.segments, segment{path: path, mine: mine})
	}
	return i, true
}

func short(k *Key) uint64 { return binary.LittleEndian.Uint64(k[:]) }

func (s *Set) addLocked(h *head, seg int, list int64, state uint32) {
	if int(s.n)%chunk == 0 {
		s.chunks = append(s.chunks, new([chunk]Record))
	}
	r := &s.chunks[s.n/chunk][s.n%chunk]
	r.Meta, r.Segment, r.Offset, r.Size, r.sum, r.name, r.list = h.Meta, seg, h.value(), int64(h.size), h.sum, h.name, list
	r.Name = ""
	r.state.Store(state)
	s.find[short(&h.Key)] = s.n
	s.n++
}

// Find returns the number of the record with a key, or -1.
func (s *Set) Find(k *Key) int32 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.findLocked(k)
}

func (s *Set) findLocked(k *Key) int32 {
	n, ok := s.find[short(k)]
	if !ok {
		return -1
	}
	if r := s.recordLocked(n); r.Key != *k || r.state.Load() == damaged {
		return -1
	}
	return n
}

// Record returns a record by its number.
func (s *Set) Record(n int32) *Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.recordLocked(n)
}

func (s *Set) recordLocked(n int32) *Record { return &s.chunks[n/chunk][n%chunk] }

// Len is the number of records that are known.
func (s *Set) Len() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int64(len(s.find))
}

// Damaged reports whether a record was found to be damaged.
func (r *Record) Damaged() bool { return r.state.Load() == damaged }

// Check reports whether a value, followed by its name, is intact. It verifies the checksum only the first time, and not
// at all for values that this process wrote.
func (r *Record) Check(value []byte) bool {
	switch r.state.Load() {
	case checked:
		return true
	case damaged:
		return false
	}
	h := xxh3.New()
	_, _ = h.Write(value)
	if h.Sum64() != r.sum {
		return false
	}
	r.state.Store(checked)
	return true
}

// Stored returns the number of bytes that Check takes: the value and the name.
func (r *Record) Stored() int64 { return r.Size + int64(r.name) }

// Drop forgets a record that is damaged.
func (s *Set) Drop(n int32) {
	r := s.Record(n)
	if r.state.Swap(damaged) == damaged {
		return
	}
	_ = drop(s.SegmentPath(r.Segment), r.list)
}

// SegmentPath is the path of a segment.
func (s *Set) SegmentPath(i int) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if i >= len(s.segments) {
		return "" // there is none yet
	}
	return s.segments[i].path
}

// Path is the folder of the data set.
func (s *Set) Path() string { return s.path }

// Close writes waiting records and closes the cache.
func (s *Set) Close() error {
	close(s.stop)
	s.w.close()
	s.wg.Wait()
	s.use()
	return nil
}

// sayOnce reports why nothing is cached any more.
func (s *Set) sayOnce(err error) {
	s.saidOne.Do(func() {
		s.say(whyNot(err, s.path))
	})
}
