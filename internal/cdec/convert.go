package cdec

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/item"
)

// Convert writes the pixels of src into dst, of the same size and another type. Integers are converted to another
// width like in torchvision (shifted by 8 bits), gray to three channels. dst must not overlap src.
func Convert(dst, src Pixmap) error {
	if dst.W != src.W || dst.H != src.H || dst.C != src.C && src.C != 1 {
		return &Error{ErrArgument, fmt.Sprintf("an image of %dx%d pixels of %d channels cannot become one of %dx%d of %d", src.W, src.H, src.C, dst.W, dst.H, dst.C)}
	}
	size := src.elemSize()
	n := src.W * src.H * src.C
	if len(src.Pix) < n*size || len(dst.Pix) < dst.W*dst.H*dst.C*dst.elemSize() {
		return &Error{ErrArgument, fmt.Sprintf("%d and %d bytes are not images of %dx%d pixels", len(src.Pix), len(dst.Pix), src.W, src.H)}
	}
	switch {
	case src.dtype() == dst.dtype():
		copies := dst.C / src.C
		for i := range n {
			v := src.Pix[i*size : (i+1)*size]
			for k := range copies {
				copy(dst.Pix[(i*copies+k)*size:], v)
			}
		}
	case src.C != dst.C:
		return &Error{ErrArgument, fmt.Sprintf("%s of %d channels cannot become %s of %d in one step", src.dtype(), src.C, dst.dtype(), dst.C)}
	case src.dtype() == item.U8 && dst.dtype() == item.U16:
		for i, v := range src.Pix[:n] {
			binary.LittleEndian.PutUint16(dst.Pix[2*i:], uint16(v)<<8)
		}
	case src.dtype() == item.U16 && dst.dtype() == item.U8:
		for i := range n {
			dst.Pix[i] = src.Pix[2*i+1]
		}
	default:
		return &Error{ErrArgument, fmt.Sprintf("%s cannot become %s", src.dtype(), dst.dtype())}
	}
	return nil
}
