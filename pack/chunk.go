package pack

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// record is one record on its way into a chunk.
type record struct {
	path          string
	label         int64
	width, height int32
	orientation   uint8
	codec         driver.Codec
	image         []byte
	exif, icc     []byte
	// notDCT says why a JPEG was kept where dct was asked for.
	notDCT string
	// values are the columns of a record of a pack without images.
	values [][]byte
}

// Limits of a chunk beside its size in bytes.
const (
	maxChunkRows = 1 << 16
	// maxValueBytes keeps Arrow's 32-bit offsets in range for any one record.
	maxValueBytes = 1 << 30
)

// chunkStats are the statistics of one chunk, merged into those of the pack.
type chunkStats struct {
	Codecs   map[string]int64 `json:"codecs"`
	NotDCT   map[string]int64 `json:"not_dct,omitempty"`
	MinW     int32            `json:"min_w"`
	MaxW     int32            `json:"max_w"`
	MinH     int32            `json:"min_h"`
	MaxH     int32            `json:"max_h"`
	Bytes    int64            `json:"bytes"`
	MaxBytes int64            `json:"max_bytes"`
	MaxPath  int64            `json:"max_path"`
	MaxExif  int64            `json:"max_exif,omitempty"`
	MaxICC   int64            `json:"max_icc,omitempty"`
	// Values are those of the columns of a pack without images.
	Values []valueStats `json:"values,omitempty"`
}

// valueStats are the statistics of a column.
type valueStats struct {
	Bytes int64 `json:"bytes"`
	Max   int64 `json:"max"`
}

func newChunkStats() chunkStats {
	return chunkStats{Codecs: map[string]int64{}, NotDCT: map[string]int64{}, MinW: math.MaxInt32, MinH: math.MaxInt32}
}

func (s *chunkStats) add(r *record) {
	if r.values != nil {
		s.values(len(r.values))
		for i, v := range r.values {
			s.Values[i].Bytes += int64(len(v))
			s.Values[i].Max = max(s.Values[i].Max, int64(len(v)))
		}
		return
	}
	s.Codecs[CodecName(r.codec)]++
	if r.notDCT != "" {
		s.NotDCT[r.notDCT]++
	}
	s.MinW, s.MaxW = min(s.MinW, r.width), max(s.MaxW, r.width)
	s.MinH, s.MaxH = min(s.MinH, r.height), max(s.MaxH, r.height)
	s.Bytes += int64(len(r.image))
	s.MaxBytes = max(s.MaxBytes, int64(len(r.image)))
	s.MaxPath = max(s.MaxPath, int64(len(r.path)))
	s.MaxExif = max(s.MaxExif, int64(len(r.exif)))
	s.MaxICC = max(s.MaxICC, int64(len(r.icc)))
}

// values makes room for the statistics of n columns.
func (s *chunkStats) values(n int) {
	if len(s.Values) < n {
		s.Values = append(s.Values, make([]valueStats, n-len(s.Values))...)
	}
}

func (s *chunkStats) merge(o *chunkStats) {
	s.values(len(o.Values))
	for i, v := range o.Values {
		s.Values[i].Bytes += v.Bytes
		s.Values[i].Max = max(s.Values[i].Max, v.Max)
	}
	for k, n := range o.Codecs {
		s.Codecs[k] += n
	}
	for k, n := range o.NotDCT {
		s.NotDCT[k] += n
	}
	s.MinW, s.MaxW = min(s.MinW, o.MinW), max(s.MaxW, o.MaxW)
	s.MinH, s.MaxH = min(s.MinH, o.MinH), max(s.MaxH, o.MaxH)
	s.Bytes += o.Bytes
	s.MaxBytes = max(s.MaxBytes, o.MaxBytes)
	s.MaxPath = max(s.MaxPath, o.MaxPath)
	s.MaxExif = max(s.MaxExif, o.MaxExif)
	s.MaxICC = max(s.MaxICC, o.MaxICC)
}

// column collects the values of one column of a chunk.
type column struct {
	values  []byte
	offsets []byte
	width   int64 // of an offset
}

func (c *column) reset(offsetWidth int64) {
	c.values = c.values[:0]
	c.width = offsetWidth
	c.offsets = append(c.offsets[:0], make([]byte, offsetWidth)...)
}

func (c *column) bytes(b []byte) {
	c.values = append(c.values, b...)
	switch c.width {
	case 4:
		c.offsets = binary.LittleEndian.AppendUint32(c.offsets, uint32(len(c.values)))
	case 8:
		c.offsets = binary.LittleEndian.AppendUint64(c.offsets, uint64(len(c.values)))
	}
}

// chunkBuilder collects records until a chunk is full. Where a chunk ends
// depends on its own records alone, so that an interrupted run goes on at any
// chunk with the same result.
type chunkBuilder struct {
	cols   []arrowipc.Column
	data   []column
	target int64
	rows   int
	stats  chunkStats
}

func newChunkBuilder(cols []arrowipc.Column, target int64) *chunkBuilder {
	b := &chunkBuilder{cols: cols, data: make([]column, len(cols)), target: target}
	b.reset()
	return b
}

func (b *chunkBuilder) reset() {
	b.rows = 0
	b.stats = newChunkStats()
	for i := range b.data {
		b.data[i].reset(b.cols[i].OffsetWidth())
	}
}

// fits reports whether r belongs into the chunk that is being built. The first
// record always does.
func (b *chunkBuilder) fits(r *record) bool {
	if b.rows == 0 {
		return true
	}
	n := int64(len(r.image) + len(r.exif) + len(r.icc) + len(r.path))
	for _, v := range r.values {
		n += int64(len(v))
	}
	for i := range b.data {
		n += int64(len(b.data[i].values))
	}
	return n <= b.target && b.rows < maxChunkRows
}

func (b *chunkBuilder) add(r *record) {
	for i, v := range r.values {
		b.data[i].bytes(v)
	}
	for i, c := range b.cols {
		if r.values != nil {
			break
		}
		d := &b.data[i]
		switch c.Name {
		case colPath:
			// Arrow's text is UTF-8; names on Linux are any bytes.
			d.bytes([]byte(strings.ToValidUTF8(r.path, "\uFFFD")))
		case colLabel:
			d.values = binary.LittleEndian.AppendUint64(d.values, uint64(r.label))
		case colWidth:
			d.values = binary.LittleEndian.AppendUint32(d.values, uint32(r.width))
		case colHeight:
			d.values = binary.LittleEndian.AppendUint32(d.values, uint32(r.height))
		case colOrientation:
			d.values = append(d.values, r.orientation)
		case colCodec:
			d.values = append(d.values, byte(r.codec))
		case colImage:
			d.bytes(r.image)
		case colExif:
			d.bytes(r.exif)
		case colICC:
			d.bytes(r.icc)
		}
	}
	b.rows++
	b.stats.add(r)
}

func (b *chunkBuilder) batch() *arrowipc.Batch {
	bt := &arrowipc.Batch{Rows: b.rows, Values: make([][]byte, len(b.cols)), Offsets: make([][]byte, len(b.cols))}
	for i := range b.data {
		bt.Values[i], bt.Offsets[i] = b.data[i].values, b.data[i].offsets
	}
	for i, c := range b.cols {
		if c.OffsetWidth() == 0 {
			bt.Offsets[i] = nil
		}
	}
	return bt
}
