package view

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// AllFields in Spec.Dedupe means all fields.
const AllFields = "*"

// print identifies a record while duplicates are searched: 88 bits of a hash of its values, then
// its number in 40 bits. The chance that two of a billion records collide is one in a billion.
type print [2]uint64

const idBits = 40 // driver.Info.Len is at most 1<<40

func printOf(h xxh3.Uint128, id int64) print {
	return print{h.Hi, h.Lo>>idBits<<idBits | uint64(id)}
}

func (p print) id() int64           { return int64(p[1] & (1<<idBits - 1)) }
func (p print) same(o print) bool   { return p[0] == o[0] && p[1]>>idBits == o[1]>>idBits }
func (p print) compare(o print) int { return cmp.Or(cmp.Compare(p[0], o[0]), cmp.Compare(p[1], o[1])) }

// dedupe returns the records of within whose values differ from all earlier records. A record that
// cannot be read stays, so that its reader gets the error.
func (f *finder) dedupe(ctx context.Context, within *set) (*set, error) {
	fail := func(err error) (*set, error) { return nil, fmt.Errorf("dedupe: %w", err) }
	info := f.src.Info()
	var fields []int
	for _, name := range f.v.spec.Dedupe {
		if name == AllFields {
			fields = fields[:0]
			for i := range info.Fields {
				fields = append(fields, i)
			}
			break
		}
		i, err := f.v.field("dedupe", name)
		if err != nil {
			return nil, err
		}
		fields = append(fields, i)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	req := &scan.Request{Values: fields, Lenient: true, Threads: f.opt.Threads}
	if f.opt.Progress != nil {
		req.Progress = func(done, total int64) { f.opt.Progress("dedupe", done, total) }
	}
	out := newSet(f.v.in.Len)
	prints := make([]print, f.v.in.Len)
	read := newSet(f.v.in.Len)
	err := scan.Run(ctx, f.src, req, func(rows *scan.Rows) error {
		h := xxh3.New()
		for k := range rows.N {
			id := rows.First + int64(k)
			if within != nil && !within.has(id) {
				continue
			}
			if rows.Errs[k] != nil {
				out.words[id/64] |= 1 << (id % 64) // rows start at multiples of 64
				continue
			}
			h.Reset()
			for _, i := range fields {
				addValue(h, &info.Fields[i], &rows.Records[k].Values[i])
			}
			prints[id] = printOf(h.Sum128(), id)
			read.words[id/64] |= 1 << (id % 64)
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	n := 0
	for id := range prints {
		if read.has(int64(id)) {
			prints[n] = prints[id]
			n++
		}
	}
	prints = prints[:n]
	slices.SortFunc(prints, print.compare)
	for i, p := range prints { // the first of equal records has the smallest number
		if i == 0 || !p.same(prints[i-1]) {
			out.add(p.id())
		}
	}
	out.index()
	return out, nil
}

// addValue adds a value to a hash. Different values add different bytes.
func addValue(h *xxh3.Hasher, f *driver.Field, v *driver.Value) {
	var b [32]byte
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		binary.LittleEndian.PutUint64(b[:], uint64(v.Int))
	case driver.KindFloat:
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(v.Float))
	default:
		binary.LittleEndian.PutUint64(b[:], uint64(len(v.Bytes)))
		if v.Codec >= driver.CodecRaw { // the bytes do not include the size
			binary.LittleEndian.PutUint64(b[8:], uint64(v.Codec))
			binary.LittleEndian.PutUint32(b[16:], uint32(v.Width))
			binary.LittleEndian.PutUint32(b[20:], uint32(v.Height))
			binary.LittleEndian.PutUint32(b[24:], uint32(v.Channels))
		}
	}
	_, _ = h.Write(b[:])
	_, _ = h.Write(v.Bytes)
}
