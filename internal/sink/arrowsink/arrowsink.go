// Package arrowsink writes Arrow IPC files in the layout of Hugging Face datasets: images and
// sounds are structs of bytes and path, and classes have their names.
package arrowsink

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/sink/features"
	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// A record batch has about batchBytes bytes and at most batchRows rows.
const (
	batchBytes = 8 << 20
	batchRows  = 1 << 16
)

// Format returns the Arrow format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "arrow", About: "Arrow IPC files, with the features of Hugging Face datasets", Ext: []string{".arrow", ".feather"},
		File: true, Folder: true, Sharded: true, ShardBytes: 512 << 20, Paths: true, Open: open,
	}
}

type sink struct {
	shards files.Shards
	fields []sinkdriver.Field
	cols   []arrowipc.ColumnType
	meta   []arrowipc.KeyValue
	first  []int // first leaf of each field
	leaves []arrowipc.LeafData
	widths []int64 // bytes per unit that offsets count, 0 for leaves without offsets
	zones  []arrowipc.Zone
	most   int64 // most bytes of a batch
	rows   int
	size   int64
	blocks []arrowipc.Block
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{fields: out.Fields, meta: features.Meta(out.Fields)}
	s.shards = files.Shards{Dir: out.Dir, Name: out.File, Ext: ".arrow", Stem: "data-", Max: out.ShardBytes}
	s.most = min(batchBytes, out.ShardBytes)
	for i := range out.Fields {
		f := &out.Fields[i]
		s.cols = append(s.cols, features.ArrowColumn(f))
		s.first = append(s.first, len(s.widths))
		leaves, err := arrowipc.Leaves(s.cols[i:])
		if err != nil {
			return nil, sinkdriver.Cannot("an Arrow file", f, "%v", err)
		}
		for _, l := range leaves {
			w := int64(0)
			if l.OffsetWidth > 0 {
				w = l.Width
			}
			s.widths = append(s.widths, w)
		}
	}
	s.leaves = make([]arrowipc.LeafData, len(s.widths))
	s.zones = make([]arrowipc.Zone, len(s.widths)) // one allocation for all
	s.reset()
	return s, nil
}

func (s *sink) reset() {
	for i := range s.leaves {
		l := &s.leaves[i]
		l.Values = l.Values[:0]
		if s.widths[i] > 0 {
			l.Offsets = append(l.Offsets[:0], 0, 0, 0, 0)
		}
	}
	s.rows, s.size = 0, 0
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(_ context.Context, recs []sinkdriver.Record) error {
	for i := range recs {
		n := int64(0)
		for k := range recs[i].Values {
			n += int64(len(recs[i].Values[k].Bytes)) + 16
		}
		if n > math.MaxInt32 {
			return fmt.Errorf("record %d has %d bytes: the limit for a batch of an Arrow file is 2 GiB", recs[i].ID, n)
		}
		if s.rows > 0 && s.size+n > s.most || s.rows == batchRows {
			if err := s.flush(); err != nil {
				return err
			}
		}
		s.add(&recs[i])
		s.size += n
		s.rows++
	}
	return nil
}

func (s *sink) add(rec *sinkdriver.Record) {
	for i := range s.fields {
		f, v, leaf := &s.fields[i], &rec.Values[i], s.first[i]
		switch {
		case f.Kind == driver.KindFloat:
			s.number(leaf, math.Float64bits(v.Float))
		case f.Number():
			s.number(leaf, uint64(v.Int))
		case features.IsFile(f) && !f.Pixels:
			s.bytes(leaf, v.Bytes)
			s.bytes(leaf+1, []byte(features.Path(v)))
		case f.Kind == driver.KindText || f.Kind == driver.KindJSON:
			s.bytes(leaf, features.Text(v.Bytes))
		default:
			s.bytes(leaf, v.Bytes)
		}
	}
}

func (s *sink) number(leaf int, x uint64) {
	l := &s.leaves[leaf]
	l.Values = binary.LittleEndian.AppendUint64(l.Values, x)
}

func (s *sink) bytes(leaf int, b []byte) {
	l := &s.leaves[leaf]
	l.Values = append(l.Values, b...)
	if w := s.widths[leaf]; w > 0 {
		l.Offsets = binary.LittleEndian.AppendUint32(l.Offsets, uint32(int64(len(l.Values))/w))
	}
}

// flush writes a record batch.
func (s *sink) flush() error {
	b := arrowipc.Batch{Rows: s.rows, Leaves: s.leaves}
	parts, block, _ := b.Parts(s.cols, s.zones)
	f, err := s.next(int64(block.MetaBytes) + block.BodyBytes)
	if err != nil {
		return err
	}
	block.Offset = f.Size()
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	s.blocks = append(s.blocks, block)
	s.reset()
	return nil
}

// next returns the file for n more bytes.
func (s *sink) next(n int64) (*files.File, error) {
	f, fresh, err := s.shards.Next(n, s.end)
	if err == nil && fresh {
		_, err = f.Write(arrowipc.Header(s.cols, s.meta))
	}
	return f, err
}

func (s *sink) end(f *files.File) error {
	_, err := f.Write(arrowipc.Footer(s.cols, s.meta, s.blocks))
	s.blocks = nil
	return err
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(context.Context) error {
	var err error
	if s.rows > 0 {
		err = s.flush()
	} else if s.shards.Count() == 0 {
		_, err = s.next(0)
	}
	if err != nil {
		return err
	}
	return s.shards.Finish(s.end)
}

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() { s.shards.Abort() }
