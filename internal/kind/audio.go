package kind

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Audio is encoded sound, as in a file: bytes in a batch. With operations it is decoded to samples, to which the
// operations apply.
var Audio = Kind{Name: driver.KindAudio, Plan: planAudio}

func planAudio(p *Planner, wants []Want) (makers []Maker, err error) {
	var plain, worked []Want
	for _, w := range wants {
		if len(w.Out.Ops) > 0 {
			worked = append(worked, w)
		} else {
			plain = append(plain, w)
		}
	}
	if len(plain) > 0 {
		if makers, err = planRagged(ofBytes, nil)(p, plain); err != nil {
			return nil, err
		}
	}
	if len(worked) > 0 {
		m, err := planSound(p, worked)
		if err != nil {
			return nil, err
		}
		makers = append(makers, m)
	}
	return makers, nil
}

// Heard describes a sample of a field's recordings.
type Heard struct {
	// Info is that of one recording; Rate and Channels are 0 if they differ.
	audio.Info
	// Count is the number of recordings in the sample. Shortest and Longest are in seconds.
	Count             int
	Shortest, Longest float64
	// Slowest is the lowest rate of them.
	Slowest int
	// FramesPerByte is the most of them.
	FramesPerByte float64
	// Formats are the formats of the sample.
	Formats []string
	// Err is the error of the first unreadable recording, with its name.
	Err error
}

// listenTo is the number of recordings in the sample.
const listenTo = 12

// Listen samples recordings of a field from the whole source. Unreadable or damaged ones are not counted: they are
// errors when they are loaded. The first such error is in Heard.Err.
func Listen(ctx context.Context, src driver.Source, field int) (h Heard, err error) {
	info := src.Info()
	if info.Sequential {
		return h, nil
	}
	obj := recordread.NewObjects(src, nil)
	defer func() {
		if cerr := obj.Close(); err == nil {
			err = cerr
		}
	}()
	r := recordread.NewDirect(src, obj)
	r.Want = make([]bool, len(info.Fields))
	r.Want[field] = true
	for i := range min(info.Len, listenTo) {
		id := i * (info.Len - 1) / max(min(info.Len, listenTo)-1, 1)
		recs, err := r.Read(ctx, []int64{id})
		if err != nil {
			return h, err
		}
		err = recs[0].Err
		if err == nil {
			b := recs[0].Values[field].Bytes
			var one audio.Info
			if one, err = probe(b); err == nil {
				h.add(&one, len(b))
			} else {
				err = fmt.Errorf("%s: %w", src.Name(id), err)
			}
		}
		if h.Err == nil {
			h.Err = err
		}
	}
	return h, nil
}

// first returns the reason why no recording can be read, if there is one: err is then only a consequence.
func (h *Heard) first(w *Want, err error) error {
	if h.Count > 0 || h.Err == nil {
		return err
	}
	return fmt.Errorf("field %q: none of the recordings that were looked at can be read: %w", w.F.Name, h.Err)
}

// probe reads headers from bytes that may be mapped and no longer exist.
func probe(b []byte) (info audio.Info, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault("looking at a recording", r)
		}
	}()
	return audio.Probe(b)
}

func (h *Heard) add(one *audio.Info, size int) {
	seconds := one.Seconds()
	if h.Count == 0 {
		h.Info, h.Shortest, h.Longest, h.Slowest = *one, seconds, seconds, one.Rate
	}
	h.Count++
	h.Shortest, h.Longest, h.Slowest = min(h.Shortest, seconds), max(h.Longest, seconds), min(h.Slowest, one.Rate)
	if one.Rate != h.Rate {
		h.Rate = 0
	}
	if one.Channels != h.Channels {
		h.Channels = 0
	}
	if one.Encoding != h.Encoding {
		h.Encoding = ""
	}
	if !slices.Contains(h.Formats, one.Format) {
		h.Formats = append(h.Formats, one.Format)
	}
	switch {
	case one.FrameBytes > 0: // headers do not count
		h.FramesPerByte = max(h.FramesPerByte, 1/float64(one.FrameBytes))
	case size > 0:
		h.FramesPerByte = max(h.FramesPerByte, float64(one.Frames)/float64(size))
	}
}

// sounds builds rows of recordings.
type sounds struct {
	p    *Planner
	outs []soundOutput
}

type soundOutput struct {
	Column
	prog  *transform.SoundProgram
	field int
	// longest is about how many samples of each channel the longest recording has.
	longest int64
}

func planSound(p *Planner, wants []Want) (Maker, error) {
	m := &sounds{p: p}
	heard := map[int]Heard{}
	for i := range wants {
		w := &wants[i]
		if err := p.checkFollow(w); err != nil {
			return nil, err
		}
		h, ok := heard[w.Field]
		if !ok {
			var err error
			if h, err = Listen(context.Background(), p.Source, w.Field); err != nil {
				return nil, fmt.Errorf("field %q: looking at recordings: %w", w.F.Name, err)
			}
			heard[w.Field] = h
		}
		prog, err := transform.CompileSound(w.Out, transform.SoundInput{Rate: h.Rate, Channels: h.Channels})
		if err != nil {
			return nil, h.first(w, err)
		}
		shape, ragged := prog.Shape()
		o := soundOutput{Column: w.Column(prog.DType, shape), prog: prog, field: w.Field}
		o.longest = int64(float64(w.F.MaxBytes) * h.FramesPerByte)
		if ragged {
			if err := o.room(p, w, &h); err != nil {
				return nil, h.first(w, err)
			}
		}
		m.outs = append(m.outs, o)
	}
	return m, nil
}

// room computes the capacity of a batch for rows of any length. It assumes that all files have as many samples per byte
// as the densest one of the sample. It doubles that unless all are WAV files, because the ratio varies in other
// formats.
func (o *soundOutput) room(p *Planner, w *Want, h *Heard) error {
	if h.FramesPerByte == 0 || w.F.MaxBytes <= 0 {
		return fmt.Errorf("output %q: it is not known how long the recordings of %s can get, so that there is no room for them in a batch; "+
			"cut them with audio.RandomCrop, audio.CenterCrop or audio.PadOrTrim", w.Out.Name, p.Info.URL)
	}
	perByte := h.FramesPerByte * o.prog.Expansion(max(h.Slowest, 1)) * float64(o.prog.DType.Size())
	if len(h.Formats) > 1 || h.Formats[0] != "wav" {
		perByte *= 2
	}
	element := int64(o.DType.Size())
	for _, side := range o.Shape {
		element *= int64(side)
	}
	beside := o.prog.Beside()
	o.Ragged = true
	o.MaxRow = int64(float64(w.F.MaxBytes)*perByte) + beside*element
	o.Capacity = int64(float64(largestBatch(p, w.Field))*perByte) + beside*element*int64(p.BatchSize)
	if o.MaxRow > collate.MaxBatch/int64(p.BatchSize) || o.Capacity > collate.MaxBatch {
		return fmt.Errorf("output %q: rows of up to %d bytes in batches of %d do not fit a batch of a terabyte; "+
			"cut them with audio.RandomCrop, audio.CenterCrop or audio.PadOrTrim", w.Out.Name, o.MaxRow, p.BatchSize)
	}
	return nil
}

// Columns implements Maker.
func (m *sounds) Columns() []Column {
	cols := make([]Column, len(m.outs))
	for i := range m.outs {
		cols[i] = m.outs[i].Column
	}
	return cols
}

// Rates sets the samples per second of the outputs, 0 if they differ.
func (m *sounds) Rates(to map[string]int) {
	for i := range m.outs {
		if o := &m.outs[i]; o.prog.Rate > 0 {
			to[o.Name] = o.prog.Rate
		}
	}
}

// Cost implements Maker. A recording is like an image of as many pixels as it has
// samples.
func (m *sounds) Cost() (c Cost) {
	for i := range m.outs {
		o := &m.outs[i]
		const side = 1 << 12
		c.Images = append(c.Images, budget.Image{
			MaxBytes: m.p.Info.Fields[o.field].MaxBytes, MaxWidth: side, MaxHeight: o.longest/side + 1,
			PixelBytes: int64(4 * max(o.prog.In.Channels, 1)), Kept: true,
		})
	}
	return c
}

// NewWorker implements Maker.
func (m *sounds) NewWorker(t *Tools) (Worker, error) {
	// The decoder brings its memory, and more for values that do not fit.
	if _, err := t.Decoder(); err != nil {
		return nil, err
	}
	return &soundWorker{m: m, t: t}, nil
}

// soundWorker builds rows of recordings in one goroutine.
type soundWorker struct {
	m   *sounds
	t   *Tools
	dec audio.Decoder
}

// Make implements Worker.
func (w *soundWorker) Make(g *RowGroup) {
	start := time.Now()
	for i := range w.m.outs {
		o := &w.m.outs[i]
		g.each(w.m.p.Info.Fields[o.field].Name, func(k int) error { return w.row(g, k, o) })
	}
	g.DecodeTime += time.Since(start)
}

func (w *soundWorker) row(g *RowGroup, k int, o *soundOutput) error {
	mem := soundMemory{w.t.scratch.sound}
	mem.Reset()
	defer w.dec.Forget() // so that no record's bytes stay alive
	rec := &g.Records[k]
	if err := w.dec.Open(rec.Values[o.field].Bytes); err != nil {
		return err
	}
	row, err := o.prog.Run(&w.dec, w.dec.Rate, w.dec.Channels, w.dec.Frames, w.m.p.Seed, g.Epoch, g.Draw(k), mem)
	if err != nil {
		return err
	}
	if !o.Ragged {
		return row.Put(g.Batch.Row(o.Array, g.First+k), mem)
	}
	b, err := mem.Alloc(int(row.Bytes()))
	if err != nil {
		return mem.short(err, row.Bytes())
	}
	if err := row.Put(b, mem); err != nil {
		return err
	}
	if int64(len(b)) > o.MaxRow {
		return fmt.Errorf("it lasts %.1f s, longer than the recordings that were looked at let expect; cut it with audio.RandomCrop, audio.CenterCrop or audio.PadOrTrim", w.dec.Seconds())
	}
	return g.Batch.Put(o.Array, g.First+k, b)
}

// Close implements Worker.
func (w *soundWorker) Close() { w.dec.Close() }

// soundMemory provides memory until the next record.
type soundMemory struct{ *arena.Bump }

// Floats implements transform.SoundMemory.
func (m soundMemory) Floats(n int64) ([]float32, error) {
	b, err := m.Alloc(int(4 * n))
	if err != nil {
		return nil, m.short(err, 4*n)
	}
	return csound.Floats(b), nil
}

func (m soundMemory) short(err error, n int64) error {
	return fmt.Errorf("the recording needs %d MiB more memory: %w; raise memory, or cut it earlier in the list", (n+1<<20-1)>>20, err)
}
