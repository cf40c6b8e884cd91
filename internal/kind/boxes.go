package kind

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Boxes is any number of boxes, which follow the operations of their image. The fields whose rows belong to boxes are
// also planned here: they lose the same rows.
var Boxes = Kind{Name: driver.KindBoxes, Plan: planBoxes}

// KeyPoints is any number of groups of points, which follow their image.
var KeyPoints = Kind{Name: driver.KindKeyPoints, Plan: planBoxes}

// plannedAs is the kind that plans the arrays of a field.
func plannedAs(f *driver.Field) driver.Kind {
	if f.Boxes != "" {
		return driver.KindBoxes
	}
	return f.Kind
}

// boxes builds rows of boxes, key points and fields that belong to boxes.
type boxes struct {
	p      *Planner
	groups []boxGroup
}

// boxGroup is a group of arrays that move together and lose the same rows: boxes with the fields whose rows belong to
// them, or key points alone.
type boxGroup struct {
	// cols are its arrays. The boxes, if any, come first.
	cols  []boxColumn
	boxed bool
	// format is the format of the stored boxes, out that of the boxes in the batch.
	format, out transform.BoxFormat
	// prog are the operations of the image to which the field belongs, own those of the boxes.
	prog  *transform.Program
	image int
	own   []transform.BoxOp
	// guide are the boxes that the operations use if the group has no boxes of its own.
	guide *guide
}

type boxColumn struct {
	valueColumn
	points bool
	stored bool     // driver.Field.Stored
	masks  *stacked // nil for other fields
	// rowBytes is the number of bytes in the row of a box.
	rowBytes int
}

func planBoxes(p *Planner, wants []Want) ([]Maker, error) {
	m := &boxes{p: p}
	var stored []Want
	for i := range wants {
		w := &wants[i]
		if w.Out.Mask || w.Out.Mode != "" || w.Out.Depth != 0 {
			return nil, fmt.Errorf("output %q: field %q is %s; mask, mode and depth are for images and masks", w.Out.Name, w.F.Name, w.F.Kind)
		}
		if err := p.checkFollow(w); err != nil {
			return nil, err
		}
		if w.F.Boxes == "" { // boxes, or key points or masks on their own
			g, err := m.group(w)
			if err != nil {
				return nil, err
			}
			if g == nil {
				stored = append(stored, *w)
			}
		}
	}
	for i := range wants {
		w := &wants[i]
		if w.F.Boxes == "" {
			continue
		}
		g, err := m.groupOf(w)
		if err != nil {
			return nil, err
		}
		switch {
		case g != nil && (w.F.Kind == driver.KindKeyPoints || w.F.Kind == driver.KindMasks || transform.DropsBoxes(g.prog, g.own)):
			if len(w.Out.Ops) > 0 && w.F.Kind != driver.KindMasks {
				return nil, fmt.Errorf("output %q: field %q belongs to boxes and moves with them; operations go into the list of %q", w.Out.Name, w.F.Name, g.cols[0].Name)
			}
			if err := m.add(g, w); err != nil {
				return nil, err
			}
		case w.F.Kind == driver.KindKeyPoints || w.F.Kind == driver.KindMasks:
			if g, err = m.group(w); err != nil {
				return nil, err
			} else if g == nil {
				stored = append(stored, *w)
			}
		default:
			if len(w.Out.Ops) > 0 {
				return nil, noOperations(w)
			}
			w.Out.Follow = ""
			stored = append(stored, *w)
		}
	}
	var makers []Maker
	if len(m.groups) > 0 {
		makers = append(makers, m)
	}
	if len(stored) > 0 {
		for i := range stored {
			stored[i].Out.Follow = ""
		}
		plain, err := planRagged(ofRows, nil)(p, stored)
		if err != nil {
			return nil, err
		}
		makers = append(makers, plain...)
	}
	return makers, nil
}

// ofRows is for planRagged: the rows of any field that may belong to boxes.
func ofRows(w *Want) (item.DType, []int, error) {
	switch w.F.Kind {
	case driver.KindMultiLabel:
		return ofClasses(w)
	case driver.KindTokens:
		return ofTokens(w)
	case driver.KindBoxes:
		if w.F.DType != driver.Float32 || !slices.Equal(w.F.Shape, []int{4}) {
			return 0, nil, fmt.Errorf("field %q: boxes of %q and shape %v; they are float32 and have four numbers each", w.F.Name, w.F.DType, w.F.Shape)
		}
	case driver.KindKeyPoints:
		if s := w.F.Shape; w.F.DType != driver.Float32 || len(s) != 2 || s[1] != 2 {
			return 0, nil, fmt.Errorf("field %q: key points of %q and shape %v; they are float32 of shape [k, 2]", w.F.Name, w.F.DType, w.F.Shape)
		}
	case driver.KindRagged:
	default:
		return 0, nil, fmt.Errorf("field %q is %s, whose rows cannot belong to boxes", w.F.Name, w.F.Kind)
	}
	return ofElements(w)
}

// group starts a group with the boxes or key points of w. It is nil if they are used as stored.
func (m *boxes) group(w *Want) (*boxGroup, error) {
	g := boxGroup{image: -1, boxed: w.F.Kind == driver.KindBoxes}
	name := w.Out.Follow
	if name == "" {
		name = firstImage(m.p)
	}
	var err error
	if name != "" {
		if g.prog, g.image, err = m.follow(w, name); err != nil {
			return nil, err
		}
	}
	if g.prog != nil {
		around, err := m.p.guide(g.prog, name)
		switch {
		case err != nil:
			return nil, err
		case around != nil && g.boxed && around.field != w.Field:
			return nil, fmt.Errorf("output %q: RandomIoUCrop crops around the boxes of field %q, and those of %q cannot follow it", w.Out.Name, around.name, w.F.Name)
		case !g.boxed:
			g.guide = around
		}
	}
	if w.F.Kind == driver.KindMasks {
		if g.prog == nil {
			_, err := m.p.planStacked(w, name)
			return nil, err
		}
	} else if g.own, err = transform.CompileBoxes(&w.Out, name); err != nil {
		return nil, err
	}
	if g.boxed {
		if g.format, err = transform.ParseBoxFormat(string(w.F.Format)); err != nil {
			return nil, fmt.Errorf("field %q: %w", w.F.Name, err)
		}
		g.out = transform.BoxFormatOf(g.format, g.prog, g.own)
	}
	if g.prog == nil {
		for _, op := range g.own {
			if transform.NeedsImage(op) {
				return nil, fmt.Errorf("output %q: %s needs the size of an image, and the batch has none; also name the image in fields", w.Out.Name, transform.BoxOpName(op))
			}
		}
	}
	if g.prog == nil && g.format == g.out {
		return nil, nil
	}
	m.groups = append(m.groups, g)
	last := &m.groups[len(m.groups)-1]
	return last, m.add(last, w)
}

// follow compiles the operations of the output that w follows.
func (m *boxes) follow(w *Want, name string) (*transform.Program, int, error) {
	i := slices.IndexFunc(m.p.Wants, func(o Want) bool { return o.Out.Name == name })
	o := &m.p.Wants[i]
	if o.F.Kind != driver.KindImage {
		return nil, 0, fmt.Errorf("output %q: follow is %q, which is %s; boxes and key points follow images", w.Out.Name, name, o.F.Kind)
	}
	width, height := m.p.imageSize(o.F)
	in, err := o.Out.Image(width, height)
	if err != nil {
		return nil, 0, err
	}
	prog, err := m.p.compile(o.Out, in, o.Field)
	return prog, o.Field, err
}

// groupOf finds the boxes that the rows of w belong to, nil when the batch has
// none.
func (m *boxes) groupOf(w *Want) (*boxGroup, error) {
	for i := range m.groups {
		g := &m.groups[i]
		if !g.boxed || w.Out.Follow != "" && g.cols[0].Name != w.Out.Follow {
			continue
		}
		if m.p.Info.Fields[g.cols[0].field].Name == w.F.Boxes {
			return g, nil
		}
	}
	if w.Out.Follow == "" || w.F.Kind == driver.KindKeyPoints {
		return nil, nil
	}
	for i := range m.p.Wants {
		if o := &m.p.Wants[i]; o.Out.Name == w.Out.Follow && o.F.Name == w.F.Boxes {
			return nil, nil // these are used as stored
		}
	}
	return nil, fmt.Errorf("output %q: follow is %q; the rows of field %q belong to %q", w.Out.Name, w.Out.Follow, w.F.Name, w.F.Boxes)
}

// add adds the array of w to a group.
func (m *boxes) add(g *boxGroup, w *Want) error {
	if w.F.Kind == driver.KindMasks {
		return m.addMasks(g, w)
	}
	dtype, shape, err := ofRows(w)
	if err != nil {
		return err
	}
	c := boxColumn{valueColumn: valueColumn{Column: w.Column(dtype, shape), field: w.Field, largest: w.F.MaxBytes}, points: w.F.Kind == driver.KindKeyPoints, stored: w.F.Stored}
	c.Ragged, c.MaxRow = true, w.F.MaxBytes
	if g.boxed && len(g.cols) == 0 {
		c.Format = g.out.String()
	}
	if err := c.room(m.p, w); err != nil {
		return err
	}
	c.largest = w.F.MaxBytes // it has no place that a source could read it to
	c.rowBytes = dtype.Size()
	for _, n := range shape {
		c.rowBytes *= n
	}
	g.cols = append(g.cols, c)
	return nil
}

// addMasks adds the array of masks to a group.
func (m *boxes) addMasks(g *boxGroup, w *Want) error {
	name := ""
	if g.prog != nil {
		if name = w.Out.Follow; name == "" || g.boxed {
			name = firstImage(m.p)
			if of := m.p.Wants; g.boxed {
				for i := range of {
					if of[i].Out.Name == g.cols[0].Name && of[i].Out.Follow != "" {
						name = of[i].Out.Follow
					}
				}
			}
		}
	}
	s, err := m.p.planStacked(w, name)
	if err != nil {
		return err
	}
	c := boxColumn{valueColumn: valueColumn{Column: w.Column(item.U8, []int{s.prog.H, s.prog.W}), field: w.Field, largest: w.F.MaxBytes}, masks: s, rowBytes: s.rowBytes()}
	c.Ragged, c.MaxRow = true, int64(s.most)*int64(s.rowBytes())
	if c.MaxRow > collate.MaxBatch/int64(m.p.BatchSize) {
		return fmt.Errorf("output %q: up to %d masks of %dx%d in batches of %d do not fit a batch of a terabyte", w.Out.Name, s.most, s.prog.W, s.prog.H, m.p.BatchSize)
	}
	c.Capacity = c.MaxRow * int64(m.p.BatchSize)
	c.perRecord = c.MaxRow
	g.cols = append(g.cols, c)
	return nil
}

// Columns implements Maker.
func (m *boxes) Columns() []Column {
	var cols []Column
	for i := range m.groups {
		for k := range m.groups[i].cols {
			cols = append(cols, m.groups[i].cols[k].Column)
		}
	}
	return cols
}

// Cost implements Maker.
func (m *boxes) Cost() (c Cost) {
	for i := range m.groups {
		for k := range m.groups[i].cols {
			col := &m.groups[i].cols[k]
			c.ValueBytes += col.perRecord
			c.UnplacedBytes = max(c.UnplacedBytes, col.largest)
		}
	}
	return c
}

// NewWorker implements Maker.
func (m *boxes) NewWorker(t *Tools) (Worker, error) {
	dec, err := t.Decoder()
	if err != nil {
		return nil, err
	}
	return &boxWorker{m: m, t: t, dec: dec, rows: make([][]byte, 0, t.GroupRows)}, nil
}

type boxWorker struct {
	m      *boxes
	t      *Tools
	dec    *decode.Decoder
	run    transform.Run // of masks
	reqs   [1]decode.Request
	masks  [][]byte
	all    []int32
	places transform.Places
	rows   [][]byte
	// made are the rows of a group's columns. ends are their end positions, by column and record.
	made [][]byte
	ends [][]int
}

// Make implements Worker.
func (w *boxWorker) Make(g *RowGroup) {
	start := time.Now()
	for i := range w.m.groups {
		w.group(&w.m.groups[i], g)
	}
	g.TransformTime += time.Since(start)
}

func (w *boxWorker) group(bg *boxGroup, g *RowGroup) {
	for len(w.made) < len(bg.cols) {
		w.made, w.ends = append(w.made, nil), append(w.ends, nil)
	}
	for c := range bg.cols {
		w.made[c], w.ends[c] = w.made[c][:0], w.ends[c][:0]
	}
	for k := range g.Records {
		if g.Errs[k] == nil {
			g.Errs[k] = w.record(bg, g, k)
		}
		for c := range bg.cols {
			w.ends[c] = append(w.ends[c], len(w.made[c]))
		}
	}
	for c := range bg.cols {
		w.rows = w.rows[:0]
		from := 0
		for _, to := range w.ends[c] {
			w.rows = append(w.rows, w.made[c][from:to])
			from = to
		}
		g.Batch.PutRows(bg.cols[c].Array, g.First, w.rows, g.Errs)
	}
}

// record builds the rows of one record.
func (w *boxWorker) record(bg *boxGroup, g *RowGroup, k int) error {
	rec := &g.Records[k]
	pl := &w.places
	pl.Boxes, pl.Points, pl.Kept = pl.Boxes[:0], pl.Points[:0], pl.Kept[:0]
	count := -1 // of boxes
	for c := range bg.cols {
		col := &bg.cols[c]
		v := rec.Values[col.field].Bytes
		if col.masks != nil {
			if n := int(mask.Stacked(v)); bg.boxed && n != count || n > col.masks.most {
				return fmt.Errorf("field %q has %d masks, but there are %d boxes", col.Name, n, count)
			}
			continue
		}
		if len(v)%col.rowBytes != 0 {
			return fmt.Errorf("field %q has %d bytes, which is not a number of rows of %d bytes each", col.Name, len(v), col.rowBytes)
		}
		switch n := len(v) / col.rowBytes; {
		case bg.boxed && c == 0:
			count = n
			for i := range n {
				var b [4]float32
				for j := range b {
					b[j] = float(v[(4*i+j)*4:])
				}
				pl.Boxes, pl.Kept = append(pl.Boxes, bg.format.ToXYXY(b)), append(pl.Kept, int32(i))
			}
		case bg.boxed && n != count:
			return fmt.Errorf("field %q has %d rows, but there are %d boxes in %q", col.Name, n, count, bg.cols[0].Name)
		}
		if col.points {
			for i := 0; i < len(v); i += 8 {
				pl.Points = append(pl.Points, [2]float32{float(v[i:]), float(v[i+4:])})
			}
		}
	}
	var info decode.Info
	if bg.prog != nil {
		var err error
		if info, err = w.dec.Info(rec.Values[bg.image]); err != nil {
			return err
		}
		bg.turn(pl, rec, info)
		if bg.guide != nil {
			boxes, err := bg.guide.boxes(rec, info)
			if err != nil {
				return err
			}
			for i, b := range boxes {
				pl.Boxes, pl.Kept = append(pl.Boxes, b), append(pl.Kept, int32(i))
			}
		}
		if err := pl.Follow(bg.prog, bg.own, w.m.p.Seed, g.Epoch, g.Draw(k), int(info.Width), int(info.Height)); err != nil {
			return err
		}
	}
	points := pl.Points
	for c := range bg.cols {
		col := &bg.cols[c]
		v := rec.Values[col.field].Bytes
		switch {
		case col.masks != nil:
			kept := pl.Kept
			if !bg.boxed {
				kept = w.allOf(int(mask.Stacked(v)))
			}
			var err error
			if w.made[c], err = w.stack(col.masks, g, k, v, kept, info, w.made[c]); err != nil {
				return fmt.Errorf("field %q: %w", col.Name, err)
			}
		case bg.boxed && c == 0:
			for _, b := range pl.Boxes {
				for _, x := range bg.out.FromXYXY(b) {
					w.made[c] = appendFloat(w.made[c], x)
				}
			}
		case col.points:
			each := col.rowBytes / 8
			mine := points[:len(v)/8]
			points = points[len(mine):]
			if bg.boxed {
				for _, i := range pl.Kept {
					w.made[c] = appendPoints(w.made[c], mine[int(i)*each:][:each])
				}
			} else {
				w.made[c] = appendPoints(w.made[c], mine)
			}
		case len(pl.Kept) == count:
			w.made[c] = append(w.made[c], v...)
		default:
			for _, i := range pl.Kept {
				w.made[c] = append(w.made[c], v[int(i)*col.rowBytes:][:col.rowBytes]...)
			}
		}
	}
	return nil
}

// turn turns boxes and key points of a stored image as the image is turned that info describes.
func (bg *boxGroup) turn(pl *transform.Places, rec *driver.Record, info decode.Info) {
	if info.Orientation < 2 {
		return
	}
	points := pl.Points
	for c := range bg.cols {
		col := &bg.cols[c]
		switch {
		case bg.boxed && c == 0 && col.stored:
			turnBoxes(pl.Boxes, info)
		case col.points:
			mine := points[:len(rec.Values[col.field].Bytes)/8]
			if points = points[len(mine):]; col.stored {
				turnPoints(mine, info)
			}
		}
	}
}

// allOf are the numbers from 0 to n-1.
func (w *boxWorker) allOf(n int) []int32 {
	w.all = w.all[:0]
	for i := range n {
		w.all = append(w.all, int32(i))
	}
	return w.all
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func appendFloat(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

func appendPoints(b []byte, points [][2]float32) []byte {
	for _, p := range points {
		b = appendFloat(appendFloat(b, p[0]), p[1])
	}
	return b
}

// Close implements Worker. The worker's memory belongs to its tools.
func (w *boxWorker) Close() {}

// boxesOf is the array of the boxes that the rows of w belong to, "" when the batch has
// none.
func boxesOf(wants []Want, w *Want) string {
	for i := range wants {
		o := &wants[i]
		if w.F.Boxes != "" && o.F.Name == w.F.Boxes && (w.Out.Follow == "" || w.Out.Follow == o.Out.Name) {
			return o.Out.Name
		}
	}
	return ""
}
