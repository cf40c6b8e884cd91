package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// ordered reads archives of which at least one is compressed as a whole. The offsets of the members in the
// decompressed data are known from opening, so the headers are not parsed again.
type ordered struct {
	*Source
	inorder.Files
}

// member is a member of a record, and the field of its value.
type member struct{ field, i int }

// scanStream lists the members of a compressed archive. Its restart points are numbered by members until the
// records are known.
func (s *Source) scanStream(ctx context.Context, o store.Object, lim *inorder.Limits, f stream.Format, t *Table, add func(m *Member) error) (inorder.File, error) {
	rd, err := lim.Scan(ctx, o.ReadAt, o.Size(), f, 0)
	if err != nil {
		return inorder.File{}, err
	}
	defer rd.Close()
	err = s.format.ScanStream(ctx, rd, func(m *Member) error {
		rd.Mark(int64(t.len()), m.At)
		return add(m)
	})
	return rd.File(), err
}

// newOrdered returns the source for archives that have been scanned. Archives that are not compressed get restart
// points like the others.
func newOrdered(s *Source) *ordered {
	o := &ordered{Source: s}
	o.Files = inorder.Files{List: s.list, Info: &s.info, Files: s.streams, First: s.first, Read: o.read}
	for n := range s.streams {
		f, t := &s.streams[n], s.tables[n]
		if f.Format == stream.Plain {
			for i := range t.len() {
				f.Plain(int64(i), t.at[i])
			}
		}
		end := s.info.Len
		if n+1 < len(s.first) {
			end = s.first[n+1]
		}
		f.Records = end - s.first[n]
		f.Places = s.ofRecords(f.Places, s.first[n], f.Records)
	}
	return o
}

// ofRecords renumbers restart points from members to the n records from first on. If several are before the same
// record, it keeps the last one.
func (s *Source) ofRecords(places []inorder.Place, first, n int64) []inorder.Place {
	var out []inorder.Place
	for _, p := range places {
		r := int64(sort.Search(int(n), func(k int) bool {
			row := s.members[(first+int64(k))*int64(s.stored):][:s.stored]
			return int64(slices.Min(row)) >= p.Record
		}))
		if r == n {
			break
		}
		if p.Record = r; len(out) > 0 && out[len(out)-1].Record == r {
			out[len(out)-1] = p
			continue
		}
		out = append(out, p)
	}
	return out
}

// Info implements driver.Source.
func (o *ordered) Info() *driver.Info { return &o.info }

// Locate and Parse do nothing: Records returns the values.
func (o *ordered) Locate(g *driver.Group) { driver.InOrderOnly{}.Locate(g) }

// Parse implements driver.Source.
func (o *ordered) Parse(*driver.Group) error { return nil }

// Object implements driver.Source.
func (o *ordered) Object(n int64) driver.Object { return o.list.Object(n, false) }

// read implements inorder.Files.Read.
func (o *ordered) read(r *inorder.Run, shard int, k int64, wanted bool) error {
	if !wanted {
		return nil
	}
	id := o.First[shard] + k
	members := make([]member, o.stored)
	for f := range members {
		_, i := o.member(id, f)
		members[f] = member{f, i}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.i, b.i) })
	t := o.tables[shard]
	for _, m := range members {
		own, err := o.readMember(r, id, m.field, t.at[m.i], t.size[m.i])
		if err != nil {
			return err
		}
		if own != nil {
			r.Rec.Err = o.fail(id, m.field, own)
			return nil
		}
	}
	if o.labels != nil {
		r.Rec.Values[o.stored].Int = int64(o.labels[id])
	}
	return nil
}

// readMember reads the value of a field. own is an error that concerns only this value.
func (o *ordered) readMember(r *inorder.Run, id int64, f int, at, size int64) (own, err error) {
	if own := o.sized(f, size); own != nil {
		return own, nil
	}
	if err := r.Skip(at - r.Pos()); err != nil {
		return nil, err
	}
	v := &r.Rec.Values[f]
	if o.fields[f].npy {
		return o.readArray(r, id, f, size, v)
	}
	var b []byte
	if k := o.info.Fields[f].Kind; k == driver.KindLabel || k == driver.KindInt {
		b = make([]byte, size)
	} else if b, own = r.In.Alloc(id, f, size); own != nil {
		return own, nil
	}
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return o.value(f, b, v), nil
}

// readArray reads a .npy file. Its header is not stored with the value.
func (o *ordered) readArray(r *inorder.Run, id int64, f int, size int64, v *driver.Value) (own, err error) {
	head := make([]byte, min(size, npy.Prefix))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n, own := npy.HeaderSize(head)
	if own != nil {
		return own, nil
	}
	if int64(n) > size {
		return errors.New("not a .npy file: it ends in its header"), nil
	}
	head = slices.Grow(head, n)[:max(n, len(head))]
	if n > npy.Prefix {
		if _, err := io.ReadFull(r, head[npy.Prefix:n]); err != nil {
			return nil, err
		}
	}
	h, own := npy.ParseHeader(head)
	if own == nil {
		own = o.fits(f, h, size)
	}
	if own != nil {
		return own, nil
	}
	var b []byte
	if o.npys[f].single != 0 {
		b = make([]byte, h.Bytes)
	} else if b, own = r.In.Alloc(id, f, h.Bytes); own != nil {
		return own, nil
	}
	if _, err = io.ReadFull(r, b); err != nil {
		return nil, err
	}
	return o.npys[f].put(&o.info.Fields[f], v, b), nil
}

// heads reads the beginnings of members of compressed archives while these are opened. It continues from the
// previous member if that one comes earlier.
type heads struct {
	rd    stream.Reader
	o     store.Object
	shard int
	base  int64
}

func (h *heads) close() {
	h.rd.Close()
	if h.o != nil {
		_ = h.o.Close()
		h.o = nil
	}
}

// read returns n bytes from offset at of the decompressed archive.
func (h *heads) read(ctx context.Context, s *Source, shard int, at, n int64) ([]byte, error) {
	f := &s.streams[shard]
	if h.o == nil || h.shard != shard || at < h.base+h.rd.Pos() {
		h.close()
		var err error
		if h.o, err = s.list.Open(ctx, shard); err != nil {
			return nil, err
		}
		from := inorder.Place{At: at, Pos: at} // for an archive that is not compressed
		if f.Format != stream.Plain {
			p := sort.Search(len(f.Places), func(i int) bool { return f.Places[i].Pos > at }) - 1
			if p < 0 {
				return nil, fmt.Errorf("internal error: no restart point before byte %d", at)
			}
			from = f.Places[p]
		}
		h.shard, h.base = shard, from.Pos-from.Skip
		h.rd.Open(ctx, h.o.ReadAt, h.o.Size(), f.Format, from.At)
	}
	if err := inorder.Discard(&h.rd, at-h.base-h.rd.Pos(), make([]byte, 32<<10)); err != nil {
		return nil, inorder.Cut(err, "it")
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(&h.rd, b); err != nil {
		return nil, inorder.Cut(err, "it")
	}
	return b, nil
}
