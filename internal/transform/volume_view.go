package transform

import (
	"encoding/binary"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
)

// volumeView maps each voxel of a volume to its source: a voxel of src, with a step along each axis. Voxels outside of
// lo to hi are fill.
type volumeView struct {
	src      []byte
	dtype    item.DType
	channels int
	// plane is the number of voxels of src per channel.
	plane int
	size  [3]int
	// start is the voxel of src at lo of all axes, step the distance to the next one.
	start  int
	step   [3]int
	lo, hi [3]int
	fill   float32
}

func newVolumeView(src []byte, t item.DType, channels int, sides [3]int) volumeView {
	return volumeView{
		src: src, dtype: t, channels: channels, plane: sides[0] * sides[1] * sides[2], size: sides,
		step: [3]int{sides[1] * sides[2], sides[2], 1}, hi: sides,
	}
}

func (v *volumeView) voxels() int { return v.channels * v.size[0] * v.size[1] * v.size[2] }

func (v *volumeView) padded() bool { return v.lo != [3]int{} || v.hi != v.size }

// crop leaves n voxels of an axis, from at on.
func (v *volumeView) crop(axis, at, n int) {
	lo := min(max(v.lo[axis]-at, 0), n)
	hi := min(max(v.hi[axis]-at, lo), n)
	// The first remaining voxel is at+lo of the earlier ones.
	if hi > lo {
		v.start += (at + lo - v.lo[axis]) * v.step[axis]
	}
	v.lo[axis], v.hi[axis], v.size[axis] = lo, hi, n
}

// pad adds n voxels to an axis, some of them before it.
func (v *volumeView) pad(axis, before, n int) {
	v.lo[axis] += before
	v.hi[axis] += before
	v.size[axis] += n
}

// flip turns an axis round.
func (v *volumeView) flip(axis int) {
	lo, hi, n := v.lo[axis], v.hi[axis], v.size[axis]
	v.start += max(hi-lo-1, 0) * v.step[axis]
	v.step[axis] = -v.step[axis]
	v.lo[axis], v.hi[axis] = n-hi, n-lo
}

// swap exchanges two axes.
func (v *volumeView) swap(a, b int) {
	v.size[a], v.size[b] = v.size[b], v.size[a]
	v.step[a], v.step[b] = v.step[b], v.step[a]
	v.lo[a], v.lo[b] = v.lo[b], v.lo[a]
	v.hi[a], v.hi[b] = v.hi[b], v.hi[a]
}

// rows calls f for each row of the last axis. to is its destination, as a number of voxels, and from the source of its
// voxels from lo to hi. from is -1 for a row of fill alone.
func (v *volumeView) rows(f func(to, from int)) {
	to := 0
	for c := range v.channels {
		for z := range v.size[0] {
			for y := range v.size[1] {
				from := -1
				if z >= v.lo[0] && z < v.hi[0] && y >= v.lo[1] && y < v.hi[1] && v.hi[2] > v.lo[2] {
					from = c*v.plane + v.start + (z-v.lo[0])*v.step[0] + (y-v.lo[1])*v.step[1]
				}
				f(to, from)
				to += v.size[2]
			}
		}
	}
}

// copyTo writes the voxels without scaling.
func (v *volumeView) copyTo(dst []byte) {
	size := v.dtype.Size()
	fill := v.dtype.Append(nil, float64(v.fill))
	blank := v.fill == 0
	step, lo, hi, width := v.step[2], v.lo[2], v.hi[2], v.size[2]
	put := func(b []byte) {
		if blank {
			clear(b)
			return
		}
		for ; len(b) >= size; b = b[size:] {
			copy(b, fill)
		}
	}
	v.rows(func(to, from int) {
		row := dst[to*size : (to+width)*size]
		if from < 0 {
			put(row)
			return
		}
		put(row[:lo*size])
		put(row[hi*size:])
		row = row[lo*size : hi*size]
		if step == 1 {
			copy(row, v.src[from*size:])
			return
		}
		src, at, by := v.src, from*size, step*size
		switch size {
		case 1:
			for i := range row {
				row[i] = src[at]
				at += by
			}
		case 2:
			for ; len(row) >= 2; row = row[2:] {
				row[0], row[1] = src[at], src[at+1]
				at += by
			}
		case 4:
			for ; len(row) >= 4; row = row[4:] {
				binary.LittleEndian.PutUint32(row, binary.LittleEndian.Uint32(src[at:]))
				at += by
			}
		default:
			for ; len(row) >= size; row = row[size:] {
				copy(row[:size], src[at:])
				at += by
			}
		}
	})
}

// floatsTo writes the voxels as float32, scaled. The fill has been scaled already.
func (v *volumeView) floatsTo(dst []float32, s *volumeScale) {
	if v.padded() {
		dst := dst[:v.voxels()]
		for i := range dst {
			dst[i] = v.fill
		}
	}
	box := cdec.Voxels{
		Src: v.src, DType: v.dtype, Channels: v.channels, Plane: v.plane, Size: v.size, Lo: v.lo, Hi: v.hi, Start: v.start, Step: v.step,
		A: s.a, B: s.b, Least: s.lo, Most: s.hi, Clip: s.clip,
	}
	if box.Floats(dst) {
		return
	}
	size, step, lo, hi := v.dtype.Size(), v.step[2], v.lo[2], v.hi[2]
	v.rows(func(to, from int) {
		if from < 0 {
			return
		}
		row := dst[to+lo : to+hi]
		for i := range row {
			at := (from + i*step) * size
			row[i] = float32(v.dtype.Float(v.src[at : at+size]))
		}
		s.apply(row)
	})
}

// volumeScale is the change of values when they are written: v x a + b, then within lo and hi.
type volumeScale struct {
	a, b   float32
	lo, hi float32
	clip   bool
}

func noScale() volumeScale { return volumeScale{a: 1} }

func (s *volumeScale) apply(row []float32) {
	a, b := s.a, s.b
	if a != 1 || b != 0 {
		for i, x := range row {
			row[i] = x*a + b
		}
	}
	if s.clip {
		lo, hi := s.lo, s.hi
		for i, x := range row {
			if x < lo {
				row[i] = lo
			} else if x > hi {
				row[i] = hi
			}
		}
	}
}

// linear scales and shifts all values, including padding.
func (w *volumeWork) linear(a, b float32) error {
	if w.scale.clip {
		if _, err := w.flush(); err != nil {
			return err
		}
	}
	w.scale.a, w.scale.b = w.scale.a*a, w.scale.b*a+b
	w.view.fill = w.view.fill*a + b
	return nil
}

// limit has values put within bounds.
func (w *volumeWork) limit(lo, hi float32) error {
	if w.scale.clip {
		if _, err := w.flush(); err != nil {
			return err
		}
	}
	w.scale.lo, w.scale.hi, w.scale.clip = lo, hi, true
	w.view.fill = min(max(w.view.fill, lo), hi)
	return nil
}
