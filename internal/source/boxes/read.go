package boxes

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// IsImage reports whether a file has the extension of an image.
func IsImage(name string) bool {
	return slices.Contains(driver.ImageExtensions, strings.ToLower(path.Ext(name)))
}

// Stem returns the name of a file without its folder and extension.
func Stem(name string) string {
	base := path.Base(name)
	return strings.TrimSuffix(base, path.Ext(base))
}

// reading is the number of concurrent reads.
const reading = 16

// List calls f with the files in dir that keep accepts, also with those that cannot be read.
// Folders that cannot be read are in Left.
func (s *Base) List(ctx context.Context, st store.Store, dir string, keep func(name string) bool, f func(e store.Entry) error) error {
	return st.List(ctx, dir, &store.ListOptions{Keep: keep, Bad: func(e store.Entry, err error) error {
		switch {
		case !store.IsObjectError(err):
			return err
		case e.Dir:
			s.Left = append(s.Left, driver.Skipped{Path: e.Name + "/", Reason: store.Cause(err).Error()})
			return nil
		case s.unlisted == nil:
			s.unlisted = map[string]error{}
		}
		s.unlisted[e.Name] = err
		return f(e)
	}}, f)
}

// Add appends a file of List to a list.
func (s *Base) Add(l *filelist.List, e store.Entry) {
	if err := s.unlisted[e.Name]; err == nil || l.AddBad(e, err) != nil {
		l.Add(e)
	}
}

// ReadAll reads small files of List and calls f with each file's number and content. f is called
// concurrently, and b is only valid during the call. A file that cannot be read, or that f
// refuses, makes a bad record: that of file i is record of[i].
func (s *Base) ReadAll(ctx context.Context, st store.Store, files []store.Entry, of []int, limit int64, f func(i int, b []byte) error) error {
	var bad filelist.Bad
	free := sync.Pool{New: func() any { return new([]byte) }}
	err := bad.Probe(ctx, len(files), reading, func(ctx context.Context, i int) error {
		if err := s.unlisted[files[i].Name]; err != nil {
			return err
		}
		buf := free.Get().(*[]byte)
		defer free.Put(buf)
		b, err := readOne(ctx, st, files[i], limit, *buf)
		if err != nil {
			return err
		}
		*buf = b
		return f(i, b)
	})
	for i := range files {
		if err := bad.Of(i); err != nil {
			_ = s.Bad.Note(of[i], err) // which Probe has noted
		}
	}
	return err
}

func readOne(ctx context.Context, st store.Store, e store.Entry, limit int64, buf []byte) ([]byte, error) {
	o, err := store.OpenEntry(ctx, st, e)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if o.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", st.Path(e.Name), o.Size(), limit)
	}
	if int64(cap(buf)) < o.Size() {
		buf = make([]byte, o.Size()+o.Size()/2)
	}
	buf = buf[:o.Size()]
	if err := o.ReadAt(ctx, buf, 0); err != nil {
		return nil, err
	}
	return buf, store.Check(ctx, o)
}
