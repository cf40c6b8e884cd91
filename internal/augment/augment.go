// Package augment is a source that applies the transforms of a loader to the records of another
// source, one or several times per record. It serves the
// flags --transforms and --augment of stoker pack.
//
// Variant v of a record equals the record that a loader with the same transforms and seed returns
// in epoch v. With several variants a field image becomes the fields image~0, image~1 and so on
// (driver.VariantName). Fields that follow an image, such as its boxes, have as many variants.
package augment

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Options describe the transforms.
type Options struct {
	// Outputs are those of a loader. If images are transformed, every field of images or masks
	// needs an output: without transforms it would no longer fit the others.
	Outputs []transform.Output
	// Variants is the number of variants per record, at least 1. With 1 the fields keep their
	// names.
	Variants int
	// Seed and the number of a record, counted from First, determine the random numbers.
	Seed  uint64
	First int64
	// Audio is the format of packed recordings: Float (the default) or Sixteen.
	Audio string
	// Threads is the number of records that are transformed at the same time. Memory is the
	// limit for that in bytes, 0 for a fraction of the free memory.
	Threads int
	Memory  int64
}

// The default memory is the free memory divided by memoryShare, and at least leastMemory bytes.
const (
	memoryShare = 8
	leastMemory = 64 << 20
)

// made is an array that becomes one field per variant.
type made struct {
	array int
	// place is the number of the field of variant 0. The other variants follow.
	place int
	field driver.Field // with its name without variants
	sound *sound       // nil if it is not a recording
	clip  bool
}

// kept is a field that is not transformed.
type kept struct{ from, place int }

// Source has the transformed records of another source.
type Source struct {
	driver.Mapped
	in     *driver.Info
	info   driver.Info
	opt    Options
	set    *kind.Set
	layout *collate.Layout
	large  *kind.Large
	memory int64 // per worker
	made   []made
	kept   []kept
	// place is the number here of each field of the source that is kept, -1 for the others. need
	// marks the fields that the transforms read.
	place []int
	need  []bool
	from  []int // the field of the source, by field

	mu   sync.Mutex
	idle []*worker
}

// Open wraps src and owns it. If Open fails, src stays open.
func Open(src driver.Source, opt *Options) (driver.Source, error) {
	s := &Source{in: src.Info(), opt: *opt}
	s.Base = src
	s.Field = func(field int) (int, bool) { return s.from[field], s.place[s.from[field]] == field }
	s.Without = []any{(*driver.Cutter)(nil)} // transforms get whole volumes
	if s.in.Sequential {
		return nil, fmt.Errorf("%s can only be read in order, since it is compressed: pack it without transforms, then pack that pack with them", s.in.URL)
	}
	if n := s.opt.Variants; n < 1 || n > driver.MaxVariants {
		return nil, fmt.Errorf("%d variants per record: give 1 to %d", n, driver.MaxVariants)
	}
	if a := s.opt.Audio; a != "" && a != Float && a != Sixteen {
		return nil, fmt.Errorf("audio is %q: use %s or %s", a, Float, Sixteen)
	}
	if len(s.opt.Outputs) == 0 {
		return nil, errors.New("variants need random transforms, and there are none")
	}
	if err := s.plan(); err != nil {
		return nil, err
	}
	if err := s.describe(); err != nil {
		return nil, err
	}
	if err := s.share(); err != nil {
		return nil, err
	}
	return s, nil
}

// follows reports whether the values of a field move with an image that is transformed.
func follows(f *driver.Field) bool {
	return f.Kind == driver.KindBoxes || f.Kind == driver.KindKeyPoints || f.Boxes != ""
}

// plan determines the arrays.
func (s *Source) plan() error {
	named := map[string]bool{}
	outputs := slices.Clone(s.opt.Outputs)
	for i := range outputs {
		o := &outputs[i]
		if o.Field == "" {
			o.Field = o.Name
		}
		if o.Layout != "" && o.Layout != "NHWC" {
			return fmt.Errorf("output %q: packs have the channels of a pixel together (NHWC); ask for another layout when loading", o.Name)
		}
		named[o.Field] = true
	}
	moved := slices.ContainsFunc(s.in.Fields, func(f driver.Field) bool {
		return named[f.Name] && (f.Kind == driver.KindImage || f.Kind == driver.KindMask)
	})
	req := &kind.Request{Outputs: outputs, Fields: []string{outputs[0].Field}}
	s.need = make([]bool, len(s.in.Fields))
	for i := range s.in.Fields {
		f := &s.in.Fields[i]
		if _, _, ok := driver.CutVariant(f.Name); ok && s.opt.Variants > 1 {
			return fmt.Errorf("%s has a field %q, a name that variants need: --rename it", s.in.URL, f.Name)
		}
		switch {
		case named[f.Name]:
		case !moved: // without transforms of images all fields are kept
		case f.Kind == driver.KindImage || f.Kind == driver.KindMask:
			return fmt.Errorf("field %q of %s has no transforms and would no longer fit the transformed fields: add transforms, or --drop it", f.Name, s.in.URL)
		case follows(f):
			req.Fields = append(req.Fields, f.Name)
		}
	}
	var err error
	s.set, err = kind.Open(&kind.Planner{Source: s.Base, Info: s.in, BatchSize: s.opt.Variants, Seed: s.opt.Seed}, req)
	if err != nil {
		return err
	}
	s.need = s.set.Fields()
	s.layout, err = collate.New(s.opt.Variants, s.set.Columns())
	return err
}

// describe determines the fields.
func (s *Source) describe() error {
	s.place = slices.Repeat([]int{-1}, len(s.in.Fields))
	columns := s.set.Columns()
	taken := make([]bool, len(columns))
	var all []made
	add := func(i, from int) error {
		f, err := s.fieldOf(&columns[i], from)
		if err != nil {
			return err
		}
		m := made{array: i, field: f, clip: f.Kind == driver.KindFrames}
		if s.in.Fields[from].Kind == driver.KindAudio {
			if m.sound, err = s.soundOf(&columns[i]); err != nil {
				return err
			}
			if m.sound != nil {
				m.sound.describe(&m.field)
			}
		}
		taken[i] = true
		all = append(all, m)
		return nil
	}
	for i := range s.in.Fields {
		f := &s.in.Fields[i]
		some := false
		for k := range columns {
			if !taken[k] && s.fieldFor(columns[k].Name) == f.Name {
				if err := add(k, i); err != nil {
					return err
				}
				some = true
				s.put(&all[len(all)-1], i)
			}
		}
		if !some {
			s.place[i] = len(s.info.Fields)
			s.kept = append(s.kept, kept{i, s.place[i]})
			s.info.Fields, s.from = append(s.info.Fields, *f), append(s.from, i)
		}
	}
	s.made = all
	seen := map[string]bool{}
	for i := range s.info.Fields {
		name := s.info.Fields[i].Name
		if seen[name] {
			return fmt.Errorf("two fields would have the name %q", name)
		}
		seen[name] = true
	}
	text, err := json.Marshal(s.opt.Outputs)
	if err != nil {
		return err
	}
	h := xxh3.HashString128(fmt.Sprintf("%s\x00%s\x00%d\x00%d\x00%d\x00%s", s.in.Fingerprint, text, s.opt.Variants, s.opt.Seed, s.opt.First, s.opt.Audio)).Bytes()
	s.info.URL, s.info.Format, s.info.Len, s.info.Objects = s.in.URL, s.in.Format, s.in.Len, s.in.Objects
	s.info.Fingerprint = hex.EncodeToString(h[:])
	return nil
}

// fieldFor returns the field of the source from which an array is made.
func (s *Source) fieldFor(array string) string {
	for i := range s.opt.Outputs {
		if o := &s.opt.Outputs[i]; o.Name == array && o.Field != "" {
			return o.Field
		}
	}
	return array
}

// put appends the fields of all variants.
func (s *Source) put(m *made, from int) {
	m.place = len(s.info.Fields)
	for v := range s.opt.Variants {
		f := m.field
		f.Name = s.name(f.Name, v)
		if f.Boxes != "" {
			f.Boxes = s.name(f.Boxes, v)
		}
		s.info.Fields, s.from = append(s.info.Fields, f), append(s.from, from)
	}
}

func (s *Source) name(field string, v int) string {
	if s.opt.Variants == 1 {
		return field
	}
	return driver.VariantName(field, v)
}

// fieldOf returns the field of a pack for an array.
func (s *Source) fieldOf(c *collate.Column, from int) (driver.Field, error) {
	in := &s.in.Fields[from]
	f := driver.Field{Name: c.Name, Kind: in.Kind, Classes: in.Classes, DType: driver.DType(c.DType.String()), Shape: c.Shape, MaxBytes: c.MaxRow}
	if !c.Ragged {
		f.MaxBytes = int64(c.DType.Size())
		for _, n := range c.Shape {
			f.MaxBytes *= int64(n)
		}
	}
	picture := func(channels int) {
		f.DType, f.Shape = "", nil
		f.Height, f.Width, f.Channels = int32(c.Shape[0]), int32(c.Shape[1]), int32(channels)
		f.MaxWidth, f.MaxHeight = f.Width, f.Height
	}
	switch {
	case c.Kind == string(driver.KindMask):
		f.Kind = driver.KindMask
		if c.DType != item.U8 && c.DType != item.U16 {
			return f, fmt.Errorf("field %q: masks are packed as uint8 or uint16, not as %s", c.Name, c.DType)
		}
		t := f.DType
		picture(1)
		f.DType = t
	case in.Kind == driver.KindImage && in.DType == "":
		channels := 1
		if len(c.Shape) == 3 {
			channels = c.Shape[2]
		}
		if c.DType != item.U8 || channels != 1 && channels != 3 {
			return f, fmt.Errorf("field %q: images are packed as uint8 with 1 or 3 channels; leave ToDtype and Normalize to the loader", c.Name)
		}
		picture(channels)
	case in.Kind == driver.KindImage: // a map of numbers
		f.Kind = driver.KindArray
	case in.Kind == driver.KindAudio: // or a spectrogram
		if f.Kind = driver.KindArray; c.Ragged {
			f.Kind = driver.KindRagged
		}
	case c.Ragged:
		f.Boxes, f.Format = c.Boxes, driver.BoxFormat(c.Format)
		if f.Kind == driver.KindMultiLabel {
			f.DType, f.Shape = "", nil
		}
	case in.Kind == driver.KindFrames:
		if c.DType != item.U8 || len(c.Shape) != 4 || c.Shape[3] != 3 {
			return f, fmt.Errorf("field %q: clips are packed as uint8 with 3 channels; leave ToDtype and Normalize to the loader", c.Name)
		}
		f.DType, f.Shape = "", c.Shape[:1]
		f.Height, f.Width = int32(c.Shape[1]), int32(c.Shape[2])
		f.MaxWidth, f.MaxHeight = f.Width, f.Height
		f.MaxBytes = clipBytes(&f, f.MaxBytes)
	case in.Kind == driver.KindVolume:
		f.Mask = in.Mask
	case in.Kind == driver.KindArray:
	default:
		return f, fmt.Errorf("field %q is %s: packs cannot hold the result of its transforms", c.Name, in.Kind)
	}
	return f, nil
}

// share divides the memory among the workers.
func (s *Source) share() error {
	all := s.opt.Memory / 4
	if s.opt.Memory == 0 {
		free, err := proc.Live.FreeMemory()
		if err != nil {
			return fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		all = free / memoryShare
	}
	all = max(all, leastMemory)
	s.opt.Threads = max(s.opt.Threads, 1)
	s.memory = all / 4 / int64(s.opt.Threads)
	s.large = kind.NewLarge(all/2, func(need int64) int64 { return 8 * need })
	return nil
}

// Held implements driver.Holder.
func (s *Source) Held() int64 {
	return driver.Held(s.Base) + s.large.Total() + int64(s.opt.Threads)*(2*s.memory+s.layout.Bytes)
}

// worker transforms one record at a time.
type worker struct {
	rows  *kind.Rows
	batch *collate.Batch
	block *arena.Block
	slot  []byte
	rec   [1]driver.Record
	// toDCT decodes the entropy code of JPEGs, once for all variants. It is nil for one variant.
	toDCT *cdec.DCTEncoder
	dct   [][]byte       // by field of the source
	vals  []driver.Value // of the record
	inner driver.Group
	want  []bool
	ids   []int64
}

// worker returns an idle worker or a new one.
func (s *Source) worker() (*worker, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		w := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return w, nil
	}
	s.mu.Unlock()
	w := &worker{batch: s.layout.NewBatch(), want: make([]bool, len(s.in.Fields)), ids: make([]int64, s.opt.Variants)}
	w.block = arena.NewBlock(arena.NewBudget(2*s.layout.Bytes+1<<22), arena.PurposeScratch)
	var err error
	if w.slot, err = w.block.Bytes(int(s.layout.Bytes)); err != nil {
		return nil, err
	}
	if w.rows, err = s.set.NewRows(1, arena.NewBudget(s.memory), s.memory, s.large); err != nil {
		w.block.Free()
		return nil, err
	}
	if s.opt.Variants > 1 {
		if w.toDCT, err = cdec.NewDCTEncoder(); err != nil {
			w.close()
			return nil, err
		}
		w.dct = make([][]byte, len(s.in.Fields))
	}
	return w, nil
}

func (s *Source) giveBack(w *worker) {
	w.rec[0] = driver.Record{}
	clear(w.vals)
	w.inner.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, w)
}

// Close implements driver.Source.
func (s *Source) Close() error {
	for _, w := range s.idle {
		w.close()
	}
	s.idle = nil
	return s.Base.Close()
}

func (w *worker) close() {
	w.rows.Close()
	w.block.Free()
	if w.toDCT != nil {
		w.toDCT.Close()
	}
}
