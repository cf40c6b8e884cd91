package driver

// FieldStats are statistics of the values of a field over all records, as far as a source knows
// them without reading the records. Packs store them in their manifest under these names
// (docs/reference/pack-format.md).
type FieldStats struct {
	// Count is the number of values, and Bytes the sum of their stored sizes. MinBytes and MaxBytes
	// are the sizes of the smallest and the largest.
	Count    int64 `json:"count"`
	Bytes    int64 `json:"bytes"`
	MinBytes int64 `json:"min_bytes"`
	MaxBytes int64 `json:"max_bytes"`
	// Sizes counts values by size, if sizes differ: Sizes[n] counts values of n bytes or more, but
	// fewer than the next key (1, 2 or 5 times a power of ten).
	Sizes map[int64]int64 `json:"sizes,omitempty"`
	// Ints and Floats describe numbers: the values of number fields, or the elements of arrays and
	// lists.
	Ints   *IntStats   `json:"ints,omitempty"`
	Floats *FloatStats `json:"floats,omitempty"`
	// Rows describe the lengths of a KindMultiLabel, KindRagged or KindTokens.
	Rows *RowStats `json:"rows,omitempty"`
	// Classes counts by class number: the values of a KindLabel or KindMultiLabel, the pixels of a
	// KindMask. It is nil if there are too many classes (ManyClasses).
	Classes     map[int64]int64 `json:"classes,omitempty"`
	ManyClasses bool            `json:"many_classes,omitempty"`
	// Images describe the values of a KindImage or KindMask.
	Images *ImageStats `json:"images,omitempty"`
}

// SizeBound returns the key of FieldStats.Sizes that counts a value of n bytes.
func SizeBound(n int64) int64 {
	if n < 1 {
		return 0
	}
	power := int64(1)
	for power <= n/10 {
		power *= 10
	}
	switch {
	case n/5 >= power:
		return 5 * power
	case n/2 >= power:
		return 2 * power
	}
	return power
}

// IntStats describe whole numbers.
type IntStats struct {
	Min  int64   `json:"min"`
	Max  int64   `json:"max"`
	Mean float64 `json:"mean"`
	// Count is the count of numbers.
	Count int64 `json:"count"`
}

// FloatStats describe floating-point numbers. Count is the count of finite ones, which Min, Max and
// Mean describe. NotFinite is the count of the others.
type FloatStats struct {
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Mean      float64 `json:"mean"`
	Count     int64   `json:"count"`
	NotFinite int64   `json:"not_finite,omitempty"`
}

// RowStats describe lengths.
type RowStats struct {
	Min   int64 `json:"min"`
	Max   int64 `json:"max"`
	Total int64 `json:"total"`
}

// ImageStats describe images.
type ImageStats struct {
	// Codecs has the number of images and of bytes, by name of codec.
	Codecs map[string]CodecStats `json:"codecs"`
	// NotDCT counts JPEGs that were to be stored as dct and are stored unchanged, by reason.
	NotDCT    map[string]int64 `json:"not_dct,omitempty"`
	MinWidth  int32            `json:"min_width"`
	MaxWidth  int32            `json:"max_width"`
	MinHeight int32            `json:"min_height"`
	MaxHeight int32            `json:"max_height"`
	// Channels and bits per channel.
	MinChannels int32 `json:"min_channels"`
	MaxChannels int32 `json:"max_channels"`
	MinDepth    int32 `json:"min_depth"`
	MaxDepth    int32 `json:"max_depth"`
	// Width, Height and Pixels are sums over all images: divided by Count they are
	// means.
	Width  int64 `json:"width"`
	Height int64 `json:"height"`
	Pixels int64 `json:"pixels"`
	// MinTurned and MaxTurned are the bounds of the EXIF orientations. Turned is the number of
	// images whose orientation is not 1.
	MinTurned int32 `json:"min_orientation"`
	MaxTurned int32 `json:"max_orientation"`
	Turned    int64 `json:"turned,omitempty"`
	// Sides counts images by their shorter side. Keys are powers of two, and one and a half times
	// these, used as in FieldStats.Sizes.
	Sides map[int64]int64 `json:"sides"`
}

// CodecStats describe the images of one codec.
type CodecStats struct {
	// Number is the Codec.
	Number Codec `json:"number"`
	Count  int64 `json:"count"`
	Bytes  int64 `json:"bytes"`
}
