package offsetshards

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/store"
)

// A file with zstd frames begins with a header: a magic number, the numbers 1 and 0, and the numbers of records, of
// records per frame, and of frames. Then follow the offsets of the records in the decompressed data. Last is a
// table of frames: first record, number of records, offset in the file, compressed size and decompressed size. The
// frames fill the rest of the file.

const (
	framedMark   = "LDFZ01\x00\x00"
	framedHeader = 24
	frameBytes   = 24
)

func isFramed(head []byte) bool {
	return len(head) == framedHeader && string(head[:len(framedMark)]) == framedMark
}

// framed scans a file with its records in frames.
func (l *looker) framed(ctx context.Context, i int, o store.Object, head []byte, lim *inorder.Limits) error {
	f, n := &l.s.shards[i], l.s.set.Records[i]
	version, got, frames := binary.LittleEndian.Uint16(head[8:]), int64(binary.LittleEndian.Uint32(head[12:])), int64(binary.LittleEndian.Uint32(head[20:]))
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%s: %s", l.s.set.List.Path(i), fmt.Sprintf(format, a...))
	}
	table := framedHeader + 4*(n+1)
	begin := table + frames*frameBytes
	switch {
	case version != 1:
		return bad("unsupported version %d of its frames", version)
	case got != n:
		return bad("its header has %d records, but the index %d", got, n)
	case frames < 1 || begin > o.Size():
		return bad("%d bytes are too few for %d records in %d frames: it is cut off", o.Size(), n, frames)
	}
	b := make([]byte, begin-framedHeader)
	if err := o.ReadAt(ctx, b, framedHeader); err != nil {
		return err
	}
	f.at = make([]uint32, n+1)
	for k := range f.at {
		f.at[k] = binary.LittleEndian.Uint32(b[4*k:])
		if k == 0 && f.at[0] != 0 || k > 0 && f.at[k] < f.at[k-1] {
			return bad("byte %d: record %d begins at byte %d: it is damaged", framedHeader+4*k, k, f.at[k])
		}
	}
	// The frames are consecutive, so they can be read as one stream.
	at, size := begin, int64(0)
	for k := range frames {
		t := b[table-framedHeader+k*frameBytes:]
		if off := binary.LittleEndian.Uint64(t[8:]); off != uint64(at) {
			return bad("frame %d begins at byte %d, expected byte %d", k, off, at)
		}
		at += int64(binary.LittleEndian.Uint32(t[16:]))
		size += int64(binary.LittleEndian.Uint32(t[20:]))
	}
	if at != o.Size() || size != int64(f.at[n]) {
		return bad("its frames end at byte %d of %d and have %d bytes of %d: it is cut off or damaged", at, o.Size(), size, f.at[n])
	}
	f.Format = stream.Zstd
	rd, err := lim.Scan(ctx, o.ReadAt, o.Size(), stream.Zstd, begin)
	if err != nil {
		return err
	}
	defer rd.Close()
	return l.records(ctx, i, rd)
}
