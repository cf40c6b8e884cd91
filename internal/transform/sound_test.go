package transform

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/dtype"
)

// ramp is a recording whose samples are their positions.
type ramp struct{ frames, channels, asked int64 }

func (r *ramp) Decode(dst []float32, stride int, from, n int64) error {
	r.asked += n
	for c := range r.channels {
		for i := range n {
			v := float32(0)
			if at := from + i; at >= 0 && at < r.frames {
				v = float32(at+1) + 1000*float32(c)
			}
			dst[int(c)*stride+int(i)] = v
		}
	}
	return nil
}

type testMemory struct{ *arena.Bump }

func (m testMemory) Floats(n int64) ([]float32, error) {
	b, err := m.Alloc(int(4 * n))
	return csound.Floats(b), err
}

func ops(list ...string) (out []json.RawMessage) {
	for _, s := range list {
		out = append(out, json.RawMessage(s))
	}
	return out
}

func soundRow(t *testing.T, p *SoundProgram, rec *ramp, record int64) []float32 {
	t.Helper()
	m := testMemory{arena.NewBump(arena.NewBudget(1<<26), arena.PurposeScratch)}
	defer m.Release()
	row, err := p.Run(rec, 8000, int(rec.channels), rec.frames, 7, 0, record, m)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, row.Bytes())
	if err := row.Put(b, m); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(csound.Floats(b))
}

func TestSoundShapes(t *testing.T) {
	for _, c := range []struct {
		ops    []json.RawMessage
		shape  []int
		ragged bool
	}{
		{ops(`{"op":"audio.Decode"}`), []int{2}, true},
		{ops(`{"op":"audio.Mono"}`), nil, true},
		{ops(`{"op":"audio.Mono"}`, `{"op":"audio.MelSpectrogram","n_mels":40}`), []int{40}, true},
		{ops(`{"op":"audio.MelSpectrogram","n_mels":40}`), []int{2, 40}, true},
		{ops(`{"op":"audio.RandomCrop","seconds":0.5}`), []int{2, 4000}, false},
		{ops(`{"op":"audio.RandomCrop","samples":4000}`, `{"op":"audio.Resample","rate":4000}`), []int{2, 2000}, false},
		{ops(`{"op":"audio.Mono"}`, `{"op":"audio.PadOrTrim","samples":4000}`, `{"op":"audio.Spectrogram","n_fft":200}`), []int{1, 101, 41}, false},
		{ops(`{"op":"audio.PadOrTrim","samples":999}`, `{"op":"audio.Pad","multiple":10}`), []int{2, 1000}, false},
	} {
		p, err := CompileSound(Output{Name: "audio", Ops: c.ops}, SoundInput{8000, 2})
		if err != nil {
			t.Fatal(err)
		}
		if shape, ragged := p.Shape(); !slices.Equal(shape, c.shape) || ragged != c.ragged {
			t.Errorf("%s: shape %v, ragged %v", c.ops, shape, ragged)
		}
	}
}

func TestSoundIsPulled(t *testing.T) {
	p, err := CompileSound(Output{Name: "audio", Ops: ops(`{"op":"audio.Vol","gain":0.0001}`, `{"op":"audio.RandomCrop","samples":50}`, `{"op":"audio.Mono"}`)}, SoundInput{8000, 2})
	if err != nil {
		t.Fatal(err)
	}
	starts := map[float32]bool{}
	for record := range int64(50) {
		rec := &ramp{frames: 400, channels: 2}
		row := soundRow(t, p, rec, record)
		if rec.asked != 50 {
			t.Fatalf("%d samples were decoded for 50", rec.asked)
		}
		if again := soundRow(t, p, rec, record); !slices.Equal(row, again) {
			t.Fatal("another row for the same record")
		}
		first := float32(math.Round(float64(row[0]) * 10000))
		starts[first] = true
		for i, v := range row {
			if want := (first + float32(i)) * 0.0001; math.Abs(float64(v-want)) > 1e-6 {
				t.Fatalf("sample %d is %v, want %v", i, v, want)
			}
		}
		if first < 501 || first > 501+350 {
			t.Fatalf("a piece begins at %v", first)
		}
	}
	if len(starts) < 30 {
		t.Errorf("%d different pieces of 50", len(starts))
	}
}

// Rows of any length have time first; other types than float32 are rounded.
func TestSoundRows(t *testing.T) {
	p, err := CompileSound(Output{Name: "audio", Ops: ops(`{"op":"Normalize","mean":[1],"std":[2]}`)}, SoundInput{8000, 3})
	if err != nil {
		t.Fatal(err)
	}
	row := soundRow(t, p, &ramp{frames: 130, channels: 3}, 0)
	for i, v := range row {
		if want := (float32(i/3) + 1000*float32(i%3)) / 2; v != want {
			t.Fatalf("value %d is %v, want %v", i, v, want)
		}
	}
	p, err = CompileSound(Output{Name: "audio", Ops: ops(`{"op":"audio.Mono"}`, `{"op":"ToDtype","dtype":"float16"}`)}, SoundInput{8000, 1})
	if err != nil || p.DType != dtype.F16 {
		t.Fatal(p.DType, err)
	}
	m := testMemory{arena.NewBump(arena.NewBudget(1<<26), arena.PurposeScratch)}
	defer m.Release()
	r, err := p.Run(&ramp{frames: 5, channels: 1}, 8000, 1, 5, 0, 0, 0, m)
	b := make([]byte, 10)
	if err != nil || r.Bytes() != 10 || r.Put(b, m) != nil || dtype.F16.Float(b[6:]) != 4 {
		t.Errorf("%v, %d bytes, %v", err, r.Bytes(), b)
	}
}

func TestSoundRefused(t *testing.T) {
	for want, list := range map[string][]json.RawMessage{
		"put stoker.audio.Mono()":               ops(`{"op":"audio.Decode"}`),
		"there is no operation":                 ops(`{"op":"Monno"}`),
		`did you mean "audio.PadOrTrim"?`:       ops(`{"op":"PadOrTrim"}`),
		"RandomCrop is for images":              ops(`{"op":"RandomCrop","size":3}`),
		"whole batches":                         ops(`{"op":"MixUp"}`),
		"ToDtype of sound comes last":           ops(`{"op":"ToDtype"}`, `{"op":"audio.Mono"}`),
		"move it before the spectrogram":        ops(`{"op":"audio.Mono"}`, `{"op":"audio.Spectrogram"}`, `{"op":"audio.Vol","gain":1}`),
		"works on samples, and not":             ops(`{"op":"audio.Mono"}`, `{"op":"audio.Spectrogram"}`, `{"op":"audio.Spectrogram"}`),
		"too few to be reflected":               ops(`{"op":"audio.Mono"}`, `{"op":"audio.PadOrTrim","samples":100}`, `{"op":"audio.Spectrogram"}`),
		"less than a window":                    ops(`{"op":"audio.Mono"}`, `{"op":"audio.PadOrTrim","samples":100}`, `{"op":"audio.Spectrogram","center":false}`),
		"n_fft must be a whole number from 2":   ops(`{"op":"audio.Spectrogram","n_fft":1}`),
		"rate is missing":                       ops(`{"op":"audio.Resample"}`),
		"samples must be a whole number from 1": ops(`{"op":"audio.PadOrTrim","samples":0}`),
		"gain is missing":                       ops(`{"op":"audio.Vol"}`),
		"f_min is 9000":                         ops(`{"op":"audio.Resample","rate":8000}`, `{"op":"audio.MelSpectrogram","f_min":9000}`),
		"window must be":                        ops(`{"op":"audio.Spectrogram","window":"round"}`),
		"one row has":                           ops(`{"op":"audio.Mono"}`, `{"op":"audio.PadOrTrim","samples":2000000000}`),
		"time_mask_param is missing":            ops(`{"op":"audio.TimeMasking"}`),
	} {
		if _, err := CompileSound(Output{Name: "audio", Ops: list}, SoundInput{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := parseOp(json.RawMessage(`{"op":"audio.Mono"}`), opContext{}); err == nil || !strings.Contains(err.Error(), "for audio") {
		t.Errorf("Mono of an image: %v", err)
	}
}
