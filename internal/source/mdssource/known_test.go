package mdssource

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/source/drivertest"
)

// noisy writes a compressed shard of n records of bytes that do not compress.
func noisy(t *testing.T, dir string, n int) (path string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	head := 4 * (n + 2)
	b := binary.LittleEndian.AppendUint32(nil, uint32(n))
	var body []byte
	for i := range n + 1 {
		b = binary.LittleEndian.AppendUint32(b, uint32(head+len(body)))
		if i == n {
			break
		}
		raw := make([]byte, 40_000+i)
		for k := range raw {
			raw[k] = byte(rng.Uint32())
		}
		body = binary.LittleEndian.AppendUint32(body, uint32(len(raw))) // of the column of any length
		body = binary.LittleEndian.AppendUint64(body, uint64(i%5))
		body = append(body, raw...)
	}
	b = append(b, body...)
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	packed := w.EncodeAll(b, nil)
	index, err := json.Marshal(map[string]any{"version": 2, "shards": []any{map[string]any{
		"column_encodings": []string{"int64", "bytes"}, "column_names": []string{"label", "raw"}, "column_sizes": []any{8, nil},
		"compression": "zstd", "format": "mds", "hashes": []string{}, "samples": n, "size_limit": 1 << 26, "version": 2,
		"raw_data": map[string]any{"basename": "shard.00000.mds", "bytes": len(b), "hashes": map[string]string{}},
		"zip_data": map[string]any{"basename": "shard.00000.mds.zstd", "bytes": len(packed), "hashes": map[string]string{}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "shard.00000.mds.zstd")
	for name, b := range map[string][]byte{filepath.Join(dir, "index.json"): index, path: packed} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// A compressed shard is scanned only once, as long as the file does not change.
func TestKnownShards(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	dir := t.TempDir()
	path := noisy(t, dir, 28)
	first, err := open(t.Context(), dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	drivertest.Run(t, opener(dir, "", ""))
	again, err := open(t.Context(), dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	a, b := first.Info(), again.Info()
	if a.Len != 28 || b.Len != a.Len || drivertest.Fields(again) != drivertest.Fields(first) || a.Fingerprint != b.Fingerprint || a.Fields[1].MaxBytes != b.Fields[1].MaxBytes {
		t.Errorf("%+v, %+v", a, b)
	}
	for _, id := range []int64{0, 27, 12} {
		x, y := drivertest.Records(t, first, id)[0], drivertest.Records(t, again, id)[0]
		if x.Err != nil || y.Err != nil || string(x.Values[1].Bytes) != string(y.Values[1].Bytes) || x.Values[0].Int != id%5 || y.Values[0].Int != id%5 {
			t.Errorf("record %d: %v, %v", id, x.Err, y.Err)
		}
	}
	// A shard that was changed is scanned again, also if its modification time was restored.
	drivertest.Damage(t, path)
	if s, err := open(t.Context(), dir, "", ""); err == nil {
		s.Close()
		t.Error("a shard that was changed is not gone through")
	}
}
