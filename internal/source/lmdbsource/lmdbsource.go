// Package lmdbsource reads LMDB databases at random. A record is a key and its value, in the order of the keys. The
// package reads the file itself (tree.go) and takes no lock: no process may write the database at the same time.
//
// The bytes of a value determine its kind (values.go): images, sounds, text, .npy files, Caffe's Datum, otherwise
// bytes. Values are never unpickled.
package lmdbsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// DataName is the name of the file in the folder of a database.
const DataName = "data.mdb"

// Options configure Open.
type Options = format.Options

// place is the position of a record. It has 20 bytes.
type place struct {
	page uint32 // the leaf page
	at   uint16 // offset of its node
	key  uint16 // size of the key
	big  uint32 // first overflow page of a large value, otherwise 0
	size uint32
}

type source struct {
	list   *filelist.List
	info   driver.Info
	page   int64
	form   form
	places []place
	schema *dynvalue.Schema
	by     [][]int // fields, by column
}

// Is reports whether a folder is a database.
func Is(ctx context.Context, st store.Store) bool { return IsFile(ctx, st, DataName) }

// Open opens the database that st is: a file, or a folder with one.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	if e.Dir {
		if e, err = st.Stat(ctx, DataName); err != nil {
			return nil, err
		}
	}
	s := &source{list: &filelist.List{Store: st}}
	s.list.Add(e)
	o, err := s.list.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	f, err := openFile(ctx, o, s.list.Path(0))
	if err != nil {
		return nil, err
	}
	s.page = f.page
	if f.pages > 1<<32 {
		return nil, fmt.Errorf("%s has %d pages, more than the limit of %d", f.path, f.pages, int64(1<<32))
	}
	seen, err := s.look(ctx, f, opt)
	if err != nil {
		return nil, err
	}
	if s.schema, err = seen.Schema(names[s.form]); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	for _, name := range names[s.form] {
		s.by = append(s.by, s.schema.Of([]byte(name)))
	}
	s.info = driver.Info{
		URL: url, Format: "lmdb", Len: int64(len(s.places)), Objects: 1, Fields: s.schema.Fields,
		Fingerprint: s.list.Fingerprint(append([]string{"lmdb", opt.Split}, s.schema.Fingerprint()...)...),
	}
	return s, store.Check(ctx, o)
}

// choose finds the database with a name, and its leaves.
func choose(ctx context.Context, f *file, name string) ([]uint64, *database, error) {
	leaves, err := f.leaves(ctx, &f.main)
	if err != nil {
		return nil, nil, err
	}
	const most = 1000 // limit of named databases
	var subs []string
	found := map[string]database{}
	values := uint64(0)
	b := make([]byte, f.page)
	for i, n := range leaves {
		if values > 0 && name == "" || len(subs) > most || i > most {
			break // it has its own records
		}
		if err := f.read(ctx, n, isLeaf, b); err != nil {
			return nil, nil, err
		}
		err := f.nodes(n, b, true, func(x node) error {
			if x.flags&subData == 0 || x.flags&dupData != 0 {
				values++
				return nil
			}
			if len(x.data) != dbBytes {
				return f.damaged(n, "the description of a database has %d bytes", len(x.data))
			}
			subs = append(subs, fmt.Sprintf("%.100q", x.key))
			found[string(x.key)] = parseDatabase(x.data)
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	db := f.main
	switch one, ok := found[name]; {
	case ok:
		db = one
	case name != "":
		return nil, nil, fmt.Errorf("%s has no database %q: it has %s", f.path, name, strings.Join(subs[:min(len(subs), 20)], ", "))
	case values == 0 && len(subs) > 1:
		return nil, nil, fmt.Errorf("%s has the databases %s: choose one, such as ?split=%s", f.path, strings.Join(subs[:min(len(subs), 20)], ", "), strings.Trim(subs[0], `"`))
	case values == 0 && len(subs) == 1:
		for _, only := range found {
			db = only
		}
	default:
		return leaves, &f.main, dups(f, &f.main)
	}
	if err := dups(f, &db); err != nil {
		return nil, nil, err
	}
	leaves, err = f.leaves(ctx, &db)
	return leaves, &db, err
}

func dups(f *file, db *database) error {
	if db.flags&dupSort != 0 {
		return fmt.Errorf("%s: its database has several values for a key (dupsort), which is not supported", f.path)
	}
	return nil
}

// seeing is the result of scanning a block of leaves.
type seeing struct {
	places  []place
	columns *dynvalue.Columns
}

// look scans all leaves.
func (s *source) look(ctx context.Context, f *file, opt *Options) (*dynvalue.Columns, error) {
	leaves, db, err := choose(ctx, f, opt.Split)
	if err != nil {
		return nil, err
	}
	first := true
	blocks := make([]seeing, len(leaves))
	leaf := func(ctx context.Context, i int, b []byte) error {
		n := leaves[i]
		if err := f.read(ctx, n, isLeaf, b); err != nil {
			return err
		}
		l := &blocks[i]
		l.columns = dynvalue.NewColumns(opt.Columns, true)
		var big []byte
		var label [8]byte
		return f.nodes(n, b, true, func(x node) error {
			if x.flags&subData != 0 {
				return nil // a named database among records
			}
			p := place{page: uint32(n), at: uint16(x.at), key: uint16(len(x.key)), size: x.size}
			data := x.data
			if x.flags&bigData != 0 {
				var err error
				if p.big, big, err = f.overflow(ctx, x, s.form != plain || first, big); err != nil {
					return err
				}
				data = big
			}
			if first {
				s.form, first = formOf(data), false
			}
			l.places = append(l.places, p)
			l.columns.Records++
			err := split(s.form, x.key, data, int64(x.size), &label, func(k int, v *dynvalue.Value) error {
				if c := l.columns.Of([]byte(names[s.form][k])); c != nil {
					c.Class = s.form == datum && k == 2
					dynvalue.Add(c, v)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s, key %.100q: %w", f.path, x.key, err)
			}
			return nil
		})
	}
	all := dynvalue.NewColumns(opt.Columns, true)
	if len(leaves) > 0 {
		if err := leaf(ctx, 0, make([]byte, f.page)); err != nil {
			return nil, err
		}
		first = false
		if err := f.parallel(ctx, len(leaves)-1, func(ctx context.Context, i int, b []byte) error { return leaf(ctx, i+1, b) }); err != nil {
			return nil, err
		}
	}
	n := 0
	for i := range blocks {
		n += len(blocks[i].places)
	}
	if n == 0 {
		return nil, fmt.Errorf("%s has no records", f.path)
	}
	if uint64(n) > db.entries {
		return nil, f.damaged(db.root, "%d records, but its meta page has %d", n, db.entries)
	}
	s.places = make([]place, 0, n)
	for i := range blocks {
		s.places = append(s.places, blocks[i].places...)
		all.Merge(blocks[i].columns)
		blocks[i] = seeing{}
	}
	return all, nil
}

// overflow returns the first overflow page of a large value, and the value (or its beginning) in buf.
func (f *file) overflow(ctx context.Context, x node, whole bool, buf []byte) (uint32, []byte, error) {
	n := binary.LittleEndian.Uint64(x.data)
	head := make([]byte, headerBytes)
	if err := f.read(ctx, n, isOverflow, head); err != nil {
		return 0, nil, err
	}
	pages := uint64(binary.LittleEndian.Uint32(head[12:]))
	if need := (headerBytes + uint64(x.size) + uint64(f.page) - 1) / uint64(f.page); pages < need || pages > f.pages-n {
		return 0, nil, f.damaged(n, "%d pages for a value of %d bytes", pages, x.size)
	}
	size := int(x.size)
	if !whole {
		size = min(size, column.HeadBytes)
	}
	if cap(buf) < size {
		buf = make([]byte, size)
	}
	return uint32(n), buf[:size], f.o.ReadAt(ctx, buf[:size], int64(n)*f.page+headerBytes)
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Close() error { return nil }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	p := &s.places[id]
	return fmt.Sprintf("%s, record %d (byte %d)", s.list.Path(0), id, int64(p.page)*s.page+int64(p.at))
}

// Locate requests the node, including a small value, and then the overflow pages of a large value.
func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		p := &s.places[id]
		node := driver.Extent{Offset: int64(p.page)*s.page + int64(p.at), Size: nodeBytes + int64(p.key), Field: -1, Tail: true}
		if p.big == 0 {
			node.Size += int64(p.size)
		}
		g.Extents = append(g.Extents, node)
		if p.big != 0 {
			g.Extents = append(g.Extents, driver.Extent{Offset: int64(p.big)*s.page + headerBytes, Size: int64(p.size), Field: -1, Tail: true})
		}
	})
}

// Parse splits keys and values.
func (s *source) Parse(g *driver.Group) error {
	to := dynvalue.Sink{Group: g}
	var label [8]byte
	emit := func(column int, v *dynvalue.Value) error {
		for _, f := range s.by[column] {
			if g.Wants(f) {
				if err := s.schema.Put(&to, f, v); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		p := &s.places[id]
		_, parts := g.Of(k)
		to.K, to.Rec = k, rec
		key := parts[0][nodeBytes:][:p.key:p.key]
		value := parts[0][nodeBytes+int(p.key):]
		if p.big != 0 {
			value = parts[1]
		}
		var err error
		// Check that the node still has a key of the same size.
		if n := binary.LittleEndian.Uint16(parts[0][6:]); n != p.key {
			err = fmt.Errorf("its key has %d bytes, but had %d when the database was opened: it is damaged, or is being written", n, p.key)
		} else {
			err = split(s.form, key, value, int64(len(value)), &label, emit)
		}
		var m *driver.MemoryError
		switch {
		case errors.As(err, &m):
			return fmt.Errorf("no memory for %s: %w", s.Name(id), m.Err)
		case err != nil:
			rec.Err = fmt.Errorf("%s: %w", s.Name(id), err)
		}
	}
	return nil
}
