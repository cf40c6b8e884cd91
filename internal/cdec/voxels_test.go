package cdec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// reference computes one value of the result according to the documentation of Voxels.
func (v *Voxels) reference(c, z, y, x int) float32 {
	at := c*v.Plane + v.Start + (z-v.Lo[0])*v.Step[0] + (y-v.Lo[1])*v.Step[1] + (x-v.Lo[2])*v.Step[2]
	size := v.DType.Size()
	f := float32(v.DType.Float(v.Src[at*size : at*size+size]))
	if v.A != 1 || v.B != 0 {
		f *= v.A
		f += v.B
	}
	if v.Clip && f < v.Least {
		return v.Least
	}
	if v.Clip && f > v.Most {
		return v.Most
	}
	return f
}

// randomVoxels returns a part of random voxels, flipped and with its axes in any order.
func randomVoxels(r *rand.Rand, t item.DType) *Voxels {
	sides := [3]int{1 + r.IntN(5), 1 + r.IntN(6), 1 + r.IntN(70)}
	plane := sides[0] * sides[1] * sides[2]
	v := &Voxels{DType: t, Channels: 1 + r.IntN(3), Plane: plane, A: 1}
	offset := r.IntN(3) // values need not be aligned
	v.Src = make([]byte, offset+v.Channels*plane*t.Size())[offset:]
	for i := range v.Src {
		v.Src[i] = byte(r.Uint32())
	}
	steps := [3]int{sides[1] * sides[2], sides[2], 1}
	for i, axis := range r.Perm(3) {
		n := r.IntN(sides[axis] + 1)
		from := r.IntN(sides[axis] - n + 1)
		v.Lo[i] = r.IntN(3)
		v.Hi[i] = v.Lo[i] + n
		v.Size[i] = v.Hi[i] + r.IntN(3)
		v.Step[i] = steps[axis]
		v.Start += from * steps[axis]
		if r.IntN(2) == 0 && n > 0 {
			v.Start += (n - 1) * steps[axis]
			v.Step[i] = -steps[axis]
		}
	}
	if r.IntN(2) == 0 {
		v.A, v.B = r.Float32(), r.Float32()
	}
	if r.IntN(2) == 0 {
		v.Clip, v.Least, v.Most = true, -1000, 1000
	}
	return v
}

func TestVoxels(t *testing.T) {
	defer useKernels(kernelSet.Load())
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range []item.DType{item.U8, item.U16, item.I16, item.F32} {
		for range 300 {
			v := randomVoxels(r, dtype)
			bytes, intact := guarded(4 * v.Channels * v.Size[0] * v.Size[1] * v.Size[2])
			for _, set := range kernelSets() {
				use(t, set)
				out := make([]float32, len(bytes)/4)
				for i := range out {
					out[i] = -7
				}
				if !v.Floats(out) || !intact() {
					t.Fatalf("%+v: not written, or more than that", v)
				}
				checkVoxels(t, v, out)
			}
		}
	}
	if (&Voxels{DType: item.F64, Src: make([]byte, 8)}).Floats(nil) {
		t.Error("float64 was converted")
	}
}

func checkVoxels(t *testing.T, v *Voxels, out []float32) {
	t.Helper()
	i := 0
	for c := range v.Channels {
		for z := range v.Size[0] {
			for y := range v.Size[1] {
				for x := range v.Size[2] {
					want := float32(-7)
					if z >= v.Lo[0] && z < v.Hi[0] && y >= v.Lo[1] && y < v.Hi[1] && x >= v.Lo[2] && x < v.Hi[2] {
						want = v.reference(c, z, y, x)
					}
					if got := out[i]; got != want && !(math.IsNaN(float64(got)) && math.IsNaN(float64(want))) {
						t.Fatalf("%+v at %d %d %d %d: %v, not %v", v, c, z, y, x, got, want)
					}
					i++
				}
			}
		}
	}
}

func TestVoxelsOutside(t *testing.T) {
	good := Voxels{DType: item.U8, Src: make([]byte, 8), Channels: 1, Plane: 8, Size: [3]int{2, 2, 2}, Hi: [3]int{2, 2, 2}, Step: [3]int{4, 2, 1}, A: 1}
	for name, change := range map[string]func(v *Voxels){
		"start":    func(v *Voxels) { v.Start = 1 },
		"before":   func(v *Voxels) { v.Step[0] = -4 },
		"step":     func(v *Voxels) { v.Step[2] = 2 },
		"channels": func(v *Voxels) { v.Channels = 2 },
		"part":     func(v *Voxels) { v.Hi[0] = 3; v.Step[0] = 0 },
		"size":     func(v *Voxels) { v.Size[0] = 3 },
	} {
		v := good
		change(&v)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: voxels outside of the memory were read or written", name)
				}
			}()
			v.Floats(make([]float32, 8))
		}()
	}
}
