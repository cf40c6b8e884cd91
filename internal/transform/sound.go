package transform

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/item"
)

// Sound is processed as planes of float32: one for each channel, or, for a spectrogram, one for each band of each
// channel. A list of operations compiles into a SoundProgram. Operations that do not need a whole recording (crops,
// Resample, Mono, gains) are pulled. The final samples determine the samples needed before, back to the decoded ones.
// The other operations change the pulled samples.
//
// To add an operation: write a Spec for it, list it in soundSpecs and implement
// pulledOp or soundOp.

// Recording is the input of a program.
type Recording interface {
	// Decode writes samples [from, from+n) of each channel. Channel c begins at dst[c*stride]. Samples outside of the
	// recording are 0.
	Decode(dst []float32, stride int, from, n int64) error
}

// SoundInput describes recordings. 0 means that a value differs or is not known.
type SoundInput struct{ Rate, Channels int }

// soundShape is the shape of a signal at a position in a list. 0 means that a value differs from record to record, and
// for bands that the signal is samples.
type soundShape struct {
	SoundInput
	bands  int
	length int64
	// mono reports whether there is one channel because Mono made it.
	mono bool
}

// soundOp is an operation on all of a recording.
type soundOp interface {
	// plan checks the operation against its input s, and changes s to its output.
	plan(s *soundShape) error
	apply(r *Rand, x *signal, m SoundMemory) error
}

// pulledOp is an operation that makes any part of its output of a part of its input.
type pulledOp interface {
	plan(s *soundShape) error
	// draw decides the parameters for a recording of shape of. The result goes to pull. draw changes of to the shape
	// after the operation.
	draw(r *Rand, of *soundShape) (soundDraw, error)
	// pull makes samples [from, from+n). The caller asks only for existing ones.
	pull(d *soundDraw, before *puller, dst []float32, stride int, from, n int64) error
}

// soundDraw holds the drawn parameters of an operation: the start of a crop, a gain.
type soundDraw struct {
	start  int64
	gain   float32
	resamp *csound.Resampler
}

// SoundMemory provides floats that are valid until the record is done, 64-byte aligned, with some readable floats after
// them.
type SoundMemory interface {
	Floats(n int64) ([]float32, error)
}

// signal is sound between two operations: plane p begins at data[p*stride].
type signal struct {
	soundShape
	data   []float32
	stride int64
}

func (x *signal) planes() int { return x.Channels * max(x.bands, 1) }

func (x *signal) plane(p int) []float32 {
	at := int64(p) * x.stride
	return x.data[at : at+x.length : at+x.length]
}

// SoundProgram is a compiled list of operations. It does not change, and all workers share it.
type SoundProgram struct {
	Name string
	In   SoundInput
	// Rate is the one of the samples that come out, 0 when it differs.
	Rate int
	// DType is the type of the values of a row.
	DType item.DType

	out soundShape
	key uint64
	ops []any
}

// CompileSound compiles the operations of an output.
func CompileSound(out Output, in SoundInput) (*SoundProgram, error) {
	p, err := compileSound(out, in)
	if err != nil {
		return nil, fmt.Errorf("output %q: %w", out.Name, err)
	}
	return p, nil
}

func compileSound(out Output, in SoundInput) (*SoundProgram, error) {
	switch {
	case len(out.Ops) > maxOps:
		return nil, fmt.Errorf("%d operations, the limit is %d", len(out.Ops), maxOps)
	case out.Mask || out.Mode != "" || out.Depth != 0:
		return nil, fmt.Errorf("mask, mode and depth are for images")
	}
	p := &SoundProgram{Name: out.Name, In: in, key: outputKey(out.Name), DType: item.F32}
	if out.Follow != "" {
		p.key = outputKey(out.Follow)
	}
	s := soundShape{SoundInput: in}
	for i, raw := range out.Ops {
		op, err := parseSoundOp(raw)
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
		if t, ok := op.(*soundDType); ok {
			if i != len(out.Ops)-1 {
				return nil, fmt.Errorf("operation %d: ToDtype of sound comes last", i+1)
			}
			p.DType = t.dtype
			break
		}
		if err := op.(interface{ plan(*soundShape) error }).plan(&s); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i+1, err)
		}
		p.ops = append(p.ops, op)
	}
	if s.Channels == 0 {
		return nil, fmt.Errorf("the number of channels is not the same for all recordings, or not known: put stoker.audio.Mono() into the list")
	}
	p.Rate, p.out = s.Rate, s
	if s.length > 0 && p.values(s.length) > maxOutputBytes/4 {
		return nil, fmt.Errorf("one row has %d values, the limit is %d", p.values(s.length), maxOutputBytes/4)
	}
	return p, nil
}

func (p *SoundProgram) values(length int64) int64 {
	return length * int64(p.out.Channels) * int64(max(p.out.bands, 1))
}

// Shape is the shape of a row. A row of fixed length is [channels, samples] or [channels, bands, frames]. A ragged row
// has time as its first axis, and the result has only the others: [channels] or [channels, bands]. Without the axis of
// channels, after Mono, these are nothing or [bands].
func (p *SoundProgram) Shape() (shape []int, ragged bool) {
	s := &p.out
	if s.length > 0 {
		shape = []int{s.Channels}
		if s.bands > 0 {
			shape = append(shape, s.bands)
		}
		return append(shape, int(s.length)), false
	}
	if !s.mono {
		shape = append(shape, s.Channels)
	}
	if s.bands > 0 {
		shape = append(shape, s.bands)
	}
	return shape, true
}

// Expansion returns the approximate number of values in a row per sample of each channel, for recordings of a rate.
func (p *SoundProgram) Expansion(rate int) float64 {
	s := soundShape{SoundInput: SoundInput{rate, max(p.In.Channels, 1)}, length: int64(rate) * 60}
	before := s.length
	for _, op := range p.ops {
		if err := op.(interface{ plan(*soundShape) error }).plan(&s); err != nil || s.length == 0 {
			return float64(p.values(before)) / float64(before)
		}
	}
	return float64(p.values(s.length)) / float64(before)
}

// Beside is the most values of a channel or band that operations add to a row.
func (p *SoundProgram) Beside() int64 {
	n := int64(8) // frames at both ends
	for _, op := range p.ops {
		if pad, ok := op.(*padSound); ok {
			n += pad.multiple
		}
	}
	return n
}

// fixed reports whether all rows have one length.
func (p *SoundProgram) fixed() bool { return p.out.length > 0 }

// run does the operations on a recording that info describes.
func (p *SoundProgram) run(rec Recording, info soundShape, base uint64, m SoundMemory) (*signal, error) {
	x := &signal{soundShape: info}
	pull := &puller{rec: rec, shape: info, memory: m}
	for i, op := range p.ops {
		r := opRand(base, i)
		if po, ok := op.(pulledOp); ok {
			next := &puller{before: pull, op: po, shape: pull.shape, memory: m}
			var err error
			if next.drawn, err = po.draw(&r, &next.shape); err != nil {
				return nil, err
			}
			pull = next
			continue
		}
		if err := pull.all(x); err != nil {
			return nil, err
		}
		if err := op.(soundOp).apply(&r, x, m); err != nil {
			return nil, err
		}
		pull = &puller{x: x, shape: x.soundShape, memory: m}
	}
	if pull.x == nil || pull.x != x {
		if err := pull.all(x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// SoundRow is the row of a record. Put writes it.
type SoundRow struct {
	p *SoundProgram
	x *signal
}

// Run works on a recording, drawing the numbers of a record of an epoch. The row is
// valid until the memory is.
func (p *SoundProgram) Run(rec Recording, rate, channels int, frames int64, seed uint64, epoch, record int64, m SoundMemory) (SoundRow, error) {
	switch {
	case p.In.Rate > 0 && rate != p.In.Rate:
		return SoundRow{}, fmt.Errorf("it is sampled at %d Hz, others at %d; put stoker.audio.Resample into the list", rate, p.In.Rate)
	case p.In.Channels > 0 && channels != p.In.Channels:
		return SoundRow{}, fmt.Errorf("it has %d channels, others %d; put stoker.audio.Mono() into the list", channels, p.In.Channels)
	}
	x, err := p.run(rec, soundShape{SoundInput: SoundInput{rate, channels}, length: frames}, recordKey(seed, epoch, record, p.key), m)
	if err != nil {
		return SoundRow{}, err
	}
	if p.fixed() && x.length != p.out.length || x.Channels != p.out.Channels || x.bands != p.out.bands {
		return SoundRow{}, fmt.Errorf("a row of %d channels, %d bands and length %d where %+v was planned", x.Channels, x.bands, x.length, p.out)
	}
	return SoundRow{p, x}, nil
}

// Bytes is the size of the row.
func (r *SoundRow) Bytes() int64 { return r.p.values(r.x.length) * int64(r.p.DType.Size()) }

// Put writes the row to dst, which has room for it.
func (r *SoundRow) Put(dst []byte, m SoundMemory) error {
	x := r.x
	if r.p.DType != item.F32 {
		f, err := m.Floats(r.p.values(x.length))
		if err != nil {
			return err
		}
		r.put(f)
		putHalf(dst, f, r.p.DType)
		return nil
	}
	if csound.Aligned(dst) {
		r.put(csound.Floats(dst))
		return nil
	}
	f, err := m.Floats(r.p.values(x.length))
	if err != nil {
		return err
	}
	r.put(f)
	copy(dst, csound.Bytes(f))
	return nil
}

func (r *SoundRow) put(dst []float32) {
	x, n := r.x, int64(r.x.planes())
	if r.p.fixed() || n == 1 {
		for p := range n {
			copy(dst[p*x.length:(p+1)*x.length], x.plane(int(p)))
		}
		return
	}
	// Time comes first. In blocks, so that both sides stay in the cache.
	const block = 64
	for t0 := int64(0); t0 < x.length; t0 += block {
		t1 := min(t0+block, x.length)
		for p := range n {
			src := x.plane(int(p))[t0:t1]
			to := dst[t0*n+p:]
			for i, v := range src {
				to[int64(i)*n] = v
			}
		}
	}
}

// puller makes any part of a signal: of a recording, of finished operations' output, or of an operation on another
// puller.
type puller struct {
	rec    Recording
	x      *signal
	before *puller
	op     pulledOp
	drawn  soundDraw
	shape  soundShape
	memory SoundMemory
}

// all makes the whole signal.
func (p *puller) all(x *signal) error {
	if p.x != nil { // it is one already
		return nil
	}
	data, err := p.memory.Floats(p.shape.length * int64(p.shape.Channels))
	if err != nil {
		return err
	}
	if err := p.get(data, int(p.shape.length), 0, p.shape.length); err != nil {
		return err
	}
	*x = signal{soundShape: p.shape, data: data, stride: p.shape.length}
	return nil
}

// get makes samples [from, from+n); those outside of the signal are 0.
func (p *puller) get(dst []float32, stride int, from, n int64) error {
	if p.rec != nil {
		return p.rec.Decode(dst, stride, from, n)
	}
	lo, hi := max(from, 0), min(from+n, p.shape.length)
	if hi < lo {
		lo, hi = from, from
	}
	for c := range p.shape.Channels {
		row := dst[c*stride : int64(c*stride)+n]
		clear(row[:lo-from])
		clear(row[hi-from:])
		if p.x != nil {
			copy(row[lo-from:hi-from], p.x.plane(c)[lo:hi])
		}
	}
	if p.x != nil || hi == lo {
		return nil
	}
	return p.op.pull(&p.drawn, p.before, dst[lo-from:], stride, lo, hi-lo)
}

// temp makes samples [from, from+n) in memory of its own.
func (p *puller) temp(from, n int64) ([]float32, error) {
	f, err := p.memory.Floats(n * int64(p.shape.Channels))
	if err != nil {
		return nil, err
	}
	return f, p.get(f, int(n), from, n)
}

// soundDType is ToDtype of sound.
type soundDType struct{ dtype item.DType }

var decodeSpec = Spec{
	Name: "audio.Decode", Doc: "Decode, and do nothing else.", More: "The other transforms of audio decode as well.", Kinds: sounds,
	Returns: "[channels, samples] of float32, from -1 to 1; recordings of different lengths come as Ragged of [samples, channels].", Example: "audio.Decode()",
	sound: func(*Args) (Op, error) { return asIs{}, nil },
}

func buildSoundDType(a *Args) (Op, error) { return &soundDType{buildHalf(a, "sound")}, nil }

// parseSoundOp reads one operation.
func parseSoundOp(raw json.RawMessage) (Op, error) {
	name, vals, err := splitOp(raw)
	if err != nil {
		return nil, err
	}
	op, err := buildOp(func(s *Spec) builder { return s.sound }, name, vals, opContext{pixels: item.PixelType{DType: item.F32, Channels: 1}})
	switch {
	case op != nil || err != nil:
		return op, err
	case is(onImages, name):
		return nil, fmt.Errorf("%s is for images, this is audio%s", name, instead(name))
	case is(onBatches, name):
		return nil, fmt.Errorf("%s works on whole batches, not on single records: it comes last in the list of a loader", name)
	}
	return nil, fmt.Errorf("there is no operation %q on audio%s", name, DidYouMean(name, names(onSound)))
}

// instead names the operation on sound that is meant by one on images.
func instead(name string) string {
	switch name {
	case "RandomCrop", "RandomResizedCrop":
		return "; use audio.RandomCrop"
	case "CenterCrop":
		return "; use audio.CenterCrop"
	}
	return ""
}

// putHalf converts to float16 or bfloat16.
func putHalf(dst []byte, src []float32, t item.DType) {
	for i, v := range src {
		t.Append(dst[2*i:2*i], float64(v))
	}
}

// maxSamples bounds a recording that is worked on as a whole.
const maxSamples = math.MaxInt32
