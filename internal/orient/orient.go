// Package orient defines the eight EXIF orientations: their effect on sizes, positions and pixels. An orientation turns
// the stored image into the shown image. 0 and 1 change nothing.
package orient

// Mirrored reports which axes of the stored image an orientation mirrors, before those of 5 and more swap them.
func Mirrored(o int32) (horizontal, vertical bool) {
	switch o {
	case 2, 8:
		return true, false
	case 3, 7:
		return true, true
	case 4, 6:
		return false, true
	}
	return false, false
}

// Swaps reports whether an orientation swaps width and height.
func Swaps(o int32) bool { return o >= 5 && o <= 8 }

// Inverse returns the orientation that leads back.
func Inverse(o int32) int32 {
	switch o {
	case 6:
		return 8
	case 8:
		return 6
	}
	return o
}

// Size returns the size of an image of w x h pixels after an orientation.
func Size(o, w, h int32) (int32, int32) {
	if Swaps(o) {
		return h, w
	}
	return w, h
}

// Ambiguous is the hint for an image whose annotations or mask (the argument) may fit the stored or the shown image.
const Ambiguous = "apply_orientation=True takes the %s for that of the turned image; without it, or for a pack, turn the file itself " +
	"(mogrify -auto-orient FILE) or remove its orientation (exiftool -Orientation= FILE)"

// Fits reports whether an image has the same size after an orientation.
func Fits(o, w, h int32) bool { return w == h || !Swaps(o) }

// Box returns a box of an image of w x h pixels, given by its corners, after an orientation.
func Box(o int32, w, h float32, b [4]float32) [4]float32 {
	flipH, flipV := Mirrored(o)
	if flipH {
		b[0], b[2] = w-b[2], w-b[0]
	}
	if flipV {
		b[1], b[3] = h-b[3], h-b[1]
	}
	if Swaps(o) {
		b[0], b[1], b[2], b[3] = b[1], b[0], b[3], b[2]
	}
	return b
}

// Point returns a key point of an image of w x h pixels after an orientation. Key points are numbers of pixels, so
// that the first one becomes the last one, as in torchvision's flips.
func Point(o int32, w, h float32, p [2]float32) [2]float32 {
	flipH, flipV := Mirrored(o)
	if flipH {
		p[0] = w - 1 - p[0]
	}
	if flipV {
		p[1] = h - 1 - p[1]
	}
	if Swaps(o) {
		p[0], p[1] = p[1], p[0]
	}
	return p
}

// Pixels writes w x h pixels of size bytes to dst as an orientation turns them.
func Pixels(dst, src []byte, w, h, size int, o int32) {
	flipH, flipV := Mirrored(o)
	right, down := size, size*w
	if Swaps(o) {
		right, down = size*h, size
	}
	start := 0
	if flipH {
		start, right = start+right*(w-1), -right
	}
	if flipV {
		start, down = start+down*(h-1), -down
	}
	for y := range h {
		at := start + y*down
		for x := range w {
			copy(dst[at:at+size], src[(y*w+x)*size:])
			at += right
		}
	}
}
