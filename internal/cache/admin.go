package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// Entry describes a data set in a cache.
type Entry struct {
	// ID is the name of its folder, Origin the data.
	ID     string `json:"id"`
	Origin string `json:"origin"`
	// Records is the number of cached records. Chunks is the number of cached chunks from remote stores, and Bytes the
	// size of all.
	Records int64 `json:"records"`
	Chunks  int64 `json:"chunks"`
	Bytes   int64 `json:"bytes"`
	// Used is the last time that a job opened the data set. InUse reports that a job has it open.
	Used  time.Time `json:"used"`
	InUse bool      `json:"in_use"`
}

// List returns the data sets, the most recently used first.
func (d *Dir) List() []Entry {
	var out []Entry
	for _, id := range d.ids() {
		out = append(out, d.entry(id))
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return out
}

func (d *Dir) entry(id string) Entry {
	dir := filepath.Join(d.root, id)
	e := Entry{ID: id, Used: usedAt(dir), Origin: originOf(dir)}
	if f, err := os.Open(filepath.Join(dir, useName)); err == nil {
		e.InUse = errors.Is(flock(f, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
		_ = f.Close()
	}
	keys := map[Key]struct{}{}
	for _, name := range segmentsOf(dir) {
		e.Bytes += eachIn(filepath.Join(dir, name), func(h *head, _ int64) {
			if h.size > 0 {
				keys[h.Key] = struct{}{}
			}
		})
	}
	e.Records = int64(len(keys))
	eachChunk(dir, func(path string, _ disk.Key, size int64) {
		e.Bytes += size
		if !filling(path) {
			e.Chunks++
		}
	})
	return e
}

// eachIn calls f for the heads of a segment and returns the number of bytes that the segment and its list use.
func eachIn(segment string, f func(h *head, at int64)) int64 {
	info, err := os.Stat(segment)
	if err != nil {
		return 0
	}
	end := int64(headBytes)
	list := readList(listName(segment), 0, info.Size(), func(h *head, at int64) {
		end = max(end, h.offset+h.span())
		f(h, at)
	})
	return min(end+tail, info.Size()) + list
}

// Keys returns the keys of the values that are cached for the data of origin, also in the data sets of folders above
// and below it.
func (d *Dir) Keys(origin string) map[Key]bool {
	keys := map[Key]bool{}
	for _, id := range append(d.related(origin), ID(origin)) {
		dir := filepath.Join(d.root, id)
		for _, name := range segmentsOf(dir) {
			eachIn(filepath.Join(dir, name), func(h *head, _ int64) {
				if h.size > 0 {
					keys[h.Key] = true
				}
			})
		}
	}
	return keys
}

// Find returns the data sets of a folder and of the folders below it, or the one whose id is name or begins with it.
func (d *Dir) Find(name string) (found []Entry) {
	for _, id := range d.ids() {
		if o := originOf(filepath.Join(d.root, id)); o != "" && Below(o, name) || len(name) >= 6 && strings.HasPrefix(id, name) {
			found = append(found, d.entry(id))
		}
	}
	return found
}

// Remove removes a data set by its id. It fails with ErrInUse while a job uses it.
func (d *Dir) Remove(id string) error {
	if !isID(id) {
		return fmt.Errorf("%q is not an id", id)
	}
	unlock, err := lock(filepath.Join(d.root, lockName), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	return d.remove(id)
}

// Damage describes a damaged record.
type Damage struct {
	// Record is the source of the record, Segment and Offset its position. For a chunk, Record has the path of its file
	// and the byte range.
	Record  string
	Chunk   bool
	Segment string
	Offset  int64
	Err     error
}

// Verify reads all records and chunks of a data set and calls bad for damaged ones. These are dropped, so that they are
// cached again when they are needed.
func (d *Dir) Verify(ctx context.Context, id string, bad func(Damage)) (records, chunks, bytes int64, err error) {
	dir := filepath.Join(d.root, id)
	var buf []byte
	for _, name := range segmentsOf(dir) {
		path := filepath.Join(dir, name)
		recoverSegment(path)
		f, err := os.Open(path)
		if err != nil {
			return records, chunks, bytes, err
		}
		eachIn(path, func(h *head, at int64) {
			if ctx.Err() != nil {
				return
			}
			value, of, err := readValue(f, h, buf)
			buf = value[:0]
			records++
			bytes += int64(h.size)
			if err != nil {
				bad(Damage{Record: of, Segment: path, Offset: h.offset, Err: err})
				_ = drop(path, at)
			}
		})
		_ = f.Close()
		if ctx.Err() != nil {
			return records, chunks, bytes, context.Cause(ctx)
		}
	}
	eachChunk(dir, func(path string, k disk.Key, _ int64) {
		if ctx.Err() != nil || filling(path) {
			return
		}
		what, err := readChunk(path, k)
		if errors.Is(err, fs.ErrNotExist) {
			return // it was removed meanwhile
		}
		chunks++
		bytes += k.Size
		if err != nil {
			bad(Damage{Chunk: true, Record: fmt.Sprintf("%s, bytes %d to %d", cmp.Or(what, "data"), k.Off, k.Off+k.Size), Segment: path, Err: err})
			d.dropChunk(path, k, false)
		}
	})
	return records, chunks, bytes, context.Cause(ctx)
}
