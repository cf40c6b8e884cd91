// Package survey examines a dataset for the planner: the number of records, their sizes and their storage. It reads
// indexes and a sample of the records, never all of them.
package survey

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// sampled is the number of examined records, spread over the dataset.
const sampled = 128

// maxSample limits the number of bytes of a sample.
const maxSample = 256 << 20

// headerBytes is the size of the first read of a file for the header of its image.
const headerBytes = 64 << 10

// Survey is the result of a survey.
type Survey struct {
	Dataset plan.Dataset
	// Kind is plan.KindImage or plan.KindBytes. Arrays are the fields of records that are not images, if their shapes
	// are known.
	Kind   string
	Arrays []plan.Array
}

// Look examines the dataset at path. The path is a source that package source opens, or a folder of any files, which
// are then records of bytes.
func Look(ctx context.Context, path string) (*Survey, error) {
	name, _ := stores.Cut(path)
	s := &Survey{Dataset: plan.Dataset{Path: stores.Public(name), Layout: plan.LayoutPack}, Kind: plan.KindBytes}
	src, err := source.Open(ctx, path, nil)
	if nothing := new(selection.NothingError); errors.As(err, &nothing) { // that has a format of its own
		if src, err = source.Open(ctx, "files:"+path, nil); err != nil {
			return nil, fmt.Errorf("there are no files in %s to plan for: %w", path, err)
		}
		s.files(ctx, src)
		return s, src.Close()
	}
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if src.Info().Format == source.FormatFolder {
		s.Kind = plan.KindImage
		s.files(ctx, src)
		return s, nil
	}
	if err := s.records(ctx, path, src); err != nil {
		return nil, err
	}
	if d := &s.Dataset; d.Records == 0 || d.RecordBytes < 1 {
		return nil, fmt.Errorf("%s has no records to plan for", path)
	}
	return s, nil
}

// files takes sizes from the listing of a folder whose files are records.
func (s *Survey) files(ctx context.Context, src driver.Source) {
	info, d := src.Info(), &s.Dataset
	d.Layout = plan.LayoutFiles
	d.Records = info.Len
	for i := range info.Len {
		size := src.Object(i).Entry.Size
		d.Bytes, d.RecordBytesMax = d.Bytes+size, max(d.RecordBytesMax, size)
	}
	d.RecordBytes = math.Max(1, float64(d.Bytes)/float64(d.Records))
	if s.Kind != plan.KindImage {
		return
	}
	d.Codec = plan.CodecKeep
	d.Fields = []plan.Field{{Name: "image", Kind: plan.FieldImage, MaxBytes: d.RecordBytesMax}}
	if len(info.Fields) > 1 {
		d.Fields = append(d.Fields, plan.Field{Name: "label", Kind: plan.FieldNumber})
	}
	var seen sizes
	n := min(sampled, info.Len)
	for i := range n {
		seen.addFile(ctx, src.Object(i*info.Len/n))
	}
	seen.into(d)
}

// records reads a sample through the driver.
func (s *Survey) records(ctx context.Context, path string, src driver.Source) error {
	info := src.Info()
	d := &s.Dataset
	d.Records = info.Len
	imageField := -1
	for i, f := range info.Fields {
		switch f.Kind {
		case driver.KindImage:
			if imageField < 0 {
				imageField = i
			}
		case driver.KindArray, driver.KindVolume:
			a := plan.Array{Name: f.Name, DType: string(f.DType)}
			for _, side := range f.Shape {
				a.Shape = append(a.Shape, int64(side))
			}
			if len(a.Shape) == 0 {
				a.Shape = []int64{1}
			}
			s.Arrays = append(s.Arrays, a)
		}
	}
	if imageField >= 0 {
		s.Kind, s.Arrays = plan.KindImage, nil
	}
	d.Fields = fields(info)
	if info.Sequential {
		s.inOrder(src)
		return nil
	}
	// An epoch reads one of several variants, and the known sizes are those of all variants.
	variants := driver.VariantsOf(src)
	if info.Len == 0 || variants == 1 && s.known(src, imageField) {
		return nil
	}
	var total, read int64
	var seen sizes
	codecs := map[string]int{}
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	reader := recordread.NewDirect(src, obj)
	reader.Alloc = alloc
	for i := range min(sampled, info.Len) {
		if total > maxSample {
			break
		}
		id := i * info.Len / min(sampled, info.Len)
		recs, err := reader.Read(ctx, []int64{id})
		if err != nil {
			return fmt.Errorf("cannot look at %s: %w", path, err)
		}
		rec := &recs[0]
		if rec.Err != nil {
			continue // training reports broken records
		}
		read++
		for f := range rec.Values {
			v := &rec.Values[f]
			total += int64(len(v.Bytes))
			d.RecordBytesMax = max(d.RecordBytesMax, int64(len(v.Bytes)))
			if f == imageField {
				codecs[codecOf(v.Codec)]++
				seen.add(v)
			}
		}
	}
	if read == 0 {
		return fmt.Errorf("none of the records of %s that were looked at can be read", path)
	}
	d.RecordBytes = math.Max(1, float64(total)/float64(read))
	d.Bytes = int64(d.RecordBytes * float64(d.Records))
	for i := int64(0); variants > 1 && i < info.Objects; i++ {
		if i == 0 {
			d.Bytes = 0
		}
		d.Bytes += src.Object(i).Entry.Size
	}
	if imageField >= 0 {
		d.Codec = plan.CodecKeep
		for name, n := range codecs {
			if n > codecs[d.Codec] {
				d.Codec = name
			}
		}
		seen.into(d)
	}
	return nil
}

// inOrder uses the known properties of a source that can only be read in order. Reading a sample of records would
// read all data before them.
func (s *Survey) inOrder(src driver.Source) {
	info, d := src.Info(), &s.Dataset
	d.InOrder = true
	for i := range info.Objects {
		d.Bytes += src.Object(i).Entry.Size
	}
	for i := range info.Fields {
		d.RecordBytesMax = max(d.RecordBytesMax, info.Fields[i].MaxBytes)
	}
	d.RecordBytes = math.Max(1, float64(d.Bytes)/float64(max(info.Len, 1)))
}

// known uses the properties that a source knows for all its values without reading them, for example a pack. It
// returns false if a property is unknown.
func (s *Survey) known(src driver.Source, imageField int) bool {
	info, d := src.Info(), &s.Dataset
	for i := range info.Fields {
		if info.Fields[i].Stats == nil {
			return false
		}
	}
	for i := range info.Objects {
		d.Bytes += src.Object(i).Entry.Size
	}
	d.RecordBytes = math.Max(1, float64(d.Bytes)/float64(info.Len))
	for i := range info.Fields {
		d.RecordBytesMax = max(d.RecordBytesMax, info.Fields[i].Stats.MaxBytes)
	}
	if imageField < 0 {
		return true
	}
	im := info.Fields[imageField].Stats.Images
	codecs := map[string]int64{}
	for _, c := range im.Codecs {
		codecs[codecOf(c.Number)] += c.Count
	}
	d.Codec = plan.CodecKeep
	for name, n := range codecs {
		if n > codecs[d.Codec] {
			d.Codec = name
		}
	}
	n := float64(info.Len)
	d.Width, d.Height, d.Channels = math.Round(float64(im.Width)/n), math.Round(float64(im.Height)/n), 3
	if im.MaxChannels == 1 {
		d.Channels = 1
	}
	return true
}

// fields returns the fields that take space in a batch.
func fields(info *driver.Info) []plan.Field {
	kinds := map[driver.Kind]string{
		driver.KindImage: plan.FieldImage, driver.KindLabel: plan.FieldNumber, driver.KindInt: plan.FieldNumber,
		driver.KindArray: plan.FieldArray, driver.KindVolume: plan.FieldArray, driver.KindBytes: plan.FieldBytes,
	}
	var out []plan.Field
	for _, f := range info.Fields {
		if kind, ok := kinds[f.Kind]; ok {
			out = append(out, plan.Field{
				Name: f.Name, Kind: kind, DType: string(f.DType), Shape: f.Shape, MaxBytes: f.MaxBytes,
				Width: int64(f.Width), Height: int64(f.Height), MaxWidth: int64(f.MaxWidth), MaxHeight: int64(f.MaxHeight),
			})
		}
	}
	return out
}

func alloc(n int) ([]byte, error) {
	if n < 0 || n > maxSample {
		return nil, fmt.Errorf("a value of %d bytes is more than the planner looks at", n)
	}
	return make([]byte, n+64)[:n], nil
}

func codecOf(c driver.Codec) string {
	switch c {
	case driver.CodecDCT:
		return plan.CodecDCT
	case driver.CodecRaw:
		return plan.CodecRaw
	}
	return plan.CodecKeep
}

// sizes adds up the dimensions of images.
type sizes struct {
	width, height, n float64
	channels         int
}

func (s *sizes) add(v *driver.Value) {
	w, h, c := v.Width, v.Height, v.Channels
	if w == 0 || h == 0 {
		info, err := imagefile.Probe(v.Bytes)
		if err != nil {
			return
		}
		w, h = info.Width, info.Height
	}
	s.width, s.height, s.n = s.width+float64(w), s.height+float64(h), s.n+1
	s.channels = max(s.channels, int(c))
}

func (s *sizes) addFile(ctx context.Context, file driver.Object) {
	o, err := store.OpenEntry(ctx, file.Store, file.Entry)
	if err != nil {
		return // training reports broken records
	}
	defer o.Close()
	// Few headers are longer than the first read. That of a TIFF can be at the end.
	for _, limit := range []int64{headerBytes, maxSample} {
		b := make([]byte, min(limit, o.Size()))
		if o.ReadAt(ctx, b, 0) != nil {
			return
		}
		info, err := imagefile.Probe(b)
		if err == nil {
			s.add(&driver.Value{Width: info.Width, Height: info.Height})
		}
		if !errors.Is(err, imagefile.ErrTruncated) || int64(len(b)) < limit {
			return
		}
	}
}

func (s *sizes) into(d *plan.Dataset) {
	if s.n == 0 {
		return
	}
	d.Width, d.Height, d.Channels = math.Round(s.width/s.n), math.Round(s.height/s.n), 3
	if s.channels == 1 {
		d.Channels = 1
	}
}
