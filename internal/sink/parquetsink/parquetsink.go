// Package parquetsink writes Parquet files in the layout of Hugging Face datasets: images and
// sounds are structs of bytes and path, and classes have their names. Values have the PLAIN
// encoding and pages are compressed separately. Each file has page indexes, and bounds of numbers.
package parquetsink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/sink/features"
	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// A row group has about groupBytes bytes and at most groupRows rows. The sink holds one in memory,
// and readers load one at a time.
const (
	groupBytes = 32 << 20
	groupRows  = 1 << 20
)

// Format returns the Parquet format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "parquet", About: "Parquet, with the features of Hugging Face datasets", Ext: []string{".parquet"},
		File: true, Folder: true, Sharded: true, ShardBytes: 512 << 20, Paths: true, Compress: []string{"zstd", "snappy", "none"}, Open: open,
	}
}

type sink struct {
	shards  files.Shards
	fields  []sinkdriver.Field
	schema  []node
	meta    []arrowipc.KeyValue
	cols    []column
	first   []int // first column of each field
	threads int
	most    int64 // most bytes of a row group
	size    int64
	rows    int64
	groups  []group // of the current file
	total   int64   // rows of the current file
	zstd    sync.Pool
}

// group is a row group that was written.
type group struct {
	rows, bytes, packed, at int64
	cols                    []chunk
}

// chunk is a column of a row group.
type chunk struct {
	at, values, bytes, packed int64
	pages                     []location
	low, high                 []byte
	index                     []byte // the column index
}

type location struct {
	at, first int64
	size      int32
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{fields: out.Fields, threads: out.Threads, meta: features.Meta(out.Fields)}
	s.shards = files.Shards{Dir: out.Dir, Name: out.File, Ext: ".parquet", Max: out.ShardBytes}
	s.most = min(groupBytes, out.ShardBytes)
	codec := map[string]int32{"none": codecNone, "snappy": codecSnappy, "zstd": codecZstd}[out.Compress]
	s.zstd.New = func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err) // cannot happen: the options are valid
		}
		return e
	}
	s.schema = []node{{name: "schema", repetition: -1, children: int32(len(out.Fields))}}
	var arrow []arrowipc.ColumnType
	for i := range out.Fields {
		f := &out.Fields[i]
		if len(f.Shape) > 14 {
			return nil, sinkdriver.Cannot("a Parquet file", f, "its arrays have %d axes, more than this format supports", len(f.Shape))
		}
		s.first = append(s.first, len(s.cols))
		s.add(f, codec)
		arrow = append(arrow, features.ArrowColumn(f))
	}
	s.meta = append(s.meta, arrowipc.KeyValue{Key: "ARROW:schema", Value: base64.StdEncoding.EncodeToString(arrowipc.Header(arrow, s.meta)[8:])})
	return s, nil
}

// add adds the columns of a field to the schema.
func (s *sink) add(f *sinkdriver.Field, codec int32) {
	leaf := func(n node, codec int32, path ...string) *column {
		n.repetition = optional
		s.schema = append(s.schema, n)
		s.cols = append(s.cols, column{path: path, node: n, codec: codec, maxDef: 1})
		return &s.cols[len(s.cols)-1]
	}
	t, shape, ragged, ok := f.Elements()
	switch {
	case ok:
		sides := shape
		if ragged {
			sides = append([]int{0}, shape...)
		}
		path := []string{f.Name}
		name := f.Name
		for range sides {
			s.schema = append(s.schema, node{name: name, repetition: optional, children: 1, logical: list}, node{name: "list", repetition: repeated, children: 1})
			name = "element"
			path = append(path, "list", "element")
		}
		if t == driver.Bool { // stored as uint8, as in Arrow files: few readers support lists of bits
			t = driver.Uint8
		}
		n := element(t.Type())
		n.name = name
		c := leaf(n, codec, path...)
		c.t, c.width, c.lists, c.maxDef, c.shape = t.Type(), t.Size(), len(sides), 2*len(sides)+1, sides
	case features.IsFile(f):
		s.schema = append(s.schema, node{name: f.Name, repetition: optional, children: 2})
		leaf(node{name: "bytes", physical: physBytes}, codecNone, f.Name, "bytes").maxDef = 2 // compressed already
		leaf(node{name: "path", physical: physBytes, logical: text}, codec, f.Name, "path").maxDef = 2
	case f.Kind == driver.KindFloat:
		leaf(node{name: f.Name, physical: physDouble}, codec, f.Name).stats = true
	case f.Number():
		leaf(node{name: f.Name, physical: physInt64}, codec, f.Name).stats = true
	case f.Kind == driver.KindBytes:
		leaf(node{name: f.Name, physical: physBytes}, codec, f.Name)
	default:
		leaf(node{name: f.Name, physical: physBytes, logical: text}, codec, f.Name)
	}
}

// element returns the schema node of array elements.
func element(t dtype.Type) node {
	whole := func(physical int32, signed bool) node {
		return node{physical: physical, logical: integer, bits: int8(8 * t.Size()), signed: signed}
	}
	switch t {
	case dtype.F16:
		return node{physical: physFixed, size: 2, logical: float16}
	case dtype.F32:
		return node{physical: physFloat}
	case dtype.F64:
		return node{physical: physDouble}
	case dtype.I64:
		return node{physical: physInt64}
	case dtype.U64:
		return whole(physInt64, false)
	case dtype.I32:
		return node{physical: physInt32}
	case dtype.I8, dtype.I16:
		return whole(physInt32, true)
	}
	return whole(physInt32, false)
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(ctx context.Context, recs []sinkdriver.Record) error {
	for i := range recs {
		rec := &recs[i]
		n := int64(0)
		for k := range rec.Values {
			n += int64(len(rec.Values[k].Bytes)) + 16
		}
		if n > math.MaxInt32 {
			return fmt.Errorf("record %d has %d bytes: the limit for a page of a Parquet file is 2 GiB", rec.ID, n)
		}
		if s.rows > 0 && (s.size+n > s.most || s.rows == groupRows) {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
		for k := range s.fields {
			f, v, c := &s.fields[k], &rec.Values[k], &s.cols[s.first[k]]
			switch {
			case c.t != 0 && c.lists > 0:
				c.array(v.Bytes)
			case c.t != 0: // an array without axes
				c.elements(&c.page, v.Bytes)
				c.one(&c.page)
			case features.IsFile(f):
				c.bytes(v.Bytes)
				s.cols[s.first[k]+1].bytes([]byte(features.Path(v)))
			case f.Kind == driver.KindFloat:
				c.float(v.Float)
			case f.Number():
				c.int(v.Int)
			case f.Kind == driver.KindBytes:
				c.bytes(v.Bytes)
			default:
				c.bytes(features.Text(v.Bytes))
			}
		}
		s.size += n
		s.rows++
	}
	return nil
}

// flush writes a row group. Several goroutines compress its pages.
func (s *sink) flush(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(s.threads, 1))
	packed := int64(0)
	for i := range s.cols {
		c := &s.cols[i]
		c.cut()
		for k := range c.done {
			g.Go(func() error {
				if gctx.Err() != nil {
					return context.Cause(gctx)
				}
				s.compress(c, &c.done[k])
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range s.cols {
		for k := range s.cols[i].done {
			p := &s.cols[i].done[k]
			packed += int64(len(p.head) + len(p.body))
		}
	}
	f, err := s.next(packed)
	if err != nil {
		return err
	}
	out := group{rows: s.rows, at: f.Size()}
	for i := range s.cols {
		c := &s.cols[i]
		ch := chunk{at: f.Size()}
		for k := range c.done {
			p := &c.done[k]
			ch.pages = append(ch.pages, location{at: f.Size(), first: p.first, size: int32(len(p.head) + len(p.body))})
			ch.values += p.values
			ch.bytes += int64(len(p.head) + p.raw)
			ch.packed += int64(len(p.head) + len(p.body))
			_, _ = f.Write(p.head)
			if _, err := f.Write(p.body); err != nil {
				return err
			}
		}
		if c.stats {
			ch.low, ch.high, _ = bounds(c.done)
			ch.index = columnIndex(c.done)
		}
		out.bytes += ch.bytes
		out.packed += ch.packed
		out.cols = append(out.cols, ch)
		c.done, c.rowStart = c.done[:0], 0
	}
	s.groups = append(s.groups, out)
	s.total += s.rows
	s.rows, s.size = 0, 0
	return nil
}

// compress encodes and compresses a page.
func (s *sink) compress(c *column, p *page) {
	raw := make([]byte, 0, len(p.data)+len(p.rep.b)+len(p.def.b)+32)
	if c.lists > 0 {
		raw = p.rep.append(raw)
	}
	raw = p.def.append(raw)
	raw = append(raw, p.data...)
	p.data = nil
	switch c.codec {
	case codecSnappy:
		p.body = snappy.Encode(nil, raw)
	case codecZstd:
		e := s.zstd.Get().(*zstd.Encoder)
		p.body = e.EncodeAll(raw, make([]byte, 0, len(raw)/2+64))
		s.zstd.Put(e)
	default:
		p.body = raw
	}
	p.raw = len(raw)
	h := compact{}
	h.begin()
	h.i32(1, 0) // a data page
	h.i32(2, int32(len(raw)))
	h.i32(3, int32(len(p.body)))
	h.i32(4, int32(crc32.ChecksumIEEE(p.body)))
	h.structure(5, func() {
		h.i32(1, int32(p.values))
		h.i32(2, 0) // plain
		h.i32(3, 3) // runs
		h.i32(4, 3)
	})
	h.end()
	p.head = h.b
}

// columnIndex returns the index of the pages of a column. It returns nil if a page has numbers
// without an order.
func columnIndex(pages []page) []byte {
	lows, highs := make([][]byte, len(pages)), make([][]byte, len(pages))
	for i := range pages {
		var ok bool
		if lows[i], highs[i], ok = bounds(pages[i : i+1]); !ok {
			return nil
		}
	}
	x := compact{}
	x.begin()
	x.list(1, len(pages), typeTrue)
	for range pages {
		x.b = append(x.b, typeFalse) // whether the page has only nulls: no
	}
	for id, all := range [][][]byte{lows, highs} {
		x.list(int16(2+id), len(pages), typeBinary)
		for _, v := range all {
			x.blob(v)
		}
	}
	x.i32(4, 0) // in no order
	x.end()
	return x.b
}

// next returns the file for n more bytes.
func (s *sink) next(n int64) (*files.File, error) {
	f, fresh, err := s.shards.Next(n, s.end)
	if err == nil && fresh {
		_, err = f.Write([]byte("PAR1"))
	}
	return f, err
}

// end writes the page indexes and the metadata.
func (s *sink) end(f *files.File) error {
	type place struct {
		at   int64
		size int32
	}
	write := func(b []byte) place {
		p := place{f.Size(), int32(len(b))}
		_, _ = f.Write(b)
		return p
	}
	columns, offsets := map[*chunk]place{}, map[*chunk]place{}
	for i := range s.groups {
		for k := range s.groups[i].cols {
			if c := &s.groups[i].cols[k]; c.index != nil {
				columns[c] = write(c.index)
			}
		}
	}
	for i := range s.groups {
		for k := range s.groups[i].cols {
			c := &s.groups[i].cols[k]
			x := compact{}
			x.begin()
			x.structures(1, len(c.pages), func(n int) {
				x.i64(1, c.pages[n].at)
				x.i32(2, c.pages[n].size)
				x.i64(3, c.pages[n].first)
			})
			x.end()
			offsets[c] = write(x.b)
		}
	}
	m := &compact{}
	m.begin()
	m.i32(1, 2)
	m.structures(2, len(s.schema), func(i int) { s.schema[i].write(m) })
	m.i64(3, s.total)
	m.structures(4, len(s.groups), func(i int) {
		g := &s.groups[i]
		m.structures(1, len(g.cols), func(k int) {
			ch := &g.cols[k]
			m.i64(2, 0)
			m.structure(3, func() { s.cols[k].write(m, ch) })
			m.i64(4, offsets[ch].at)
			m.i32(5, offsets[ch].size)
			if p, ok := columns[ch]; ok {
				m.i64(6, p.at)
				m.i32(7, p.size)
			}
		})
		m.i64(2, g.bytes)
		m.i64(3, g.rows)
		m.i64(5, g.at)
		m.i64(6, g.packed)
		if i <= math.MaxInt16 {
			m.i16(7, int16(i))
		}
	})
	m.structures(5, len(s.meta), func(i int) {
		m.string(1, s.meta[i].Key)
		m.string(2, s.meta[i].Value)
	})
	m.string(6, "stoker")
	m.structures(7, len(s.cols), func(int) { m.structure(1, func() {}) }) // bounds are in the order of their types
	m.end()
	_, _ = f.Write(m.b)
	_, err := f.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(m.b))), "PAR1"...))
	s.groups, s.total = nil, 0
	return err
}

// write writes a SchemaElement.
func (n *node) write(m *compact) {
	if n.children == 0 && n.repetition >= 0 {
		m.i32(1, n.physical)
		if n.size > 0 {
			m.i32(2, n.size)
		}
	}
	if n.repetition >= 0 {
		m.i32(3, n.repetition)
	}
	m.string(4, n.name)
	if n.children > 0 || n.repetition < 0 {
		m.i32(5, n.children)
	}
	// The format has an older and a newer way to declare the logical type. Both are written.
	switch n.logical {
	case text:
		m.i32(6, 0)
		m.structure(10, func() { m.structure(1, func() {}) })
	case list:
		m.i32(6, 3)
		m.structure(10, func() { m.structure(3, func() {}) })
	case float16:
		m.structure(10, func() { m.structure(15, func() {}) })
	case integer:
		old := int32(bytes.IndexByte([]byte{8, 16, 32, 64}, byte(n.bits)) + 11)
		if n.signed {
			old += 4
		}
		m.i32(6, old)
		m.structure(10, func() {
			m.structure(10, func() {
				m.byte(1, n.bits)
				m.bool(2, n.signed)
			})
		})
	}
}

// write writes a ColumnMetaData.
func (c *column) write(m *compact, ch *chunk) {
	m.i32(1, c.node.physical)
	m.list(2, 2, typeI32)
	m.b = append(m.b, 0, 6) // plain, and runs for levels
	m.list(3, len(c.path), typeBinary)
	for _, p := range c.path {
		m.blob([]byte(p))
	}
	m.i32(4, c.codec)
	m.i64(5, ch.values)
	m.i64(6, ch.bytes)
	m.i64(7, ch.packed)
	m.i64(9, ch.at)
	if ch.low != nil {
		m.structure(12, func() {
			m.i64(3, 0)
			m.binary(5, ch.high)
			m.binary(6, ch.low)
		})
	}
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(ctx context.Context) error {
	var err error
	if s.rows > 0 {
		err = s.flush(ctx)
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
