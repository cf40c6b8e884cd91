// Package cache stores records of slow sources in the user's cache folder, for all jobs of the user on the machine. It
// uses the format that is fastest to read.
//
// The folder has one subfolder per data set. Bytes from remote stores are cached unchanged in chunks (chunkfile.go,
// room.go). Records are in segments (segment.go). One process appends records to a segment, each with its length and
// checksum, and writes a list of them to a second file. Nothing is changed in place, and writers never wait for
// readers: every listed record is complete. A process that is killed leaves at most an incomplete record, which the
// next process cuts off.
//
// The size of a segment is charged to the limit before the segment is created. So the cache never exceeds the limit,
// however many processes write. While there is free space, nothing is replaced: records come in a random order, so all
// are equally likely to be needed. When the cache is full, data sets that no job uses are removed, the least recently
// used first.
// first that were not used for longest.
package cache

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/units"
)

const (
	// Variable is the environment's name for the folder.
	Variable = "STOKER_CACHE_DIR"
	// AutomaticLimit is the upper bound of the default limit, which is a tenth of the free space.
	AutomaticLimit = 20 << 30
	// MaxSegment is the largest segment. minSegment is the least space for which a segment is started.
	MaxSegment = 256 << 20
	minSegment = 256 << 10
	// MaxSegments is the number of segments of a data set that are read.
	MaxSegments = 1 << 16

	below     = "records" // in the cache folder, which others share
	lockName  = "lock"
	limitName = "limit"
	aboutName = "about"
	useName   = "use"
	segEnd    = ".seg"
	listEnd   = ".list"
)

// Dir is a cache folder.
type Dir struct {
	root string // of the data sets
	// limit is the requested limit, 0 for the limit that is stored in the folder.
	limit int64
}

// Folder returns the folder of everything that Stoker caches: dir, or the value of
// Variable, or stoker/ in the user's cache folder.
func Folder(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(Variable)
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("there is no folder for the cache: %w; set %s", err, Variable)
		}
		dir = filepath.Join(base, "stoker")
	}
	return filepath.Abs(dir)
}

// At returns the cache in Folder(dir). No files are created before the first record is cached.
func At(dir string, limit int64) (*Dir, error) {
	dir, err := Folder(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{root: filepath.Join(dir, below), limit: limit}, nil
}

// Path returns the folder of the data sets.
func (d *Dir) Path() string { return d.root }

// SetLimit stores the size limit for all jobs that set no limit themselves; 0 restores the automatic limit.
func (d *Dir) SetLimit(n int64) error {
	if err := os.MkdirAll(d.root, 0o700); err != nil {
		return err
	}
	name := filepath.Join(d.root, limitName)
	if n <= 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(name, []byte(fmt.Sprintln(n)), 0o600)
}

// Limit returns the size limit of the cache and its origin.
func (d *Dir) Limit() (n int64, from string) {
	if d.limit > 0 {
		return d.limit, "as asked for"
	}
	if b, err := os.ReadFile(filepath.Join(d.root, limitName)); err == nil {
		if _, err := fmt.Sscan(string(b), &n); err == nil && n > 0 {
			return n, "set"
		}
	}
	free := int64(0)
	var st unix.Statfs_t
	for dir := d.root; ; dir = filepath.Dir(dir) {
		if unix.Statfs(dir, &st) == nil {
			free = int64(st.Bavail) * st.Bsize
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return min((free+d.size())/10, AutomaticLimit), "automatic: a tenth of what is free, at most " + units.Bytes(float64(AutomaticLimit))
}

// size returns the total size of all segments and chunks.
func (d *Dir) size() (n int64) {
	for _, id := range d.ids() {
		m, _ := sizeOf(filepath.Join(d.root, id))
		n += m
	}
	return n + d.used(false)
}

// sizeOf returns the total size of a data set's segments and lists, with reserved space.
func sizeOf(dir string) (reserved int64, segments int) {
	for _, name := range segmentsOf(dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		list := listReserve(info.Size())
		if l, err := os.Stat(filepath.Join(dir, listName(name))); err == nil {
			list = max(list, l.Size())
		}
		segments++
		reserved += info.Size() + list
	}
	return reserved, segments
}

// listReserve returns the size limit for the list of a segment of that size.
func listReserve(segment int64) int64 { return segment/32 + headBytes }

func (d *Dir) ids() []string {
	entries, err := os.ReadDir(d.root)
	if err != nil {
		return nil
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && isID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

func isID(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 16
}

// ID is the name of the folder of a data set.
func ID(origin string) string {
	h := xxh3.HashString128(origin).Bytes()
	return hex.EncodeToString(h[:])
}

// lock locks a lock file, which it creates if necessary, until unlock is called.
func lock(name string, how int) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err = flock(f, how); err == nil {
			var mine, now fs.FileInfo
			if mine, err = f.Stat(); err == nil {
				if now, err = os.Stat(name); err == nil && os.SameFile(mine, now) {
					return func() { _ = f.Close() }, nil
				}
			}
			err = nil // it was removed meanwhile: once more
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// errFull is the error if another segment does not fit the limit.
var errFull = errors.New("the cache is as large as it may be")

// begin creates the folder of a data set and marks the data set as in use until end is called.
func (d *Dir) begin(origin string) (path string, end func(), err error) {
	path = filepath.Join(d.root, ID(origin))
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", nil, err
	}
	about := filepath.Join(path, aboutName)
	if _, err := os.Stat(about); err != nil {
		if err := os.WriteFile(about, []byte(origin+"\n"), 0o600); err != nil {
			return "", nil, err
		}
	}
	return d.use(ID(origin))
}

// use marks an existing data set as in use until end is called.
func (d *Dir) use(id string) (path string, end func(), err error) {
	path = filepath.Join(d.root, id)
	use := filepath.Join(path, useName)
	if end, err = lock(use, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return "", nil, fmt.Errorf("%s is being removed: %w", path, err)
	}
	now := time.Now()
	_ = os.Chtimes(use, now, now)
	return path, end, nil
}

// related returns the ids of the data sets in folders above and below origin: they may have
// records of the same files.
func (d *Dir) related(origin string) (ids []string) {
	for _, id := range d.ids() {
		if o := originOf(filepath.Join(d.root, id)); o != "" && o != origin && (Below(o, origin) || Below(origin, o)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Below reports whether a path or URL is folder or is below it.
func Below(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(folder, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// originOf returns the origin of the data set in a folder of the cache.
func originOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, aboutName))
	return strings.TrimSuffix(string(b), "\n")
}

// reserve creates a segment of a data set with as much space as there is, at most want bytes.
func (d *Dir) reserve(id string, want int64) (*os.File, int64, error) {
	unlock, err := lock(filepath.Join(d.root, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	limit, _ := d.Limit()
	d.freeSpace(min(want, 2*minSegment), id)
	room := limit - d.size()
	size := min(want, room) * 31 / 32 &^ (align - 1)
	if size+listReserve(size) > room {
		size -= 2 * headBytes
	}
	if size < minSegment {
		return nil, 0, errFull
	}
	dir := filepath.Join(d.root, id)
	f, err := os.CreateTemp(dir, fmt.Sprintf("%011d-*%s", time.Now().Unix(), segEnd))
	if err != nil {
		return nil, 0, err
	}
	if err = flock(f, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, 0, err
	}
	return f, size, nil
}

// recoverAll releases the unused space of segments whose writers have exited.
func (d *Dir) recoverAll() {
	for _, id := range d.ids() {
		for _, name := range segmentsOf(filepath.Join(d.root, id)) {
			recoverSegment(filepath.Join(d.root, id, name))
		}
	}
}

// segmentsOf lists the segments in a folder by their names.
func segmentsOf(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), segEnd) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names
}

// evict removes the least recently used data set that no job uses. It reports whether there was one. The caller holds
// the lock.
func (d *Dir) evict(but string) bool {
	type old struct {
		id string
		at time.Time
	}
	var all []old
	for _, id := range d.ids() {
		dir := filepath.Join(d.root, id)
		if _, n := sizeOf(dir); id != but && (n > 0 || hasChunks(dir)) {
			all = append(all, old{id, usedAt(dir)})
		}
	}
	slices.SortFunc(all, func(a, b old) int { return a.at.Compare(b.at) })
	for _, o := range all {
		if d.remove(o.id) == nil {
			return true
		}
	}
	return false
}

// Trim removes data sets that no job uses until the cache is within its limit.
func (d *Dir) Trim() {
	unlock, err := lock(filepath.Join(d.root, lockName), unix.LOCK_EX)
	if err != nil {
		return // there is no cache
	}
	defer unlock()
	d.freeSpace(0, "")
}

func usedAt(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, useName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// ErrInUse is the error of removing data that a job uses.
var ErrInUse = errors.New("a job uses it")

// remove removes a data set, unless a job uses it. The lock is held.
func (d *Dir) remove(id string) error {
	dir := filepath.Join(d.root, id)
	unlock, err := lock(filepath.Join(dir, useName), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	if err != nil {
		return err
	}
	defer unlock()
	return d.removeAll(dir)
}
