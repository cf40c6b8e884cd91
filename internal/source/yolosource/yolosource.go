// Package yolosource reads images with annotations as YOLO has them: beside a folder
// images one called labels, with a text file for each image, a line per object:
//
//	class x y width height
//
// relative to the size of the image, x and y those of the centre; for outlines the
// corners of a polygon in the place of the box, for poses key points behind it. A file
// data.yaml names folders and classes.
//
//	yolo:coco8/data.yaml?split=train
//
// The text files are read when the source is opened.
package yolosource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options say what is wanted.
type Options struct {
	// Folders are those of the images, or text files that list them, below the store.
	Folders []string
	// Data is what data.yaml says, nil when there is none.
	Data *Data
	// Masks adds masks of the outlines, or of the boxes of objects without one.
	Masks boxes.Masks
}

const (
	maxLabels = 64 << 20  // bytes of a text file
	maxList   = 256 << 20 // bytes of a list of images
)

type source struct {
	boxes.Source
	bad      map[int64]error
	shapes   []float32 // the corners of all outlines
	ends     []int64   // of each object
	class    []int32
	masks    boxes.Masks
	mask     int // the field of it, 0 for none
	points   int // the field of key points, 0 for none
	boxField int
	free     sync.Pool
}

// objects are those of one image.
type objects struct {
	class   []int32
	boxes   []float32 // centre, width and height
	corners []float32
	ends    []int64
	points  []float32
	visible []byte
}

// labelName is the name of the text file of an image: the folder images that is nearest
// to it becomes labels.
func labelName(image string) string {
	name := strings.TrimSuffix(image, path.Ext(image)) + ".txt"
	slashed := "/" + name
	if i := strings.LastIndex(slashed, "/images/"); i >= 0 {
		slashed = slashed[:i] + "/labels/" + slashed[i+len("/images/"):]
	}
	return slashed[1:]
}

// Open lists the images below st and reads their labels.
func Open(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{bad: map[int64]error{}, masks: opt.Masks, boxField: 1}
	s.Images.Store = st
	var labels []store.Entry // the text files of records, and which record they are of
	var of []int
	for _, folder := range opt.Folders {
		images, texts, err := list(ctx, st, folder)
		if err != nil {
			return nil, err
		}
		for _, e := range images {
			if t, ok := texts[labelName(e.Name)]; ok {
				labels, of = append(labels, t), append(of, s.Images.Len())
			}
			s.Images.Add(e)
		}
	}
	if s.Images.Len() == 0 {
		return nil, fmt.Errorf("%s: there is no image in %s", rawURL, st.Path(opt.Folders[0]))
	}
	data := opt.Data
	if data == nil {
		data = &Data{}
	}
	all := make([]objects, s.Images.Len())
	bad := make([]error, len(labels))
	err := boxes.ReadAll(ctx, st, labels, maxLabels, func(i int, b []byte) error {
		if err := all[of[i]].parse(b, data); err != nil {
			all[of[i]] = objects{}
			bad[i] = fmt.Errorf("%s, %w", st.Path(labels[i].Name), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, err := range bad {
		if err != nil {
			s.bad[int64(of[i])] = err
		}
	}
	if err := s.build(all, data); err != nil {
		return nil, err
	}
	also := []string{string(opt.Masks)}
	for _, e := range labels {
		also = append(also, fmt.Sprintf("%s %d %d", e.Name, e.Size, e.ModTime.UnixNano()))
	}
	s.Also = func(_ *driver.Group, _ int, id int64) error { return s.bad[id] }
	s.Header = func(g *driver.Group) bool {
		return g.Wants(s.boxField) || s.points > 0 && g.Wants(s.points) || s.mask > 0 && g.Wants(s.mask)
	}
	s.Make = s.scale
	s.Init(driver.Info{URL: rawURL, Format: "yolo"}, also...)
	return s, nil
}

// list lists the images of a folder, or of a list of them, and the text files that may
// belong to them.
func list(ctx context.Context, st store.Store, folder string) ([]store.Entry, map[string]store.Entry, error) {
	e, err := st.Stat(ctx, folder)
	if err != nil {
		return nil, nil, err
	}
	var chosen map[string]bool
	var folders []string
	if e.Dir {
		folders = []string{folder}
	} else if chosen, folders, err = listed(ctx, st, e); err != nil {
		return nil, nil, err
	}
	var images []store.Entry
	texts := map[string]store.Entry{}
	seen := map[string]bool{}
	walk := func(dir string, text bool) error {
		return st.List(ctx, dir, &store.ListOptions{Keep: func(name string) bool {
			if text {
				return strings.EqualFold(path.Ext(name), ".txt")
			}
			return boxes.IsImage(name) && (chosen == nil || chosen[name])
		}}, func(e store.Entry) error {
			if text {
				texts[e.Name] = e
			} else if !seen[e.Name] {
				seen[e.Name] = true
				images = append(images, e)
			}
			return nil
		})
	}
	for _, dir := range folders {
		if err := walk(dir, false); err != nil {
			return nil, nil, err
		}
	}
	done := map[string]bool{}
	for _, e := range images {
		dir := path.Dir(labelName(e.Name))
		if done[dir] {
			continue
		}
		done[dir] = true
		if dir == "." {
			dir = ""
		}
		if _, err := st.Stat(ctx, dir); errors.Is(err, store.ErrNotExist) {
			continue // images without labels
		} else if err != nil {
			return nil, nil, err
		}
		if err := walk(dir, true); err != nil {
			return nil, nil, err
		}
	}
	return images, texts, nil
}

// listed reads a text file with the path of an image per line, from the folder of the
// file on, and says which folders they lie in.
func listed(ctx context.Context, st store.Store, e store.Entry) (map[string]bool, []string, error) {
	b, err := fixedrecords.All(ctx, st, e, maxList)
	if err != nil {
		return nil, nil, err
	}
	chosen := map[string]bool{}
	var folders []string
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name := path.Join(path.Dir(e.Name), strings.TrimPrefix(line, "./"))
		if path.IsAbs(line) {
			rel, ok := strings.CutPrefix(line, strings.TrimSuffix(st.Path(""), "/")+"/")
			if !ok {
				return nil, nil, fmt.Errorf("%s, line %d: %.200s does not lie below %s", st.Path(e.Name), n, line, st.Path(""))
			}
			name = rel
		}
		if store.CheckName(name) != nil {
			return nil, nil, fmt.Errorf("%s, line %d: %.200q is no path of an image below %s", st.Path(e.Name), n, line, st.Path(""))
		}
		chosen[name] = true
		if dir := path.Dir(name); !slices.Contains(folders, dir) {
			if folders = append(folders, dir); len(folders) > 1000 {
				return nil, nil, fmt.Errorf("%s lists images in more than 1000 folders", st.Path(e.Name))
			}
		}
	}
	for i, dir := range folders {
		if dir == "." {
			folders[i] = ""
		}
	}
	return chosen, folders, nil
}

// parse reads the lines of a text file.
func (o *objects) parse(b []byte, data *Data) error {
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if err := o.line(f, data); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

func (o *objects) line(f []string, data *Data) error {
	c, err := strconv.ParseFloat(f[0], 64)
	if err != nil || c != math.Trunc(c) || c < 0 || c > math.MaxInt32 {
		return fmt.Errorf("%.40q is no number of a class", f[0])
	}
	if len(data.Names) > 0 && int(c) >= len(data.Names) {
		return fmt.Errorf("class %d of %d", int(c), len(data.Names))
	}
	v := make([]float32, 0, 64)
	for _, text := range f[1:] {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%.40q is no number", text)
		}
		v = append(v, float32(x))
	}
	k, dims := data.Points, data.Dims
	corners := 0
	var box [4]float32
	switch {
	case k > 0:
		if len(v) != 4+k*dims {
			return fmt.Errorf("%d numbers behind the class; a box and %d key points of %d numbers have %d", len(v), k, dims, 4+k*dims)
		}
		copy(box[:], v)
		for i := range k {
			p := v[4+i*dims:]
			o.points = append(o.points, p[0], p[1])
			seen := byte(2)
			if dims == 3 {
				if !(p[2] >= 0 && p[2] <= math.MaxUint8) {
					return fmt.Errorf("a key point has the visibility %v", p[2])
				}
				seen = byte(p[2])
			}
			o.visible = append(o.visible, seen)
		}
	case len(v) == 4:
		copy(box[:], v)
	case len(v) >= 6 && len(v)%2 == 0:
		corners = len(v)
		lo, hi := [2]float32{v[0], v[1]}, [2]float32{v[0], v[1]}
		for i, x := range v {
			lo[i%2], hi[i%2] = min(lo[i%2], x), max(hi[i%2], x)
		}
		box = [4]float32{(lo[0] + hi[0]) / 2, (lo[1] + hi[1]) / 2, hi[0] - lo[0], hi[1] - lo[1]}
	default:
		return fmt.Errorf("%d numbers behind the class; a box has 4, a polygon 6 or more in pairs", len(v))
	}
	for _, x := range v[:max(corners, 4)] {
		// A little more than 1 is what rounding gives, pixels are what a mistake gives.
		if x < -0.01 || x > 1.01 {
			return fmt.Errorf("%v is not between 0 and 1: numbers are relative to the size of the image", x)
		}
	}
	o.class, o.boxes = append(o.class, int32(c)), append(o.boxes, box[:]...)
	o.corners = append(o.corners, v[:corners]...)
	o.ends = append(o.ends, int64(len(o.corners)))
	return nil
}

// build makes the columns.
func (s *source) build(all []objects, data *Data) error {
	var sides, labels, points, visible []byte
	s.First, s.MostStacked = []int64{0}, 1
	floats := func(b []byte, v []float32) []byte {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	for i := range all {
		o := &all[i]
		sides = floats(sides, o.boxes)
		for _, c := range o.class {
			labels = boxes.Int64(labels, int64(c))
		}
		points, visible = floats(points, o.points), append(visible, o.visible...)
		s.MostStacked = max(s.MostStacked, o.stackedBytes())
		if s.masks != boxes.NoMasks {
			s.class = append(s.class, o.class...)
			for _, end := range o.ends {
				s.ends = append(s.ends, int64(len(s.shapes))+end)
			}
			s.shapes = append(s.shapes, o.corners...)
		}
		s.First = append(s.First, s.First[i]+int64(len(o.class)))
		all[i] = objects{}
	}
	var names []string
	if len(data.Names) > 0 {
		names = data.Names
	}
	s.Columns = []boxes.Column{boxes.Boxes(driver.CXCYWH, sides), boxes.Labels(names, labels)}
	if k := data.Points; k > 0 {
		p := boxes.Each("keypoints", driver.Float32, points)
		p.Field.Kind, p.Field.Shape, p.Row = driver.KindKeyPoints, []int{k, 2}, 8*k
		v := boxes.Each("visibility", driver.Uint8, visible)
		v.Field.Shape, v.Row = []int{k}, k
		s.points = len(s.Columns) + 1
		s.Columns = append(s.Columns, p, v)
	}
	if s.masks == boxes.NoMasks {
		return nil
	}
	most := 0
	for _, c := range s.class {
		most = max(most, int(c)+1)
	}
	if names == nil {
		for i := range most {
			names = append(names, strconv.Itoa(i))
		}
	}
	cols, err := s.MaskColumns(s.masks, names, mask.MaxPixels)
	if err != nil {
		return err
	}
	s.mask = len(s.Columns) + 1
	s.Columns = append(s.Columns, cols...)
	return nil
}

// likelyHeight is more than most images have rows. Masks of others take more memory than is
// set aside for them, no more.
const likelyHeight = 1 << 13

// stackedBytes is about the most that the masks of the objects take: each row of one has a
// run of 4 bytes at most for each side of the outline, and two more.
func (o *objects) stackedBytes() (n int64) {
	at := int64(0)
	for _, end := range o.ends {
		sides := max((end-at)/2, 4)
		n += 64 + likelyHeight*4*(sides+2)
		at = end
	}
	return n
}

// scale makes pixels of what is relative to the size of the image.
func (s *source) scale(g *driver.Group, k int, id int64, image []byte, _ []driver.Extent, _ [][]byte) error {
	if !s.Header(g) {
		return nil
	}
	rec := &g.Records[k]
	info, err := imagefile.Probe(image)
	if err != nil {
		rec.Err = fmt.Errorf("%s: %w", s.Images.Path(int(id)), err)
		return nil
	}
	size := [2]float32{float32(info.Width), float32(info.Height)}
	for _, field := range []int{s.boxField, s.points} {
		if field == 0 || !g.Wants(field) {
			continue
		}
		v := s.Value(field-1, id)
		out, err := g.Take(k, field, int64(len(v)))
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of boxes: %w", len(v), err)
		}
		for at := 0; at+4 <= len(v); at += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(v[at:]))
			binary.LittleEndian.PutUint32(out[at:], math.Float32bits(x*size[at/4%2]))
		}
		rec.Values[field].Bytes = out
	}
	if s.mask > 0 && g.Wants(s.mask) {
		return s.paint(g, k, id, int(info.Width), int(info.Height))
	}
	return nil
}

// paint makes the mask of a record.
func (s *source) paint(g *driver.Group, k int, id int64, width, height int) error {
	c, _ := s.free.Get().(*boxes.Canvas)
	if c == nil {
		c = new(boxes.Canvas)
	}
	defer s.free.Put(c)
	rec := &g.Records[k]
	fail := func(err error) error {
		rec.Err = fmt.Errorf("%s: %w", s.Images.Path(int(id)), err)
		return nil
	}
	if err := c.Begin(width, height, s.Columns[s.mask-1].Field.DType); err != nil {
		return fail(err)
	}
	w, h := float64(width), float64(height)
	sides := s.Value(s.boxField-1, id)
	var xy []float64
	object := func(i int64) error {
		from := int64(0)
		if i > 0 {
			from = s.ends[i-1]
		}
		xy = xy[:0]
		for j, v := range s.shapes[from:s.ends[i]] {
			xy = append(xy, float64(v)*[2]float64{w, h}[j%2])
		}
		if len(xy) > 0 {
			return c.Polygon(xy)
		}
		var b [4]float64
		for j := range b {
			b[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(sides[16*(i-s.First[id])+int64(4*j):])))
		}
		return c.Box((b[0]-b[2]/2)*w, (b[1]-b[3]/2)*h, b[2]*w, b[3]*h)
	}
	if s.masks == boxes.Stack {
		v, bad, err := c.Stack(g, int(s.First[id+1]-s.First[id]), func(k int) error { return object(s.First[id] + int64(k)) })
		if bad != nil {
			return fail(bad)
		}
		rec.Values[s.mask] = v
		return err
	}
	for i := s.First[id]; i < s.First[id+1]; i++ {
		if c.Color(int(s.class[i]) + 1); s.masks == boxes.Instances {
			c.Color(int(i-s.First[id]) + 1)
		}
		if err := object(i); err != nil {
			return fail(err)
		}
	}
	v, err := c.Value(g)
	if err == nil {
		rec.Values[s.mask] = v
	}
	return err
}
