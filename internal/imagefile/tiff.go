package imagefile

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/orient"
)

// The beginnings of TIFF files, and of EXIF data, which has the same structure.
const (
	tiffLittle = "II*\x00"
	tiffBig    = "MM\x00*"
	// The marks of BigTIFF, whose sizes have 64 bits.
	bigTIFFLittle = "II+\x00"
	bigTIFFBig    = "MM\x00+"
)

// exifMark precedes EXIF data in a JPEG, and sometimes in other formats.
const exifMark = "Exif\x00\x00"

// A directory is the first one of a TIFF structure.
type directory struct {
	b     []byte
	order binary.ByteOrder
	// at is the offset of its entries, n their number.
	at, n int64
	// wide reports whether the directory is from a BigTIFF file.
	wide bool
}

// An entry of a directory.
type entry struct {
	tag, kind uint16
	count     uint32
	// value is four bytes, in BigTIFF eight: the value itself, or its offset.
	value []byte
}

// Types of entries.
const (
	byte1    = 1
	short    = 3
	long     = 4
	rational = 5
	raw      = 7
	long8    = 16
)

// The tags that are read.
const (
	tagWidth        = 256
	tagHeight       = 257
	tagBits         = 258
	tagPhotometric  = 262
	tagStripOffsets = 273
	tagOrientation  = 274
	tagChannels     = 277
	tagStripRows    = 278
	tagStripBytes   = 279
	tagTileWidth    = 322
	tagTileHeight   = 323
	tagTileOffsets  = 324
	tagTileBytes    = 325
	tagCompression  = 259
	tagFillOrder    = 266
	tagPlanar       = 284
	tagPredictor    = 317
	tagFaxOptions   = 292
	tagColormap     = 320
	tagExtra        = 338
	tagJPEGTables   = 347
	tagYCbCrWeights = 529
	tagSubsampling  = 530
	tagReference    = 532
	tagFormat       = 339
)

// openDirectory finds the first directory of b.
func openDirectory(b []byte) (directory, error) {
	d := directory{b: b}
	if len(b) < 8 {
		return d, truncated(b, "in the header")
	}
	switch string(b[:4]) {
	case tiffLittle:
		d.order = binary.LittleEndian
	case tiffBig:
		d.order = binary.BigEndian
	case bigTIFFLittle:
		d.order, d.wide = binary.LittleEndian, true
	case bigTIFFBig:
		d.order, d.wide = binary.BigEndian, true
	default:
		return d, broken("no TIFF header")
	}
	count := int64(2) // bytes of the number of entries
	if d.wide {
		if len(b) < 16 {
			return d, truncated(b, "in the header")
		}
		d.at, count = d.long8(b[8:]), 8
	} else {
		d.at = int64(d.order.Uint32(b[4:]))
	}
	if d.at < 8 || d.at > int64(len(b))-count {
		return d, truncated(b, fmt.Sprintf("before its directory at byte %d", d.at))
	}
	if d.wide {
		d.n = min(d.long8(b[d.at:]), math.MaxUint16)
	} else {
		d.n = int64(d.order.Uint16(b[d.at:]))
	}
	d.at += count
	return d, nil
}

// long8 is a number of 64 bits, or the largest there is.
func (d *directory) long8(b []byte) int64 { return int64(min(d.order.Uint64(b), math.MaxInt64)) }

// entryBytes is the size of an entry.
func (d *directory) entryBytes() int64 {
	if d.wide {
		return 20
	}
	return 12
}

// place returns the offset of the values of an entry that do not fit into the entry.
func (d *directory) place(e entry) int64 {
	if d.wide {
		return d.long8(e.value)
	}
	return int64(d.order.Uint32(e.value))
}

// whole returns the number of entries that are in the file.
func (d *directory) whole() int64 { return min(d.n, (int64(len(d.b))-d.at)/d.entryBytes()) }

func (d *directory) entry(i int64) entry {
	e := d.b[d.at+d.entryBytes()*i:]
	if d.wide {
		return entry{d.order.Uint16(e), d.order.Uint16(e[2:]), uint32(min(d.order.Uint64(e[4:]), math.MaxUint32)), e[12:20]}
	}
	return entry{d.order.Uint16(e), d.order.Uint16(e[2:]), d.order.Uint32(e[4:]), e[8:12]}
}

// number returns the value of an entry that is one number, or the first of several. It is false if the type differs or
// the value is outside of the file.
func (d *directory) number(e entry) (uint32, bool) {
	switch {
	case e.kind == short && e.count >= 1 && int(e.count) <= len(e.value)/2:
		return uint32(d.order.Uint16(e.value)), true
	case e.kind == long && e.count == 1:
		return d.order.Uint32(e.value), true
	case e.kind == long8 && e.count == 1 && d.wide:
		return uint32(min(d.order.Uint64(e.value), math.MaxUint32)), true
	case e.kind == short && e.count > 2:
		if at := d.place(e); at <= int64(len(d.b))-2 {
			return uint32(d.order.Uint16(d.b[at:])), true
		}
	}
	return 0, false
}

// Orientation reads the orientation from EXIF data (a TIFF header and its first directory). It is 1 if there is none or
// it is invalid. In damaged data, the readable part counts.
func Orientation(exif []byte) uint8 {
	o, _ := orientation(exif)
	return o
}

// orientation is Orientation, and whether the data says one.
func orientation(exif []byte) (uint8, bool) {
	if len(exif) >= len(exifMark) && string(exif[:len(exifMark)]) == exifMark {
		exif = exif[len(exifMark):]
	}
	d, err := openDirectory(exif)
	if err != nil {
		return 1, false
	}
	for i := range d.whole() {
		if e := d.entry(i); e.tag == tagOrientation && e.count == 1 {
			if v, ok := d.number(e); ok && v >= 1 && v <= 8 {
				return uint8(v), true
			}
		}
	}
	return 1, false
}

func probeTIFF(b []byte, info *Info) error {
	d, err := openDirectory(b)
	if err != nil {
		return err
	}
	if d.whole() < d.n {
		return truncated(b, "inside of its directory")
	}
	info.Channels, info.Precision, info.Color = 1, 1, Other
	photometric := uint32(0)
	var stripRows, tileWidth, tileHeight int64
	for i := range d.n {
		e := d.entry(i)
		v, ok := d.number(e)
		if !ok {
			continue
		}
		switch e.tag {
		case tagWidth:
			info.Width = side(v)
		case tagHeight:
			info.Height = side(v)
		case tagBits:
			info.Precision = side(v)
		case tagPhotometric:
			photometric = v
		case tagChannels:
			info.Channels = side(v)
		case tagStripRows:
			stripRows = int64(v)
		case tagTileWidth:
			tileWidth = int64(side(v))
		case tagTileHeight:
			tileHeight = int64(side(v))
		case tagFormat:
			info.Float = SampleFormat(v) == FormatFloat
		case tagCompression:
			info.JPEGInside = v == TIFFJPEG
		}
	}
	if stripRows == 0 || stripRows > int64(info.Height) {
		stripRows = int64(info.Height)
	}
	info.Block = max(stripRows*int64(info.Width), tileWidth*tileHeight)
	if o := Orientation(b); o > 1 {
		info.Turn = o
		info.Width, info.Height = orient.Size(int32(o), info.Width, info.Height)
	}
	switch {
	case photometric <= 1 && info.Channels == 1:
		info.Color = Gray
	case photometric == 2 && info.Channels == 3:
		info.Color = RGB
	case photometric == 2 && info.Channels == 4:
		info.Color = RGBA
	case photometric == 3:
		info.Color = Palette
	case photometric == 5:
		info.Color = CMYK
	case photometric == 6:
		info.Color = YCbCr
	}
	return nil
}

// checkTIFF checks that the first picture is supported, and that all of its strips or tiles are inside of the file.
func checkTIFF(b []byte) error {
	l, err := ReadTIFFLayout(b)
	if err != nil {
		return err
	}
	for i := range min(len(l.Offsets), len(l.Sizes)) {
		if int64(l.Offsets[i])+int64(l.Sizes[i]) > int64(len(b)) {
			return truncated(b, fmt.Sprintf("before the end of strip %d of %d", i+1, len(l.Offsets)))
		}
	}
	return nil
}

// bytes returns the values of an entry of single bytes.
func (d *directory) bytes(e entry) ([]byte, error) {
	if e.kind != raw && e.kind != byte1 {
		return nil, broken("bytes of type %d in tag %d", e.kind, e.tag)
	}
	return d.values(e, 1)
}

// rationals reads fractions into v, which is left alone if they make no sense.
func (d *directory) rationals(e entry, v []float64) error {
	if e.kind != rational || int(e.count) != len(v) {
		return nil
	}
	src, err := d.values(e, 8)
	if err != nil {
		return err
	}
	for i := range v {
		if below := d.order.Uint32(src[8*i+4:]); below > 0 {
			v[i] = float64(d.order.Uint32(src[8*i:])) / float64(below)
		}
	}
	return nil
}

// values returns the bytes of an entry with values of size bytes each.
func (d *directory) values(e entry, size int64) ([]byte, error) {
	total := size * int64(e.count)
	if total <= int64(len(e.value)) {
		return e.value[:total], nil
	}
	at := d.place(e)
	if at > int64(len(d.b))-total {
		return nil, truncated(d.b, fmt.Sprintf("before the values of its tag %d", e.tag))
	}
	return d.b[at : at+total], nil
}

// numbers reads a table of numbers.
func (d *directory) numbers(e entry) ([]uint32, error) {
	sizes := map[uint16]int64{byte1: 1, short: 2, long: 4, long8: 8}
	size := sizes[e.kind]
	if size == 0 {
		return nil, broken("numbers of type %d in tag %d", e.kind, e.tag)
	}
	src, err := d.values(e, size)
	if err != nil {
		return nil, err
	}
	out := make([]uint32, e.count)
	for i := range out {
		switch size {
		case 1:
			out[i] = uint32(src[i])
		case 2:
			out[i] = uint32(d.order.Uint16(src[2*i:]))
		case 4:
			out[i] = d.order.Uint32(src[4*i:])
		default:
			out[i] = uint32(min(d.order.Uint64(src[8*i:]), math.MaxUint32))
		}
	}
	return out, nil
}
