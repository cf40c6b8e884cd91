package pack

import (
	"errors"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/source/driver"
)

// maxClasses limits the class numbers that are counted if a field has no class names.
const maxClasses = 1 << 16

// The lower bounds of the histograms of sizes: for sides two per power of two, for bytes 1, 2 and 5 per power of ten.
var (
	sideBounds = makeBounds(func(i int) int64 { return (int64(2) + int64(i%2)) << (i / 2) }, 1<<24)
	byteBounds = makeBounds(func(i int) int64 {
		v := []int64{1, 2, 5}[i%3]
		for range i / 3 {
			v *= 10
		}
		return v
	}, 5e9)
)

func makeBounds(at func(i int) int64, limit int64) []int64 {
	bounds := []int64{0}
	for i := 0; at(i) <= limit; i++ {
		bounds = append(bounds, at(i))
	}
	return bounds
}

// bucket returns the largest bound that is not above v.
func bucket(bounds []int64, v int64) int64 {
	i, found := slices.BinarySearch(bounds, v)
	if !found {
		i--
	}
	return bounds[max(i, 0)]
}

// NextBound returns the number below which the values end that a map of
// driver.FieldStats counts under from: Sizes, or the Sides of images.
func NextBound(sides bool, from int64) int64 {
	bounds := byteBounds
	if sides {
		bounds = sideBounds
	}
	i, _ := slices.BinarySearch(bounds, from+1)
	if i == len(bounds) {
		return math.MaxInt64
	}
	return bounds[i]
}

// observe counts one stored value.
func observe(s *driver.FieldStats, f *Field, v *value) {
	size := int64(len(v.Bytes))
	var one driver.FieldStats
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		size = 8
		one.Ints = &driver.IntStats{Min: v.Int, Max: v.Int, Mean: float64(v.Int), Count: 1}
		if f.Kind == driver.KindLabel {
			one.Classes = map[int64]int64{v.Int: 1}
		}
	case driver.KindFloat:
		size = 8
		one.Floats = new(driver.FloatStats)
		addFloat(one.Floats, v.Float)
	case driver.KindMasks:
		n := mask.Stacked(v.Bytes)
		one.Rows = &driver.RowStats{Min: n, Max: n, Total: n}
	case driver.KindImage, driver.KindMask:
		one.Images = v.imageStats()
		one.Classes = v.classes
	case driver.KindMultiLabel, driver.KindRagged, driver.KindTokens, driver.KindArray, driver.KindVolume, driver.KindBoxes, driver.KindKeyPoints:
		one.Ints, one.Floats = v.ints, v.floats
		if f.Kind != driver.KindArray && f.Kind != driver.KindVolume {
			n := size / f.rowBytes()
			one.Rows = &driver.RowStats{Min: n, Max: n, Total: n}
		}
		if f.Kind == driver.KindMultiLabel {
			one.Classes = map[int64]int64{}
			for i := 0; i+8 <= len(v.Bytes); i += 8 {
				one.Classes[dtype.I64.Int(v.Bytes[i:])]++
			}
		}
	}
	one.Count, one.Bytes, one.MinBytes, one.MaxBytes = 1, size, size, size
	switch f.Kind {
	case driver.KindLabel, driver.KindInt, driver.KindFloat, driver.KindArray, driver.KindVolume:
	default:
		one.Sizes = map[int64]int64{driver.SizeBound(size): 1}
	}
	MergeStats(s, &one, f.Classes != nil)
}

// imageStats returns the statistics of one picture.
func (v *value) imageStats() *driver.ImageStats {
	turned := int64(0)
	if v.Orientation > 1 {
		turned = 1
	}
	s := &driver.ImageStats{
		Codecs:   map[string]driver.CodecStats{CodecName(v.Codec): {Number: v.Codec, Count: 1, Bytes: int64(len(v.Bytes))}},
		MinWidth: v.Width, MaxWidth: v.Width, MinHeight: v.Height, MaxHeight: v.Height,
		MinChannels: v.Channels, MaxChannels: v.Channels, MinDepth: v.depth, MaxDepth: v.depth,
		MinTurned: v.Orientation, MaxTurned: v.Orientation, Turned: turned,
		Width: int64(v.Width), Height: int64(v.Height), Pixels: int64(v.Width) * int64(v.Height),
		Sides: map[int64]int64{bucket(sideBounds, int64(min(v.Width, v.Height))): 1},
	}
	if v.notDCT != "" {
		s.NotDCT = map[string]int64{v.notDCT: 1}
	}
	return s
}

// MergeStats adds o to s. named is true if the classes have names, so that all of them are counted.
func MergeStats(s, o *driver.FieldStats, named bool) {
	if o.Count == 0 {
		return
	}
	if s.Count == 0 {
		s.MinBytes, s.MaxBytes = o.MinBytes, o.MaxBytes
	}
	s.Count += o.Count
	s.Bytes += o.Bytes
	s.MinBytes, s.MaxBytes = min(s.MinBytes, o.MinBytes), max(s.MaxBytes, o.MaxBytes)
	addCounts(&s.Sizes, o.Sizes)
	if o.Ints != nil {
		if s.Ints == nil {
			s.Ints = new(driver.IntStats)
		}
		mergeInts(s.Ints, o.Ints)
	}
	if o.Floats != nil {
		if s.Floats == nil {
			s.Floats = new(driver.FloatStats)
		}
		mergeFloats(s.Floats, o.Floats)
	}
	if o.Rows != nil {
		if s.Rows == nil {
			s.Rows = &driver.RowStats{Min: o.Rows.Min, Max: o.Rows.Max}
		}
		s.Rows.Min, s.Rows.Max = min(s.Rows.Min, o.Rows.Min), max(s.Rows.Max, o.Rows.Max)
		s.Rows.Total += o.Rows.Total
	}
	if s.ManyClasses = s.ManyClasses || o.ManyClasses; s.ManyClasses {
		s.Classes = nil
	} else if addCounts(&s.Classes, o.Classes); !named && len(s.Classes) > maxClasses {
		s.Classes, s.ManyClasses = nil, true
	}
	if o.Images != nil {
		if s.Images == nil {
			s.Images = &driver.ImageStats{
				MinWidth: o.Images.MinWidth, MinHeight: o.Images.MinHeight, MinChannels: o.Images.MinChannels,
				MinDepth: o.Images.MinDepth, MinTurned: o.Images.MinTurned,
			}
		}
		mergeImages(s.Images, o.Images)
	}
}

// addCounts adds the counts of from to those of to.
func addCounts[K comparable](to *map[K]int64, from map[K]int64) {
	if from != nil && *to == nil {
		*to = make(map[K]int64, len(from))
	}
	for k, n := range from {
		(*to)[k] += n
	}
}

// share returns the weight of one set in the mean of two sets.
func share(n, of int64) float64 { return float64(n) / float64(of) }

func mergeInts(s, o *driver.IntStats) {
	if o.Count == 0 {
		return
	}
	if s.Count == 0 {
		*s = *o
		return
	}
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Count += o.Count
	s.Mean += (o.Mean - s.Mean) * share(o.Count, s.Count)
}

func mergeFloats(s, o *driver.FloatStats) {
	s.NotFinite += o.NotFinite
	if o.Count == 0 {
		return
	}
	if s.Count == 0 {
		s.Min, s.Max, s.Mean, s.Count = o.Min, o.Max, o.Mean, o.Count
		return
	}
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Count += o.Count
	// The weights first: the difference of two large means may be infinite.
	w := share(o.Count, s.Count)
	s.Mean = s.Mean*(1-w) + o.Mean*w
}

func addFloat(s *driver.FloatStats, v float64) {
	one := driver.FloatStats{NotFinite: 1}
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		one = driver.FloatStats{Min: v, Max: v, Mean: v, Count: 1}
	}
	mergeFloats(s, &one)
}

func mergeImages(s, o *driver.ImageStats) {
	if s.Codecs == nil {
		s.Codecs = map[string]driver.CodecStats{}
	}
	for name, c := range o.Codecs {
		t := s.Codecs[name]
		s.Codecs[name] = driver.CodecStats{Number: c.Number, Count: t.Count + c.Count, Bytes: t.Bytes + c.Bytes}
	}
	addCounts(&s.NotDCT, o.NotDCT)
	addCounts(&s.Sides, o.Sides)
	s.MinWidth, s.MaxWidth = min(s.MinWidth, o.MinWidth), max(s.MaxWidth, o.MaxWidth)
	s.MinHeight, s.MaxHeight = min(s.MinHeight, o.MinHeight), max(s.MaxHeight, o.MaxHeight)
	s.MinChannels, s.MaxChannels = min(s.MinChannels, o.MinChannels), max(s.MaxChannels, o.MaxChannels)
	s.MinDepth, s.MaxDepth = min(s.MinDepth, o.MinDepth), max(s.MaxDepth, o.MaxDepth)
	s.MinTurned, s.MaxTurned = min(s.MinTurned, o.MinTurned), max(s.MaxTurned, o.MaxTurned)
	s.Width += o.Width
	s.Height += o.Height
	s.Pixels += o.Pixels
	s.Turned += o.Turned
}

// checkStats checks that statistics are plausible, because readers size their index by them. If rows are removed,
// bounds are still those of all rows.
func (f *Field) checkStats(records int64, removed bool) error {
	s := &f.Stats
	bad := errors.New("impossible statistics")
	if records == 0 && s.Count == 0 {
		return nil // a piece of a pack of which nothing was good
	}
	if s.Count != records || s.MinBytes < 0 || s.MaxBytes < s.MinBytes || s.MaxBytes > maxRecordBytes || s.Bytes < s.MaxBytes && !removed {
		return bad
	}
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		if s.Ints == nil || s.Ints.Max < s.Ints.Min {
			return bad
		}
		if f.Classes != nil && (s.Ints.Min < 0 || s.Ints.Max >= int64(len(f.Classes))) {
			return bad
		}
	case driver.KindMultiLabel, driver.KindRagged, driver.KindTokens, driver.KindBoxes, driver.KindKeyPoints, driver.KindMasks:
		if s.Rows == nil || s.Rows.Min < 0 || s.Rows.Max < s.Rows.Min || s.Rows.Max > maxRecordBytes {
			return bad
		}
	case driver.KindImage, driver.KindMask:
		im := s.Images
		if im == nil || len(im.Codecs) == 0 || im.MinWidth < 1 || im.MinHeight < 1 || im.MaxWidth < im.MinWidth || im.MaxHeight < im.MinHeight ||
			im.MinChannels < 0 || im.MaxChannels < im.MinChannels || im.MaxChannels > 255 || im.MinDepth < 0 || im.MaxDepth < im.MinDepth ||
			im.MaxDepth > 255 || im.MinTurned < 0 || im.MaxTurned < im.MinTurned || im.MaxTurned > 8 {
			return bad
		}
		for name, c := range im.Codecs {
			if codecNames[c.Number] != name {
				return errors.New("codec " + name + " is not known: use a newer stoker")
			}
		}
	}
	return nil
}
