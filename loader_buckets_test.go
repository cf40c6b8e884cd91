package stoker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/serverstest"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/store"
)

// In each kind of bucket, by its URL alone: a folder and an array are uploaded and packed into it. The data read from
// all of them equals the local data.
func TestBuckets(t *testing.T) {
	const bucket, epochs = "test-bucket", 2
	dir := t.TempDir()
	npy := filepath.Join(dir, "x.npy")
	writeRows(t, npy, 600, 4<<10)
	if err := writeImages(filepath.Join(dir, "photos"), 40); err != nil {
		t.Fatal(err)
	}
	opt := &pack.Options{ChunkBytes: 64 << 10, ShardBytes: 1 << 20}
	packRows(t, npy, filepath.Join(dir, "train"), opt)
	local := map[string][]byte{}
	for kind, start := range map[string]func(t *testing.T) string{
		"s3": func(t *testing.T) string {
			s := serverstest.S3(t, bucket)
			t.Setenv("AWS_ACCESS_KEY_ID", s.Access)
			t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
			return "?endpoint=" + s.URL
		},
		"gs": func(t *testing.T) string { return "?anonymous=true&endpoint=" + serverstest.GCS(t, bucket).URL },
		"az": func(t *testing.T) string {
			s := serverstest.Azure(t, bucket)
			t.Setenv("AZURE_STORAGE_ACCOUNT", s.Access)
			t.Setenv("AZURE_STORAGE_KEY", s.Secret)
			return "?endpoint=" + s.URL + "/" + s.Access
		},
	} {
		t.Run(kind, func(t *testing.T) {
			bucketOf(t, dir) // nothing of this machine's is found
			t.Setenv("STOKER_RUNTIME_DIR", "off")
			query := start(t)
			at := func(name string) string { return fmt.Sprintf("%s://%s/some/%s%s", kind, bucket, name, query) }
			upload(t, dir, at(""))
			src, err := source.Open(t.Context(), at("x.npy"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if _, err := pack.WriteSource(t.Context(), src, at("packed"), opt); err != nil {
				t.Fatal(err)
			}
			if r, err := pack.Verify(t.Context(), at("packed"), nil); err != nil || len(r.Problems) > 0 || r.Records != 600 {
				t.Errorf("%+v, %v", r, err)
			}
			for far, near := range map[string]string{"packed": "train", "x.npy": "x.npy", "photos": "photos"} {
				for _, window := range []int{0, 4} {
					o := &stoker.Options{BatchSize: 20, Shuffle: true, Window: window, Limits: stoker.Limits{Memory: 64 << 20, Threads: 1}}
					if far == "photos" {
						o.Outputs = []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}}
					}
					of := fmt.Sprint(near, window)
					if local[of] == nil {
						local[of] = batches(t, filepath.Join(dir, near), o, epochs)
					}
					here, there := local[of], batches(t, at(far), o, epochs)
					if !bytes.Equal(here, there) {
						t.Errorf("%s, window %d: %d bytes, on this machine %d", far, window, len(there), len(here))
					}
				}
			}
			_, err = stoker.Open(t.Context(), at("none"), &stoker.Options{BatchSize: 1})
			if !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), kind+"://"+bucket+"/some/none") {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// upload puts the photographs and the array of a folder into a bucket.
func upload(t *testing.T, dir, url string) {
	t.Helper()
	st, err := stores.OpenWrite(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "photos", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(files, filepath.Join(dir, "x.npy")) {
		b, err := os.ReadFile(f)
		if err == nil {
			var name string
			if name, err = filepath.Rel(dir, f); err == nil {
				err = store.WriteFile(t.Context(), st, filepath.ToSlash(name), b)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// batches returns the bytes of all arrays of some epochs.
func batches(t *testing.T, url string, o *stoker.Options, epochs int) (all []byte) {
	t.Helper()
	l, err := stoker.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for e := 0; e < epochs; {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			e++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range b.Arrays() {
			all = append(all, b.Bytes(a.Name)...)
		}
		b.Release()
	}
	return all
}
