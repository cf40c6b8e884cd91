package parquet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// hadoopFrame is a block of LZ4 with Hadoop's two sizes before it.
func hadoopFrame(t *testing.T, data []byte) []byte {
	t.Helper()
	packed := make([]byte, lz4.CompressBlockBound(len(data)))
	n, err := lz4.CompressBlock(data, packed, nil)
	if err != nil || n == 0 {
		t.Fatalf("%d bytes: %v", n, err)
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	return append(binary.BigEndian.AppendUint32(out, uint32(n)), packed[:n]...)
}

// TestHadoopLZ4 reads pages of one frame, of several, and of old versions of Arrow, which wrote no frame.
func TestHadoopLZ4(t *testing.T) {
	data := bytes.Repeat([]byte("stoker feeds accelerators "), 40)
	one := hadoopFrame(t, data)
	two := append(hadoopFrame(t, data[:500]), hadoopFrame(t, data[500:])...)
	for name, src := range map[string][]byte{"one frame": one, "two frames": two, "no frame": one[8:]} {
		dst := make([]byte, len(data))
		if err := LZ4.decompress(dst, src); err != nil || !bytes.Equal(dst, data) {
			t.Errorf("%s: %v", name, err)
		}
		for cut := range src {
			_ = LZ4.decompress(dst, src[:cut]) // must not panic
		}
		if err := LZ4.decompress(make([]byte, len(data)+1), src); err == nil {
			t.Errorf("%s: no error for a page of another size", name)
		}
	}
}
