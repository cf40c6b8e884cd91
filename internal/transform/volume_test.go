package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/item"
)

// heap gives memory of Go.
type heap struct{}

func (heap) Floats(n int64) ([]float32, error) { return make([]float32, n), nil }

// plainVolume is a volume with an index for each voxel: a reference of the operations, one voxel at a time.
type plainVolume struct {
	channels int
	size     [3]int
	v        []float64
}

func (p *plainVolume) at(c, z, y, x int) *float64 {
	return &p.v[((c*p.size[0]+z)*p.size[1]+y)*p.size[2]+x]
}

// remake makes a volume of another size. from returns the source of each voxel.
func (p *plainVolume) remake(size [3]int, fill float64, from func(to [3]int) [3]int) {
	out := plainVolume{p.channels, size, make([]float64, p.channels*size[0]*size[1]*size[2])}
	for c := range p.channels {
		for z := range size[0] {
			for y := range size[1] {
				for x := range size[2] {
					o := out.at(c, z, y, x)
					*o = fill
					if s := from([3]int{z, y, x}); s[0] >= 0 && s[1] >= 0 && s[2] >= 0 && s[0] < p.size[0] && s[1] < p.size[1] && s[2] < p.size[2] {
						*o = *p.at(c, s[0], s[1], s[2])
					}
				}
			}
		}
	}
	*p = out
}

func (p *plainVolume) shift(size, by [3]int, fill float64) {
	p.remake(size, fill, func(to [3]int) [3]int { return [3]int{to[0] + by[0], to[1] + by[1], to[2] + by[2]} })
}

// apply does an operation that was compiled, with the numbers that it draws.
func (p *plainVolume) apply(op Op, r *Rand, mask bool) {
	switch o := op.(type) {
	case *cropVolume:
		at, size := o.part(r, p.size)
		p.shift(size, at, 0)
	case *padVolume:
		if o.center != nil {
			p.apply(o.center, r, mask)
		}
		size, by := p.size, [3]int{}
		for i := range 3 {
			if more := o.size[i] - size[i]; more > 0 {
				if size[i] = o.size[i]; !o.end {
					by[i] = -(more / 2)
				}
			}
		}
		p.shift(size, by, float64(o.value))
	case *flipVolume:
		if r.Bool(o.prob) {
			size := p.size
			p.remake(size, 0, func(to [3]int) [3]int {
				for i := range 3 {
					if o.axes[i] {
						to[i] = size[i] - 1 - to[i]
					}
				}
				return to
			})
		}
	case *turnVolume:
		if r.Bool(o.prob) {
			a, b := o.axes[0], o.axes[1]
			for range r.IntN(o.most) + 1 {
				old := p.size
				size := old
				size[a], size[b] = old[b], old[a]
				p.remake(size, 0, func(to [3]int) [3]int {
					from := to
					from[a], from[b] = to[b], old[b]-1-to[a]
					return from
				})
			}
		}
	default:
		if !mask {
			p.change(op, r)
		}
	}
}

func (p *plainVolume) change(op Op, r *Rand) {
	each := func(v []float64, f func(x float64) float64) {
		for i := range v {
			v[i] = f(v[i])
		}
	}
	switch o := op.(type) {
	case *randIntensity:
		if !r.Bool(o.prob) {
			return
		}
		by := r.Uniform(o.lo, o.hi)
		each(p.v, func(x float64) float64 {
			if o.shift {
				return x + by
			}
			return x * (1 + by)
		})
	case *scaleRange:
		each(p.v, func(x float64) float64 {
			x = x*float64(o.a) + float64(o.b)
			if o.clip {
				x = min(max(x, float64(o.lo)), float64(o.hi))
			}
			return x
		})
	case *scaleIntensity:
		lo, hi := slices.Min(p.v), slices.Max(p.v)
		each(p.v, func(x float64) float64 {
			switch {
			case o.fixed:
				return x * (1 + o.factor)
			case lo == hi:
				return x * o.lo
			}
			return (x-lo)/(hi-lo)*(o.hi-o.lo) + o.lo
		})
	case *normalizeIntensity:
		parts := 1
		if o.channelWise {
			parts = p.channels
		}
		n := len(p.v) / parts
		for c := range parts {
			part := p.v[c*n : (c+1)*n]
			sum, square, count := 0.0, 0.0, 0.0
			for _, x := range part {
				if x != 0 || !o.nonzero {
					sum, square, count = sum+x, square+x*x, count+1
				}
			}
			if count == 0 {
				continue
			}
			mean := sum / count
			std := math.Sqrt(max(square/count-mean*mean, 0))
			if std < 1e-9 {
				std = 1
			}
			each(part, func(x float64) float64 {
				if x == 0 && o.nonzero {
					return x
				}
				return (x - mean) / std
			})
		}
	}
}

// volumeOps are operations to make lists of.
var volumeOps = []string{
	`{"op":"volume.RandSpatialCrop","roi_size":[4,5,6]}`, `{"op":"volume.RandSpatialCrop","roi_size":3,"max_roi_size":7,"random_size":true}`,
	`{"op":"volume.CenterSpatialCrop","roi_size":[-1,6,5]}`, `{"op":"volume.SpatialPad","spatial_size":[8,3,9],"value":2}`,
	`{"op":"volume.SpatialPad","spatial_size":9,"method":"end"}`, `{"op":"volume.ResizeWithPadOrCrop","spatial_size":[6,7,5],"value":-3}`,
	`{"op":"volume.RandFlip","prob":0.7}`, `{"op":"volume.RandFlip","prob":0.7,"spatial_axis":[0,-1]}`,
	`{"op":"volume.RandRotate90","prob":0.8}`, `{"op":"volume.RandRotate90","prob":0.8,"spatial_axes":[2,1],"max_k":6}`,
	`{"op":"volume.RandScaleIntensity","factors":0.5,"prob":0.7}`, `{"op":"volume.RandShiftIntensity","offsets":[3,9],"prob":0.7}`,
	`{"op":"volume.ScaleIntensityRange","a_min":-20,"a_max":90,"b_min":0,"b_max":1,"clip":true}`, `{"op":"volume.ScaleIntensityRange","a_min":-20,"a_max":90}`,
	`{"op":"volume.ScaleIntensity","minv":-1}`, `{"op":"volume.NormalizeIntensity"}`, `{"op":"volume.NormalizeIntensity","nonzero":true,"channel_wise":true}`,
}

// TestVolumesAreAsWritten compares lists of operations with the reference.
func TestVolumesAreAsWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	types := []item.DType{item.U8, item.I16, item.U16, item.I32, item.F32, item.F64}
	for n := range 1500 {
		in := VolumeInput{DType: types[rng.IntN(len(types))], Channels: 1 + rng.IntN(2), Mask: n%4 == 0}
		out := Output{Name: "v"}
		for range rng.IntN(6) {
			out.Ops = append(out.Ops, json.RawMessage(volumeOps[rng.IntN(len(volumeOps))]))
		}
		sides := [3]int{3 + rng.IntN(8), 3 + rng.IntN(8), 3 + rng.IntN(8)}
		in.Least, in.Most = sides, sides
		p, err := CompileVolume(out, in)
		if err != nil {
			t.Fatal(err)
		}
		plain := plainVolume{in.Channels, sides, nil}
		var src []byte
		for range in.Channels * sides[0] * sides[1] * sides[2] {
			v := float64(rng.IntN(120))
			if rng.IntN(4) == 0 {
				v = 0
			}
			plain.v, src = append(plain.v, v), in.DType.Append(src, v)
		}
		epoch, record := rng.Int64N(5), rng.Int64N(1000)
		for i, op := range p.ops {
			r := newRand(7, epoch, record, "v", i)
			plain.apply(op, &r, in.Mask)
		}
		for i := range 3 {
			if plain.size[i] < p.Least[i] || plain.size[i] > p.Most[i] {
				t.Fatalf("%s: size %v, from %v to %v were planned", out.Ops, plain.size, p.Least, p.Most)
			}
		}
		dst := make([]byte, p.bytes(plain.size))
		if err := p.Run(dst, src, sides, 7, epoch, record, heap{}); err != nil {
			t.Fatal(err)
		}
		for i, want := range plain.v {
			got := p.DType.Float(dst[i*p.DType.Size():])
			if p.DType == in.DType && !p.floats && p.DType != item.F32 && p.DType != item.F64 {
				want = in.DType.Float(in.DType.Append(nil, want)) // what a pad's value is in this type
			}
			if math.Abs(got-want) > 2e-4*max(1, math.Abs(want)) {
				t.Fatalf("%s of %s %v: value %d is %v, want %v", out.Ops, in.DType, sides, i, got, want)
			}
		}
		// A crop that was done when the volume was read gives the same.
		first := FirstCut(out)
		if first == nil {
			continue
		}
		at, size := first.Part(7, epoch, record, sides)
		in.Cut = true
		in.Least, in.Most = sides, sides
		lo, hi := first.Sides(sides, sides)
		in.Least, in.Most = lo, hi
		q, err := CompileVolume(out, in)
		if err != nil {
			t.Fatal(err)
		}
		view := newVolumeView(src, in.DType, in.Channels, sides)
		for i := range 3 {
			view.crop(i, at[i], size[i])
		}
		cut := make([]byte, view.voxels()*in.DType.Size())
		view.copyTo(cut)
		again := make([]byte, len(dst))
		if err := q.Run(again, cut, size, 7, epoch, record, heap{}); err != nil || string(again) != string(dst) {
			t.Fatalf("%s: cut when it was read it is another one (%v)", out.Ops, err)
		}
	}
}

func TestVolumeHalves(t *testing.T) {
	out := Output{Name: "v", Ops: []json.RawMessage{json.RawMessage(`{"op":"volume.RandShiftIntensity","offsets":[2,2],"prob":1}`), json.RawMessage(`{"op":"ToDtype","dtype":"bfloat16"}`)}}
	p, err := CompileVolume(out, VolumeInput{DType: item.F32, Channels: 1, Least: [3]int{1, 1, 2}, Most: [3]int{1, 1, 2}})
	if err != nil || p.DType != item.BF16 {
		t.Fatal(err, p)
	}
	dst := make([]byte, 4)
	if err := p.Run(dst, csound.Bytes([]float32{1, 6}), [3]int{1, 1, 2}, 0, 0, 0, heap{}); err != nil || binary.LittleEndian.Uint16(dst) != 0x4040 || binary.LittleEndian.Uint16(dst[2:]) != 0x4100 {
		t.Errorf("%v, %x", err, dst)
	}
}

func TestVolumeErrors(t *testing.T) {
	for op, want := range map[string]string{
		`{"op":"volume.RandSpatialCrop"}`:                               "roi_size is missing",
		`{"op":"volume.RandSpatialCrop","roi_size":[1,2]}`:              "or (z, y, x)",
		`{"op":"volume.RandSpatialCrop","roi_size":4,"max_roi_size":3}`: "must not be smaller",
		`{"op":"volume.SpatialPad","spatial_size":1.5}`:                 "a whole number",
		`{"op":"volume.SpatialPad","spatial_size":4,"mode":"edge"}`:     `must be "constant"`,
		`{"op":"volume.RandFlip","prob":2}`:                             "from 0 to 1",
		`{"op":"volume.RandFlip","spatial_axis":3}`:                     "from -3 to 2",
		`{"op":"volume.RandRotate90","spatial_axes":[1,-2]}`:            "must be two axes",
		`{"op":"volume.RandRotate90","max_k":0}`:                        "from 1 to",
		`{"op":"volume.RandScaleIntensity"}`:                            "factors is missing",
		`{"op":"volume.ScaleIntensityRange","a_min":1,"a_max":1}`:       "another number than a_min",
		`{"op":"volume.ScaleIntensityRange","a_min":1}`:                 "a_max is missing",
		`{"op":"volume.NormalizeIntensity","subtrahend":[1,2]}`:         "must be 1 numbers",
		`{"op":"ToDtype","dtype":"uint8"}`:                              "must be float32, float16 or bfloat16",
		`{"op":"RandomCrop","size":4}`:                                  "use volume.RandSpatialCrop",
		`{"op":"volume.RandFlipp"}`:                                     `did you mean "volume.RandFlip"?`,
		`{"op":"volume.RandFlip","p":1}`:                                `no parameter "p"`,
		`{"op":"volume.ResizeWithPadOrCrop","spatial_size":60000}`:      "the limit is",
	} {
		in := VolumeInput{DType: item.F32, Channels: 1, Least: [3]int{4, 4, 4}, Most: [3]int{4, 4, 4}}
		if _, err := CompileVolume(Output{Name: "v", Ops: []json.RawMessage{json.RawMessage(op)}}, in); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", op, err, want)
		}
	}
}
