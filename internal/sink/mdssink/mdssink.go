// Package mdssink writes MDS, the format of MosaicML Streaming: shards of samples, and an index.
package mdssink

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// maxShard is the largest allowed shard size. A shard is held in memory until it is complete, since
// it starts with its index.
const maxShard = 1 << 30

// Format returns the MDS format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "mds", About: "MosaicML's MDS", Ext: []string{".mds"}, Folder: true, Sharded: true, ShardBytes: 64 << 20,
		Compress: []string{"none", "zstd"}, Open: open,
	}
}

type sink struct {
	dir    string
	max    int64
	cols   []column
	config []byte
	pack   *zstd.Encoder // nil without compression
	name   any           // of the compression
	data   []byte
	ends   []uint32 // end offsets of samples in data
	shards []shard
}

type column struct {
	field    *sinkdriver.Field
	at       int // index of the value in the record
	encoding string
	size     int // 0 if it differs
}

// shard is an entry of index.json.
type shard struct {
	Encodings   []string `json:"column_encodings"`
	Names       []string `json:"column_names"`
	Sizes       []any    `json:"column_sizes"`
	Compression any      `json:"compression"`
	Format      string   `json:"format"`
	Hashes      []string `json:"hashes"`
	Raw         *info    `json:"raw_data,omitempty"`
	Samples     int      `json:"samples"`
	Limit       int64    `json:"size_limit"`
	Version     int      `json:"version"`
	Zip         *info    `json:"zip_data"`
}

type info struct {
	Name   string            `json:"basename"`
	Bytes  int64             `json:"bytes"`
	Hashes map[string]string `json:"hashes"`
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{dir: out.Dir, max: out.ShardBytes, shards: []shard{}} // without shards the index has an empty list
	if s.max > maxShard {
		return nil, fmt.Errorf("--shard-size: MDS shards are built in memory, so the limit is 1 GiB")
	}
	for i := range out.Fields {
		f := &out.Fields[i]
		c := column{field: f, at: i}
		var err error
		if c.encoding, c.size, err = encoding(f); err != nil {
			return nil, err
		}
		s.cols = append(s.cols, c)
	}
	// The format requires columns sorted by name.
	slices.SortFunc(s.cols, func(a, b column) int { return strings.Compare(a.field.Name, b.field.Name) })
	if out.Compress == "zstd" {
		var err error
		if s.pack, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(max(out.Threads, 1))); err != nil {
			return nil, err
		}
		s.name = "zstd"
	}
	var err error
	s.config, err = json.Marshal(s.shard(0))
	return s, err
}

// encoding returns the MDS encoding of a field, and the size of a value if all have the same.
func encoding(f *sinkdriver.Field) (string, int, error) {
	if t, shape, ragged, ok := f.Elements(); ok {
		name := string(t)
		if t == driver.Bool {
			name = "uint8" // there are no booleans
		}
		switch {
		case len(shape)+1 >= 64:
			return "", 0, sinkdriver.Cannot("MDS", f, "its arrays have %d axes, more than MDS supports", len(shape))
		case ragged:
			return "ndarray:" + name, 0, nil
		case len(shape) == 0:
			return name, t.Size(), nil
		}
		size, err := driver.ArrayBytes(t, shape)
		return "ndarray:" + name + ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(shape), " ", ","), "[]"), int(size), err
	}
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		return "int", 8, nil
	case driver.KindFloat:
		return "float64", 8, nil
	case driver.KindImage:
		// With either encoding Pillow detects the format from the content.
		if f.Channels > 0 && f.Width > 0 {
			return "png", 0, nil
		}
		return "jpeg", 0, nil
	case driver.KindMask:
		return "png", 0, nil
	case driver.KindText:
		return "str", 0, nil
	case driver.KindJSON:
		return "json", 0, nil
	}
	return "bytes", 0, nil
}

// shard returns the index entry of a shard of n samples, without its files.
func (s *sink) shard(n int) shard {
	e := shard{Compression: s.name, Format: "mds", Hashes: []string{}, Samples: n, Limit: s.max, Version: 2}
	for i := range s.cols {
		e.Encodings = append(e.Encodings, s.cols[i].encoding)
		e.Names = append(e.Names, s.cols[i].field.Name)
		var size any
		if n := s.cols[i].size; n > 0 {
			size = n
		}
		e.Sizes = append(e.Sizes, size)
	}
	return e
}

// Encode implements sinkdriver.Encoder: first the sizes of the values without a fixed size, then
// all values.
func (s *sink) Encode(b []byte, rec *sinkdriver.Record) ([]byte, error) {
	at := len(b)
	for i := range s.cols {
		if s.cols[i].size == 0 {
			b = append(b, 0, 0, 0, 0)
		}
	}
	for i := range s.cols {
		c := &s.cols[i]
		v, from := &rec.Values[c.at], len(b)
		switch {
		case c.field.Kind == driver.KindFloat:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float))
		case c.field.Number():
			b = binary.LittleEndian.AppendUint64(b, uint64(v.Int))
		default:
			if t, shape, ragged, ok := c.field.Elements(); ok && ragged {
				row, _ := driver.ArrayBytes(t, shape)
				b = appendShape(b, int64(len(v.Bytes))/row, shape)
			}
			b = append(b, v.Bytes...)
		}
		if c.size > 0 {
			continue
		}
		n := len(b) - from
		if n > math.MaxUint32 {
			return nil, fmt.Errorf("field %q has %d bytes, more than an MDS value can have", c.field.Name, n)
		}
		binary.LittleEndian.PutUint32(b[at:], uint32(n))
		at += 4
	}
	return b, nil
}

// appendShape appends the shape that precedes each array of a field with differing shapes: the
// number of axes, the width of a side, then the sides.
func appendShape(b []byte, rows int64, shape []int) []byte {
	most := rows
	for _, n := range shape {
		most = max(most, int64(n))
	}
	width := 0 // of a side, as a power of two
	for width < 3 && most>>(8<<width) > 0 {
		width++
	}
	b = append(b, byte(len(shape)+1)<<2|byte(width))
	side := func(n int64) { b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(n))[:1<<width]...) }
	side(rows)
	for _, n := range shape {
		side(int64(n))
	}
	return b
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(_ context.Context, recs []sinkdriver.Record) error {
	for i := range recs {
		b := recs[i].Encoded
		if len(s.ends) > 0 && s.size(1, len(b)) > s.max {
			if err := s.flush(); err != nil {
				return err
			}
		}
		if s.size(1, len(b)) > math.MaxUint32 {
			return fmt.Errorf("record %d has %d bytes, more than an MDS shard can have", recs[i].ID, len(b))
		}
		if s.data == nil { // allocated once, since growing would copy it several times
			s.data = make([]byte, 0, max(s.max, int64(len(b))))
		}
		s.data = append(s.data, b...)
		s.ends = append(s.ends, uint32(len(s.data)))
	}
	return nil
}

// size returns the size of the shard with n more samples of the given total bytes.
func (s *sink) size(n, bytes int) int64 {
	return 4 + 4*int64(len(s.ends)+n+1) + int64(len(s.config)) + int64(len(s.data)+bytes)
}

func (s *sink) flush() error {
	n := len(s.ends)
	e := s.shard(n)
	head := binary.LittleEndian.AppendUint32(nil, uint32(n))
	base := uint32(4 + 4*(n+1) + len(s.config))
	head = binary.LittleEndian.AppendUint32(head, base)
	for _, end := range s.ends {
		head = binary.LittleEndian.AppendUint32(head, base+end)
	}
	head = append(head, s.config...)
	name := fmt.Sprintf("shard.%05d.mds", len(s.shards))
	e.Raw = &info{name, int64(len(head) + len(s.data)), map[string]string{}}
	parts := [][]byte{head, s.data}
	if s.pack != nil {
		name += ".zstd"
		whole := s.pack.EncodeAll(append(head, s.data...), nil)
		parts = [][]byte{whole}
		e.Zip = &info{name, int64(len(whole)), map[string]string{}}
	}
	f, err := files.Create(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	for _, p := range parts {
		_, _ = f.Write(p)
	}
	if err := f.Close(); err != nil {
		return err
	}
	s.shards = append(s.shards, e)
	s.data, s.ends = s.data[:0], s.ends[:0]
	return nil
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(context.Context) error {
	if len(s.ends) > 0 {
		if err := s.flush(); err != nil {
			return err
		}
	}
	index := struct {
		Shards  []shard `json:"shards"`
		Version int     `json:"version"`
	}{s.shards, 2}
	b, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "index.json"), append(b, '\n'), 0o666)
}

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() {}
