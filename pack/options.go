package pack

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/source/driver"
)

// How images are stored.
const (
	// ImagesAuto stores JPEGs as dct if possible and keeps everything else.
	ImagesAuto = "auto"
	// ImagesKeep keeps the bytes of the file.
	ImagesKeep = "keep"
	// ImagesDCT is an explicit ImagesAuto.
	ImagesDCT = "dct"
	// ImagesRaw stores decoded pixels.
	ImagesRaw = "raw"
)

// How closely files are checked before they are packed.
const (
	// CheckStructure follows the structure of images to their end, and reads the headers of sound and clips.
	CheckStructure = "structure"
	// CheckDecode also decodes every pixel, sample and frame.
	CheckDecode = "decode"
)

// The default sizes of chunks and shards.
const (
	DefaultChunkBytes = 8 << 20
	DefaultShardBytes = 256 << 20
)

// Options change how Write and Convert work. Nil means the defaults.
type Options struct {
	// Images sets how images are stored: one of the Images constants or "" for ImagesAuto. It can also name fields:
	// "raw,depth=keep,left=dct" means raw for all fields except two. Masks are raw, kept as files, or, with auto and
	// dct, runs of equal class numbers.
	Images string
	// Resize makes every image fit: Resize.Short scales the shorter side,
	// Resize.Width and Height set both. It needs ImagesRaw or a Quality, as all do
	// that change pixels. Masks follow, by the nearest pixel, and so do boxes.
	Resize Resize
	// Resolutions, instead of Resize, are several sizes of each image and mask, of
	// which loaders choose one.
	Resolutions []Resize
	// Crop is the size of the middle of each image that is kept, after Resize.
	// Grayscale keeps its luma only.
	Crop      Resize
	Grayscale bool
	// Interpolation is Bilinear (the default, "") or Bicubic. Both are the same as in Pillow, with antialiasing.
	Interpolation string
	// Quality, when it is not 0, makes JPEGs of that quality and with halved chroma of
	// all images but raw ones.
	Quality int
	// Transforms, Augment and Seed describe what the source did to its records (package augment makes such sources).
	// If Augment is 2 or more, the source has that many variants of a field: image~0, image~1, and so on
	// (driver.VariantName).
	Transforms string
	Augment    int
	Audio      string
	Seed       uint64
	// Metadata keeps EXIF data, colour profiles and comments. Otherwise JPEGs lose them. The orientation is always
	// kept as a column.
	Metadata bool
	// Check is one of the Check constants, "" for CheckStructure.
	Check string
	// ChunkBytes and ShardBytes are the sizes to aim at, 0 for the defaults.
	ChunkBytes, ShardBytes int64
	// Threads is the number of images processed at the same time, 0 for one per core.
	Threads int
	// Memory limits the memory for inputs during packing, in bytes: decoders, read data and data that waits to be
	// written. An image that needs more is left out. 0 means a quarter of the free memory, and up to half of it for a
	// single image.
	Memory int64
	// OwnProcess is true if the process does nothing else. The run may then configure the C library and Go's
	// collector so that Memory limits the whole process.
	OwnProcess bool
	// held is the memory of the records that the source holds.
	held int64
	// Piece is the part of the pack to write, all of it by default.
	Piece Piece
	// Append adds the records to a finished pack. Images, Resize, Check, ChunkBytes and ShardBytes default to the
	// settings of the pack.
	Append bool
	// Restart discards the files of an interrupted run.
	Restart bool
	// Progress, if set, is called from time to time, never concurrently.
	Progress func(Progress)
	// Writer names the program in the manifest, "" for "stoker".
	Writer string

	images imagesOf
}

// Resize is the size of raw images. The zero value keeps their size.
type Resize struct {
	Short         int
	Width, Height int
}

// maxResize limits the sides of resized images.
const maxResize = 1 << 14

// ParseResize reads "256" (the shorter side) or "256x256" (width x height).
func ParseResize(s string) (Resize, error) {
	bad := fmt.Errorf("--resize %q: give the shorter side (256) or width x height (256x192), each from 1 to %d", s, maxResize)
	num := func(s string) (int, bool) {
		n, err := strconv.Atoi(s)
		return n, err == nil && n >= 1 && n <= maxResize
	}
	if s == "" {
		return Resize{}, nil
	}
	w, h, both := strings.Cut(s, "x")
	a, ok := num(w)
	if !ok {
		return Resize{}, bad
	}
	if !both {
		return Resize{Short: a}, nil
	}
	b, ok := num(h)
	if !ok {
		return Resize{}, bad
	}
	return Resize{Width: a, Height: b}, nil
}

// String is the inverse of ParseResize.
func (r Resize) String() string {
	switch {
	case r.Short > 0:
		return strconv.Itoa(r.Short)
	case r.Width > 0:
		return fmt.Sprintf("%dx%d", r.Width, r.Height)
	}
	return ""
}

// target returns the new size of a w x h image.
func (r Resize) target(w, h int32) (int32, int32) {
	switch {
	case r.Width > 0:
		return int32(r.Width), int32(r.Height)
	case r.Short > 0:
		// As torchvision's Resize(int): the longer side is truncated.
		short, long := min(w, h), max(w, h)
		n := int32(min(int64(r.Short)*int64(long)/int64(short), math.MaxInt32))
		if w <= h {
			return int32(r.Short), n
		}
		return n, int32(r.Short)
	}
	return w, h
}

// Validate checks the options and returns the problem or nil.
func (o *Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults returns a checked copy with all defaults filled in.
func (o *Options) withDefaults() (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Check == "" {
		c.Check = CheckStructure
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = DefaultChunkBytes
	}
	if c.ShardBytes == 0 {
		c.ShardBytes = max(DefaultShardBytes, c.ChunkBytes)
	}
	if c.Threads <= 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.Writer == "" {
		c.Writer = "stoker"
	}
	var err error
	if c.images, err = parseImages(c.Images); err != nil {
		return nil, err
	}
	c.Images = c.images.String()
	switch c.Check {
	case CheckStructure, CheckDecode:
	default:
		return nil, fmt.Errorf("--check %s: it is structure or decode", c.Check)
	}
	if err := c.checkPictures(); err != nil {
		return nil, err
	}
	if c.ChunkBytes < 64<<10 || c.ChunkBytes > 1<<30 {
		return nil, fmt.Errorf("chunks of %d bytes: they have 64 KiB to 1 GiB", c.ChunkBytes)
	}
	if c.ShardBytes < c.ChunkBytes || c.ShardBytes > 1<<40 {
		return nil, fmt.Errorf("shards of %d bytes: they have at least one chunk (%d bytes) and at most 1 TiB", c.ShardBytes, c.ChunkBytes)
	}
	if c.Memory < 0 {
		return nil, fmt.Errorf("memory of %d bytes: give a size such as 2GB, or 0 for a quarter of what is free", c.Memory)
	}
	if c.Memory > 0 {
		if _, err := budget.MakePacking(&budget.PackRequest{Memory: c.Memory, Threads: c.Threads, ChunkBytes: c.ChunkBytes}); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

func (o *Options) settings() Settings {
	return Settings{
		Images: o.Images, Resize: o.resizes(), Crop: o.Crop.String(), Grayscale: o.Grayscale, Interpolation: o.Interpolation, Quality: o.Quality, Metadata: o.Metadata, Check: o.Check,
		Transforms: o.Transforms, Augment: o.Augment, Audio: o.Audio, Seed: o.Seed,
		ChunkBytes: o.ChunkBytes, ShardBytes: o.ShardBytes,
	}
}

// imagesOf is Options.Images, taken apart.
type imagesOf struct {
	all    string
	fields map[string]string
}

func parseImages(s string) (imagesOf, error) {
	im := imagesOf{all: ImagesAuto}
	for i, part := range strings.Split(s, ",") {
		field, how, named := strings.Cut(part, "=")
		if !named {
			how = field
		}
		switch {
		case s == "":
			continue
		case !slices.Contains([]string{ImagesAuto, ImagesKeep, ImagesDCT, ImagesRaw}, how):
			return im, fmt.Errorf("--images %s: %q is not auto, keep, dct or raw", s, how)
		case !named && i > 0:
			return im, fmt.Errorf("--images %s: write what all fields get first, then FIELD=HOW", s)
		case !named:
			im.all = how
			continue
		}
		if im.fields == nil {
			im.fields = map[string]string{}
		}
		if _, twice := im.fields[field]; twice || field == "" {
			return im, fmt.Errorf("--images %s: field %q is there twice", s, field)
		}
		im.fields[field] = how
	}
	return im, nil
}

// of returns the storage of a field of images or masks.
func (im imagesOf) of(field string) string {
	field, _, _ = strings.Cut(field, "@") // at any resolution
	if of, _, ok := driver.CutVariant(field); ok {
		field = of
	}
	if how, ok := im.fields[field]; ok {
		return how
	}
	return im.all
}

// HowOf returns the storage that Images sets for a field of images, masks or clips: one of the Images constants.
func (o *Options) HowOf(field string) string {
	im, err := parseImages(o.Images)
	if err != nil {
		return ""
	}
	return im.of(field)
}

func (im imagesOf) any(how string) bool {
	return im.all == how || slices.Contains(slices.Collect(maps.Values(im.fields)), how)
}

// String is the inverse of parseImages: equal texts have the same meaning.
func (im imagesOf) String() string {
	parts := []string{im.all}
	for _, f := range slices.Sorted(maps.Keys(im.fields)) {
		if im.fields[f] != im.all {
			parts = append(parts, f+"="+im.fields[f])
		}
	}
	return strings.Join(parts, ",")
}

// keeps reports whether a field of images or masks has only files.
func (o *Options) keeps(f *Field) bool { return o.images.of(f.Name) == ImagesKeep }

// Progress is the progress of a run.
type Progress struct {
	// Step is the current step: "packing", or "checking" the files of an interrupted run. While checking, Files
	// counts the undamaged ones.
	Step string
	// Files of Total are done, Bytes of TotalBytes of the input; Before of the
	// files were packed by an earlier run.
	Files, Total, Before   int64
	Bytes, TotalBytes      int64
	BytesBefore, BytesDone int64
	Skipped                int64
}

// Summary is the result of Write and Convert.
type Summary struct {
	Manifest *Manifest
	// Resumed is the number of inputs that an earlier, interrupted run had
	// done; Unchanged is true when the pack was finished already.
	Resumed   int64
	Unchanged bool
}
