package transform

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/stokerdata/stoker/internal/item"
)

// gather combines the data of several images of a batch into rows of one: boxes and key points, and the arrays that
// belong to boxes.
type gather struct {
	groups []gathered
	times  int64 // rows that come together
}

// gathered is an array of boxes, or of key points without boxes, together with the arrays whose rows belong to the
// boxes.
type gathered struct {
	boxes  string // "" for key points of their own
	format BoxFormat
	arrays []string
	points []bool // of arrays: they are key points
}

// newGather finds the arrays that belong to images.
func newGather(in BatchInfo, images []string, times int64) (gather, error) {
	g := gather{times: times}
	for _, a := range in.Arrays {
		one := gathered{}
		switch {
		case a.Padded && (a.Kind == "boxes" || a.Kind == "keypoints" || a.Boxes != ""):
			return g, fmt.Errorf("%q would be padded before images are mixed; leave it out of pad, and use .padded() of what comes", a.Name)
		case !a.Ragged:
			continue
		case a.Kind == "boxes":
			f, err := ParseBoxFormat(a.Format)
			if err != nil {
				return g, err
			}
			one.boxes, one.format = a.Name, f
			for _, o := range in.Arrays {
				if o.Ragged && o.Boxes == a.Name {
					one.arrays, one.points = append(one.arrays, o.Name), append(one.points, o.Kind == "keypoints")
				}
			}
		case a.Kind == "keypoints" && a.Boxes == "":
			one.arrays, one.points = []string{a.Name}, []bool{true}
		default:
			continue
		}
		g.groups = append(g.groups, one)
	}
	if len(g.groups) > 0 && len(images) > 1 {
		return g, fmt.Errorf("the batch has several images and boxes; say which of them are mixed with images=")
	}
	return g, nil
}

// hasLabels reports whether a batch has class numbers of whole images.
func hasLabels(in BatchInfo) bool {
	for _, a := range in.Arrays {
		if _, ok := in.Classes[a.Name]; ok && a.DType == item.I64 && !a.Ragged {
			return true
		}
	}
	return false
}

// Grow makes it a Grower.
func (g *gather) Grow(array string) int64 {
	for i := range g.groups {
		if g.groups[i].boxes == array || contains(g.groups[i].arrays, array) {
			return g.times
		}
	}
	return 1
}

// shift is the move of an image. Everything moves by dx, dy. Boxes are cut at the sides of cut, and too small ones are
// dropped.
type shift struct {
	dx, dy float32
	cut    *[4]float32
}

// A cut box is kept if its sides exceed keepSide pixels and more than keepArea of its area is left. It may not be
// longer than keepRatio times its width, or wider than keepRatio times its length: box_candidates of Ultralytics.
const (
	keepSide  = 2
	keepArea  = 0.1
	keepRatio = 100
)

// box moves a box, given by its corners, and reports whether it is kept.
func (s *shift) box(b [4]float32) ([4]float32, bool) {
	b = [4]float32{b[0] + s.dx, b[1] + s.dy, b[2] + s.dx, b[3] + s.dy}
	if s.cut == nil {
		return b, true
	}
	area := (b[2] - b[0]) * (b[3] - b[1])
	c := s.cut
	b = [4]float32{min(max(b[0], c[0]), c[2]), min(max(b[1], c[1]), c[3]), min(max(b[2], c[0]), c[2]), min(max(b[3], c[1]), c[3])}
	const tiny = 1e-16
	w, h := b[2]-b[0], b[3]-b[1]
	ratio := max(w/(h+tiny), h/(w+tiny))
	return b, w > keepSide && h > keepSide && w*h/(area+tiny) > keepArea && ratio < keepRatio
}

// apply builds the rows again. For each row, of calls take with the source rows and their shifts.
func (g *gather) apply(b *Batch, of func(row int, take func(from int, s shift))) error {
	for i := range g.groups {
		if err := g.groups[i].apply(b, of); err != nil {
			return err
		}
	}
	return nil
}

// column is a ragged array while its rows are built again.
type column struct {
	arr    *item.Array
	points bool
	bytes  int64 // of an element
	old    []byte
	ends   []int64
	made   []byte
	to     []int64
}

func (g *gathered) apply(b *Batch, of func(row int, take func(from int, s shift))) error {
	var cols []column
	add := func(name string, points bool) error {
		arr, _ := b.Array(name)
		if arr == nil || !arr.Ragged {
			return fmt.Errorf("the batch has no array %q", name)
		}
		c := column{arr: arr, points: points, bytes: arr.ElementBytes(), to: []int64{0}}
		c.old, c.ends = b.Ragged(arr)
		cols = append(cols, c)
		return nil
	}
	if g.boxes != "" {
		if err := add(g.boxes, false); err != nil {
			return err
		}
	}
	for k, name := range g.arrays {
		if err := add(name, g.points[k]); err != nil {
			return err
		}
	}
	for row := range b.Rows {
		of(row, func(from int, s shift) {
			first := &cols[0]
			n := (first.ends[from+1] - first.ends[from]) / first.bytes
			for k := range n {
				keep := true
				if g.boxes != "" {
					at := first.old[first.ends[from]+16*k:]
					var box [4]float32
					for j := range box {
						box[j] = math.Float32frombits(binary.LittleEndian.Uint32(at[4*j:]))
					}
					if box, keep = s.box(g.format.ToXYXY(box)); keep {
						for _, v := range g.format.FromXYXY(box) {
							first.made = binary.LittleEndian.AppendUint32(first.made, math.Float32bits(v))
						}
					}
				}
				for c := range cols {
					if col := &cols[c]; keep && (c > 0 || g.boxes == "") {
						col.take(col.old[col.ends[from]+col.bytes*k:][:col.bytes], &s)
					}
				}
			}
		})
		for c := range cols {
			cols[c].to = append(cols[c].to, int64(len(cols[c].made)))
		}
	}
	for c := range cols {
		if err := b.SetRagged(cols[c].arr, cols[c].made, cols[c].to); err != nil {
			return err
		}
	}
	return nil
}

// take appends an element, and moves it if it is a key point.
func (c *column) take(v []byte, s *shift) {
	if !c.points {
		c.made = append(c.made, v...)
		return
	}
	for at := 0; at+8 <= len(v); at += 8 {
		x, y := math.Float32frombits(binary.LittleEndian.Uint32(v[at:])), math.Float32frombits(binary.LittleEndian.Uint32(v[at+4:]))
		c.made = binary.LittleEndian.AppendUint32(c.made, math.Float32bits(x+s.dx))
		c.made = binary.LittleEndian.AppendUint32(c.made, math.Float32bits(y+s.dy))
	}
}

// mosaic combines parts of four images of a batch around a random point: those of a record and of the three before it
// (YOLOv4, arXiv:2004.10934). Images keep their size. Boxes are cut, and dropped if little of them is left.
type mosaic struct {
	gather
	p             float64
	images, masks []string
	width, height int
	spare         *sync.Pool
}

var mosaicSpec = Spec{
	Name: "Mosaic", Doc: "Build each image of a batch from parts of four: itself and the three before it (YOLOv4, arXiv:2004.10934).",
	More:   "It comes last in a list. Boxes, key points, labels and masks follow. Boxes are cut, and dropped if 2 pixels or a tenth of the area or less remain. Images should fill their rows, so use RandomResizedCrop and not LetterBox before it.",
	Params: []Param{probability(1), imageNames},
	Kinds:  []string{"batch"}, Returns: "Same images; up to four times as many boxes.", Example: "T.Mosaic(p=0.5)", batch: buildMosaic,
}

func buildMosaic(a *Args, in BatchInfo) (BatchOp, []item.Array, error) {
	op := &mosaic{p: a.Float("p"), spare: &sync.Pool{}}
	var m mixer
	if err := m.findImages(a, in); err != nil {
		return nil, nil, err
	}
	if m.width == 0 {
		return nil, nil, fmt.Errorf("the images of the batch have different sizes; say which are to be mixed with images=")
	}
	op.images, op.width, op.height = m.images, m.width, m.height
	var err error
	if op.gather, err = newGather(in, op.images, 4); err != nil {
		return nil, nil, err
	}
	if len(op.groups) == 0 {
		return nil, nil, fmt.Errorf("the batch has no boxes and no key points; CutMix and MixUp mix images of classes")
	}
	for _, arr := range in.Arrays {
		if arr.Kind == "mask" && len(arr.Shape) == 2 && arr.Shape[0] == op.height && arr.Shape[1] == op.width {
			op.masks = append(op.masks, arr.Name)
		}
	}
	return op, nil, nil
}

func (op *mosaic) skip(*Batch) error { return nil }

// tile is a part of a mosaic: the part of the image in [x0, x1) x [y0, y1) after a move by dx, dy.
type tile struct{ x0, y0, x1, y1, dx, dy int }

// tiles are the parts around the point (cx, cy): the lower right part of the first
// image, the lower left one of the second, and so on.
func (op *mosaic) tiles(cx, cy int) [4]tile {
	w, h := op.width, op.height
	return [4]tile{{0, 0, cx, cy, cx - w, cy - h}, {cx, 0, w, cy, cx, cy - h}, {0, cy, cx, h, cx - w, cy}, {cx, cy, w, h, cx, cy}}
}

// ApplyBatch makes it a BatchOp.
func (op *mosaic) ApplyBatch(r *Rand, b *Batch) error {
	if b.Rows == 0 {
		return nil
	}
	center := make([][2]int, b.Rows) // -1 for a record that stays
	for i := range center {
		sub := r.Sub(i)
		center[i] = [2]int{-1, -1}
		if sub.Bool(op.p) {
			center[i] = [2]int{sub.IntN(op.width + 1), sub.IntN(op.height + 1)}
		}
	}
	return op.apply(b, center)
}

func (op *mosaic) apply(b *Batch, center [][2]int) error {
	for _, name := range append(append([]string{}, op.images...), op.masks...) {
		arr, data := b.Array(name)
		if arr == nil {
			return fmt.Errorf("Mosaic: the batch has no image %q", name)
		}
		op.pixels(arr, data, b.Rows, center)
	}
	return op.gather.apply(b, func(row int, take func(from int, s shift)) {
		c := center[row]
		if c[0] < 0 {
			take(row, shift{})
			return
		}
		for k, t := range op.tiles(c[0], c[1]) {
			cut := [4]float32{float32(t.x0), float32(t.y0), float32(t.x1), float32(t.y1)}
			take(before(row, k, b.Rows), shift{float32(t.dx), float32(t.dy), &cut})
		}
	})
}

// before returns the row that is k before a row, cyclically.
func before(row, k, rows int) int { return ((row-k)%rows + rows) % rows }

// pixels builds the rows of an array, from the last one on: then the rows before a row are still unchanged, and the
// last three have copies.
func (op *mosaic) pixels(arr *item.Array, data []byte, rows int, center [][2]int) {
	size := int(arr.RowBytes)
	kept := min(rows, 3)
	buf, _ := op.spare.Get().(*[]byte)
	if buf == nil || cap(*buf) < kept*size {
		b := make([]byte, kept*size)
		buf = &b
	}
	defer op.spare.Put(buf)
	saved := (*buf)[:kept*size]
	copy(saved, data[(rows-kept)*size:])
	planes, pixel := 1, arr.DType.Size()
	if len(arr.Shape) == 3 && channelsLast(arr.Shape) {
		pixel *= arr.Shape[2]
	} else if len(arr.Shape) == 3 {
		planes = arr.Shape[0]
	}
	line := op.width * pixel
	for i := rows - 1; i >= 0; i-- {
		if center[i][0] < 0 {
			continue
		}
		dst := data[i*size : (i+1)*size]
		for k, t := range op.tiles(center[i][0], center[i][1]) {
			j := i - k
			var src []byte
			if j >= 0 {
				src = data[j*size : (j+1)*size]
			} else {
				at := before(i, k, rows) - (rows - kept)
				src = saved[at*size : (at+1)*size]
			}
			// The first tile moves up and to the left within its own row: from top to bottom, nothing is overwritten
			// before it was read.
			for p := range planes {
				for y := t.y0; y < t.y1; y++ {
					to, from := (p*op.height+y)*line, (p*op.height+y-t.dy)*line
					copy(dst[to+t.x0*pixel:to+t.x1*pixel], src[from+(t.x0-t.dx)*pixel:])
				}
			}
		}
	}
}
