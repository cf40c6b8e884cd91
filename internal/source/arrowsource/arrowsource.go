// Package arrowsource reads Arrow IPC files and streams at random: .arrow or .feather files, and folders written by
// `datasets` with save_to_disk. Each row is a record, each column a field. Images and sounds are structs of bytes
// and path, as `datasets` stores them, or columns of bytes with such files.
//
// Opening reads the metadata of all record batches and, for the chosen columns, the validity bits and the offsets
// of values of variable length. These take 4 or 8 bytes per row and column. Values are read in place, except those
// in compressed buffers, which are decompressed as a whole and cached.
package arrowsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/arrowipc/flatbuf"
	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open.
type Options = format.Options

// place is a record batch.
type place struct {
	file   int   // number of the file
	number int   // in its file
	row    int64 // first row in the file
	rows   int64
}

type source struct {
	info    driver.Info
	opt     Options
	list    *filelist.List
	schema  *schema
	columns []*columns.Column // by field
	choice  *columns.Choice
	same    []int // by field, the first field of the same column
	batches []place
	first   []int64   // number of the first record of each batch
	parts   [][]*part // by batch and field
	units   []int64   // by field, the size of the values that offsets count
	files   *columns.Files
	cache   *blockcache.Cache // compressed buffers
	plain   int64             // decompressed size of these
}

// Open reads the metadata of the Arrow files in st, or of the single file that st is.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{info: driver.Info{URL: url, Format: "arrow"}, cache: blockcache.New()}
	if opt != nil {
		s.opt = *opt
	}
	if s.opt.Threads <= 0 {
		s.opt.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	var err error
	if s.list, err = listFiles(ctx, st, s.opt.Names); err != nil {
		return nil, err
	}
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	of := []string{"arrow", s.schema.features}
	for i, f := range s.info.Fields {
		of = append(of, f.Name, string(f.Kind), s.columns[i].Name)
	}
	of = append(of, s.files.Fingerprints()...)
	s.info.Fingerprint = s.list.Fingerprint(of...)
	return s, nil
}

// scanned is the result of scanning a file.
type scanned struct {
	batches []place
	parts   [][]*part
	seen    []*column.Seen
}

// read scans all files.
func (s *source) read(ctx context.Context) error {
	// The first file defines the columns.
	var err error
	if s.schema, err = s.schemaOf(ctx, 0); err != nil {
		return err
	}
	all := columns.Of(s.schema.columns, s.schema.features)
	choice, wants, chosen, err := columns.Choose(s.list.Store, all, s.opt.Columns)
	if err != nil {
		return err
	}
	s.choice = choice
	for i, c := range chosen {
		s.same = append(s.same, len(s.columns))
		if first := slices.Index(s.columns, c); first >= 0 {
			s.same[i] = first
		}
		s.columns = append(s.columns, c)
	}
	out := make([]scanned, s.list.Len())
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opt.Threads)
	for f := range out {
		g.Go(func() error { return s.scan(gctx, f, &out[f]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	seen := make([]*column.Seen, len(s.columns))
	for i, c := range s.columns {
		seen[i] = c.Seen(wants[i])
	}
	for f := range out {
		for i, p := range out[f].batches {
			s.first = append(s.first, s.info.Len)
			s.info.Len += p.rows
			s.batches = append(s.batches, p)
			s.parts = append(s.parts, out[f].parts[i])
		}
		for i, u := range out[f].seen {
			seen[i].Merge(u)
		}
	}
	s.number()
	for i, first := range s.same {
		u := *seen[first]
		seen[i] = &u
	}
	if s.info.Len == 0 {
		return fmt.Errorf("%s has no rows", s.list.Store)
	}
	if s.info.Len > 1<<40 {
		return fmt.Errorf("%s has %d rows, the limit is %d", s.list.Store, s.info.Len, int64(1)<<40)
	}
	return s.fields(ctx, wants, seen)
}

// number numbers the compressed buffers.
func (s *source) number() {
	n := int32(0)
	for _, parts := range s.parts {
		for i, p := range parts {
			if p.packed != nil && s.same[i] == i {
				p.packed.n = n
				n++
				s.plain += p.packed.plain
			}
		}
	}
}

// fields sets the fields from the statistics of their columns.
func (s *source) fields(ctx context.Context, wants []column.Want, seen []*column.Seen) error {
	wants, seen, err := s.leaveUneven(wants, seen)
	if err != nil {
		return err
	}
	for i, c := range s.columns {
		u := seen[i]
		if err := s.look(ctx, i, wants[i], u); err != nil {
			return err
		}
		f, err := u.Field(wants[i], s.info.Len)
		if err != nil {
			return fmt.Errorf("%s: %w", s.list.Store, err)
		}
		s.units = append(s.units, c.Row(u))
		s.info.Fields = append(s.info.Fields, f)
	}
	s.files = columns.NewFiles(len(s.columns), s.opt.Files, s.opt.Folder, s.opt.Outside, s.opt.Threads)
	if err := s.findFiles(ctx); err != nil {
		return err
	}
	s.info.Objects = int64(s.list.Len()) + s.files.Len()
	return nil
}

// leaveUneven leaves out columns whose inner lists differ in length. Such a column has no second field, because the
// user does not name it.
func (s *source) leaveUneven(wants []column.Want, seen []*column.Seen) ([]column.Want, []*column.Seen, error) {
	at := 0
	for i, c := range s.columns {
		if seen[i].Uneven {
			if err := s.choice.Leave(c, columns.Uneven); err != nil {
				return nil, nil, err
			}
			continue
		}
		s.columns[at], wants[at], seen[at] = c, wants[i], seen[i]
		s.same[at] = slices.Index(s.columns[:at+1], c)
		for _, parts := range s.parts {
			parts[at] = parts[i]
		}
		at++
	}
	s.columns, s.same = s.columns[:at], s.same[:at]
	for i := range s.parts {
		s.parts[i] = s.parts[i][:at]
	}
	return wants[:at], seen[:at], s.choice.Some(at)
}

// Left implements driver.Leaver.
func (s *source) Left() []driver.Skipped { return s.choice.Left() }

// at prefixes an error with the file and the position in it.
func (s *source) at(f int, what string, err error) error {
	if err == nil {
		return nil
	}
	return filelist.ErrPlace(s.list, int64(f), what, err)
}

func (s *source) schemaOf(ctx context.Context, f int) (*schema, error) {
	o, err := s.list.Open(ctx, f)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	w := &walker{o: o}
	err = w.begin(ctx)
	return w.schema, s.at(f, "", err)
}

// scan scans the record batches of file f.
func (s *source) scan(ctx context.Context, f int, out *scanned) error {
	o, err := s.list.Open(ctx, f)
	if err != nil {
		return err
	}
	defer o.Close()
	w := &walker{o: o}
	if err := w.begin(ctx); err != nil {
		return s.at(f, "", err)
	}
	if w.schema.nodes != s.schema.nodes || w.schema.buffers != s.schema.buffers || w.schema.String() != s.schema.String() {
		return fmt.Errorf("%s has different columns, %.1000s, than %s: %.1000s", s.list.Path(f), w.schema, s.list.Path(0), s.schema)
	}
	for _, c := range s.columns {
		out.seen = append(out.seen, c.Seen())
	}
	row := int64(0)
	for n := 0; ; n++ {
		at := w.next
		x, err := w.batch(ctx)
		if err != nil {
			return s.at(f, fmt.Sprintf(", record batch %d (byte %d)", n, at), err)
		}
		if x == nil {
			return nil
		}
		if x.b.rows == 0 {
			continue
		}
		parts := make([]*part, len(s.columns))
		for i, c := range s.columns {
			if first := s.same[i]; first < i {
				parts[i] = parts[first]
				continue
			}
			if parts[i], err = x.column(ctx, c, out.seen[i]); err != nil {
				return s.at(f, fmt.Sprintf(", record batch %d (byte %d), column %q", n, at, c.Name), err)
			}
		}
		out.batches = append(out.batches, place{f, n, row, x.b.rows})
		out.parts = append(out.parts, parts)
		row += x.b.rows
	}
}

// walker iterates over the messages of a file.
type walker struct {
	o      store.Object
	schema *schema
	// blocks are the record batches from the footer of a file. A stream has no footer: its record batches are
	// consecutive from next on.
	stream bool
	blocks []arrowipc.Block
	next   int64
}

// head is the size of the first read of a message. It covers most messages.
const head = 4 << 10

// begin reads the schema.
func (w *walker) begin(ctx context.Context) error {
	size := w.o.Size()
	b := make([]byte, min(size, head))
	if err := w.o.ReadAt(ctx, b, 0); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(string(b), arrowipc.Magic):
		return w.footer(ctx)
	case strings.HasPrefix(string(b), "FEA1"):
		return errors.New("it is a Feather file of version 1: write it again as version 2, which is the default of pyarrow.feather.write_feather")
	case len(b) < 8 || binary.LittleEndian.Uint32(b) != 0xFFFFFFFF:
		return damaged("it is not an Arrow file or stream")
	}
	w.stream = true
	meta, n, err := w.meta(ctx, 0, b)
	if err != nil {
		return err
	}
	w.next = n
	w.schema, err = parseSchemaMessage(meta)
	return err
}

// footer reads the footer of a file.
func (w *walker) footer(ctx context.Context) error {
	size := w.o.Size()
	end := make([]byte, 10)
	if size < int64(len(end)+8) {
		return damaged("the file is cut off")
	}
	if err := w.o.ReadAt(ctx, end, size-10); err != nil {
		return err
	}
	if string(end[4:]) != arrowipc.Magic {
		return damaged("it has no Arrow footer at its end: the file is cut off")
	}
	n := int64(int32(binary.LittleEndian.Uint32(end)))
	if n <= 0 || n+18 > size || n > maxFooterBytes {
		return damaged("a footer of %d bytes in a file of %d", n, size)
	}
	b := make([]byte, n)
	if err := w.o.ReadAt(ctx, b, size-10-n); err != nil {
		return err
	}
	var err error
	w.schema, w.blocks, err = parseFooter(b)
	if len(w.blocks) > 0 {
		w.next = w.blocks[0].Offset
	}
	return err
}

// meta returns the metadata of the message at an offset, and the offset of the message's body. b are the first
// bytes of the message. The metadata is nil at the end of a stream.
func (w *walker) meta(ctx context.Context, at int64, b []byte) ([]byte, int64, error) {
	n, err := messageSize(b)
	if n == 0 || err != nil {
		return nil, 0, err
	}
	if n > w.o.Size()-at {
		return nil, 0, damaged("metadata of %d bytes, the file ends after %d", n, w.o.Size()-at)
	}
	if n > int64(len(b)) {
		b = make([]byte, n)
		if err := w.o.ReadAt(ctx, b, at); err != nil {
			return nil, 0, err
		}
	}
	return b[8:n], at + n, nil
}

// batch reads the metadata of the next record batch. It returns nil after the last one.
func (w *walker) batch(ctx context.Context) (*indexer, error) {
	for {
		end := w.o.Size()
		if !w.stream {
			if len(w.blocks) == 0 {
				return nil, nil
			}
			b := w.blocks[0]
			w.blocks = w.blocks[1:]
			if b.Offset < 8 || b.MetaBytes < 8 || b.BodyBytes < 0 || b.Offset > end || int64(b.MetaBytes) > end-b.Offset || b.BodyBytes > end-b.Offset-int64(b.MetaBytes) {
				return nil, damaged("its position in the footer is bytes %d to %d of %d", b.Offset, b.Offset+int64(b.MetaBytes)+b.BodyBytes, end)
			}
			w.next = b.Offset
		} else if w.next == end {
			return nil, nil // a stream may end without an end marker
		}
		b := make([]byte, min(end-w.next, head))
		if err := w.o.ReadAt(ctx, b, w.next); err != nil {
			return nil, err
		}
		meta, body, err := w.meta(ctx, w.next, b)
		if err != nil {
			return nil, err
		}
		if meta == nil {
			if w.stream {
				return nil, nil
			}
			return nil, damaged("expected a message")
		}
		m, err := readMessage(meta)
		if err != nil {
			return nil, err
		}
		if m.body > end-body {
			return nil, damaged("a body of %d bytes, the file ends after %d: it is cut off", m.body, end-body)
		}
		if w.next = body + m.body; !w.stream && len(w.blocks) > 0 {
			w.next = w.blocks[0].Offset
		}
		if w.stream && m.kind == flatbuf.MessageHeaderDictionaryBatch {
			continue
		}
		x := &indexer{o: w.o, body: body, size: m.body, left: m.body}
		x.b, err = parseBatch(m, m.body, w.schema)
		return x, err
	}
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	if tables := int64(s.list.Len()); n >= tables {
		return s.files.Object(n - tables)
	}
	return s.list.Object(n, true)
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	b := filelist.Find(s.first, id)
	p := s.batches[b]
	row := id - s.first[b]
	return fmt.Sprintf("%s, row %d (record batch %d, row %d)", s.list.Path(p.file), p.row+row, p.number, row)
}

// extent returns the position of a value in the file of its record batch. size is 0 for a row without a value.
func (s *source) extent(field int, p *part, row int64) (off, size int64) {
	if !columns.Bit(p.valid, row) {
		return 0, 0
	}
	if e := s.columns[field].Elem; e != nil && e.Class == columns.Boolean {
		return p.values + row>>3, 1
	}
	lo, hi := p.at(row), p.at(row+1)
	unit := s.units[field]
	return p.values + lo*unit, (hi - lo) * unit
}

// Locate requests the values of a row in the order of the fields. Empty values need no extent.
func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		b := filelist.Find(s.first, id)
		begin := len(g.Extents)
		for i := range s.info.Fields {
			if !g.Wants(i) {
				continue
			}
			f := &s.info.Fields[i]
			e := driver.Extent{Object: int64(s.batches[b].file), Field: -1}
			var err error
			if s.files.Has(i, id) {
				if e.Object, e.Size, err = s.files.Locate(i, id); err == nil {
					e.Object += int64(s.list.Len())
				}
			} else {
				e.Offset, e.Size = s.extent(i, s.parts[b][i], id-s.first[b])
			}
			if err == nil && e.Size > driver.MaxArrayBytes {
				err = fmt.Errorf("it has %d bytes, the limit is %d", e.Size, driver.MaxArrayBytes)
			}
			if err != nil {
				g.Records[k].Err = s.wrong(id, i, err)
				g.Extents = g.Extents[:begin]
				return
			}
			if e.Size == 0 {
				continue
			}
			if p := s.parts[b][i].packed; p != nil && e.Object < int64(s.list.Len()) {
				e.Offset, e.Size = p.off, p.size // the whole buffer
			} else if column.IsDecoded(f.Kind) {
				e.Tail = true
			} else if s.columns[i].Direct(f) && (s.parts[b][i].elems == nil || e.Object >= int64(s.list.Len())) {
				e.Field = int32(i)
			}
			g.Extents = append(g.Extents, e)
		}
	})
}

func (s *source) wrong(id int64, field int, err error) error {
	return fmt.Errorf("%s: column %q: %w", s.Name(id), s.columns[field].Name, err)
}

// Parse extracts the values of records.
func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		b := filelist.Find(s.first, id)
		_, parts := g.Of(k)
		for i := range s.info.Fields {
			if !g.Wants(i) {
				continue
			}
			p, row := s.parts[b][i], id-s.first[b]
			valid := columns.Bit(p.valid, row)
			var raw []byte
			var size int64
			if s.files.Has(i, id) {
				_, size, _ = s.files.Locate(i, id) // checked in Locate
				valid = true
			} else {
				_, size = s.extent(i, p, row)
			}
			if size > 0 {
				raw, parts = parts[0], parts[1:]
			}
			var err error
			if p.packed != nil && size > 0 && !s.files.Has(i, id) {
				err = s.unpacked(g, k, i, p, row, raw)
			} else {
				err = s.columns[i].Make(g, k, i, &s.info.Fields[i], s.stored(i, p, row, valid, raw))
			}
			if err != nil {
				var m *driver.MemoryError
				if errors.As(err, &m) {
					return fmt.Errorf("no memory for %q of %s: %w", s.info.Fields[i].Name, s.Name(id), m.Err)
				}
				rec.Err = s.wrong(id, i, err)
				break
			}
		}
	}
	return nil
}

// stored returns the value of a field of a row.
func (s *source) stored(i int, p *part, row int64, valid bool, raw []byte) *columns.Stored {
	of := &columns.Stored{Raw: raw, Valid: valid, Bit: uint(row & 7), Elems: p.elems}
	if p.elems != nil {
		of.First = p.first + p.at(row)*(s.units[i]/int64(s.columns[i].Elem.DType.Size()))
	}
	return of
}

func (s *source) Close() error {
	s.cache.Close()
	return nil
}
