// Package tokenized turns the texts of another source into documents of tokens, for packing. The
// packer runs it on all cores, within its memory budget, and resumes it after an interruption.
package tokenized

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/tokenizer"
	"github.com/stokerdata/stoker/source/driver"
)

// Field is the name of the field of tokens.
const Field = "tokens"

// Options set what is tokenised.
type Options struct {
	// Tokenizer makes the tokens. Hash identifies it and its options.
	Tokenizer *tokenizer.Tokenizer
	Hash      string
	// Text is the field of text; "" is "text", or the only field of text or bytes.
	Text string
	// Keep keeps the other fields.
	Keep bool
	// End is a token to append to each document, -1 for none.
	End int64
}

// source is another source with tokens instead of text.
type source struct {
	driver.Mapped
	info  driver.Info
	opt   Options
	text  int   // index of the text field in base
	field []int // by field, its index in base
	want  []bool
	wide  bool // uint32
	works sync.Pool
}

// work is the scratch memory of a group or of a text.
type work struct {
	g      driver.Group
	tokens []uint32
}

// ordered is a source that can only be read in order.
type ordered struct {
	*source
	driver.InOrderOnly
	seq driver.Sequential
}

// Open returns a source with tokens instead of the texts of base. The returned source closes base.
// If Open fails, the caller still owns base.
func Open(base driver.Source, opt *Options) (driver.Source, error) {
	s := &source{opt: *opt}
	s.Base = base
	s.Field = func(field int) (int, bool) { return s.field[field], s.field[field] != s.text }
	// Packs of tokens have no paths, and parts of volumes are not asked for.
	s.Without = []any{(*driver.Pather)(nil), (*driver.Cutter)(nil)}
	of := base.Info()
	var err error
	if s.text, err = textOf(of, opt.Text); err != nil {
		return nil, err
	}
	s.info = driver.Info{URL: of.URL, Format: of.Format, Len: of.Len, Objects: of.Objects, Sequential: of.Sequential, BadFiles: of.BadFiles, Bad: of.Bad}
	s.want = make([]bool, len(of.Fields))
	for i := range of.Fields {
		f := of.Fields[i]
		if i == s.text {
			f = driver.Field{Name: Field, Kind: driver.KindTokens, DType: driver.Uint16}
			if s.wide = opt.Tokenizer.Vocabulary() > math.MaxUint16+1; s.wide {
				f.DType = driver.Uint32
			}
		} else if !opt.Keep {
			continue
		} else if f.Name == Field {
			return nil, fmt.Errorf("%s already has a field %q: rename it or leave it out with --field", of.URL, Field)
		}
		s.want[i] = true
		s.field = append(s.field, i)
		s.info.Fields = append(s.info.Fields, f)
	}
	h := xxh3.New()
	_, _ = h.WriteString(fmt.Sprintf("%s\x00%s\x00%s\x00%v\x00%d", of.Fingerprint, opt.Hash, of.Fields[s.text].Name, opt.Keep, opt.End))
	s.info.Fingerprint = filelist.Sum(h)
	s.works.New = func() any { return new(work) }
	if seq, ok := driver.As[driver.Sequential](base); ok {
		return &ordered{source: s, seq: seq}, nil
	}
	return s, nil
}

// textOf finds the field of text.
func textOf(info *driver.Info, name string) (int, error) {
	var found []int
	var all []string
	for i := range info.Fields {
		f := &info.Fields[i]
		ok := f.Kind == driver.KindText || f.Kind == driver.KindBytes
		all = append(all, fmt.Sprintf("%s (%s)", f.Name, f.Kind))
		switch {
		case f.Name == name && !ok:
			return 0, fmt.Errorf("field %q of %s has kind %s, expected text", name, info.URL, f.Kind)
		case ok && (f.Name == name || name == "" && f.Name == "text"):
			return i, nil
		case ok && name == "":
			found = append(found, i)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	what := "no field of text"
	if name != "" {
		what = fmt.Sprintf("no field %q", name)
	} else if len(found) > 1 {
		what = "several fields of text"
	}
	return 0, fmt.Errorf("%s has %s: its fields are %s; choose one with --text-field", info.URL, what, strings.Join(all, ", "))
}

// Info implements driver.Source.
func (s *source) Info() *driver.Info { return &s.info }

// locate calls Locate of the base for the records of g.
func (s *source) locate(w *work, g *driver.Group) error {
	w.g.Want, w.g.Alloc, w.g.Place, w.g.Unproven = s.want, g.Alloc, nil, g.Unproven
	w.g.Begin(g.IDs, len(s.want))
	return recordread.LocateOnce(s.Base, &w.g)
}

// Locate implements driver.Source.
func (s *source) Locate(g *driver.Group) {
	w := s.works.Get().(*work)
	defer s.works.Put(w)
	err := s.locate(w, g)
	for k := range g.Records {
		rec := &g.Records[k]
		if rec.Err == nil {
			rec.Err = err
		}
		if err == nil {
			if rec.Err != nil { // already
				g.Next()
				continue
			}
			rec.Err = w.g.Records[k].Err
			for _, e := range w.g.Extents[w.g.First[k]:w.g.First[k+1]] {
				e.Field = -1 // fields have other numbers
				g.Extents = append(g.Extents, e)
			}
		}
		g.Next()
	}
	if err == nil {
		g.Missing = append(g.Missing, w.g.Missing...)
	}
}

// Parse implements driver.Source.
func (s *source) Parse(g *driver.Group) error {
	w := s.works.Get().(*work)
	defer s.works.Put(w)
	if err := s.locate(w, g); err != nil {
		return err
	}
	w.g.Bytes = append(w.g.Bytes[:0], make([][]byte, len(w.g.Extents))...)
	for k := range g.Records {
		_, b := g.Of(k)
		of := w.g.Bytes[w.g.First[k]:w.g.First[k+1]]
		switch rec := &g.Records[k]; {
		case rec.Err != nil: // it could not be read
			w.g.Records[k].Err = rec.Err
		case len(b) != len(of):
			return fmt.Errorf("internal error: %s is located in %d extents and then in %d", s.Base.Name(rec.ID), len(b), len(of))
		default:
			copy(of, b)
		}
	}
	err := s.Base.Parse(&w.g)
	clear(w.g.Bytes)
	if err != nil {
		return err
	}
	for k := range g.Records {
		rec, from := &g.Records[k], &w.g.Records[k]
		if rec.Err != nil {
			continue
		}
		if rec.Err = from.Err; rec.Err != nil {
			continue
		}
		err := s.values(rec, from, w, func(field int, n int64) ([]byte, error) { return g.Take(k, field, n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// values makes the values of a record from the values of the base.
func (s *source) values(rec, from *driver.Record, w *work, take func(field int, n int64) ([]byte, error)) error {
	for i, of := range s.field {
		if of != s.text {
			rec.Values[i] = from.Values[of]
			continue
		}
		w.tokens = s.opt.Tokenizer.Append(w.tokens[:0], from.Values[of].Bytes)
		if s.opt.End >= 0 {
			w.tokens = append(w.tokens, uint32(s.opt.End))
		}
		size := 2
		if s.wide {
			size = 4
		}
		b, err := take(i, int64(size*len(w.tokens)))
		if err != nil {
			return err
		}
		for k, t := range w.tokens {
			if s.wide {
				binary.LittleEndian.PutUint32(b[4*k:], t)
			} else {
				binary.LittleEndian.PutUint16(b[2*k:], uint16(t))
			}
		}
		rec.Values[i].Bytes = b
	}
	return nil
}

// Locate implements driver.Source.
func (s *ordered) Locate(g *driver.Group) { s.InOrderOnly.Locate(g) }

// Parse implements driver.Source.
func (s *ordered) Parse(g *driver.Group) error { return s.InOrderOnly.Parse(g) }

// Token implements driver.Sequential.
func (s *ordered) Token(id int64) string { return s.seq.Token(id) }

// Memory implements driver.Sequential.
func (s *ordered) Memory() int64 { return s.seq.Memory() }

// Records implements driver.Sequential.
func (s *ordered) Records(ctx context.Context, token string, in *driver.InOrder) error {
	w := new(work)
	own := driver.Record{Values: make([]driver.Value, len(s.field))}
	place := make([]int, len(s.want)) // by field of the base, its index here, -1 for none
	for i := range place {
		place[i] = -1
	}
	for i, of := range s.field {
		if of != s.text {
			place[of] = i
		}
	}
	return s.seq.Records(ctx, token, &driver.InOrder{
		Read: in.Read,
		Alloc: func(id int64, field int, n int64) ([]byte, error) {
			if place[field] < 0 { // text, or a field that is not kept
				return make([]byte, n+recordread.Tail)[:n], nil
			}
			return in.Alloc(id, place[field], n)
		},
		Record: func(rec *driver.Record) (int64, error) {
			own.ID, own.Err = rec.ID, rec.Err
			clear(own.Values)
			if own.Err == nil {
				own.Err = s.values(&own, rec, w, func(field int, n int64) ([]byte, error) { return in.Alloc(rec.ID, field, n) })
			}
			return in.Record(&own)
		},
	})
}
