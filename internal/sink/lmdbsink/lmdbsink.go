// Package lmdbsink writes LMDB databases. The B+ tree is built from its leaves up, since records
// arrive in the order of their keys.
package lmdbsink

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/sink/files"
	"github.com/stokerdata/stoker/internal/sink/members"
	"github.com/stokerdata/stoker/sink/sinkdriver"
	"github.com/stokerdata/stoker/source/driver"
)

// Constants of the 64-bit format.
const (
	page       = 4096
	pageHeader = 16
	nodeHeader = 8
	// nodeMax is the largest node that fits into a leaf. Larger values get pages of their own.
	nodeMax = (page-pageHeader)/2&^1 - 2

	magic   = 0xBEEFC0DE
	version = 1
	none    = math.MaxUint64 // no page

	isBranch, isLeaf, isOverflow, isMeta = 1, 2, 4, 8

	bigData    = 1
	integerKey = 8
)

// Format returns the LMDB format.
func Format() *sinkdriver.Format {
	return &sinkdriver.Format{
		Name: "lmdb", About: "an LMDB database, a key for each value", Ext: []string{".lmdb"}, Folder: true, Open: open,
	}
}

type sink struct {
	f      *files.File
	fields []sinkdriver.Field
	ends   []string
	datum  bool // image and label are one value
	digits int

	leaf    []byte // nodes of the current leaf
	at      []uint16
	first   string
	pages   uint64
	leaves  []child
	counts  struct{ branch, leaf, overflow, entries uint64 }
	depth   uint16
	keyMost int
}

// child is a page of a level of the tree, with its first key.
type child struct {
	page uint64
	key  string
}

func open(_ context.Context, out *sinkdriver.Out) (sinkdriver.Sink, error) {
	s := &sink{fields: out.Fields, pages: 2, digits: max(9, len(fmt.Sprint(out.Len)))}
	if len(out.Fields) == 2 && out.Fields[0].Kind == driver.KindImage && out.Fields[1].Kind == driver.KindLabel {
		s.datum = true
	}
	for i := range out.Fields {
		end, ok := members.Ending(&out.Fields[i])
		if !ok {
			return nil, sinkdriver.Cannot("an LMDB database", &out.Fields[i], "its name is part of keys: give it a short one of lower-case letters without dots, with --field NEWNAME=%s", out.Fields[i].Name)
		}
		s.ends = append(s.ends, end)
	}
	var err error
	if s.f, err = files.Create(filepath.Join(out.Dir, "data.mdb")); err != nil {
		return nil, err
	}
	return s, s.f.Zeros(2 * page) // for the two metadata pages
}

// entry is a key and its value, in two parts.
type entry struct {
	key        string
	head, data []byte
}

// Write implements sinkdriver.Sink.
func (s *sink) Write(_ context.Context, recs []sinkdriver.Record) error {
	entries, numbers := make([]entry, len(s.fields)), make([][32]byte, len(s.fields))
	for i := range recs {
		rec := &recs[i]
		name := fmt.Sprintf("%0*d", s.digits, rec.ID)
		all := entries
		switch {
		case s.datum:
			all = entries[:1]
			all[0].key = name
			all[0].head, all[0].data = datum(rec.Values[0].Bytes, rec.Values[1].Int)
		default:
			for k := range s.fields {
				e := &entries[k]
				e.head, e.data = members.Bytes(&s.fields[k], &rec.Values[k], numbers[k][:])
				e.key = name
				if len(s.fields) > 1 {
					e.key += s.ends[k] + rec.Values[k].Ext
				}
			}
			slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.key, b.key) })
		}
		for k := range all {
			if k > 0 && all[k].key == all[k-1].key {
				return fmt.Errorf("record %d has two values with the key %q", rec.ID, all[k].key)
			}
			if err := s.put(&all[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// datum returns the start of Caffe's Datum message for an image file: the data, the label and the
// flag "encoded". The data is last so that it need not be copied.
func datum(image []byte, label int64) (head, data []byte) {
	head = binary.AppendUvarint([]byte{5 << 3}, uint64(label))
	head = append(head, 7<<3, 1)
	return binary.AppendUvarint(append(head, 4<<3|2), uint64(len(image))), image
}

// put adds an entry. Its key must be greater than all keys before it.
func (s *sink) put(e *entry) error {
	size := len(e.head) + len(e.data)
	if int64(size) > math.MaxUint32 {
		return fmt.Errorf("%s has %d bytes, more than an LMDB value can have", e.key, size)
	}
	inline, flags := size, uint16(0)
	if nodeHeader+len(e.key)+size > nodeMax {
		inline, flags = 8, bigData
	}
	need := (nodeHeader + len(e.key) + inline + 1) &^ 1
	if pageHeader+2*(len(s.at)+1)+len(s.leaf)+need > page {
		if err := s.endLeaf(); err != nil {
			return err
		}
	}
	if len(s.at) == 0 {
		s.first = e.key
	}
	s.at = append(s.at, uint16(len(s.leaf)))
	b := binary.LittleEndian.AppendUint32(s.leaf, uint32(size))
	b = binary.LittleEndian.AppendUint16(b, flags)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.key)))
	b = append(b, e.key...)
	if flags == 0 {
		b = append(append(b, e.head...), e.data...)
	} else {
		b = binary.LittleEndian.AppendUint64(b, s.pages)
	}
	if len(b)%2 != 0 {
		b = append(b, 0)
	}
	s.leaf = b
	s.counts.entries++
	s.keyMost = max(s.keyMost, len(e.key))
	if flags == 0 {
		return nil
	}
	n := (pageHeader - 1 + size) / page
	head := header(s.pages, isOverflow)
	binary.LittleEndian.PutUint32(head[12:], uint32(n+1))
	s.pages += uint64(n + 1)
	s.counts.overflow += uint64(n + 1)
	_, _ = s.f.Write(head)
	_, _ = s.f.Write(e.head)
	_, _ = s.f.Write(e.data)
	return s.f.Align(page)
}

// header returns the header of a page.
func header(number uint64, flags uint16) []byte {
	b := make([]byte, pageHeader)
	binary.LittleEndian.PutUint64(b, number)
	binary.LittleEndian.PutUint16(b[10:], flags)
	return b
}

// nodes writes a page of nodes, which are stored at its end. The offsets in at are relative to the
// first node.
func (s *sink) nodes(flags uint16, at []uint16, nodes []byte) error {
	b := header(s.pages, flags)
	s.pages++
	upper := page - len(nodes)
	binary.LittleEndian.PutUint16(b[12:], uint16(pageHeader+2*len(at)))
	binary.LittleEndian.PutUint16(b[14:], uint16(upper))
	for _, p := range at {
		b = binary.LittleEndian.AppendUint16(b, uint16(upper)+p)
	}
	_, _ = s.f.Write(b)
	_ = s.f.Zeros(int64(upper - len(b)))
	_, err := s.f.Write(nodes)
	return err
}

func (s *sink) endLeaf() error {
	if len(s.at) == 0 {
		return nil
	}
	s.leaves = append(s.leaves, child{s.pages, s.first})
	s.counts.leaf++
	err := s.nodes(isLeaf, s.at, s.leaf)
	s.at, s.leaf = s.at[:0], s.leaf[:0]
	return err
}

// branches writes the level above the given pages and returns it. Each branch page has two or more
// children.
func (s *sink) branches(below []child) ([]child, error) {
	most := (page - pageHeader) / ((nodeHeader+s.keyMost+1)&^1 + 2)
	n := (len(below) + most - 1) / most
	var level []child
	for i := range n {
		part := below[i*len(below)/n : (i+1)*len(below)/n]
		level = append(level, child{s.pages, part[0].key})
		var nodes []byte
		var at []uint16
		for k, c := range part {
			key := c.key
			if k == 0 {
				key = "" // it is less than all others
			}
			at = append(at, uint16(len(nodes)))
			nodes = binary.LittleEndian.AppendUint32(nodes, uint32(c.page))
			nodes = binary.LittleEndian.AppendUint16(nodes, uint16(c.page>>32))
			nodes = binary.LittleEndian.AppendUint16(nodes, uint16(len(key)))
			nodes = append(nodes, key...)
			if len(nodes)%2 != 0 {
				nodes = append(nodes, 0)
			}
		}
		s.counts.branch++
		if err := s.nodes(isBranch, at, nodes); err != nil {
			return nil, err
		}
	}
	return level, nil
}

// Finish implements sinkdriver.Sink.
func (s *sink) Finish(context.Context) error {
	if err := s.endLeaf(); err != nil {
		return err
	}
	level := s.leaves
	root := uint64(none)
	if len(level) > 0 {
		s.depth = 1
		for len(level) > 1 {
			var err error
			if level, err = s.branches(level); err != nil {
				return err
			}
			s.depth++
		}
		root = level[0].page
	}
	for i := range uint64(2) {
		if _, err := s.f.WriteAt(s.meta(i, root), int64(i)*page); err != nil {
			return err
		}
	}
	return s.f.Close()
}

// meta returns one of the two metadata pages. Readers use the one with the higher transaction
// number.
func (s *sink) meta(number, root uint64) []byte {
	le := binary.LittleEndian
	b := header(number, isMeta)
	b = le.AppendUint32(le.AppendUint32(b, magic), version)
	b = le.AppendUint64(le.AppendUint64(b, 0), s.pages*page) // address, size of the map
	// The database of free pages, which is empty, and the main database.
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, page), integerKey), 0)
	for range 4 {
		b = le.AppendUint64(b, 0)
	}
	b = le.AppendUint64(b, none)
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, 0), 0), s.depth)
	for _, n := range []uint64{s.counts.branch, s.counts.leaf, s.counts.overflow, s.counts.entries, root} {
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint64(le.AppendUint64(b, s.pages-1), number)
	return append(b, make([]byte, page-len(b))...)
}

// Abort implements sinkdriver.Sink.
func (s *sink) Abort() { s.f.Abort() }
