// Package npysource reads NumPy's .npy files: record i is row i of the array, and
// where a folder has several files of equally many rows, row i of each of them. A
// one-dimensional file can be cut into windows: record i is elements i·L to
// (i+1)·L, the form of tokens for language models.
//
// Rows are read where they lie: nothing is loaded when the source is opened.
package npysource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
)

// maxFiles bounds the files, each of which is a field.
const maxFiles = 64

// Options change how files are read. Nil means the defaults.
type Options struct {
	// Window cuts one-dimensional arrays into records of that many elements; 0
	// makes each row a record. What is left at the end is not used.
	Window int64
}

type file struct {
	fd     int
	offset int64 // of row 0
	row    int64 // bytes of a row
	view   *arena.Mapping
}

type source struct {
	list  *filelist.List
	info  driver.Info
	files []file
}

// Open opens the .npy file path, or those in the folder path.
func Open(ctx context.Context, url, path string, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	list, err := filelist.Scan(ctx, path, func(p string) bool { return strings.HasSuffix(p, ".npy") })
	if err != nil {
		return nil, err
	}
	switch n := list.Len(); {
	case n == 0:
		return nil, fmt.Errorf("no .npy file in %s", path)
	case n > maxFiles:
		return nil, fmt.Errorf("%s has %d .npy files, each of which would be a field: the limit is %d; to load each file as a record write files:%s", path, n, maxFiles, path)
	}
	s := &source{list: list, info: driver.Info{
		URL: url, Format: "npy", Fingerprint: list.Fingerprint("npy", fmt.Sprint(o.Window)),
	}}
	for i := range list.Len() {
		if err := s.open(i, o.Window); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

// open reads the header of file i.
func (s *source) open(i int, window int64) error {
	name := s.list.FullPath(i)
	fd, err := s.list.Open(i)
	if err != nil {
		return err
	}
	s.files = append(s.files, file{fd: fd}) // Close closes it
	size := s.list.Size(i)
	h, err := ReadHeader(filelist.ReaderAt{FD: fd, Size: size}, size)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(h.Shape) == 0 {
		return fmt.Errorf("%s holds a single number and no rows", name)
	}
	rows, shape := h.Shape[0], h.Shape[1:]
	if window > 0 {
		if len(h.Shape) != 1 {
			return fmt.Errorf("%s has the shape %v: windows can only be cut out of arrays of one axis", name, h.Shape)
		}
		rows, shape = rows/window, []int64{window}
		if rows == 0 {
			return fmt.Errorf("%s has %d elements, less than one window of %d", name, h.Shape[0], window)
		}
	}
	if rows == 0 {
		return fmt.Errorf("%s has no rows: its shape is %v", name, h.Shape)
	}
	if i > 0 && rows != s.info.Len {
		return fmt.Errorf("%s has %d rows and %s has %d: the .npy files of a folder are fields of the same records; to load each file as a record write files:%s",
			name, rows, s.list.FullPath(0), s.info.Len, s.info.URL)
	}
	f := driver.Field{Name: fieldName(s.list.Path(i)), Kind: driver.KindArray, DType: h.DType}
	for _, n := range shape {
		if n > math.MaxInt32 {
			return fmt.Errorf("%s has the shape %v: a row is too large", name, h.Shape)
		}
		f.Shape = append(f.Shape, int(n))
	}
	row, err := driver.ArrayBytes(f.DType, f.Shape)
	if err != nil {
		return fmt.Errorf("%s: its rows: %w", name, err)
	}
	s.info.Len = rows
	s.info.Fields = append(s.info.Fields, f)
	view, err := arena.MapFile(fd, size)
	if err != nil {
		view = nil // rows are then read
	}
	s.files[i] = file{fd: fd, offset: h.Offset, row: row, view: view}
	return nil
}

// ReadHeader reads the header of a .npy file and compares it with its size.
func ReadHeader(r interface {
	ReadAt(b []byte, off int64) (int, error)
}, size int64) (*npy.Header, error) {
	b := make([]byte, min(size, 128))
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, err
	}
	n, err := npy.HeaderSize(b)
	if err != nil {
		return nil, err
	}
	if n > len(b) && int64(n) <= size {
		b = make([]byte, n)
		if _, err := r.ReadAt(b, 0); err != nil {
			return nil, err
		}
	}
	h, err := npy.ParseHeader(b)
	if err != nil {
		return nil, err
	}
	if h.Bytes != size-h.Offset {
		return nil, fmt.Errorf("%w: a %s array of shape %v has %d bytes, behind the header are %d: the file is cut off or was changed",
			npy.ErrFormat, h.DType, h.Shape, h.Bytes, size-h.Offset)
	}
	return h, nil
}

// fieldName is the name of a file without folder and extension. "index" is what
// batches call the record numbers.
func fieldName(p string) string {
	name := strings.TrimSuffix(path.Base(p), ".npy")
	if name == "" || name == "index" {
		return "data"
	}
	return name[:min(len(name), 255)]
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len || len(s.files) != 1 {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	f := &s.files[0]
	return fmt.Sprintf("%s, row %d (byte %d)", s.list.FullPath(0), id, f.offset+id*f.row)
}

func (s *source) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	if len(buf.Records) != len(ids) {
		return fmt.Errorf("read of %d records into a buffer of %d", len(ids), len(buf.Records))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cold := s.look(ids, buf)
	if cold == 0 {
		return nil
	}
	return s.readCold(ctx, ids, buf, cold)
}

// ReadMemory implements driver.MemoryReader.
func (s *source) ReadMemory(ids []int64, buf *driver.Buffer) bool {
	return len(buf.Records) == len(ids) && s.look(ids, buf) == 0
}

// look fills in the rows that are in memory and counts the others.
func (s *source) look(ids []int64, buf *driver.Buffer) (cold int) {
	now := time.Now()
	for k, id := range ids {
		rec := &buf.Records[k]
		rec.ID, rec.Err = id, nil
		if id < 0 || id >= s.info.Len {
			rec.Err = fmt.Errorf("record %d is outside of the %d rows of %s", id, s.info.Len, s.info.URL)
			continue
		}
		for i := range s.files {
			f := &s.files[i]
			rec.Values[i] = driver.Value{}
			if f.view != nil {
				rec.Values[i].Bytes = f.view.Resident(f.offset+id*f.row, f.offset+(id+1)*f.row, now)
			}
			if rec.Values[i].Bytes == nil {
				cold++
			}
		}
	}
	return cold
}

// readCold reads the rows that are not in memory: the kernel is asked for all of
// them before the first wait.
func (s *source) readCold(ctx context.Context, ids []int64, buf *driver.Buffer, cold int) error {
	for step := range 2 {
		if step == 0 && cold == 1 {
			continue
		}
		for k, id := range ids {
			rec := &buf.Records[k]
			for i := range s.files {
				if rec.Err != nil || rec.Values[i].Bytes != nil {
					continue
				}
				f := &s.files[i]
				at := f.offset + id*f.row
				if step == 0 {
					_ = unix.Fadvise(f.fd, at, f.row, unix.FADV_WILLNEED)
					continue
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b, err := buf.Take(k, i, f.row)
				if err != nil {
					return fmt.Errorf("no memory for the %d bytes of row %d: %w", f.row, id, err)
				}
				if err := filelist.Pread(f.fd, b, at); err != nil {
					if errors.Is(err, filelist.ErrShort) {
						err = fmt.Errorf("%w: it became shorter", filelist.ErrChanged)
					}
					rec.Err = fmt.Errorf("%s, bytes %d to %d: %w", s.list.FullPath(i), at, at+f.row, err)
					continue
				}
				rec.Values[i].Bytes = b
			}
		}
	}
	return nil
}

func (s *source) Close() error {
	var first error
	for i := range s.files {
		f := &s.files[i]
		var err error
		if f.view != nil {
			err = f.view.Close()
		}
		if cerr := unix.Close(f.fd); err == nil {
			err = cerr
		}
		if first == nil {
			first = err
		}
	}
	s.files = nil
	return first
}
