package zarrsource

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// index reads the index of a shard: an offset and a size for each of count chunks.
func (r *reader) index(ctx context.Context, m *meta, file, count int64, out *index) error {
	size := count * bytesIndex
	n := size
	if m.shard.sum {
		n += 4
	}
	all := r.list.Size(int(file))
	where := r.list.Path(int(file))
	if n > all {
		return fmt.Errorf("%s has %d bytes, but the index of its %d chunks needs %d: it is cut off", where, all, count, n)
	}
	at := int64(0)
	if !m.shard.first {
		at = all - n
	}
	b := make([]byte, n)
	if err := r.read(ctx, file, b, at); err != nil {
		return err
	}
	if m.shard.sum {
		if got, want := crc32.Checksum(b[:size], castagnoli), binary.LittleEndian.Uint32(b[size:]); got != want {
			return fmt.Errorf("%s is damaged: the checksum of its index (byte %d) is %08x, expected %08x", where, at, got, want)
		}
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if m.shard.big {
		order = binary.BigEndian
	}
	out.offset, out.size = make([]int64, count), make([]uint32, count)
	plain := int64(-1) // size of a chunk if there are no codecs
	if len(m.shard.codecs) == 0 {
		plain = m.elem
		for _, side := range m.shard.chunk {
			plain *= side
		}
	}
	for i := range count {
		from, n := order.Uint64(b[i*bytesIndex:]), order.Uint64(b[i*bytesIndex+8:])
		if from == math.MaxUint64 && n == math.MaxUint64 {
			out.offset[i] = -1
			continue
		}
		if from > uint64(all) || n > uint64(all)-from || n == 0 || n > math.MaxUint32 || plain >= 0 && n != uint64(plain) {
			return fmt.Errorf("%s is damaged: chunk %d has %d bytes from byte %d on in its index, but the file has %d", where, i, n, from, all)
		}
		out.offset[i], out.size[i] = int64(from), uint32(n)
	}
	return nil
}
