package decode

import "image"

// Lossy WebP is YCbCr of video range with 4:2:0 chroma. libwebp, and therefore Pillow, upsamples the chroma with
// weights 9:3:3:1 and converts in 14-bit fixed point. This code does the same, so that pixels are equal.

func clip8(v int32) byte {
	switch {
	case v < 0:
		return 0
	case v > 255<<6|63:
		return 255
	}
	return byte(v >> 6)
}

func yuvToRGB(dst []byte, y, u, v int32) {
	y = y * 19077 >> 8
	dst[0] = clip8(y + v*26149>>8 - 14234)
	dst[1] = clip8(y - u*6419>>8 - v*13320>>8 + 8708)
	dst[2] = clip8(y + u*33050>>8 - 17685)
}

// webpToRGB converts a decoded frame to RGB in dst.
func webpToRGB(dst []byte, m *image.YCbCr) {
	b := m.Rect
	w, h := b.Dx(), b.Dy()
	cw := (w + 1) / 2
	for y := range h {
		// The chroma row of this row and its other neighbour. At the top and at the bottom, the nearest row replaces
		// the missing one.
		near := y / 2
		far := near - 1
		if y%2 == 1 {
			far = near + 1
		}
		if far < 0 || far >= (h+1)/2 {
			far = near
		}
		un, uf := m.Cb[near*m.CStride:near*m.CStride+cw], m.Cb[far*m.CStride:far*m.CStride+cw]
		vn, vf := m.Cr[near*m.CStride:near*m.CStride+cw], m.Cr[far*m.CStride:far*m.CStride+cw]
		row, luma := dst[y*w*3:(y+1)*w*3], m.Y[y*m.YStride:y*m.YStride+w]
		for x := range w {
			yuvToRGB(row[3*x:3*x+3], int32(luma[x]), upsample(un, uf, x), upsample(vn, vf, x))
		}
	}
}

// upsample interpolates the chroma of pixel x from the near and the far row, with the rounding of libwebp.
func upsample(near, far []byte, x int) int32 {
	c := x / 2 // the nearest sample
	o := c - 1 // the other one
	if x%2 == 1 {
		o = c + 1
	}
	if o < 0 || o >= len(near) {
		return (3*int32(near[c]) + int32(far[c]) + 2) >> 2
	}
	a, b, e, f := int32(near[c]), int32(near[o]), int32(far[c]), int32(far[o])
	sum := a + b + e + f + 8
	diag := (sum + 2*(b+e)) >> 3
	return (diag + a) >> 1
}
