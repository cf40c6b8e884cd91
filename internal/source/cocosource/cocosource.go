// Package cocosource reads images with annotations in COCO's format: a JSON file of instances, key points or
// captions, and a folder of images.
//
// Opening reads the JSON once, in order, and holds the boxes, classes, key points and captions in memory. Outlines
// stay in the file and are read with their images.
package cocosource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/encoded"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/jsonread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options are the positions of the parts.
type Options struct {
	// File is the JSON file in its store.
	File string
	// Images is the store of the images, nil for the store of the JSON. Folder is the folder in it.
	Images store.Store
	Folder string
	// Masks adds masks of the outlines.
	Masks boxes.Masks
}

// Limits for the content of a file.
const (
	maxImages      = 1 << 28
	maxAnnotations = 1 << 30
	maxCategories  = 1 << 20
	maxKeyPoints   = 1 << 10
	maxSegment     = 64 << 20 // bytes of an outline
)

type source struct {
	boxes.Base
	json string // for messages
	text []byte // the JSON as UTF-8 if its encoding is another, nil otherwise

	width, height []int32 // sizes of images from the JSON
	class         []int32 // class numbers of annotations, from 0
	ids           []int64
	segments      []segment
	mask          int // number of the mask field, 0 for none
	masks         boxes.Masks
	free          chan *boxes.Canvas
}

// segment is the position of an annotation's outline in the file.
type segment struct {
	at   int64
	size int32
}

// Open reads the JSON in st and lists the images.
func Open(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	entry, err := st.Stat(ctx, opt.File)
	if err != nil {
		return nil, err
	}
	obj, err := store.OpenEntry(ctx, st, entry)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	s := &source{json: st.Path(opt.File), masks: opt.Masks}
	r := jsonread.New(ctx, obj, s.json)
	if s.text, err = wide(ctx, obj, s.json); err != nil {
		return nil, err
	} else if s.text != nil {
		r = jsonread.Bytes(s.text, s.json, 0)
	}
	f := &file{r: r, masks: opt.Masks != boxes.NoMasks}
	if err := f.read(); err != nil {
		return nil, err
	}
	if err := store.Check(ctx, obj); err != nil {
		return nil, err
	}
	images := opt.Images
	if images == nil {
		images = st
	}
	record, err := s.find(ctx, f, images, opt.Folder)
	if err != nil {
		return nil, err
	}
	if err := s.build(f, record); err != nil {
		return nil, fmt.Errorf("%s: %w", s.json, err)
	}
	s.More.Store = st
	s.More.Add(entry)
	if err := s.Init(driver.Info{URL: rawURL, Format: "coco"}, string(opt.Masks)); err != nil {
		return nil, err
	}
	s.Stated = func(id int64) (w, h int32) { return s.width[id], s.height[id] }
	if s.mask > 0 {
		s.Also, s.Make = s.also, s.paint
		s.free = make(chan *boxes.Canvas, 64)
	}
	return s, nil
}

// maxWide is the size limit of a JSON file that is not UTF-8, which is held in memory.
const maxWide = 1 << 30

// wide returns the text of a JSON file that is UTF-16 or UTF-32, nil if it is not.
func wide(ctx context.Context, obj store.Object, name string) ([]byte, error) {
	head := make([]byte, min(obj.Size(), encoded.HeadBytes))
	if err := obj.ReadAt(ctx, head, 0); err != nil || encoded.Wide(head, true) == nil {
		return nil, err
	}
	if obj.Size() > maxWide {
		return nil, fmt.Errorf("%s is not UTF-8 and has %d bytes, the limit is %d: convert it with iconv -t UTF-8", name, obj.Size(), int64(maxWide))
	}
	all := make([]byte, obj.Size())
	if err := obj.ReadAt(ctx, all, 0); err != nil {
		return nil, err
	}
	text, _ := encoded.UTF8(all, true)
	return text, nil
}

// Held implements driver.Holder.
func (s *source) Held() int64 { return s.Base.Held() + int64(len(s.text)) }

// find lists the images that the JSON names. It returns the record of each image in the JSON, -1 if the file does
// not exist.
func (s *source) find(ctx context.Context, f *file, st store.Store, folder string) ([]int32, error) {
	n := len(f.imageID)
	order := make([]int32, n) // by name
	for i := range order {
		order[i] = int32(i)
	}
	name := func(i int32) string { return path.Join(folder, string(f.name(int(i)))) }
	slices.SortFunc(order, func(a, b int32) int {
		return strings.Compare(string(f.name(int(a))), string(f.name(int(b))))
	})
	at := func(full string) (int, bool) {
		rel := full
		if folder != "" {
			var ok bool
			if rel, ok = strings.CutPrefix(full, folder+"/"); !ok {
				return 0, false
			}
		}
		return slices.BinarySearchFunc(order, rel, func(i int32, rel string) int { return strings.Compare(string(f.name(int(i))), rel) })
	}
	entries := make([]store.Entry, n)
	found := 0
	err := s.List(ctx, st, folder, func(full string) bool { _, ok := at(full); return ok }, func(e store.Entry) error {
		i, ok := at(e.Name)
		for ; ok && i < n && name(order[i]) == e.Name; i++ { // several records may have one file
			entries[order[i]] = e
			found++
		}
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, err
	}
	if found == 0 && n > 0 {
		return nil, fmt.Errorf("%s: none of its %d images, such as %[4]q, is in %[3]s: give their folder, ...json?images=FOLDER", s.json, n, st.Path(folder), f.name(0))
	}
	record := make([]int32, n)
	s.Images.Store = st
	for i := range record {
		if entries[i].Name == "" {
			record[i] = -1
			s.Left = append(s.Left, driver.Skipped{Path: strings.ToValidUTF8(string(f.name(i)), "\uFFFD"), Reason: fmt.Sprintf("image %d of %s: the file does not exist in %s", f.imageID[i], path.Base(s.json), st.Path(folder))})
			continue
		}
		record[i] = int32(s.Images.Len())
		s.Add(&s.Images, entries[i])
		s.width, s.height = append(s.width, f.width[i]), append(s.height, f.height[i])
	}
	return record, nil
}

// build sets the columns.
func (s *source) build(f *file, record []int32) error {
	byID := make([]int32, len(f.imageID)) // images by id
	for i := range byID {
		byID[i] = int32(i)
	}
	slices.SortStableFunc(byID, func(a, b int32) int { return compare(f.imageID[a], f.imageID[b]) })
	for i := 1; i < len(byID); i++ {
		if f.imageID[byID[i-1]] == f.imageID[byID[i]] {
			return fmt.Errorf("two images have the id %d", f.imageID[byID[i]])
		}
	}
	classes := map[int64]int32{}
	for i, id := range f.categoryID {
		if _, ok := classes[id]; ok {
			return fmt.Errorf("two categories have the id %d", id)
		}
		classes[id] = int32(i)
	}
	of := make([]int32, len(f.image)) // the record of each annotation
	stray := 0
	for i, id := range f.image {
		k, ok := slices.BinarySearchFunc(byID, id, func(a int32, id int64) int { return compare(f.imageID[a], id) })
		if !ok {
			of[i] = -1
			stray++
			continue
		}
		of[i] = record[byID[k]]
		err := f.wrong[i]
		if _, known := classes[f.category[i]]; !known && f.boxed[i] {
			err = fmt.Errorf("%s: annotation %d has the category %d, which is not among the %d categories", s.json, f.id[i], f.category[i], len(classes))
		}
		if err != nil && of[i] >= 0 {
			if err := s.Bad.Note(int(of[i]), err); err != nil {
				return err
			}
		}
	}
	if stray > 0 {
		s.Left = append(s.Left, driver.Skipped{Path: path.Base(s.json), Reason: fmt.Sprintf("%d annotations belong to images that are not in the file", stray)})
	}
	if f.boxes != nil || f.captions == nil {
		if err := s.objects(f, s.boxed(f, of), classes); err != nil {
			return err
		}
	} else {
		s.First = make([]int64, s.Images.Len()+1)
	}
	if f.captions != nil {
		s.Columns = append(s.Columns, s.captions(f, of))
	}
	ids := make([]int64, 0, len(record))
	for i, r := range record {
		if r >= 0 {
			ids = append(ids, f.imageID[i])
		}
	}
	s.Columns = append(s.Columns, boxes.Column{Field: driver.Field{Name: "image_id", Kind: driver.KindInt}, Ints: ids})
	return nil
}

// boxed returns the annotations that have a box, by record, and sets First to them. It counts the others, without
// those that are captions.
func (s *source) boxed(f *file, of []int32) (order []int32) {
	record := slices.Clone(of)
	left, first := 0, 0
	for i := range record {
		if f.boxed[i] {
			continue
		}
		if record[i] >= 0 && f.caption(i) == nil {
			if left++; left == 1 {
				first = i
			}
		}
		record[i] = -1
	}
	if left > 0 {
		s.Left = append(s.Left, driver.Skipped{
			Path:   path.Base(s.json),
			Reason: fmt.Sprintf("%d annotations have no box and are left out, such as annotation %d of image %d", left, f.id[first], f.image[first]),
		})
	}
	s.First, order = boxes.Order(s.Images.Len(), record)
	return order
}

// objects sets the columns of boxes and their labels.
func (s *source) objects(f *file, order []int32, classes map[int64]int32) error {
	var labels []byte
	for _, i := range order {
		c := classes[f.category[i]] // 0 for unknown ones, whose records are bad
		labels = boxes.Int64(labels, int64(c))
		s.class, s.ids = append(s.class, c), append(s.ids, f.id[i])
	}
	s.Columns = []boxes.Column{
		boxes.Boxes(driver.XYWH, boxes.Pick(f.boxes, 16, order)), boxes.Labels(f.names, labels),
		boxes.Each("iscrowd", driver.Uint8, boxes.Pick(f.crowd, 1, order)), boxes.Each("area", driver.Float32, boxes.Pick(f.area, 4, order)),
	}
	if k := f.keyPoints; k > 0 {
		points := boxes.Each("keypoints", driver.Float32, boxes.Pick(f.points, 8*k, order))
		points.Field.Kind, points.Field.Shape, points.Row = driver.KindKeyPoints, []int{k, 2}, 8*k
		seen := boxes.Each("visibility", driver.Uint8, boxes.Pick(f.visible, k, order))
		seen.Field.Shape, seen.Row = []int{k}, k
		s.Columns = append(s.Columns, points, seen)
	}
	if s.masks == boxes.NoMasks {
		return nil
	}
	for _, i := range order {
		s.segments = append(s.segments, f.segments[i])
	}
	most := int64(1)
	for i := range s.width {
		most = max(most, int64(s.width[i])*int64(s.height[i]))
	}
	cols, err := s.MaskColumns(s.masks, f.names, min(most, mask.MaxPixels))
	s.mask = len(s.Columns) + 1
	s.Columns = append(s.Columns, cols...)
	return err
}

// captions returns the column of captions: a JSON list per image.
func (s *source) captions(f *file, of []int32) boxes.Column {
	first, order := boxes.Order(s.Images.Len(), of)
	c := boxes.Column{Field: driver.Field{Name: "captions", Kind: driver.KindJSON}}
	for r := range s.Images.Len() {
		c.Data = append(c.Data, '[')
		some := false
		for _, i := range order[first[r]:first[r+1]] {
			if text := f.caption(int(i)); text != nil {
				if some {
					c.Data = append(c.Data, ", "...)
				}
				c.Data = appendJSON(c.Data, text)
				some = true
			}
		}
		c.Data = append(c.Data, ']')
		c.Ends = append(c.Ends, int64(len(c.Data)))
	}
	return c
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// also adds the extents of a record's outlines.
func (s *source) also(g *driver.Group, _ int, id int64) error {
	if !g.Wants(s.mask) || s.text != nil {
		return nil
	}
	for i := s.First[id]; i < s.First[id+1]; i++ {
		if seg := s.segments[i]; seg.size > 0 {
			g.Extents = append(g.Extents, driver.Extent{Object: s.Info().Len, Offset: seg.at, Size: int64(seg.size), Field: -1})
		}
	}
	return nil
}

// paint sets the mask of a record.
func (s *source) paint(g *driver.Group, k int, id int64, f boxes.Frame, _ []driver.Extent, read [][]byte) error {
	if !g.Wants(s.mask) {
		return nil
	}
	var c *boxes.Canvas
	select {
	case c = <-s.free:
	default:
		c = new(boxes.Canvas)
	}
	defer func() {
		select {
		case s.free <- c:
		default:
		}
	}()
	rec := &g.Records[k]
	if f.W == 0 { // the image was not read
		f.W, f.H = s.width[id], s.height[id]
	}
	if err := c.Begin(int(f.W), int(f.H), s.Columns[s.mask-1].Field.DType); err != nil {
		rec.Err = fmt.Errorf("%s, in %s: %w", s.Images.Path(int(id)), s.json, err)
		return nil
	}
	c.Turn = f.Turn
	if s.masks == boxes.Stack {
		return s.stack(g, rec, c, id, read)
	}
	for i := s.First[id]; i < s.First[id+1]; i++ {
		if s.segments[i].size == 0 {
			continue
		}
		if c.Color(int(s.class[i]) + 1); s.masks == boxes.Instances {
			c.Color(int(i-s.First[id]) + 1)
		}
		if rec.Err = s.outline(c, i, &read); rec.Err != nil {
			return nil
		}
	}
	v, err := c.Value(g)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Images.Path(int(rec.ID)), err)
	}
	rec.Values[s.mask] = v
	return nil
}

// stack sets a mask for each annotation of a record.
func (s *source) stack(g *driver.Group, rec *driver.Record, c *boxes.Canvas, id int64, read [][]byte) error {
	first := s.First[id]
	v, bad, err := c.Stack(g, int(s.First[id+1]-first), func(k int) error {
		i := first + int64(k)
		if s.segments[i].size == 0 {
			return nil
		}
		return s.outline(c, i, &read)
	})
	rec.Err, rec.Values[s.mask] = bad, v
	return err
}

// outline paints the segmentation of annotation i. Unless all text is in memory, it takes the next of read.
func (s *source) outline(c *boxes.Canvas, i int64, read *[][]byte) error {
	seg := s.segments[i]
	b := s.text
	if b != nil {
		b = b[seg.at:][:seg.size]
	} else {
		b, *read = (*read)[0], (*read)[1:]
	}
	if err := outline(c, jsonread.Bytes(b, s.json, seg.at)); err != nil {
		return fmt.Errorf("annotation %d: %w", s.ids[i], err)
	}
	return nil
}

// outline paints a segmentation: polygons, or runs in one of two encodings.
func outline(c *boxes.Canvas, r *jsonread.Reader) error {
	kind, err := r.Kind()
	if err != nil {
		return err
	}
	if kind == '{' {
		return runs(c, r)
	}
	var xy []float64
	return r.Array(func() error {
		xy = xy[:0]
		err := r.Array(func() error {
			v, err := r.Float()
			xy = append(xy, v)
			return err
		})
		if err != nil {
			return err
		}
		if len(xy) < 6 {
			return r.Errorf("a polygon has %d numbers, but needs at least three corners", len(xy))
		}
		if err := c.Polygon(xy[:len(xy)&^1]); err != nil {
			return r.Errorf("%v", err)
		}
		return nil
	})
}

// runs paints {"size": [h, w], "counts": ...}.
func runs(c *boxes.Canvas, r *jsonread.Reader) error {
	var size, counts []int64
	var text []byte
	list := func(out *[]int64, most int) error {
		return r.Array(func() error {
			v, err := r.Int()
			if *out = append(*out, v); len(*out) > most {
				return r.Errorf("more than %d numbers", most)
			}
			return err
		})
	}
	seen := false
	err := r.Object(func(key []byte) error {
		switch string(key) {
		case "size":
			return list(&size, 2)
		case "counts":
			seen = true
			kind, err := r.Kind()
			if err != nil {
				return err
			}
			if kind == '[' {
				return list(&counts, mask.MaxPixels)
			}
			b, err := r.String()
			text = slices.Clone(b)
			return err
		}
		_, _, err := r.Skip()
		return err
	})
	if err != nil {
		return err
	}
	if len(size) != 2 || !seen {
		return r.Errorf("runs without size or counts")
	}
	if size[0] != int64(c.H) || size[1] != int64(c.W) {
		return r.Errorf("runs for a mask of %d x %d, but the image has %d x %d pixels in the file", size[1], size[0], c.W, c.H)
	}
	p := c.Runs()
	if text != nil {
		err = p.Compressed(text)
	}
	for _, n := range counts {
		if err == nil {
			err = p.Add(n)
		}
	}
	if err == nil {
		err = p.End()
	}
	if err != nil {
		return r.Errorf("%v", err)
	}
	return nil
}

// head is the number of bytes that IsFile reads.
const head = 64 << 10

// IsFile reports whether an object begins like a JSON file of COCO: an object whose first members are some of
// COCO's.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	if !strings.HasSuffix(strings.ToLower(st.Path(name)), ".json") {
		return false
	}
	b, _ := encoded.UTF8(filelist.Head(ctx, st, name, head), true)
	r := jsonread.Bytes(b, "", 0)
	members := map[string]bool{}
	_ = r.Object(func(key []byte) error { // fails at the end of the head
		members[string(key)] = true
		_, _, err := r.Skip()
		return err
	})
	return members["images"] || members["annotations"] && (members["info"] || members["categories"] || members["licenses"])
}
