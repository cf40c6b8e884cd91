package volumesource

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// Limits of TIFF files.
const (
	maxPages      = 1 << 20
	maxBlocks     = 1 << 24
	maxEntries    = 1 << 12
	maxBlockBytes = 1 << 28
)

// isTIFF reports whether a file begins as TIFF and BigTIFF files do.
func isTIFF(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	switch string(b[:4]) {
	case "II*\x00", "MM\x00*", "II+\x00", "MM\x00+":
		return true
	}
	return false
}

// The tags that are read.
const (
	tagSubfile     = 254
	tagWidth       = 256
	tagHeight      = 257
	tagBits        = 258
	tagScheme      = 259
	tagFillOrder   = 266
	tagDescription = 270
	tagOffsets     = 273
	tagSamples     = 277
	tagRows        = 278
	tagCounts      = 279
	tagPredictor   = 317
	tagTileWidth   = 322
	tagTileHeight  = 323
	tagTileOffsets = 324
	tagTileCounts  = 325
	tagFormat      = 339
)

// tiff reads the pages of a file.
type tiff struct {
	r     *reader
	order binary.ByteOrder
	large bool // BigTIFF
}

// entry is a tag of a page: the type, number and offset of its values.
type entry struct {
	kind  uint16
	count uint64
	at    int64
}

// page is the description of a page by its tags.
type page struct {
	width, height     int
	dtype             driver.DType
	scheme, predictor int
	block             [2]int // height and width
	tiled             bool
}

func (p *page) String() string {
	return fmt.Sprintf("%d x %d voxels of %s, compression %d, blocks of %d x %d", p.height, p.width, p.dtype, p.scheme, p.block[0], p.block[1])
}

// readTIFF reads the pages of a file, which are the slices of a volume.
func readTIFF(r *reader) (*volume, error) {
	b, err := r.upTo(16)
	if err != nil {
		return nil, err
	}
	t := &tiff{r: r, order: binary.LittleEndian}
	if b[0] == 'M' {
		t.order = binary.BigEndian
	}
	next := int64(t.order.Uint32(b[4:]))
	if t.large = b[2] == '+' || b[3] == '+'; t.large {
		if len(b) < 16 || t.order.Uint16(b[4:]) != 8 {
			return nil, fmt.Errorf("it is not a BigTIFF file that can be read")
		}
		next = int64(t.order.Uint64(b[8:]))
	}
	v, seen := &volume{}, map[int64]bool{}
	var first page
	var description string
	n := 0
	for ; next != 0; n++ {
		if seen[next] || n == maxPages {
			return nil, fmt.Errorf("the pages of the file run in a circle, or are more than %d", maxPages)
		}
		seen[next] = true
		at := next
		var tags map[uint16]entry
		if tags, next, err = t.directory(at); err != nil {
			return nil, fmt.Errorf("page %d: %w", n+1, err)
		}
		if sub, err := t.number(tags, tagSubfile, 0); err == nil && sub&1 != 0 {
			continue // a smaller copy of another page
		}
		p, err := t.page(tags)
		if err == nil && len(v.blocks) > 0 && p != first {
			err = fmt.Errorf("it has %s, the first page %s: the pages of a volume are alike", &p, &first)
		}
		if err == nil {
			first = p
			v.blocks, err = t.blocks(v.blocks, tags, &p)
		}
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", n+1, err)
		}
		if v.shape = append(v.shape[:0], 1, p.height, p.width); len(seen) == 1 {
			if description, err = t.text(tags, tagDescription); err != nil {
				return nil, err
			}
		}
	}
	if len(v.blocks) == 0 {
		return nil, fmt.Errorf("it has no page")
	}
	perPage := ((first.height + first.block[0] - 1) / first.block[0]) * ((first.width + first.block[1] - 1) / first.block[1])
	v.shape[0] = len(v.blocks) / perPage
	v.dtype, v.full = first.dtype, first.tiled
	v.block = [3]int{1, first.block[0], first.block[1]}
	v.big = t.order == binary.BigEndian
	if more := pagesBehind(description); v.shape[0] == 1 && more > 1 && first.scheme == schemeNone && !first.tiled {
		// The other pages follow the first one and have no tags.
		v.shape[0] = more
		if err := v.check(); err != nil {
			return nil, err
		}
		v.whole(v.blocks[0].offset)
		return v, v.fits(r.o.Size())
	}
	if first.scheme != schemeNone {
		v.codec = &tiffCodec{scheme: first.scheme, predictor: first.predictor, dtype: v.dtype, big: v.big}
		v.big = false // it unpacks to little-endian
	}
	return v, v.check()
}

// pagesBehind returns the number of pages that a description declares, or 0. Large files of
// ImageJ and tifffile have tags for the first page only.
func pagesBehind(description string) int {
	if strings.HasPrefix(description, "ImageJ=") {
		for line := range strings.SplitSeq(description, "\n") {
			if text, ok := strings.CutPrefix(line, "images="); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(text))
				return n
			}
		}
	}
	var shaped struct {
		Shape     []int `json:"shape"`
		Truncated bool  `json:"truncated"`
	}
	if !strings.HasPrefix(description, "{") || json.Unmarshal([]byte(description), &shaped) != nil || !shaped.Truncated || len(shaped.Shape) < 3 {
		return 0
	}
	n := 1
	for _, side := range shaped.Shape[:len(shaped.Shape)-2] {
		if side < 1 || n > maxPages {
			return 0
		}
		n *= min(side, maxPages)
	}
	return n
}

// directory reads the tags of a page. It returns them and the offset of the next page.
func (t *tiff) directory(at int64) (map[uint16]entry, int64, error) {
	head, size := int64(2), int64(12)
	if t.large {
		head, size = 8, 20
	}
	b, err := t.r.bytes(at, head)
	if err != nil {
		return nil, 0, err
	}
	n := uint64(0)
	if t.large {
		n = t.order.Uint64(b)
	} else {
		n = uint64(t.order.Uint16(b))
	}
	if n == 0 || n > maxEntries {
		return nil, 0, fmt.Errorf("it has %d tags", n)
	}
	last := int64(4)
	if t.large {
		last = 8
	}
	if b, err = t.r.bytes(at+head, int64(n)*size+last); err != nil {
		return nil, 0, err
	}
	tags := map[uint16]entry{}
	for i := range int64(n) {
		e := b[i*size:]
		one := entry{kind: t.order.Uint16(e[2:])}
		room, place := int64(4), at+head+i*size+8
		if t.large {
			one.count, room, place = t.order.Uint64(e[4:]), 8, place+4
		} else {
			one.count = uint64(t.order.Uint32(e[4:]))
		}
		bytes := kindBytes(one.kind)
		if bytes == 0 || one.count > 1<<40 {
			continue
		}
		if one.at = place; int64(one.count)*bytes > room {
			if t.large {
				one.at = int64(t.order.Uint64(e[12:]))
			} else {
				one.at = int64(t.order.Uint32(e[8:]))
			}
		}
		tags[t.order.Uint16(e)] = one
	}
	b = b[int64(n)*size:]
	if t.large {
		return tags, int64(t.order.Uint64(b)), nil
	}
	return tags, int64(t.order.Uint32(b)), nil
}

// kindBytes returns the size of a value of a type, 0 for a type that is not read.
func kindBytes(kind uint16) int64 {
	switch kind {
	case 1, 2:
		return 1
	case 3:
		return 2
	case 4, 13:
		return 4
	case 16, 18:
		return 8
	}
	return 0
}

// numbers reads the values of a tag.
func (t *tiff) numbers(tags map[uint16]entry, tag uint16, most int) ([]int64, error) {
	e, ok := tags[tag]
	if !ok {
		return nil, nil
	}
	size := kindBytes(e.kind)
	if e.count > uint64(most) {
		return nil, fmt.Errorf("tag %d has %d values, %d at most make sense", tag, e.count, most)
	}
	b, err := t.r.bytes(e.at, int64(e.count)*size)
	if err != nil {
		return nil, fmt.Errorf("tag %d: %w", tag, err)
	}
	out := make([]int64, e.count)
	for i := range out {
		switch v := b[int64(i)*size:]; size {
		case 1:
			out[i] = int64(v[0])
		case 2:
			out[i] = int64(t.order.Uint16(v))
		case 4:
			out[i] = int64(t.order.Uint32(v))
		default:
			out[i] = int64(t.order.Uint64(v))
		}
	}
	return out, nil
}

// number returns the one value of a tag, or absent if the page does not have the tag.
func (t *tiff) number(tags map[uint16]entry, tag uint16, absent int64) (int64, error) {
	v, err := t.numbers(tags, tag, 1<<16)
	if err != nil || len(v) == 0 {
		return absent, err
	}
	if slices.Max(v) != slices.Min(v) {
		return 0, fmt.Errorf("tag %d has different values: %v", tag, v)
	}
	return v[0], nil
}

func (t *tiff) text(tags map[uint16]entry, tag uint16) (string, error) {
	e, ok := tags[tag]
	if !ok || e.kind != 2 || e.count > 1<<20 {
		return "", nil
	}
	b, err := t.r.bytes(e.at, int64(e.count))
	return strings.TrimRight(string(b), "\x00"), err
}

// page reads the description of a page.
func (t *tiff) page(tags map[uint16]entry) (p page, err error) {
	get := func(tag uint16, absent int64) int64 {
		v, e := t.number(tags, tag, absent)
		if err == nil {
			err = e
		}
		return v
	}
	width, height := get(tagWidth, 0), get(tagHeight, 0)
	bits, format := get(tagBits, 1), get(tagFormat, 1)
	samples, scheme, predictor, fill := get(tagSamples, 1), get(tagScheme, schemeNone), get(tagPredictor, 1), get(tagFillOrder, 1)
	_, p.tiled = tags[tagTileOffsets]
	blockHeight, blockWidth := min(get(tagRows, height), height), width
	if p.tiled {
		blockHeight, blockWidth = get(tagTileHeight, 0), get(tagTileWidth, 0)
	}
	const most = 1 << 31
	switch {
	case err != nil:
		return p, err
	case width < 1 || height < 1 || width >= most || height >= most || blockHeight < 1 || blockWidth < 1 || blockHeight >= most || blockWidth >= most:
		return p, fmt.Errorf("it is %d x %d voxels in parts of %d x %d", height, width, blockHeight, blockWidth)
	case samples != 1:
		return p, fmt.Errorf("it has %d values for each voxel: volumes have one", samples)
	case fill != 1:
		return p, fmt.Errorf("its bits are in the other order (FillOrder %d), which is not read", fill)
	}
	if p.dtype = tiffType(format, bits); p.dtype == "" {
		return p, fmt.Errorf("its voxels have %d bits of sample format %d, which are not read: 8 to 64 bits of whole numbers and 16 to 64 of floats are", bits, format)
	}
	p.width, p.height, p.scheme, p.predictor = int(width), int(height), int(scheme), int(predictor)
	p.block = [2]int{int(blockHeight), int(blockWidth)}
	switch p.scheme {
	case schemeNone, schemePackBits:
		p.predictor = 1 // predictors do not apply to these schemes
	case schemeLZW, schemeDeflate, schemeOldZip:
	default:
		return p, fmt.Errorf("its compression is %s, which is not read: none, LZW, deflate and PackBits are", schemeName(p.scheme))
	}
	float := format == 3
	if p.predictor < 1 || p.predictor > 3 || p.predictor == 3 && !float {
		return p, fmt.Errorf("predictor %d of voxels of %s is not read", p.predictor, p.dtype)
	}
	if p.scheme != schemeNone && blockHeight*blockWidth > maxBlockBytes/int64(p.dtype.Size()) {
		return p, fmt.Errorf("a part of %d x %d voxels is too large to be unpacked in one piece", blockHeight, blockWidth)
	}
	return p, nil
}

func schemeName(n int) string {
	names := map[int]string{2: "CCITT", 3: "CCITT T.4", 4: "CCITT T.6", 6: "old JPEG", 7: "JPEG", 34712: "JPEG 2000", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP", 34887: "LERC", 50002: "JPEG XL", 52546: "JPEG XL"}
	if name, ok := names[n]; ok {
		return fmt.Sprintf("%s (%d)", name, n)
	}
	return strconv.Itoa(n)
}

func tiffType(format, bits int64) driver.DType {
	switch {
	case format == 1 && bits == 8, format == 4 && bits == 8:
		return driver.Uint8
	case format == 1 && bits == 16, format == 4 && bits == 16:
		return driver.Uint16
	case format == 1 && bits == 32:
		return driver.Uint32
	case format == 1 && bits == 64:
		return driver.Uint64
	case format == 2 && bits == 8:
		return driver.Int8
	case format == 2 && bits == 16:
		return driver.Int16
	case format == 2 && bits == 32:
		return driver.Int32
	case format == 2 && bits == 64:
		return driver.Int64
	case format == 3 && bits == 16:
		return driver.Float16
	case format == 3 && bits == 32:
		return driver.Float32
	case format == 3 && bits == 64:
		return driver.Float64
	}
	return ""
}

// blocks appends the strips or tiles of a page.
func (t *tiff) blocks(to []block, tags map[uint16]entry, p *page) ([]block, error) {
	down, across := (p.height+p.block[0]-1)/p.block[0], (p.width+p.block[1]-1)/p.block[1]
	// Each block needs some bytes of the file for its offset and its size.
	if most := min(maxBlocks, int(t.r.o.Size()/4)); down > most/across || len(to)+down*across > most {
		return nil, fmt.Errorf("the volume has more than %d strips or tiles, which a file of %d bytes does not have", most, t.r.o.Size())
	}
	offsetTag, countTag := uint16(tagOffsets), uint16(tagCounts)
	if p.tiled {
		offsetTag, countTag = tagTileOffsets, tagTileCounts
	}
	n := down * across
	offsets, err := t.numbers(tags, offsetTag, n)
	if err != nil {
		return nil, err
	}
	counts, err := t.numbers(tags, countTag, n)
	if err != nil {
		return nil, err
	}
	if counts == nil && n == 1 && len(offsets) == 1 && p.scheme == schemeNone {
		counts = []int64{int64(p.height) * int64(p.width) * int64(p.dtype.Size())}
	}
	if len(offsets) != n || len(counts) != n {
		return nil, fmt.Errorf("it has %d places and %d sizes of strips or tiles, its size makes %d", len(offsets), len(counts), n)
	}
	for i := range n {
		b := block{offset: offsets[i], size: counts[i]}
		if p.scheme == schemeNone {
			height := p.block[0]
			if !p.tiled {
				height = min(height, p.height-i*p.block[0])
			}
			if need := int64(height) * int64(p.block[1]) * int64(p.dtype.Size()); b.size < need {
				return nil, fmt.Errorf("strip or tile %d has %d bytes, its voxels take %d", i, b.size, need)
			}
		}
		if size := t.r.o.Size(); b.offset < 8 || b.size < 1 || b.size > driver.MaxArrayBytes || b.offset > size || b.size > size-b.offset {
			return nil, fmt.Errorf("strip or tile %d, %d bytes from byte %d on, is outside of the %d bytes of the file: it is cut off or damaged", i, b.size, b.offset, size)
		}
		to = append(to, b)
	}
	return to, nil
}
