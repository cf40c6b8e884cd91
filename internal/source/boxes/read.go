package boxes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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

// ReadAll reads the small files of a list and calls f with each file's number and content. f is called
// concurrently, and b is only valid during the call. The error is the one of the first file in the list that fails.
func ReadAll(ctx context.Context, st store.Store, files []store.Entry, limit int64, f func(i int, b []byte) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	at, failed := len(files), error(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range min(reading, len(files)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var buf []byte
			for {
				i := int(next.Add(1) - 1)
				if i >= len(files) || ctx.Err() != nil {
					return
				}
				b, err := readOne(ctx, st, files[i], limit, buf)
				if err == nil {
					buf = b
					err = f(i, b)
				}
				if err != nil {
					mu.Lock()
					if i < at && (failed == nil || !errors.Is(err, context.Canceled)) {
						at, failed = i, err
					}
					mu.Unlock()
					cancel()
					return
				}
			}
		}()
	}
	wg.Wait()
	if failed == nil && len(files) > 0 {
		failed = context.Cause(ctx)
	}
	return failed
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
