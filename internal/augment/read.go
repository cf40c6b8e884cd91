package augment

import (
	"encoding/binary"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// Parse reads the records of the source and transforms them.

// begin prepares the group of the records of the source.
func (s *Source) begin(w *worker, g *driver.Group) *driver.Group {
	clear(w.want)
	for _, k := range s.kept {
		w.want[k.from] = g.Wants(k.place)
	}
	for _, m := range s.made {
		for v := range s.opt.Variants {
			if g.Wants(m.place + v) {
				for i, need := range s.need {
					w.want[i] = w.want[i] || need
				}
			}
		}
	}
	in := &w.inner
	in.Want = w.want
	in.BeginIn(g, g.IDs, len(s.in.Fields))
	return in
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	w, err := s.worker()
	if err != nil {
		for k := range g.Records {
			if g.Records[k].Err == nil {
				g.Records[k].Err = err
			}
			g.Next()
		}
		return
	}
	defer s.giveBack(w)
	in := s.begin(w, g)
	s.Base.Locate(in)
	g.Hand(in, func(e *driver.Extent) {
		if e.Field >= 0 {
			e.Field = int32(s.place[e.Field])
			e.Tail = e.Tail || e.Field < 0 // it is decoded
		}
	})
}

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error {
	w, err := s.worker()
	if err != nil {
		return err
	}
	defer s.giveBack(w)
	in := s.begin(w, g)
	in.HandBytes(g, func(e *driver.Extent) {
		if e.Field >= 0 {
			e.Field = int32(s.from[e.Field])
		}
	})
	if err := s.Base.Parse(in); err != nil {
		return err
	}
	for k := range g.Records {
		rec := &g.Records[k]
		if rec.Err = in.Records[k].Err; rec.Err != nil {
			continue
		}
		for _, f := range s.kept {
			rec.Values[f.place] = in.Records[k].Values[f.from]
		}
		if err := s.make(w, g, k, &in.Records[k]); err != nil {
			return err
		}
	}
	return nil
}

// make makes the variants of record k. An error of the record goes to its Err.
func (s *Source) make(w *worker, g *driver.Group, k int, in *driver.Record) error {
	some := false
	for i := range s.made {
		for v := range s.opt.Variants {
			some = some || g.Wants(s.made[i].place+v)
		}
	}
	if !some {
		return nil
	}
	rec := &g.Records[k]
	for v := range w.ids {
		w.ids[v] = in.ID
	}
	if err := s.set.Begin(w.batch, w.slot, w.ids); err != nil {
		rec.Err = err
		return nil
	}
	from := *in
	if w.toDCT != nil {
		from.Values = s.withoutEntropyCode(w, in.Values)
	}
	for v := range s.opt.Variants {
		w.rec[0] = from
		w.rec[0].ID += s.opt.First
		if err := w.rows.Make(w.batch, v, int64(v), -1, w.rec[:]).Errs[0]; err != nil {
			rec.Err = err
			return nil
		}
	}
	if err := w.batch.Finish(); err != nil {
		rec.Err = err
		return nil
	}
	for i := range s.made {
		m := &s.made[i]
		for v := range s.opt.Variants {
			if !g.Wants(m.place + v) {
				continue
			}
			row := w.row(s, m, v)
			size := int64(len(row))
			switch {
			case m.sound != nil:
				size = m.sound.bytes(size)
			case m.clip:
				size = clipBytes(&m.field, size)
			}
			take := g.Take
			if m.field.Kind == driver.KindImage || m.field.Kind == driver.KindMask { // they are decoded, not read into the batch
				take = func(_, _ int, n int64) ([]byte, error) { return g.Alloc(int(n)) }
			}
			p, err := take(k, m.place+v, size)
			if err != nil {
				return err
			}
			switch {
			case m.sound != nil:
				m.sound.put(p, row)
			case m.clip:
				putClip(p, &m.field, row, uint64(in.ID)*driver.MaxVariants+uint64(v))
			default:
				copy(p, row)
			}
			val := &rec.Values[m.place+v]
			*val = driver.Value{Bytes: p}
			if f := &m.field; f.Kind == driver.KindImage || f.Kind == driver.KindMask {
				val.Codec, val.Width, val.Height, val.Channels, val.Orientation = driver.CodecRaw, f.Width, f.Height, f.Channels, 1
			}
		}
	}
	return nil
}

// withoutEntropyCode returns the values of a record, with JPEGs converted to dct if possible. The
// pixels are the same, and each variant then decodes only its crop.
func (s *Source) withoutEntropyCode(w *worker, values []driver.Value) []driver.Value {
	w.vals = append(w.vals[:0], values...)
	for i := range w.vals {
		v, f := &w.vals[i], &s.in.Fields[i]
		if !s.need[i] || f.Kind != driver.KindImage || f.DType != "" || imagefile.Detect(v.Bytes) != driver.CodecJPEG {
			continue
		}
		if head, err := imagefile.Probe(v.Bytes); err != nil || decode.CoefficientMemory(&head) > s.memory {
			continue
		}
		dct, err := w.toDCT.Encode(v.Bytes)
		if err != nil {
			continue // the decoder returns the error
		}
		info, err := cdec.DCTInfo(dct)
		if err != nil {
			continue
		}
		w.dct[i] = append(append(w.dct[i][:0], dct...), make([]byte, 64)...) // decoders read past the end
		v.Bytes, v.Codec = w.dct[i][:len(dct)], driver.CodecDCT
		v.Width, v.Height, v.Channels, v.Orientation = int32(info.Width), int32(info.Height), int32(info.Components), 1
	}
	return w.vals
}

// row returns the row of variant v of an array.
func (w *worker) row(s *Source, m *made, v int) []byte {
	a := w.batch.Array(m.array)
	if !a.Ragged {
		return w.batch.Row(m.array, v)
	}
	offset := func(i int) int64 {
		return int64(binary.LittleEndian.Uint64(w.slot[a.Offsets+8*int64(i):])) * a.ElementBytes()
	}
	return w.slot[a.Offset+offset(v) : a.Offset+offset(v+1)]
}
