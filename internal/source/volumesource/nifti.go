package volumesource

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/source/driver"
)

// headerBytes is the size of the larger header, that of NIfTI-2.
const headerBytes = 540

// isNIfTI reports whether a file begins with a NIfTI header.
func isNIfTI(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	for _, size := range []uint32{348, headerBytes} {
		if binary.LittleEndian.Uint32(b) == size || binary.BigEndian.Uint32(b) == size {
			return true
		}
	}
	return false
}

// dtypes are the element types by NIfTI code.
var dtypes = map[int16]driver.DType{
	2: driver.Uint8, 4: driver.Int16, 8: driver.Int32, 16: driver.Float32, 64: driver.Float64, 256: driver.Int8,
	512: driver.Uint16, 768: driver.Uint32, 1024: driver.Int64, 1280: driver.Uint64,
}

// parseNIfTI reads the NIfTI-1 or NIfTI-2 header at the beginning of a file.
func parseNIfTI(b []byte) (*volume, error) {
	if len(b) < 352 {
		return nil, fmt.Errorf("it is too short for the header of a NIfTI file: %d bytes", len(b))
	}
	h := &volume{}
	order := binary.ByteOrder(binary.LittleEndian)
	size := order.Uint32(b)
	if size != 348 && size != 540 {
		h.big, order = true, binary.BigEndian
		size = order.Uint32(b)
	}
	f32 := func(at int) float64 { return float64(math.Float32frombits(order.Uint32(b[at:]))) }
	f64 := func(at int) float64 { return math.Float64frombits(order.Uint64(b[at:])) }
	i16 := func(at int) int64 { return int64(int16(order.Uint16(b[at:]))) }
	i64 := func(at int) int64 { return int64(order.Uint64(b[at:])) }
	var dim, number func(i int) int64
	var pixdim func(i int) float64
	var srow, quatern, offset func(i int) float64
	var code int16
	var start, slope, inter float64
	var sform, qform int64
	switch {
	case size == 348 && string(b[344:348]) == "n+1\x00":
		dim = func(i int) int64 { return i16(40 + 2*i) }
		pixdim = func(i int) float64 { return f32(76 + 4*i) }
		code, start, slope, inter = int16(i16(70)), f32(108), f32(112), f32(116)
		qform, sform = i16(252), i16(254)
		quatern, offset = func(i int) float64 { return f32(256 + 4*i) }, func(i int) float64 { return f32(268 + 4*i) }
		srow = func(i int) float64 { return f32(280 + 4*i) }
	case size == 348 && (string(b[344:348]) == "ni1\x00"):
		return nil, errors.New("its voxels are in a separate file (.hdr and .img): write it as .nii")
	case size == 540 && len(b) >= headerBytes && string(b[4:12]) == "n+2\x00\r\n\x1a\n":
		dim = func(i int) int64 { return i64(16 + 8*i) }
		pixdim = func(i int) float64 { return f64(104 + 8*i) }
		code, start, slope, inter = int16(i16(12)), float64(i64(168)), f64(176), f64(184)
		number = func(i int) int64 { return int64(int32(order.Uint32(b[344+4*i:]))) }
		qform, sform = number(0), number(1)
		quatern, offset = func(i int) float64 { return f64(352 + 8*i) }, func(i int) float64 { return f64(376 + 8*i) }
		srow = func(i int) float64 { return f64(400 + 8*i) }
	default:
		return nil, errors.New("it does not begin with the header of a NIfTI file")
	}
	n := dim(0)
	if n < 1 || n > 7 {
		return nil, fmt.Errorf("its header says %d axes: there are 1 to 7", n)
	}
	for i := n; i >= 1; i-- {
		side := dim(int(i))
		if side < 1 || side > maxVoxelBytes {
			return nil, fmt.Errorf("its header says %d voxels along axis %d", side, i)
		}
		h.shape = append(h.shape, int(side))
	}
	var ok bool
	if h.dtype, ok = dtypes[code]; !ok {
		return nil, fmt.Errorf("its voxels are of type %d, which is not a single number (complex numbers and colours are not read)", code)
	}
	for len(h.shape) < 3 { // a single slice
		h.shape = append([]int{1}, h.shape...)
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	if !(start >= float64(size)) || start > 1<<40 {
		return nil, fmt.Errorf("its header says that voxels begin at byte %g", start)
	}
	h.whole(int64(start))
	if finite(slope) && slope != 0 && finite(inter) {
		h.slope, h.inter = slope, inter
		h.scaled = slope != 1 || inter != 0
	}
	var shape [3]float64
	for i := range shape {
		if shape[i] = 1; int64(i) < n {
			shape[i] = float64(dim(i + 1))
		}
	}
	h.place(shape, sform, qform, pixdim, srow, quatern, offset)
	return h, nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// place sets the affine, which maps voxel (x, y, z) to millimetres. The rules are those of the
// NIfTI-1 standard (nifti1.h, methods 3, 2 and 1). Without sform and qform, the centre is the
// origin and x is flipped, as in nibabel.
func (h *volume) place(shape [3]float64, sform, qform int64, pixdim, srow, quatern, offset func(i int) float64) {
	var m [16]float64
	m[15] = 1
	switch {
	case sform > 0:
		for i := range 12 {
			m[i] = srow(i)
		}
	case qform > 0:
		b, c, d := quatern(0), quatern(1), quatern(2)
		a := 1 - (b*b + c*c + d*d)
		if a = math.Max(a, 0); a > 0 {
			a = math.Sqrt(a)
		}
		fac := 1.0
		if pixdim(0) < 0 {
			fac = -1
		}
		x, y, z := pixdim(1), pixdim(2), pixdim(3)*fac
		m = [16]float64{
			(a*a + b*b - c*c - d*d) * x, 2 * (b*c - a*d) * y, 2 * (b*d + a*c) * z, offset(0),
			2 * (b*c + a*d) * x, (a*a + c*c - b*b - d*d) * y, 2 * (c*d - a*b) * z, offset(1),
			2 * (b*d - a*c) * x, 2 * (c*d + a*b) * y, (a*a + d*d - c*c - b*b) * z, offset(2),
			0, 0, 0, 1,
		}
	default:
		for i := range 3 {
			zoom := pixdim(i + 1)
			if i == 0 {
				zoom = -zoom
			}
			m[5*i], m[4*i+3] = zoom, -(shape[i]-1)/2*zoom
		}
	}
	h.affine = affineBytes(&m)
}

// affineBytes returns an affine as float32.
func affineBytes(m *[16]float64) (b []byte) {
	for _, v := range m {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}
