// Package hdf5sink writes HDF5 files: one dataset per field, with records along the first axis.
// Numbers and arrays are contiguous, or chunked if they are compressed with gzip. Text, bytes,
// images and lists have variable length and are stored in global heaps.
package hdf5sink

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zlib"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

const (
	// buffered is the number of bytes of a dataset that are collected before they are written.
	buffered = 1 << 20
	// chunkBytes is the target size of chunks before compression.
	chunkBytes = 256 << 10
	// heapBytes is the target size of heaps. Readers load a whole heap for any value in it.
	heapBytes = 64 << 10
	heapMin   = 4096
	// level is the usual default of gzip.
	level = 4
)

// Format returns the HDF5 format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "hdf5", About: "an HDF5 file, a data set for each field", Ext: []string{".h5", ".hdf5"}, File: true, Pixels: true,
		Compress: []string{"none", "gzip"}, Open: open,
	}
}

type sink struct {
	f       *files.File
	cols    []column
	rows    int64
	threads int
}

// column is the dataset of a field.
type column struct {
	field    *sinkdriver.Field
	datatype []byte
	shape    []int64 // of a row
	size     int     // bytes of an element
	row      int64   // bytes of a row
	attrs    []message
	variable bool
	unit     int64 // bytes of the unit that lengths count, for variable-length columns

	// Contiguous columns: the address, and the bytes not written yet.
	at   int64
	buf  []byte
	done int64

	// Chunked columns: rows per chunk, full chunks that wait, and the chunks written.
	chunkRows int64
	full      [][]byte
	chunks    []chunk

	// Variable-length columns: the current heap, and the offsets in buf that need its address.
	heap  []byte
	index uint16
	waits []int
}

// chunk is a chunk that was written.
type chunk struct {
	at   int64
	size uint32
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{threads: max(out.Threads, 1)}
	for i := range out.Fields {
		f := &out.Fields[i]
		if f.Name == "" || f.Name == "." || strings.ContainsAny(f.Name, "/\x00") {
			return nil, sinkdriver.Cannot("an HDF5 file", f, "its name is not a valid dataset name")
		}
		c, err := newColumn(f)
		if err != nil {
			return nil, err
		}
		if out.Compress == "gzip" && !c.variable {
			c.chunkRows = min(max(1, chunkBytes/max(c.row, 1)), max(out.Len, 1))
		}
		s.cols = append(s.cols, *c)
	}
	var err error
	if s.f, err = files.Create(filepath.Join(out.Dir, out.File)); err != nil {
		return nil, err
	}
	// Contiguous columns get their space before anything is written.
	if err = s.f.Skip(4096); err != nil {
		return nil, err
	}
	for i := range s.cols {
		c := &s.cols[i]
		if c.chunkRows > 0 {
			continue
		}
		c.at = s.f.Size()
		if c.row > 0 && out.Len > (math.MaxInt64/2)/c.row {
			return nil, fmt.Errorf("%d records of %d bytes are more than an HDF5 file can hold", out.Len, c.row)
		}
		if err := s.f.Skip((out.Len*c.row + 63) &^ 63); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func newColumn(f *sinkdriver.Field) (*column, error) {
	c := &column{field: f, unit: 1}
	t, shape, ragged, ok := f.Elements()
	switch {
	case ok:
		if len(shape) > 31 {
			return nil, sinkdriver.Cannot("an HDF5 file", f, "its arrays have %d axes, more than HDF5 supports", len(shape))
		}
		c.datatype, c.size = element(t.Type()), t.Size()
		if ragged {
			c.variable, c.unit = true, int64(c.size)
			c.datatype = variable(c.datatype)
			if len(shape) > 0 { // values are one-dimensional: the attribute "shape" has the other axes
				var sides []byte
				for _, n := range append([]int{-1}, shape...) {
					sides = le.AppendUint64(sides, uint64(n))
				}
				c.attrs = append(c.attrs, message{msgAttribute, attribute("shape", integer(8, true), dataspace(int64(len(shape)+1)), sides)})
			}
			break
		}
		for _, n := range shape {
			c.shape = append(c.shape, int64(n))
		}
	case f.Kind == driver.KindFloat:
		c.datatype, c.size = float(8), 8
	case f.Number():
		c.datatype, c.size = integer(8, true), 8
	case f.Kind == driver.KindText || f.Kind == driver.KindJSON:
		c.datatype, c.variable = variableText(), true
	default:
		c.datatype, c.variable = variable(integer(1, false)), true
	}
	if c.variable {
		c.size = 16
	}
	c.row = int64(c.size)
	for _, n := range c.shape {
		c.row *= n
	}
	if n := len(f.Classes); n > 0 {
		longest := 1
		for _, name := range f.Classes {
			longest = max(longest, len(name))
		}
		names := make([]byte, n*longest)
		for i, name := range f.Classes {
			copy(names[i*longest:], name)
		}
		if a := attribute("classes", text(longest), dataspace(int64(n)), names); len(a) < maxMessage {
			c.attrs = append(c.attrs, message{msgAttribute, a})
		}
	}
	return c, nil
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(ctx context.Context, recs []sinkdriver.Record) error {
	for i := range s.cols {
		c := &s.cols[i]
		for k := range recs {
			v := &recs[k].Values[i]
			switch {
			case c.variable:
				b := v.Bytes
				if c.field.Kind == driver.KindText || c.field.Kind == driver.KindJSON {
					b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
				}
				if int64(len(b))/c.unit > math.MaxUint32 {
					return fmt.Errorf("record %d, field %q: %d bytes are more than an HDF5 value can have", recs[k].ID, c.field.Name, len(b))
				}
				if err := s.variable(c, b); err != nil {
					return err
				}
			case c.field.Kind == driver.KindFloat:
				c.buf = le.AppendUint64(c.buf, math.Float64bits(v.Float))
			case c.field.Number():
				c.buf = le.AppendUint64(c.buf, uint64(v.Int))
			default:
				c.buf = append(c.buf, v.Bytes...)
			}
			if err := s.flush(ctx, c, false); err != nil {
				return err
			}
		}
	}
	s.rows += int64(len(recs))
	return nil
}

// flush writes the collected bytes if there are enough, or if all is true.
func (s *sink) flush(ctx context.Context, c *column, all bool) error {
	if c.chunkRows > 0 {
		if size := int(c.chunkRows * c.row); len(c.buf) >= size || all && len(c.buf) > 0 {
			// All chunks have the same size, so the last one is padded.
			c.full = append(c.full, append(c.buf, make([]byte, max(0, size-len(c.buf)))...))
			c.buf = make([]byte, 0, size)
		}
		if len(c.full) < 2*s.threads && !all {
			return nil
		}
		return s.compress(ctx, c)
	}
	if len(c.buf) < buffered && !all || len(c.buf) == 0 {
		return nil
	}
	if c.variable && len(c.waits) > 0 {
		if err := s.endHeap(c); err != nil {
			return err
		}
	}
	if _, err := s.f.WriteAt(c.buf, c.at+c.done); err != nil {
		return err
	}
	c.done += int64(len(c.buf))
	c.buf = c.buf[:0]
	return nil
}

// compress compresses and writes the full chunks.
func (s *sink) compress(ctx context.Context, c *column) error {
	packed := make([]bytes.Buffer, len(c.full))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.threads)
	for i := range c.full {
		g.Go(func() error {
			if gctx.Err() != nil {
				return context.Cause(gctx)
			}
			w, err := zlib.NewWriterLevel(&packed[i], level)
			if err != nil {
				return err
			}
			_, err = w.Write(c.full[i])
			return cmp.Or(err, w.Close())
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range packed {
		c.chunks = append(c.chunks, chunk{s.f.Size(), uint32(packed[i].Len())})
		if _, err := s.f.Write(packed[i].Bytes()); err != nil {
			return err
		}
	}
	c.full = c.full[:0]
	return nil
}

// variable puts a value into a heap, and a reference to it into the column.
func (s *sink) variable(c *column, b []byte) error {
	if len(b) == 0 {
		c.buf = append(c.buf, make([]byte, 16)...)
		return nil
	}
	need := 16 + (len(b)+7)&^7
	if len(c.heap) > 0 && len(c.heap)+need > heapBytes || c.index == math.MaxUint16 {
		if err := s.endHeap(c); err != nil {
			return err
		}
	}
	if len(c.heap) == 0 {
		c.heap = append(c.heap, make([]byte, 16)...)
	}
	c.index++
	c.heap = le.AppendUint16(le.AppendUint16(c.heap, c.index), 0)
	c.heap = le.AppendUint64(le.AppendUint32(c.heap, 0), uint64(len(b)))
	c.heap = pad(append(c.heap, b...))
	c.waits = append(c.waits, len(c.buf)+4)
	c.buf = le.AppendUint64(le.AppendUint32(c.buf, uint32(int64(len(b))/c.unit)), 0)
	c.buf = le.AppendUint32(c.buf, uint32(c.index))
	return nil
}

// endHeap writes the current heap.
func (s *sink) endHeap(c *column) error {
	if len(c.heap) == 0 {
		return nil
	}
	if left := heapMin - len(c.heap); left > 0 {
		if left >= 16 { // the free space needs an object of its own
			c.heap = le.AppendUint64(append(c.heap, make([]byte, 8)...), uint64(left))
		}
		c.heap = append(c.heap, make([]byte, max(0, heapMin-len(c.heap)))...)
	}
	copy(c.heap, "GCOL\x01\x00\x00\x00")
	le.PutUint64(c.heap[8:], uint64(len(c.heap)))
	if err := s.f.Align(8); err != nil {
		return err
	}
	at := s.f.Size()
	if _, err := s.f.Write(c.heap); err != nil {
		return err
	}
	for _, w := range c.waits {
		le.PutUint64(c.buf[w:], uint64(at))
	}
	c.heap, c.waits, c.index = c.heap[:0], c.waits[:0], 0
	return nil
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(ctx context.Context) error {
	var links []link
	for i := range s.cols {
		c := &s.cols[i]
		if err := s.flush(ctx, c, true); err != nil {
			return err
		}
		space := append([]int64{s.rows}, c.shape...)
		all := []message{{msgDataspace, dataspace(space...)}, {msgDatatype, c.datatype}, {msgFill, fill()}}
		if c.chunkRows > 0 {
			sides := append([]int64{c.chunkRows}, c.shape...)
			tree, err := s.tree(c, len(sides)+1)
			if err != nil {
				return err
			}
			all = append(all, message{msgFilters, deflated(level)}, message{msgLayout, chunked(tree, sides, c.size)})
		} else {
			all = append(all, message{msgLayout, contiguous(c.at, s.rows*c.row)})
		}
		if err := s.f.Align(8); err != nil {
			return err
		}
		links = append(links, link{c.field.Name, s.f.Size()})
		if _, err := s.f.Write(objectHeader(append(all, c.attrs...)...)); err != nil {
			return err
		}
	}
	slices.SortFunc(links, func(a, b link) int { return strings.Compare(a.name, b.name) })
	if err := s.f.Align(8); err != nil {
		return err
	}
	b, header, tree, heap, leafK := group(s.f.Size(), links)
	if _, err := s.f.Write(b); err != nil {
		return err
	}
	if _, err := s.f.WriteAt(superblock(header, tree, heap, s.f.Size(), leafK), 0); err != nil {
		return err
	}
	return s.f.Close()
}

// tree writes the B-tree of the chunks of a column and returns its address. A key holds the size of
// a chunk and its first element. The last key of a node is the first key of the next node, or the
// end of the dataset.
func (s *sink) tree(c *column, axes int) (uint64, error) {
	if len(c.chunks) == 0 {
		return undefined, nil
	}
	type node struct {
		first int // first chunk
		at    int64
	}
	level := make([]node, len(c.chunks))
	for i := range level {
		level[i] = node{i, c.chunks[i].at}
	}
	key := func(b []byte, i int) []byte {
		size := uint32(0)
		if i < len(c.chunks) {
			size = c.chunks[i].size
		}
		b = le.AppendUint32(le.AppendUint32(b, size), 0)
		b = le.AppendUint64(b, uint64(int64(i)*c.chunkRows))
		return append(b, make([]byte, 8*(axes-1))...)
	}
	keySize := 8 + 8*axes
	whole := 24 + (2*chunkK+1)*keySize + 2*chunkK*8
	for depth := byte(0); ; depth++ {
		if err := s.f.Align(8); err != nil {
			return 0, err
		}
		base := s.f.Size()
		var above []node
		n := (len(level) + 2*chunkK - 1) / (2 * chunkK)
		for i := range n {
			part := level[i*2*chunkK : min((i+1)*2*chunkK, len(level))]
			b := le.AppendUint16(append([]byte("TREE\x01"), depth), uint16(len(part)))
			left, right := uint64(undefined), uint64(undefined)
			if i > 0 {
				left = uint64(base + int64((i-1)*whole))
			}
			if i < n-1 {
				right = uint64(base + int64((i+1)*whole))
			}
			b = le.AppendUint64(le.AppendUint64(b, left), right)
			for _, p := range part {
				b = le.AppendUint64(key(b, p.first), uint64(p.at))
			}
			end := len(c.chunks)
			if i < n-1 {
				end = level[(i+1)*2*chunkK].first
			}
			b = key(b, end)
			above = append(above, node{part[0].first, s.f.Size()})
			if _, err := s.f.Write(append(b, make([]byte, whole-len(b))...)); err != nil {
				return 0, err
			}
		}
		if level = above; len(level) == 1 {
			return uint64(level[0].at), nil
		}
	}
}

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() { s.f.Abort() }
