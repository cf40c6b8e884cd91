package imagefile

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
)

// DecodeRGB decodes an image that is not a JPEG to u8 RGB rows, in dst where
// that is large enough. Transparency is dropped, as Pillow's convert("RGB")
// does; the picture must have the given size.
func DecodeRGB(dst, b []byte, width, height int) ([]byte, error) {
	img, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if n := 3 * width * height; cap(dst) >= n {
		dst = dst[:n]
	} else {
		dst = make([]byte, n)
	}
	r := img.Bounds()
	if r.Dx() != width || r.Dy() != height {
		// A GIF frame may cover a part of the canvas.
		canvas := image.NewNRGBA(image.Rect(0, 0, width, height))
		draw.Draw(canvas, r.Intersect(canvas.Bounds()), img, r.Intersect(canvas.Bounds()).Min, draw.Src)
		img, r = canvas, canvas.Bounds()
	}
	for y := range height {
		row := dst[3*width*y : 3*width*(y+1)]
		rgbRow(row, img, r.Min.X, r.Min.Y+y, width)
	}
	return dst, nil
}

func rgbRow(row []byte, img image.Image, x0, y, width int) {
	switch m := img.(type) {
	case *image.NRGBA:
		src := m.Pix[m.PixOffset(x0, y):]
		for x := range width {
			copy(row[3*x:3*x+3], src[4*x:])
		}
	case *image.Gray:
		src := m.Pix[m.PixOffset(x0, y):]
		for x := range width {
			v := src[x]
			row[3*x], row[3*x+1], row[3*x+2] = v, v, v
		}
	default:
		for x := range width {
			c := color.NRGBAModel.Convert(img.At(x0+x, y)).(color.NRGBA)
			row[3*x], row[3*x+1], row[3*x+2] = c.R, c.G, c.B
		}
	}
}
