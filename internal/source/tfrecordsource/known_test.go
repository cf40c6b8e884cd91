package tfrecordsource

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

// noise returns bytes that do not compress.
func noise(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// A compressed file is scanned only once, as long as the file does not change.
func TestKnownFiles(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	var plain []byte
	for i := range 24 {
		plain = AppendRecord(plain, exampleOf([]byte("blob"), message(bytesList, message(1, noise(46_000, uint64(i)))), []byte("label"), ints(uint64(i))))
	}
	for name, b := range map[string][]byte{"x.tfrecord.gz": gz(plain, 500_000), "x.tfrecord.zst": zst(plain, 500_000)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			write(t, path, b)
			first := opener(dir)(t)
			defer first.Close()
			again := opener(dir)(t)
			defer again.Close()
			a, o := first.Info(), again.Info()
			if a.Len != 24 || o.Len != a.Len || o.Fingerprint != a.Fingerprint || len(o.Fields) != len(a.Fields) || o.Fields[0].MaxBytes != a.Fields[0].MaxBytes {
				t.Fatalf("%+v, %+v", a, o)
			}
			for _, id := range []int64{0, 23, 12} {
				x, y := drivertest.Records(t, first, id)[0], drivertest.Records(t, again, id)[0]
				for i := range a.Fields {
					if x.Err != nil || y.Err != nil || x.Values[i].Int != y.Values[i].Int || !bytes.Equal(x.Values[i].Bytes, y.Values[i].Bytes) {
						t.Fatalf("record %d: %v, %v", id, x.Err, y.Err)
					}
				}
			}
			// A file that was changed is scanned again, also if its modification time was restored.
			drivertest.Damage(t, path)
			if s, err := tryOpen(t, dir); err == nil {
				s.Close()
				t.Error("a file that was changed is not gone through")
			}
		})
	}
}

func tryOpen(t *testing.T, dir string) (driver.Source, error) {
	t.Helper()
	return Open(t.Context(), dir, localstore.New(dir), nil)
}
