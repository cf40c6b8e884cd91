// Package yolosource reads images with annotations in YOLO's layout. Next to a folder named images is a folder
// named labels, with a text file per image. It has one line per object:
//
// Positions are relative to the size of the image, and x and y are the centre. Outlines have the corners of a
// polygon instead of the box. Poses have key points after the box. A file data.yaml has the folders and class
// names.
//
// Opening reads all text files.
package yolosource

import (
	"bytes"
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

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/encoded"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select the images and fields.
type Options struct {
	// Folders are the folders of the images, or text files that list images, below the store.
	Folders []string
	// Data is the content of data.yaml, nil if there is none.
	Data *Data
	// Masks adds masks of the outlines, or of the boxes if an object has no outline.
	Masks boxes.Masks
}

const (
	maxLabels = 64 << 20  // bytes of a text file
	maxList   = 256 << 20 // bytes of a list of images
)

type source struct {
	boxes.Base
	shapes   []float32 // the corners of all outlines
	ends     []int64   // of each object
	class    []int32
	masks    boxes.Masks
	mask     int // number of the mask field, 0 for none
	points   int // number of the key points field, 0 for none
	boxField int
	free     sync.Pool
}

// objects are the objects of one image.
type objects struct {
	class   []int32
	boxes   []float32 // centre, width and height
	corners []float32
	ends    []int64
	points  []float32
	visible []byte
}

// capitals are the ways to write the names of the two folders.
var capitals = [][2]string{{"/images/", "/labels/"}, {"/Images/", "/Labels/"}, {"/IMAGES/", "/LABELS/"}}

// labelName returns the name of an image's text file: the last folder named images becomes
// labels, in the same capitalisation.
func labelName(image string) string {
	name := "/" + strings.TrimSuffix(image, path.Ext(image)) + ".txt"
	last, labels := -1, ""
	for _, c := range capitals {
		if i := strings.LastIndex(name, c[0]); i > last {
			last, labels = i, c[1]
		}
	}
	if last >= 0 {
		name = name[:last] + labels + name[last+len(labels):]
	}
	return name[1:]
}

// Folders returns the folder with the images of a data set without data.yaml. Such a data set has the folders images
// and labels, with the same capitalisation, and the labels have the format of YOLO. For other folders it returns "".
func Folders(ctx context.Context, st store.Store) (string, error) {
	all, err := filelist.Folders(ctx, st, "")
	images := filelist.FindFolder(all, "images")
	if err != nil || images == "" {
		return "", err
	}
	labels := path.Dir(labelName(images + "/x"))
	if labels == images || !slices.Contains(all, labels) {
		return "", nil
	}
	other, enough := errors.New("other"), errors.New("enough")
	seen := 0
	err = st.List(ctx, labels, &store.ListOptions{Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		switch ext := strings.ToLower(path.Ext(e.Name)); {
		case e.Dir:
			return nil
		case boxes.IsImage(e.Name) || slices.Contains([]string{".xml", ".json", ".gz", ".nii", ".npy"}, ext):
			return other
		}
		if seen++; seen == 1000 {
			return enough
		}
		return nil
	})
	switch {
	case errors.Is(err, other):
		return "", nil
	case err != nil && !errors.Is(err, enough):
		return "", err
	}
	return images, nil
}

// Open lists the images below st and reads their labels.
func Open(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{masks: opt.Masks, boxField: 1}
	s.Images.Store = st
	var labels []store.Entry // the text files of records, and their records
	var of []int
	for _, folder := range opt.Folders {
		images, texts, err := s.files(ctx, st, folder)
		if err != nil {
			return nil, err
		}
		for _, e := range images {
			if t, ok := texts[labelName(e.Name)]; ok {
				labels, of = append(labels, t), append(of, s.Images.Len())
			}
			s.Add(&s.Images, e)
		}
	}
	if s.Images.Len() == 0 {
		return nil, fmt.Errorf("%s: no image in %s", rawURL, st.Path(opt.Folders[0]))
	}
	data := opt.Data
	if data == nil {
		data = &Data{}
	}
	all := make([]objects, s.Images.Len())
	err := s.ReadAll(ctx, st, labels, of, maxLabels, func(i int, b []byte) error {
		err := all[of[i]].parse(b, data)
		if err != nil {
			all[of[i]] = objects{}
			err = fmt.Errorf("%s, %w", st.Path(labels[i].Name), err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.build(all, data); err != nil {
		return nil, err
	}
	also := []string{string(opt.Masks)}
	for _, e := range labels {
		also = append(also, fmt.Sprintf("%s %d %d", e.Name, e.Size, e.ModTime.UnixNano()))
	}
	s.Header = func(g *driver.Group) bool {
		return g.Wants(s.boxField) || s.points > 0 && g.Wants(s.points) || s.mask > 0 && g.Wants(s.mask)
	}
	s.Make = s.scale
	return s, s.Init(driver.Info{URL: rawURL, Format: "yolo"}, also...)
}

// files lists the images of a folder or of a text file, and the text files that may belong to them.
func (s *source) files(ctx context.Context, st store.Store, folder string) ([]store.Entry, map[string]store.Entry, error) {
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
		return s.List(ctx, st, dir, func(name string) bool {
			if text {
				return strings.EqualFold(path.Ext(name), ".txt")
			}
			return boxes.IsImage(name) && (chosen == nil || chosen[name])
		}, func(e store.Entry) error {
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
			continue // the images have no labels
		} else if err != nil {
			return nil, nil, err
		}
		if err := walk(dir, true); err != nil {
			return nil, nil, err
		}
	}
	return images, texts, nil
}

// listed reads a text file with an image path per line, relative to the folder of the file, and returns the paths
// and their folders.
func listed(ctx context.Context, st store.Store, e store.Entry) (map[string]bool, []string, error) {
	b, err := store.ReadEntry(ctx, st, e, maxList)
	if err != nil {
		return nil, nil, err
	}
	b, _ = encoded.UTF8(b, false)
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
				return nil, nil, fmt.Errorf("%s, line %d: %.200s is not below %s", st.Path(e.Name), n, line, st.Path(""))
			}
			name = rel
		}
		if store.CheckName(name) != nil {
			return nil, nil, fmt.Errorf("%s, line %d: %.200q is not a path below %s", st.Path(e.Name), n, line, st.Path(""))
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

// parse parses the lines of a text file.
func (o *objects) parse(b []byte, data *Data) error {
	b, _ = encoded.UTF8(b, false)
	if bytes.IndexByte(b, '\n') < 0 { // lines may end in CR alone
		b = bytes.ReplaceAll(b, []byte{'\r'}, []byte{'\n'})
	}
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
		return fmt.Errorf("expected a class number, got %.40q", f[0])
	}
	if len(data.Names) > 0 && int(c) >= len(data.Names) {
		return fmt.Errorf("class number %d is out of range: there are %d classes", int(c), len(data.Names))
	}
	v := make([]float32, 0, 64)
	for _, text := range f[1:] {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("expected a number, got %.40q", text)
		}
		v = append(v, float32(x))
	}
	k, dims := data.Points, data.Dims
	corners := 0
	var box [4]float32
	switch {
	case k > 0:
		if len(v) != 4+k*dims {
			return fmt.Errorf("%d numbers after the class: a box and %d key points of %d numbers need %d", len(v), k, dims, 4+k*dims)
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
		return fmt.Errorf("%d numbers after the class: a box needs 4, a polygon 6 or more in pairs", len(v))
	}
	for _, x := range v[:max(corners, 4)] {
		// Rounding gives values slightly above 1. Larger values are most likely pixels.
		if x < -0.01 || x > 1.01 {
			return fmt.Errorf("%v is not between 0 and 1: numbers must be relative to the size of the image", x)
		}
	}
	o.class, o.boxes = append(o.class, int32(c)), append(o.boxes, box[:]...)
	o.corners = append(o.corners, v[:corners]...)
	o.ends = append(o.ends, int64(len(o.corners)))
	return nil
}

// build sets the columns.
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

// likelyHeight is more than the height of most images. Masks of higher images take more memory than estimated,
// which does no other harm.
const likelyHeight = 1 << 13

// stackedBytes estimates the maximum size of the objects' masks. Each row of a mask has at most one 4-byte run per
// side of the outline, and two more.
func (o *objects) stackedBytes() (n int64) {
	at := int64(0)
	for _, end := range o.ends {
		sides := max((end-at)/2, 4)
		n += 64 + likelyHeight*4*(sides+2)
		at = end
	}
	return n
}

// scale converts relative positions to pixels.
func (s *source) scale(g *driver.Group, k int, id int64, frame boxes.Frame, _ []driver.Extent, _ [][]byte) error {
	if !s.Header(g) {
		return nil
	}
	rec := &g.Records[k]
	size := [2]float32{float32(frame.W), float32(frame.H)}
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
		return s.paint(g, k, id, frame)
	}
	return nil
}

// paint sets the mask of a record.
func (s *source) paint(g *driver.Group, k int, id int64, frame boxes.Frame) error {
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
	if err := c.Begin(int(frame.W), int(frame.H), s.Columns[s.mask-1].Field.DType); err != nil {
		return fail(err)
	}
	c.Turn = frame.Turn
	w, h := float64(frame.W), float64(frame.H)
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
	if err != nil {
		return fmt.Errorf("%s: %w", s.Images.Path(int(rec.ID)), err)
	}
	rec.Values[s.mask] = v
	return nil
}
