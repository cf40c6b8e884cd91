package transform

import (
	"math"
	"sync"

	"github.com/stokerdata/stoker/internal/item"
)

// randomErasing is torchvision's RandomErasing. Before ToDtype it works on u8 pixels, after Normalize on the values of
// the finished row.
type randomErasing struct {
	named
	p            float64
	scaleLo      float64
	scaleHi      float64
	logLo, logHi float64
	random       bool
	value        [item.MaxChannels]float64
}

var erasingSpec = Spec{
	Name: "RandomErasing", Doc: "Erase a random box, at random.", More: "It may follow Normalize: then `value` is a normalised value, and 0 is the mean colour.",
	Params: []Param{
		probability(0.5),
		{Name: "scale", Type: Float, Default: []float64{0.02, 0.33}, Counts: []int{2}, Range: between(0, 1), Ordered: true, Help: "smallest and largest area of the box, as a fraction of the image"},
		{Name: "ratio", Type: Float, Default: []float64{0.3, 3.3}, Counts: []int{2}, Range: aboveUpTo(0, 1e6), Ordered: true, Help: "smallest and largest aspect ratio (height / width) of the box"},
		{Name: "value", Type: Float, Default: 0.0, Single: true, Counts: []int{1, 2, 3, 4}, Form: "one for each channel", Range: between(-unlimited, unlimited), Choices: []string{"random"},
			Help: "content of the box; \"random\" is normal noise, after Normalize"},
		inplace,
	},
	Kinds: []string{"image", "mask", "array", "frames"}, Returns: sameShape, Example: "T.RandomErasing(0.25)", image: buildErasing,
}

func buildErasing(a *Args) (Op, error) {
	op := &randomErasing{named: "RandomErasing", p: a.Float("p"), random: a.Word("value") == "random"}
	op.scaleLo, op.scaleHi = a.Pair("scale")
	lo, hi := a.Pair("ratio")
	op.logLo, op.logHi = math.Log(lo), math.Log(hi)
	if op.random {
		return op, nil
	}
	v := a.Floats("value")
	if len(v) != 1 && len(v) != int(a.pixels.Channels) && !(a.mask && len(v) > 0) {
		a.fail("value", "must be %s, or \"random\"", a.perChannel())
		return op, nil
	}
	for c := range op.value {
		op.value[c] = v[c%len(v)]
	}
	return op, nil
}

// draw returns the rectangle to erase; ok is false when there is none.
func (op *randomErasing) draw(r *Rand, w, h int) (box item.Rect, ok bool) {
	if !r.Bool(op.p) {
		return box, false
	}
	area := float64(w) * float64(h)
	for range 10 {
		erase := area * r.Uniform(op.scaleLo, op.scaleHi)
		aspect := math.Exp(r.Uniform(op.logLo, op.logHi))
		eh := math.RoundToEven(math.Sqrt(erase * aspect))
		ew := math.RoundToEven(math.Sqrt(erase / aspect))
		if eh < float64(h) && ew < float64(w) {
			box.W, box.H = int32(ew), int32(eh)
			box.Y = int32(r.IntN(h - int(eh) + 1))
			box.X = int32(r.IntN(w - int(ew) + 1))
			return box, true
		}
	}
	return box, false
}

func (op *randomErasing) Apply(r *Rand, img *Pixels) error {
	return op.ApplyStored(r, &Stored{Bytes: img.Pix, DType: img.Type.DType, Layout: item.NHWC, W: img.W, H: img.H, C: int(img.Type.Channels)})
}

// ApplyStored makes it a StoredOp.
func (op *randomErasing) ApplyStored(r *Rand, row *Stored) error {
	box, ok := op.draw(r, row.W, row.H)
	if !ok {
		return nil
	}
	var value [item.MaxChannels][]byte
	var buf [4 * item.MaxChannels]byte
	size := row.DType.Size()
	for c := range value {
		value[c] = row.DType.Append(buf[c*4:c*4:c*4+4], op.value[c])
	}
	lines := int(box.H)
	var noise *normals
	if op.random {
		noise = normalTable()
	} else {
		lines = min(lines, 1) // the others are copies
	}
	for c := range row.C {
		// The start of the channel, and the steps from pixel to pixel and from row to row, in elements.
		start, step, line := c, row.C, row.W*row.C
		if row.Layout == item.NCHW {
			start, step, line = c*row.W*row.H, 1, row.W
		}
		var bits uint64
		left := 0
		for y := int(box.Y); y < int(box.Y)+lines; y++ {
			at := (start + y*line + int(box.X)*step) * size
			for range box.W {
				v := value[c]
				if op.random {
					if left == 0 {
						bits, left = r.Uint64(), 4
					}
					v = row.DType.Append(buf[:0], float64(noise.at(uint16(bits))))
					bits >>= 16
					left--
				}
				copy(row.Bytes[at:at+size], v)
				at += step * size
			}
		}
	}
	if !op.random {
		copyLines(row, box)
	}
	return nil
}

// copyLines copies the first line of a box to its other lines.
func copyLines(row *Stored, box item.Rect) {
	size := row.DType.Size()
	planes, pixel := 1, size*row.C
	if row.Layout == item.NCHW {
		planes, pixel = row.C, size
	}
	line, n := row.W*pixel, int(box.W)*pixel
	for p := range planes {
		first := row.Bytes[(p*row.H+int(box.Y))*line+int(box.X)*pixel:]
		for y := 1; y < int(box.H); y++ {
			copy(first[y*line:][:n], first[:n])
		}
	}
}

// normals is the standard normal distribution in 65,536 equally likely steps, its quantiles at the middle of each. It
// replaces a logarithm and a cosine for each of the many elements of an erased box. It ends at 4.3 sigma.
type normals struct{ upper [1 << 15]float32 }

func (n *normals) at(u uint16) float32 {
	v := n.upper[u&0x7fff]
	if u&0x8000 != 0 {
		return -v
	}
	return v
}

var normalTable = sync.OnceValue(func() *normals {
	n := new(normals)
	for i := range n.upper {
		p := (float64(i) + 0.5) / (1 << 15)
		n.upper[i] = float32(math.Sqrt2 * math.Erfinv(p))
	}
	return n
})
