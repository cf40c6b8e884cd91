// Package vocsource reads images with annotations in Pascal VOC's layout: an XML file per image in Annotations, the
// images in JPEGImages, and masks as PNG in SegmentationClass and SegmentationObject.
//
// Opening reads all XML files.
package vocsource

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/source/boxes"
	"github.com/stokerdata/stoker/internal/source/encoded"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select a part of the data set.
type Options struct {
	// Split is the name of a list in ImageSets: train, val, trainval, test.
	Split string
	// Masks adds the masks of SegmentationClass or SegmentationObject. Then only images with a mask are records.
	Masks boxes.Masks
}

const (
	maxXML     = 16 << 20
	maxList    = 256 << 20
	maxObjects = 1 << 20 // per image
)

// classes are the classes of Pascal VOC.
var classes = []string{
	"aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike", "person",
	"pottedplant", "sheep", "sofa", "train", "tvmonitor",
}

type source struct {
	boxes.Base
	sizes [][2]int32 // of images, from the XML files; 0 x 0 where they have none
}

// content is the content of an XML file.
type content struct {
	size    [2]int32
	objects []object
}

// object is an object in an XML file.
type object struct {
	class                string
	box                  [4]float64
	difficult, truncated byte
}

// Is reports whether a folder has the folders of Pascal VOC, in any capitalisation.
func Is(ctx context.Context, st store.Store) bool {
	_, annotations, err := folders(ctx, st)
	if err != nil {
		return false
	}
	some := false
	stop := errors.New("enough")
	_ = st.List(ctx, annotations, &store.ListOptions{Shallow: true, Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		some = isXML(e.Name)
		return stop
	})
	return some
}

// folders returns the names of the folders of the images and of the XML files.
func folders(ctx context.Context, st store.Store) (images, annotations string, err error) {
	all, err := filelist.Folders(ctx, st, "")
	if err != nil {
		return "", "", err
	}
	images = filelist.FindFolder(all, filelist.ImageFolders...)
	annotations = filelist.FindFolder(all, "annotations", "annotation", "anns", "ann", "labels")
	if images == "" || annotations == "" {
		return "", "", fmt.Errorf("%s does not have the folders Annotations and JPEGImages", st)
	}
	return images, annotations, nil
}

func isXML(name string) bool { return strings.EqualFold(path.Ext(name), ".xml") }

// Open reads the annotations in st.
func Open(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	folder, annotations, err := folders(ctx, st)
	if err != nil {
		return nil, err
	}
	chosen, err := split(ctx, st, opt)
	if err != nil {
		return nil, err
	}
	want := func(name string) bool { return chosen == nil || chosen[boxes.Stem(name)] }
	s := &source{}
	s.Images.Store, s.More.Store = st, st
	images, err := s.list(ctx, st, folder, func(name string) bool { return boxes.IsImage(name) && want(name) })
	if err != nil {
		return nil, err
	}
	files, err := s.list(ctx, st, annotations, func(name string) bool { return isXML(name) && want(name) })
	if err != nil {
		return nil, err
	}
	masks, err := s.masks(ctx, st, opt.Masks, want)
	if err != nil {
		return nil, err
	}
	xmlOf, used := byStem(files), map[string]bool{}
	var mine []store.Entry // the XML files of records, and their records
	var of []int
	for _, e := range images {
		stem := boxes.Stem(e.Name)
		if used[stem] {
			s.Left = append(s.Left, driver.Skipped{Path: e.Name, Reason: "another image has the same name"})
			continue
		}
		used[stem] = true
		if opt.Masks != boxes.NoMasks {
			m, ok := masks[stem]
			if !ok {
				s.Left = append(s.Left, driver.Skipped{Path: e.Name, Reason: "has no mask"})
				continue
			}
			s.Add(&s.More, m)
		}
		if x, ok := xmlOf[stem]; ok {
			mine, of = append(mine, x), append(of, s.Images.Len())
		}
		s.Add(&s.Images, e)
	}
	for _, e := range files {
		if !used[boxes.Stem(e.Name)] {
			s.Left = append(s.Left, driver.Skipped{Path: e.Name, Reason: "no image with its name in " + folder})
		}
	}
	if s.Images.Len() == 0 {
		return nil, fmt.Errorf("%s: %s has no image of the split %q that can be used", rawURL, st.Path(folder), opt.Split)
	}
	all := make([]content, s.Images.Len())
	err = s.ReadAll(ctx, st, mine, of, maxXML, func(i int, b []byte) (err error) {
		if all[of[i]], err = parse(b); err != nil {
			all[of[i]] = content{}
			err = fmt.Errorf("%s%w", st.Path(mine[i].Name), err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.build(all)
	s.Stated = func(id int64) (w, h int32) { return s.sizes[id][0], s.sizes[id][1] }
	if opt.Masks != boxes.NoMasks {
		if err := s.addMask(ctx, opt.Masks); err != nil {
			return nil, err
		}
	}
	return s, s.Init(driver.Info{URL: rawURL, Format: "voc"}, append(fingerprints(mine), string(opt.Masks))...)
}

// fingerprints returns strings that change if the annotations change.
func fingerprints(files []store.Entry) []string {
	var out []string
	for _, e := range files {
		out = append(out, fmt.Sprintf("%s %d %d", e.Name, e.Size, e.ModTime.UnixNano()))
	}
	return out
}

// list lists the files below a folder.
func (s *source) list(ctx context.Context, st store.Store, folder string, keep func(name string) bool) (out []store.Entry, err error) {
	err = s.List(ctx, st, folder, keep, func(e store.Entry) error {
		out = append(out, e)
		return nil
	})
	return out, err
}

func byStem(files []store.Entry) map[string]store.Entry {
	out := make(map[string]store.Entry, len(files))
	for _, e := range files {
		if stem := boxes.Stem(e.Name); out[stem].Name == "" {
			out[stem] = e
		}
	}
	return out
}

// split reads the names of the images of a split, nil for all.
func split(ctx context.Context, st store.Store, opt *Options) (map[string]bool, error) {
	if opt.Split == "" {
		return nil, nil
	}
	in := "Main"
	if opt.Masks != boxes.NoMasks {
		in = "Segmentation"
	}
	name := "ImageSets/" + in + "/" + opt.Split + ".txt"
	if store.CheckName(name) != nil {
		return nil, fmt.Errorf("no split %q", opt.Split)
	}
	e, err := st.Stat(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("no split %q: %w", opt.Split, err)
	}
	b, err := store.ReadEntry(ctx, st, e, maxList)
	if err != nil {
		return nil, err
	}
	b, _ = encoded.UTF8(b, false)
	out := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 0 { // a name, in lists for a class also 1 or -1
			out[f[0]] = true
		}
	}
	return out, nil
}

// masks lists the requested masks.
func (s *source) masks(ctx context.Context, st store.Store, m boxes.Masks, want func(string) bool) (map[string]store.Entry, error) {
	folder := map[boxes.Masks]string{boxes.Classes: "SegmentationClass", boxes.Instances: "SegmentationObject", boxes.Stack: "SegmentationObject"}[m]
	if folder == "" {
		return nil, nil
	}
	files, err := s.list(ctx, st, folder, func(name string) bool { return boxes.IsImage(name) && want(name) })
	if err != nil {
		return nil, err
	}
	return byStem(files), nil
}

// addMask adds the field of masks. Their files follow the images, in the order of the records.
func (s *source) addMask(ctx context.Context, m boxes.Masks) error {
	_, largest := s.More.Bytes()
	if m == boxes.Stack {
		return s.addStack(ctx)
	}
	f := driver.Field{Name: "mask", Kind: driver.KindMask, MaxBytes: largest, Stored: true}
	var err error
	if f.DType, err = s.More.MaskType(ctx, nil); err != nil {
		return err
	}
	s.addFile(boxes.Column{Field: f}, func(g *driver.Group, at, k int, id int64, frame boxes.Frame, file []byte) error {
		g.Records[k].Values[at].Bytes = file
		if frame.Turn > 1 {
			return s.turnMask(g, at, k, id, frame, file)
		}
		return nil
	})
	return nil
}

// turnMask sets the mask of an image whose annotations belong to the image as it is shown.
func (s *source) turnMask(g *driver.Group, at, k int, id int64, f boxes.Frame, file []byte) error {
	rec, size := &g.Records[k], s.Columns[at-1].Field.DType.Size()
	m, err := mask.FromFile(file)
	if err == nil {
		m, err = m.Resized(size)
	}
	if err == nil {
		m, err = turned(m, f)
	}
	if err != nil {
		rec.Err = fmt.Errorf("%s: %w", s.More.Path(int(id)), err)
		return nil
	}
	out, err := g.Alloc(len(m.Pix))
	if err != nil {
		return fmt.Errorf("no memory for the mask of %s: %w", s.More.Path(int(id)), err)
	}
	copy(out, m.Pix)
	rec.Values[at] = driver.Value{Bytes: out, Codec: driver.CodecRaw, Width: int32(m.Width), Height: int32(m.Height), Channels: 1}
	return nil
}

// turned returns a mask of the picture f as a mask of the image as it is stored.
func turned(m *mask.Mask, f boxes.Frame) (*mask.Mask, error) {
	if f.Turn < 2 {
		return m, nil
	}
	if m.Width != int(f.W) || m.Height != int(f.H) {
		return nil, fmt.Errorf("the mask has %d x %d pixels, but the image is shown with %d x %d", m.Width, m.Height, f.W, f.H)
	}
	return m.Turned(f.Turn), nil
}

// addFile adds a field whose values come from the mask file.
func (s *source) addFile(c boxes.Column, make func(g *driver.Group, at, k int, id int64, f boxes.Frame, file []byte) error) {
	at := len(s.Columns) + 1
	s.Columns = append(s.Columns, c)
	s.Also = func(g *driver.Group, _ int, id int64) error {
		if g.Wants(at) {
			if err := s.More.Bad.Of(int(id)); err != nil {
				return filelist.Located(s.More.Path(int(id)), err)
			}
			g.Extents = append(g.Extents, driver.Extent{Object: s.Info().Len + id, Size: s.More.Size(int(id)), Field: -1, Tail: true})
		}
		return nil
	}
	s.Make = func(g *driver.Group, k int, id int64, f boxes.Frame, _ []driver.Extent, read [][]byte) error {
		if g.Wants(at) {
			return make(g, at, k, id, f, read[0])
		}
		return nil
	}
}

// build sets the columns.
func (s *source) build(all []content) {
	objects := make([][]object, len(all))
	for i := range all {
		objects[i] = all[i].objects
		s.sizes = append(s.sizes, all[i].size)
	}
	names := classes
	for _, list := range objects {
		for i := range list {
			if _, ok := slices.BinarySearch(classes, list[i].class); !ok {
				names = nil // not Pascal VOC's classes
			}
		}
	}
	if names == nil {
		seen := map[string]bool{}
		for _, list := range objects {
			for i := range list {
				if c := list[i].class; !seen[c] {
					seen[c], names = true, append(names, c)
				}
			}
		}
		slices.Sort(names)
	}
	var xyxy, labels, difficult, truncated []byte
	s.First = []int64{0}
	for _, list := range objects {
		for i := range list {
			o := &list[i]
			k, _ := slices.BinarySearch(names, o.class)
			xyxy, labels = boxes.Float32(xyxy, o.box[:]...), boxes.Int64(labels, int64(k))
			difficult, truncated = append(difficult, o.difficult), append(truncated, o.truncated)
		}
		s.First = append(s.First, s.First[len(s.First)-1]+int64(len(list)))
	}
	s.Columns = []boxes.Column{
		boxes.Boxes(driver.XYXY, xyxy), boxes.Labels(names, labels),
		boxes.Each("difficult", driver.Uint8, difficult), boxes.Each("truncated", driver.Uint8, truncated),
	}
}

// parse parses the objects in an XML file. Parts of objects, which are nested boxes, are skipped.
func parse(b []byte) (out content, err error) {
	b, wide := encoded.UTF8(b, true)
	d := xml.NewDecoder(bytes.NewReader(b))
	d.CharsetReader = encoded.Reader
	if wide { // the declaration names the encoding that the file had
		d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	}
	fail := func(format string, a ...any) (content, error) {
		line, col := d.InputPos()
		return out, fmt.Errorf(", line %d, column %d: %s", line, col, fmt.Sprintf(format, a...))
	}
	var path []string
	var text []byte
	var o object
	sides := 0
	for {
		t, err := d.RawToken()
		switch {
		case err == io.EOF && len(path) == 0 && text != nil:
			return out, nil
		case err == io.EOF, err != nil && strings.HasSuffix(err.Error(), "unexpected EOF"):
			return fail("the file ends in the middle of its XML: it is cut off")
		case err != nil:
			return fail("invalid XML: %v", strings.TrimPrefix(err.Error(), "XML syntax error on "))
		}
		switch t := t.(type) {
		case xml.StartElement:
			if len(path) == 0 && (t.Name.Local != "annotation" || text != nil) {
				return fail("it begins with <%.40s>, expected <annotation>", t.Name.Local)
			}
			if path = append(path, t.Name.Local); len(path) > 64 {
				return fail("elements are nested more than 64 deep")
			}
			text = append(text[:0], 0)[:0]
			if len(path) == 2 && t.Name.Local == "object" {
				o, sides = object{}, 0
			}
		case xml.CharData:
			if len(path) > 2 {
				text = append(text, t...)
			}
		case xml.EndElement:
			if len(path) == 0 || path[len(path)-1] != t.Name.Local {
				return fail("unexpected </%.40s>", t.Name.Local)
			}
			if path[min(1, len(path)-1)] == "object" {
				value := strings.TrimSpace(string(text))
				switch {
				case len(path) == 2:
					if o.class == "" || sides != 4 {
						return fail("an object has no name or no box")
					}
					if out.objects = append(out.objects, o); len(out.objects) > maxObjects {
						return fail("more than %d objects", maxObjects)
					}
				case len(path) == 3 && path[2] == "name":
					o.class = driver.ValidName(value)
				case len(path) == 3 && path[2] == "difficult":
					o.difficult = flag(value)
				case len(path) == 3 && path[2] == "truncated":
					o.truncated = flag(value)
				case len(path) == 4 && path[2] == "bndbox":
					side := slices.Index([]string{"xmin", "ymin", "xmax", "ymax"}, path[3])
					if side < 0 {
						break
					}
					v, err := strconv.ParseFloat(value, 64)
					if err != nil || math.IsNaN(v) || math.Abs(v) > 1e9 {
						return fail("expected a number for %s, got %.40q", path[3], value)
					}
					o.box[side] = v
					sides++
				}
			}
			if len(path) == 3 && path[1] == "size" {
				out.side(path[2], strings.TrimSpace(string(text)))
			}
			path, text = path[:len(path)-1], text[:0]
		}
	}
}

// side sets a side of the image. What is no number of pixels is no size, as if it were missing.
func (a *content) side(name, value string) {
	v, err := strconv.ParseFloat(value, 64)
	if at := slices.Index([]string{"width", "height"}, name); at >= 0 && err == nil && v >= 1 && v <= math.MaxInt32 {
		a.size[at] = int32(v)
	}
}

func flag(s string) byte {
	if v, err := strconv.ParseFloat(s, 64); err == nil && v != 0 {
		return 1
	}
	return 0
}
