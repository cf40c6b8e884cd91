package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Write packs the images below the folder src into the new folder dst. Labels
// are the first folder of each path, in sorted order, as torchvision's
// ImageFolder has them.
//
// Package selection decides which files are images. Damaged images are left out and listed in the manifest of the
// summary. Any other problem is an error. It leaves an unfinished pack in dst, which the same call resumes.
func Write(ctx context.Context, src, dst string, opt *Options) (*Summary, error) {
	if IsPack(src) {
		return nil, fmt.Errorf("%s is a pack already: to change how its images are stored use stoker convert", stores.Public(src))
	}
	from, err := stores.Open(ctx, src)
	if err != nil {
		return nil, err
	}
	if !stores.IsURL(src) {
		src = filepath.Clean(src)
	}
	s, err := foldersource.Open(ctx, stores.Public(src), from, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return WriteSource(ctx, s, dst, opt)
}

// WriteSource packs the records of any source into the new folder dst, in their order. It can be interrupted and
// resumed like Write.
func WriteSource(ctx context.Context, src driver.Source, dst string, opt *Options) (*Summary, error) {
	to, err := stores.OpenWrite(ctx, dst)
	if err != nil {
		return nil, err
	}
	sum, err := WriteTo(ctx, src, to, opt)
	if errors.Is(err, errNothing) && !stores.IsURL(dst) {
		_ = os.Remove(dst) // the folder was made for it
	}
	return sum, err
}

// WriteTo is WriteSource for any store.
func WriteTo(ctx context.Context, src driver.Source, dst store.WriteStore, opt *Options) (*Summary, error) {
	if opt != nil && opt.Append {
		return addTo(ctx, src, dst, opt)
	}
	o, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	in, err := prepare(src, dst, o)
	if err != nil {
		return nil, err
	}
	defer in.obj.Close()
	return run(ctx, in, dst, o)
}

// prepare makes an input of a source.
func prepare(src driver.Source, dst store.Store, o *Options) (*sourceInput, error) {
	if o.Memory > 0 { // otherwise its memory is in addition to the budget
		driver.Keep(src, o.Memory/8)
	}
	o.held = driver.Held(src)
	in, err := newSourceInput(src, o)
	if err != nil {
		return nil, err
	}
	if err := in.apart(dst); err != nil {
		in.obj.Close()
		return nil, err
	}
	return in, nil
}

// sourceInput packs the records of a source.
type sourceInput struct {
	s    driver.Source
	pack *Reader // when it is one
	obj  *recordread.Objects
	info *driver.Info
	opt  *Options
	out  []Field
	// from has the source field for each of out. pictures has the changes to its pictures.
	from     []int
	pictures []picture
	paths    driver.Pather
	left     []Skipped
	aside    []driver.SkippedGroup
	src      Source
	sizes    []int64 // of the inputs
	// to is the pack that is appended to. renumber has, for each field, its new class numbers.
	to       *Manifest
	renumber [][]int64
}

func newSourceInput(s driver.Source, opt *Options) (*sourceInput, error) {
	in := &sourceInput{s: s, obj: recordread.NewObjects(s, nil), info: s.Info(), opt: opt}
	in.pack, _ = s.(*Reader)
	in.paths, _ = driver.As[driver.Pather](s)
	pictures := false
	driver.ValidNames(in.info.Fields)
	var fields []Field
	for i := range in.info.Fields {
		f := fieldOf(&in.info.Fields[i])
		if f.Kind == driver.KindVolume && len(f.Shape) == 0 {
			return nil, fmt.Errorf("the volumes of field %q of %s have different sizes, from %v to %v, and in a pack they have one: pack patches of them, ?patch=64x64x64",
				f.Name, in.info.URL, in.info.Fields[i].Least, in.info.Fields[i].Most)
		}
		if f.Kind == driver.KindFrames {
			if opt.changes() {
				return nil, fmt.Errorf("its field %q is clips of video: --resize, --crop and --grayscale are for images, and --transforms 'Resize((128, 128))' makes clips smaller", f.Name)
			}
			f.Frames = frameSize(&in.info.Fields[i])
		}
		pictures = pictures || f.picture() || f.Kind == driver.KindFrames
		f.Metadata = f.Kind == driver.KindImage && opt.Metadata && !opt.keeps(&f)
		if len(in.info.Fields[i].Classes) > 0 && f.Kind == driver.KindInt {
			f.Classes = nil
		}
		fields = append(fields, f)
	}
	for name := range opt.images.fields {
		if !slices.ContainsFunc(fields, func(f Field) bool {
			of, _, ok := driver.CutVariant(f.Name)
			return (f.Name == name || ok && of == name) && (f.picture() || f.Kind == driver.KindFrames)
		}) {
			return nil, fmt.Errorf("--images %s: %s has no field %q of images or masks", opt.Images, in.info.URL, name)
		}
	}
	if !pictures {
		if opt.Images != ImagesAuto || opt.changes() || opt.Quality > 0 || opt.Metadata {
			return nil, fmt.Errorf("%s holds no images: --images, --resize, --crop, --grayscale, --reencode-quality and --metadata are about images", in.info.URL)
		}
		opt.Images = ""
		if opt.Check == CheckStructure {
			opt.Check = ""
		}
	}
	if err := in.expand(fields); err != nil {
		return nil, err
	}
	if err := in.look(); err != nil {
		return nil, err
	}
	if sk, ok := driver.As[driver.Skipper](s); ok {
		for _, l := range sk.Skipped() {
			if !l.Beside {
				in.left = append(in.left, Skipped{Path: strings.ToValidUTF8(l.Path, "\uFFFD"), Reason: l.Reason})
			}
		}
	}
	for _, g := range driver.GroupSkipped(s) {
		if !g.Bad {
			for i, name := range g.Examples {
				g.Examples[i] = strings.ToValidUTF8(name, "\uFFFD")
			}
			in.aside = append(in.aside, g)
		}
	}
	in.src = Source{
		Kind: in.info.Format, Path: driver.ValidName(in.info.URL), Files: in.info.Len + int64(len(in.left)), Fingerprint: in.info.Fingerprint,
	}
	for _, n := range in.sizes {
		in.src.Bytes += n
	}
	return in, nil
}

// fieldOf converts a field of a source to a field of a pack.
func fieldOf(f *driver.Field) Field {
	out := Field{Name: f.Name, Kind: f.Kind, Classes: f.Classes, Format: f.Format, Boxes: f.Boxes, Stored: f.Stored, Mask: f.Mask, Columns: f.Columns}
	switch f.Kind {
	case driver.KindImage:
		if f.DType == "" {
			break
		}
		fallthrough
	case driver.KindArray, driver.KindVolume, driver.KindRagged, driver.KindBoxes, driver.KindKeyPoints:
		out.DType, out.Shape = f.DType, append([]int{}, f.Shape...)
	case driver.KindTokens, driver.KindMask, driver.KindMasks, driver.KindLabel:
		out.DType = f.DType
	case driver.KindFrames:
		out.Shape = append([]int{}, f.Shape...)
	}
	return out
}

// look records the sizes of the records.
func (in *sourceInput) look() error {
	in.sizes = make([]int64, in.info.Len)
	if in.info.Sequential {
		in.lookInOrder()
		return nil
	}
	return recordread.Sizes(in.s, nil, func(id, size int64) error {
		if size == 0 && in.pack != nil {
			size = in.pack.meanBytes(id)
		}
		in.sizes[id] = size
		return nil
	})
}

// apart fails when the pack would be written into its own source.
func (in *sourceInput) apart(dst store.Store) error {
	if in.info.Objects == 0 || slices.Contains([]string{"tar", "zip", "tokens", "megatron"}, in.info.Format) {
		return nil // there are no archives and no .bin files in a pack
	}
	root := in.s.Object(0).Store.Path("")
	for _, path := range []string{root, in.info.URL} {
		inside, err := within(dst.Path(""), path)
		if err != nil {
			return err
		}
		if inside {
			return fmt.Errorf("%s lies inside of %s: choose a folder outside of it, or the pack would become a part of its own source", dst, path)
		}
	}
	return nil
}

// within reports whether path is inside of dir or equal to dir.
func within(path, dir string) (bool, error) {
	if stores.IsURL(path) || stores.IsURL(dir) {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
		return ok && (rest == "" || rest[0] == '/'), nil
	}
	p, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	d, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

func (in *sourceInput) source() Source { return in.src }

func (in *sourceInput) command() string {
	if in.pack != nil {
		return "convert"
	}
	return "pack"
}

// fields implements input. Fields of files have their paths with them.
func (in *sourceInput) fields() ([]Field, bool) {
	files := slices.ContainsFunc(in.out, func(f Field) bool { return f.file() })
	taken := slices.ContainsFunc(in.out, func(f Field) bool { return f.Name == colPath })
	if in.to != nil {
		return in.out, in.to.Paths
	}
	if in.pack != nil {
		return in.out, in.pack.man.Paths
	}
	return in.out, in.paths != nil && !files && !taken
}

func (in *sourceInput) len() int64                    { return in.info.Len }
func (in *sourceInput) skipped() []Skipped            { return in.left }
func (in *sourceInput) beside() []driver.SkippedGroup { return in.aside }
func (in *sourceInput) bytes(i int64) int64           { return in.sizes[i] }

func (in *sourceInput) load(ctx context.Context, i int64, w *worker, j *job) error {
	var n needs
	rec := j.raw
	if rec == nil {
		var err error
		if rec, err = in.read(ctx, i, w, j, &n); err != nil {
			return in.about(i, err)
		}
	}
	if rec.Err != nil {
		return in.failed(i, rec.Err)
	}
	j.rec = record{path: in.path(i, -1), values: make([]value, len(in.out))}
	var extra *Record
	if in.pack != nil {
		var err error
		if extra, err = in.pack.extras(ctx, i); err != nil {
			return err
		}
		j.rec.path = extra.Path
	}
	unpacked := n.out
	stored := int64(0)
	for k := range in.out {
		src := &rec.Values[in.from[k]]
		w.enc.needs(src, &in.out[k], &in.pictures[k], &n)
		stored += int64(len(src.Bytes))
	}
	if most := max(stored, n.out); most > in.opt.ChunkBytes {
		n.out += most // it is copied into a chunk of its own
	}
	if err := j.share.toMake(ctx, &n); err != nil {
		return in.about(i, err)
	}
	w.enc.allow(max(n.work, 1))
	defer w.enc.trim(w.kept)
	total := int64(0)
	for k := range in.out {
		v := &j.rec.values[k]
		if extra != nil {
			x := &extra.Values[in.from[k]]
			v.path, v.exif, v.icc = x.Path, x.EXIF, x.ICC
		} else if in.out[k].file() {
			v.path = in.path(i, in.from[k])
		}
		from, err := in.renumbered(k, &rec.Values[in.from[k]])
		if err == nil && (in.pack == nil || in.opt.Check == CheckDecode) { // a pack was checked when it was made
			err = w.checkValue(ctx, from, &in.out[k])
		}
		if err == nil {
			err = w.enc.store(from, &in.out[k], &in.pictures[k], v, j.mem.value(k))
		}
		if err != nil {
			return in.reason(i, k, v.path, err)
		}
		total += int64(len(v.Bytes))
	}
	if err := in.sameSizes(j); err != nil {
		return &BadInput{in.name(i, ""), err.Error()}
	}
	in.scaleBoxes(j)
	if total > maxRecordBytes {
		return &BadInput{in.name(i, ""), fmt.Sprintf("%d bytes are more than the limit of %d for a record", total, int64(maxRecordBytes))}
	}
	made := unpacked + j.mem.made()
	if total > in.opt.ChunkBytes {
		made += total
	}
	j.share.made(made)
	return nil
}

// read reads one record. Memory needed in addition to the admitted size is added to n.
func (in *sourceInput) read(ctx context.Context, i int64, w *worker, j *job, n *needs) (*driver.Record, error) {
	if w.reader == nil {
		w.reader = recordread.NewDirect(in.s, in.obj)
	}
	size := min(in.sizes[i], maxRecordBytes)
	if err := j.share.toRead(ctx, size); err != nil {
		return nil, err
	}
	// One buffer for all data read for the record, kept by the job.
	j.mem.read = grow(j.mem.read, int(size)+64*len(in.info.Fields))
	free := j.mem.read
	w.reader.Alloc = func(size int) ([]byte, error) {
		if err := recordread.CheckSize(int64(size)); err != nil {
			return nil, err
		}
		if size+recordread.Tail > len(free) {
			n.out += int64(size + recordread.Tail)
			if err := j.share.fits(n.sum()); err != nil {
				return nil, err
			}
			return make([]byte, size+recordread.Tail)[:size], nil
		}
		p := free[:size:size]
		free = free[size:]
		return p, nil
	}
	id := [1]int64{i}
	recs, err := w.reader.Read(ctx, id[:])
	if err != nil {
		return nil, err
	}
	return &recs[0], nil
}

// about names the input that an error is about.
func (in *sourceInput) about(i int64, err error) error {
	var b *BadInput
	if errors.As(err, &b) {
		b.Path = in.name(i, "")
	}
	return err
}

// path returns the path of a field of a record, "" if it has none.
func (in *sourceInput) path(i int64, field int) string {
	if in.paths == nil {
		return ""
	}
	return in.paths.Path(i, max(field, 0))
}

// name returns the name under which a skipped record is listed.
func (in *sourceInput) name(i int64, path string) string {
	if path == "" {
		path = in.path(i, -1)
	}
	if path == "" {
		path = in.s.Name(i)
	}
	return path
}

// reason adds the name of the input to err, and the name of the field if there are several.
func (in *sourceInput) reason(i int64, field int, path string, err error) error {
	var b *BadInput
	if !errors.As(err, &b) {
		return err
	}
	if in.pack != nil {
		path = strings.TrimSpace(path + " " + in.s.Name(i))
	}
	b.Path = in.name(i, path)
	if len(in.out) > 1 && !in.out[field].file() {
		b.Reason = fmt.Sprintf("%s: %s", in.out[field].Name, b.Reason)
	}
	return b
}

// failed distinguishes bad inputs from a source that is being changed.
func (in *sourceInput) failed(i int64, err error) error {
	if errors.Is(err, store.ErrChanged) {
		return fmt.Errorf("%w; the source must stand still while it is packed: run again with --restart when it does", err)
	}
	if b := new(BadInput); errors.As(err, &b) {
		return in.about(i, err)
	}
	if in.pack != nil {
		return err // a pack that is damaged is not converted
	}
	return &BadInput{in.name(i, ""), store.Cause(err).Error()}
}

// store converts a value of a source to its stored form in v. New data is written to *buf. src stays valid as long as
// v.
func (e *encoder) store(src *driver.Value, f *Field, p *picture, v *value, buf *[]byte) error {
	v.Value = driver.Value{Bytes: src.Bytes, Int: src.Int, Float: src.Float}
	size := int64(len(src.Bytes))
	if size > maxValueBytes && f.file() {
		return &BadInput{Reason: fmt.Sprintf("%d bytes are more than the limit of %d", size, int64(maxValueBytes))}
	}
	switch f.Kind {
	case driver.KindImage:
		if f.DType != "" { // a map of numbers
			p = &picture{how: ImagesKeep}
		}
		return e.encodeImage(src, p, v, buf)
	case driver.KindMask:
		return e.encodeMask(src, f, p, v, buf)
	case driver.KindFrames:
		return e.encodeClip(src, f, p, v, buf)
	case driver.KindLabel:
		if n := f.DType.Size(); n > 0 && (src.Int < 0 || src.Int >= 1<<(8*n)) {
			return &BadInput{Reason: fmt.Sprintf("class number %d does not fit into %s: that has 0 to %d", src.Int, f.DType, 1<<(8*n)-1)}
		}
		if f.Classes != nil && (src.Int < 0 || src.Int >= int64(len(f.Classes))) {
			return &BadInput{Reason: fmt.Sprintf("class number %d of %d", src.Int, len(f.Classes))}
		}
	case driver.KindText, driver.KindJSON:
		if size > maxTextBytes {
			return &BadInput{Reason: fmt.Sprintf("%d bytes of text are more than the limit of %d", size, maxTextBytes)}
		}
		if f.Kind == driver.KindJSON && !json.Valid(src.Bytes) {
			return &BadInput{Reason: "it is not JSON"}
		}
		if !utf8.Valid(src.Bytes) {
			v.Bytes = []byte(strings.ToValidUTF8(string(src.Bytes), "\uFFFD"))
		}
	case driver.KindMasks:
		if _, _, _, err := mask.Stack(src.Bytes, nil); err != nil {
			return &BadInput{Reason: err.Error()}
		}
	case driver.KindArray, driver.KindVolume:
		if want := f.rowBytes(); size != want {
			return &BadInput{Reason: fmt.Sprintf("%d bytes where an array has %d", size, want)}
		}
		v.ints, v.floats = elementStats(f.DType, src.Bytes)
	case driver.KindRagged, driver.KindTokens, driver.KindMultiLabel, driver.KindBoxes, driver.KindKeyPoints:
		if row := f.rowBytes(); size%row != 0 {
			return &BadInput{Reason: fmt.Sprintf("%d bytes where a row has %d", size, row)}
		}
		t := f.DType
		if f.Kind == driver.KindMultiLabel {
			t = driver.Int64
		}
		v.ints, v.floats = elementStats(t, src.Bytes)
		if n := int64(len(f.Classes)); f.Kind == driver.KindMultiLabel && f.Classes != nil && v.ints.Count > 0 && (v.ints.Min < 0 || v.ints.Max >= n) {
			return &BadInput{Reason: fmt.Sprintf("class numbers from %d to %d of %d", v.ints.Min, v.ints.Max, n)}
		}
	}
	return nil
}

// encodeImage stores an image, either a file or a value of a pack.
func (e *encoder) encodeImage(src *driver.Value, p *picture, v *value, buf *[]byte) error {
	if len(src.Bytes) == 0 {
		return &BadInput{Reason: imagefile.ErrEmpty.Error()}
	}
	if src.Codec == driver.CodecRaw || src.Codec == driver.CodecDCT {
		return e.encodeStored(src, p, v, buf)
	}
	return e.encodeFile(src.Bytes, p, v, buf)
}

// imageCodec returns the codec of an image file, by its content.
func imageCodec(v *driver.Value) driver.Codec {
	if c := imagefile.Detect(v.Bytes); c != driver.CodecUnknown {
		return c
	}
	return v.Codec
}
