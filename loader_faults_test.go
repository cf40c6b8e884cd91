package stoker_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/store"
)

// photosIn makes a folder of n images of some bytes for a bucket. The files with the numbers bad are not images.
func photosIn(t *testing.T, n, bytes int, bad func(i int) bool) (dir string, names []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "photos")
	if err := writeImages(dir, 1); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "dark", "000.jpg")
	image, err := os.ReadFile(first)
	if err == nil {
		err = os.Remove(first)
	}
	files := map[bool]string{false: filepath.Join(t.TempDir(), "good"), true: filepath.Join(t.TempDir(), "bad")}
	for isBad, file := range files {
		data := make([]byte, max(bytes, len(image))) // decoders ignore data after an image
		if !isBad {
			copy(data, image)
		}
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
	}
	for i := range n {
		name := filepath.Join(dir, "dark", fmt.Sprintf("%04d.jpg", i))
		if err == nil {
			err = os.Link(files[bad(i)], name)
		}
		names = append(names, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, names
}

func requests(asked map[string]int) (n int) {
	for what := range maps.Keys(asked) {
		if strings.HasPrefix(what, "GET ") || strings.HasPrefix(what, "HEAD ") {
			n += asked[what]
		}
	}
	return n
}

// epochOf goes through an epoch and returns the numbers of its records by batch.
func epochOf(t *testing.T, l *stoker.Loader) (ids [][]int64, err error) {
	t.Helper()
	for {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
		ids = append(ids, slices.Clone(b.Ints("index")))
		b.Release()
	}
}

// A run of bad objects in a bucket costs about as many requests as there are bad ones, and in later epochs fewer.
func TestSkippingCostsWhatIsBad(t *testing.T) {
	const n, bad, from = 300, 20, 100
	dir, _ := photosIn(t, n, 256<<10, func(i int) bool { return i >= from && i < from+bad })
	server, url := bucketOf(t, dir)
	l, err := stoker.Open(t.Context(), fmt.Sprintf(url, ""), &stoker.Options{
		BatchSize: 32, Shuffle: true, OnError: stoker.OnError{Skip: true, MaxBad: "7%"}, Limits: stoker.Limits{Memory: 64 << 20, Threads: 2, Prefetch: 2, Lookahead: 1 << 20},
		Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := requests(server.Asked())
	for epoch := range 3 {
		ids, err := epochOf(t, l)
		if err != nil {
			t.Fatal(err)
		}
		count := map[int64]int{}
		for _, b := range ids {
			for _, id := range b {
				count[id]++
			}
		}
		if len(slices.Concat(ids...)) != n || len(count) != n-bad || count[from+bad] != bad+1 {
			t.Errorf("epoch %d: %d rows, %d records, the first one behind comes %d times", epoch, len(slices.Concat(ids...)), len(count), count[from+bad])
		}
		if skipped, _ := l.Skipped(); skipped != bad {
			t.Errorf("epoch %d: %d were replaced", epoch, skipped)
		}
		after := requests(server.Asked())
		// Each bad record may be read as itself and as a replacement of others, and the same holds for each
		// replacement. Some records of the next epoch are read ahead.
		if most := (epoch+1)*(n+bad) + 4*bad + 100; after-before > most {
			t.Errorf("%d requests after epoch %d, more than %d", after-before, epoch, most)
		}
	}
	asked := server.Asked()
	for i := from; i < from+bad; i++ {
		if n := asked[fmt.Sprintf("GET %04d.jpg", i)]; n > 4 {
			t.Errorf("a bad record was read %d times", n)
		}
	}
}

// If access is refused for all objects, the run fails with an error that reports the refusal, and there is no request
// storm.
func TestAllIsRefused(t *testing.T) {
	refused := 3000
	if testing.Short() { // a request takes long under the race detector
		refused = 600
	}
	for _, skip := range []bool{false, true} {
		dir, _ := photosIn(t, refused, 0, func(int) bool { return false })
		server, url := bucketOf(t, dir)
		var on atomic.Bool
		server.Refuse = func(r *http.Request) (int, string) {
			if on.Load() && !r.URL.Query().Has("list-type") {
				return http.StatusForbidden, "AccessDenied"
			}
			return 0, ""
		}
		l, err := stoker.Open(t.Context(), fmt.Sprintf(url, ""), &stoker.Options{
			BatchSize: 32, Shuffle: true, OnError: stoker.OnError{Skip: skip}, Limits: stoker.Limits{Memory: 128 << 20, Threads: 2, Timeout: 2 * time.Second},
			Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		on.Store(true)
		_, err = epochOf(t, l)
		var rec *stoker.RecordError
		if err == nil || errors.As(err, &rec) || !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), "AccessDenied") ||
			!strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "tried ") {
			t.Errorf("skip %t: error is %v", skip, err)
		}
		if n := requests(server.Asked()); n > 4*refused {
			t.Errorf("skip %t: %d requests", skip, n)
		}
		on.Store(false)
		l.SetEpoch(1) // and the loader can be used again
		if ids, err := epochOf(t, l); err != nil || len(slices.Concat(ids...)) != refused {
			t.Errorf("skip %t: %v", skip, err)
		}
		l.Close()
	}
}

// A single object that is refused or missing is a bad record.
func TestOneIsRefused(t *testing.T) {
	for status, code := range map[int]string{http.StatusForbidden: "AccessDenied", http.StatusNotFound: "NoSuchKey", http.StatusBadRequest: "KMS.DisabledException"} {
		for _, skip := range []bool{false, true} {
			dir, names := photosIn(t, 60, 0, func(int) bool { return false })
			server, url := bucketOf(t, dir)
			bad := filepath.Base(names[17])
			server.Refuse = func(r *http.Request) (int, string) {
				if strings.HasSuffix(r.URL.Path, names[17][len(dir):]) {
					return status, code
				}
				return 0, ""
			}
			l, err := stoker.Open(t.Context(), fmt.Sprintf(url, ""), &stoker.Options{
				BatchSize: 8, OnError: stoker.OnError{Skip: skip}, Limits: stoker.Limits{Memory: 128 << 20, Threads: 2, Timeout: time.Minute},
				Outputs: []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ids, err := epochOf(t, l)
			var rec *stoker.RecordError
			switch {
			case !skip && (!errors.As(err, &rec) || rec.ID != 17 || !strings.Contains(err.Error(), bad)):
				t.Errorf("%s: error is %v", code, err)
			case skip && (err != nil || len(slices.Concat(ids...)) != 60 || ids[2][1] != 18):
				t.Errorf("%s: %v, %v", code, ids, err)
			}
			l.Close()
		}
	}
}
