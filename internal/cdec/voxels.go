package cdec

/*
#cgo noescape sk_voxels_floats
#cgo nocallback sk_voxels_floats
#include "cdec.h"
#include "voxels.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/stokerdata/stoker/internal/item"
)

// Voxels describes a box of voxels of Src. All positions and steps are numbers of voxels.
type Voxels struct {
	Src   []byte
	DType item.DType
	// Plane is the number of voxels that a channel has in Src.
	Channels, Plane int
	// Size is the shape of the result, and Lo to Hi is the part of it that is written.
	Size, Lo, Hi [3]int
	// Start is the voxel at Lo. Step is the distance of the next one along each axis.
	Start int
	Step  [3]int
	// Each value becomes value * A + B, and then at least Least and at most Most if Clip is set.
	A, B, Least, Most float32
	Clip              bool
}

var voxelTypes = map[item.DType]C.int{item.U8: C.SK_VOXELS_U8, item.U16: C.SK_VOXELS_U16, item.I16: C.SK_VOXELS_I16, item.F32: C.SK_VOXELS_F32}

// Floats writes the values to dst and returns true. It returns false for types of voxels that it does not convert. It
// panics like Gather if Src cannot be read, and also if the box is outside of Src or dst.
func (v *Voxels) Floats(dst []float32) bool {
	t, ok := voxelTypes[v.DType]
	if !ok {
		return false
	}
	c := C.sk_voxels{
		_type: t, a: C.float(v.A), b: C.float(v.B), least: C.float(v.Least), most: C.float(v.Most),
		channels: C.int64_t(v.Channels), plane: C.int64_t(v.Plane), start: C.int64_t(v.Start),
	}
	if v.A != 1 || v.B != 0 {
		c.scale = 1
	}
	if v.Clip {
		c.clip = 1
	}
	first, last, n := v.Start, v.Start+max(v.Channels-1, 0)*v.Plane, v.Channels
	for i := range 3 {
		c.size[i], c.lo[i], c.hi[i], c.step[i] = C.int64_t(v.Size[i]), C.int64_t(v.Lo[i]), C.int64_t(v.Hi[i]), C.int64_t(v.Step[i])
		n *= v.Size[i]
		if v.Hi[i] <= v.Lo[i] || v.Channels == 0 {
			return true // empty
		}
		far := (v.Hi[i] - v.Lo[i] - 1) * v.Step[i]
		first, last = first+min(far, 0), last+max(far, 0)
		if v.Lo[i] < 0 || v.Hi[i] > v.Size[i] {
			panic(fmt.Sprintf("cdec: part %d to %d of an axis of %d voxels", v.Lo[i], v.Hi[i], v.Size[i]))
		}
	}
	if first < 0 || last >= len(v.Src)/v.DType.Size() || n > len(dst) {
		panic(fmt.Sprintf("cdec: voxels %d to %d of %d, %d of %d floats", first, last, len(v.Src)/v.DType.Size(), n, len(dst)))
	}
	if C.sk_voxels_floats((*C.float)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(v.Src)), &c) != C.SK_OK {
		panic(errUnreadable)
	}
	return true
}
