package volumesource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// isDICOM reports whether a file begins as a DICOM file does: with any 128 bytes and DICM.
// Older files begin with an element of group 2 or 8.
func isDICOM(b []byte) bool {
	if len(b) >= 132 && string(b[128:132]) == "DICM" {
		return true
	}
	if len(b) < 8 || b[1] != 0 || b[0] != 2 && b[0] != 8 || b[3] != 0 {
		return false
	}
	length := binary.LittleEndian.Uint32(b[4:])
	return vrSizes[string(b[4:6])] != 0 || length < 1<<10
}

// Transfer syntaxes: the encodings of the voxels and of the elements after the first group.
const (
	implicitLittle    = "1.2.840.10008.1.2"
	explicitLittle    = "1.2.840.10008.1.2.1"
	rleLossless       = "1.2.840.10008.1.2.5"
	jpegBaseline      = "1.2.840.10008.1.2.4.50"
	jpegLossless      = "1.2.840.10008.1.2.4.57"
	jpegLosslessFirst = "1.2.840.10008.1.2.4.70"
	jpeg2000Lossless  = "1.2.840.10008.1.2.4.90"
	jpeg2000          = "1.2.840.10008.1.2.4.91"
)

// packedBy has the transfer syntaxes of packed voxels and a codec for each. size is the size of
// a voxel in bytes.
var packedBy = map[string]func(size int) codec{
	rleLossless:       func(size int) codec { return &rleCodec{size} },
	jpegBaseline:      func(int) codec { return &jpegCodec{} },
	jpegLossless:      func(size int) codec { return &losslessCodec{size} },
	jpegLosslessFirst: func(size int) codec { return &losslessCodec{size} },
	jpeg2000Lossless:  func(size int) codec { return &jpeg2000Codec{size} },
	jpeg2000:          func(size int) codec { return &jpeg2000Codec{size} },
}

// syntaxNames has the syntaxes that are known but not read.
var syntaxNames = map[string]string{
	"1.2.840.10008.1.2.1.99":  "Deflated Explicit VR Little Endian",
	"1.2.840.10008.1.2.2":     "Explicit VR Big Endian",
	"1.2.840.10008.1.2.4.51":  "JPEG Extended",
	"1.2.840.10008.1.2.4.80":  "JPEG-LS Lossless",
	"1.2.840.10008.1.2.4.81":  "JPEG-LS Near-lossless",
	"1.2.840.10008.1.2.4.201": "High-Throughput JPEG 2000 Lossless",
}

// vrSizes has the size of an element's length field by value representation: 2, or 4 after two
// unused bytes.
var vrSizes = func() map[string]int64 {
	m := map[string]int64{}
	for _, vr := range strings.Fields("AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US") {
		m[vr] = 2
	}
	for _, vr := range strings.Fields("OB OD OF OL OV OW SQ SV UC UN UR UT UV") {
		m[vr] = 4
	}
	return m
}()

// The elements that are read.
const (
	elemSyntax      = 0x00020010
	elemSeries      = 0x0020000E
	elemInstance    = 0x00200013
	elemPosition    = 0x00200032
	elemOrientation = 0x00200037
	elemThickness   = 0x00180050
	elemGap         = 0x00180088
	elemSamples     = 0x00280002
	elemFrames      = 0x00280008
	elemRows        = 0x00280010
	elemColumns     = 0x00280011
	elemSpacing     = 0x00280030
	elemAllocated   = 0x00280100
	elemStored      = 0x00280101
	elemHighBit     = 0x00280102
	elemSigned      = 0x00280103
	elemIntercept   = 0x00281052
	elemSlope       = 0x00281053
	elemPixels      = 0x7FE00010
	elemItem        = 0xFFFEE000
	elemItemEnd     = 0xFFFEE00D
	elemSequenceEnd = 0xFFFEE0DD
)

// kept are the elements whose values are used.
var kept = []uint32{
	elemSyntax, elemSeries, elemInstance, elemPosition, elemOrientation, elemThickness, elemGap, elemSamples, elemFrames, elemRows, elemColumns,
	elemSpacing, elemAllocated, elemStored, elemHighBit, elemSigned, elemIntercept, elemSlope,
}

const (
	undefined   = 0xFFFFFFFF
	maxElements = 1 << 16
	maxNesting  = 32
	maxValue    = 4 << 10
)

// slice is the content of a DICOM file: one or more slices of a volume.
type slice struct {
	series   string
	instance int
	// position is the position of the first voxel, orientation the directions of rows and
	// columns, spacing the distances between rows and between columns. Distances are in
	// millimetres.
	position, orientation []float64
	spacing               []float64
	gap                   float64

	rows, columns, frames int
	dtype                 driver.DType
	bits, sign            uint32
	slope, inter          float64
	packed                string // transfer syntax of packed voxels
	blocks                []block
	file                  int32
	// err is the reason why the slice cannot be read, nil for a good slice.
	err error
}

// dicom reads the elements of a file.
type dicom struct {
	r        *reader
	implicit bool
	at       int64
	left     int
	values   map[uint32][]byte
}

// readDICOM reads a file up to its voxels. If it fails, it returns what it knows of the series
// along with the error.
func readDICOM(r *reader) (*slice, error) {
	d := &dicom{r: r, left: maxElements, values: map[uint32][]byte{}}
	b, err := r.upTo(140)
	if err != nil {
		return nil, err
	}
	if len(b) >= 132 && string(b[128:132]) == "DICM" {
		d.at = 132
	} else {
		d.implicit = vrSizes[string(b[4:6])] == 0
	}
	size, err := d.elements(d.r.o.Size(), 0)
	if err == nil && size < 0 {
		err = errors.New("it has no voxels")
	}
	var s *slice
	if err == nil {
		s, err = d.slice(size)
	}
	if err != nil {
		s = &slice{series: d.text(elemSeries)}
	}
	return s, err
}

// element reads the header of an element and sets d.at to the start of the value.
func (d *dicom) element() (tag, length uint32, sequence bool, err error) {
	if d.left--; d.left < 0 {
		return 0, 0, false, fmt.Errorf("it has more than %d elements before its voxels", maxElements)
	}
	b, err := d.r.bytes(d.at, 8)
	if err != nil {
		return 0, 0, false, err
	}
	tag = uint32(binary.LittleEndian.Uint16(b))<<16 | uint32(binary.LittleEndian.Uint16(b[2:]))
	// The first group and items have a fixed encoding.
	switch group := tag >> 16; {
	case group == 0xFFFE || group != 2 && d.implicit:
		d.at += 8
		return tag, binary.LittleEndian.Uint32(b[4:]), false, nil
	default:
		vr := string(b[4:6])
		switch vrSizes[vr] {
		case 2:
			d.at += 8
			return tag, uint32(binary.LittleEndian.Uint16(b[6:])), false, nil
		case 4:
			if b, err = d.r.bytes(d.at+8, 4); err != nil {
				return 0, 0, false, err
			}
			d.at += 12
			return tag, binary.LittleEndian.Uint32(b), vr == "SQ", nil
		}
		return 0, 0, false, fmt.Errorf("the element (%04x,%04x) at byte %d has the type %q, which is not known: the file is damaged, or no DICOM file", tag>>16, tag&0xFFFF, d.at, vr)
	}
}

// elements reads elements up to the voxels and returns their length, or -1 at end. It skips
// sequences.
func (d *dicom) elements(end int64, depth int) (int64, error) {
	for d.at < end {
		tag, length, _, err := d.element()
		if err != nil {
			return 0, err
		}
		if depth == 0 && tag == elemPixels {
			return int64(length), nil
		}
		switch {
		case tag == elemItemEnd || tag == elemSequenceEnd:
			return -1, nil
		case length == undefined:
			if depth == maxNesting {
				return 0, fmt.Errorf("its sequences are nested more than %d deep", maxNesting)
			}
			if err := d.items(depth); err != nil {
				return 0, err
			}
			continue
		case depth == 0 && length <= maxValue && slices.Contains(kept, tag):
			b, err := d.r.bytes(d.at, int64(length))
			if err != nil {
				return 0, err
			}
			d.values[tag] = bytes.Clone(b)
			if tag == elemSyntax {
				if err := d.syntax(); err != nil {
					return 0, err
				}
			}
		}
		if int64(length) > d.r.o.Size()-d.at {
			return 0, fmt.Errorf("the element (%04x,%04x) has %d bytes from byte %d on, the file %d: it is cut off or damaged", tag>>16, tag&0xFFFF, length, d.at, d.r.o.Size())
		}
		d.at += int64(length)
	}
	return -1, nil
}

// items skips a sequence of undefined length.
func (d *dicom) items(depth int) error {
	for {
		tag, length, _, err := d.element()
		switch {
		case err != nil:
			return err
		case tag == elemSequenceEnd:
			return nil
		case tag != elemItem:
			return fmt.Errorf("a sequence has (%04x,%04x) at byte %d where an item begins: the file is damaged", tag>>16, tag&0xFFFF, d.at)
		case length != undefined:
			d.at += int64(length)
		default:
			if _, err := d.elements(d.r.o.Size(), depth+1); err != nil {
				return err
			}
		}
	}
}

// syntax checks the transfer syntax of the rest of the file.
func (d *dicom) syntax() error {
	s := d.text(elemSyntax)
	switch {
	case s == implicitLittle:
		d.implicit = true
	case s == explicitLittle || packedBy[s] != nil:
	default:
		name := syntaxNames[s]
		if name == "" {
			name = "not known"
		}
		return fmt.Errorf("its transfer syntax is %s (%s), which is not read: Implicit and Explicit VR Little Endian, RLE Lossless, JPEG Baseline, JPEG Lossless and JPEG 2000 are; "+
			"convert it, for example with gdcmconv --raw or dcmdjpls", s, name)
	}
	return nil
}

func (d *dicom) text(tag uint32) string {
	return strings.Trim(string(d.values[tag]), " \x00")
}

// short returns a number of two bytes.
func (d *dicom) short(tag uint32, absent int) int {
	if b := d.values[tag]; len(b) >= 2 {
		return int(binary.LittleEndian.Uint16(b))
	}
	return absent
}

// decimals returns n numbers that are stored as text.
func (d *dicom) decimals(tag uint32, n int) ([]float64, error) {
	text := d.text(tag)
	if text == "" {
		return nil, nil
	}
	var out []float64
	for part := range strings.SplitSeq(text, "\\") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("the element (%04x,%04x) is %q, and not %d numbers", tag>>16, tag&0xFFFF, text, n)
		}
		out = append(out, v)
	}
	if len(out) != n {
		return nil, fmt.Errorf("the element (%04x,%04x) is %q, and not %d numbers", tag>>16, tag&0xFFFF, text, n)
	}
	return out, nil
}

// slice interprets the elements. The voxels are length bytes from d.at on.
func (d *dicom) slice(length int64) (*slice, error) {
	s := &slice{series: d.text(elemSeries), frames: 1, slope: 1}
	if syntax := d.text(elemSyntax); packedBy[syntax] != nil {
		s.packed = syntax
	}
	s.rows, s.columns = d.short(elemRows, 0), d.short(elemColumns, 0)
	s.instance, _ = strconv.Atoi(d.text(elemInstance))
	if text := d.text(elemFrames); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPages {
			return nil, fmt.Errorf("its number of frames is %q", text)
		}
		s.frames = n
	}
	var err error
	numbers := func(tag uint32, n int) []float64 {
		v, e := d.decimals(tag, n)
		if err == nil {
			err = e
		}
		return v
	}
	s.position, s.orientation, s.spacing = numbers(elemPosition, 3), numbers(elemOrientation, 6), numbers(elemSpacing, 2)
	if v := numbers(elemSlope, 1); v != nil {
		s.slope = v[0]
	}
	if v := numbers(elemIntercept, 1); v != nil {
		s.inter = v[0]
	}
	for _, tag := range []uint32{elemThickness, elemGap} {
		if v, e := d.decimals(tag, 1); e == nil && v != nil {
			s.gap = v[0]
		}
	}
	allocated := d.short(elemAllocated, 0)
	stored := d.short(elemStored, allocated)
	high, signed := d.short(elemHighBit, stored-1), d.short(elemSigned, 0) == 1
	switch {
	case err != nil:
		return nil, err
	case s.rows < 1 || s.columns < 1:
		return nil, fmt.Errorf("it has %d rows and %d columns of voxels", s.rows, s.columns)
	case d.short(elemSamples, 1) != 1:
		return nil, fmt.Errorf("it has %d values for each voxel: volumes have one", d.short(elemSamples, 1))
	case allocated != 8 && allocated != 16:
		return nil, fmt.Errorf("its voxels take %d bits: 8 and 16 are read", allocated)
	case s.packed == jpegBaseline && (allocated != 8 || signed):
		return nil, fmt.Errorf("its voxels take %d bits, signed: %t, and those of JPEG Baseline 8 without a sign", allocated, signed)
	case stored < 1 || stored > allocated || high != stored-1:
		return nil, fmt.Errorf("%d bits of its voxels of %d count, up to bit %d: they have to be the lowest ones", stored, allocated, high)
	case s.slope == 0:
		return nil, fmt.Errorf("its voxels are scaled by 0")
	}
	s.dtype = map[int][2]driver.DType{8: {driver.Uint8, driver.Int8}, 16: {driver.Uint16, driver.Int16}}[allocated][b2i(signed)]
	if stored < allocated {
		s.bits = 1<<stored - 1
		if signed {
			s.sign = 1 << (stored - 1)
		}
	}
	return s, d.frames(s, length)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *dicom) frames(s *slice, length int64) error {
	one := int64(s.rows) * int64(s.columns) * int64(s.dtype.Size())
	if s.packed == "" {
		if length == undefined {
			return errors.New("its voxels are packed, and its transfer syntax says that they are not")
		}
		if need := one * int64(s.frames); length < need || d.r.o.Size()-d.at < need {
			return fmt.Errorf("its voxels take %d bytes from byte %d on, of which there are %d: the file is cut off", need, d.at, min(length, d.r.o.Size()-d.at))
		}
		for i := range int64(s.frames) {
			s.blocks = append(s.blocks, block{offset: d.at + i*one, size: one})
		}
		return nil
	}
	if length != undefined {
		return errors.New("its voxels are not packed, and its transfer syntax says that they are")
	}
	for first := true; ; first = false {
		tag, length, _, err := d.element()
		if err != nil {
			return err
		}
		if tag == elemSequenceEnd {
			break
		}
		if tag != elemItem || int64(length) > d.r.o.Size()-d.at {
			return fmt.Errorf("its packed voxels are damaged at byte %d", d.at)
		}
		if !first { // the first item has the offsets of the frames
			s.blocks = append(s.blocks, block{offset: d.at, size: int64(length)})
		}
		d.at += int64(length)
	}
	if n := len(s.blocks); s.frames == 1 && n > 1 && s.packed != rleLossless { // one frame in pieces
		first, last := s.blocks[0].offset-itemHead, s.blocks[n-1]
		s.blocks = []block{{offset: first, size: last.offset + last.size - first, pieces: true}}
	}
	if len(s.blocks) != s.frames {
		return fmt.Errorf("it has %d packed frames and not %d", len(s.blocks), s.frames)
	}
	return nil
}

// itemHead is the size of an item's header: its tag and its length.
const itemHead = 8

// joined joins the pieces of a frame. Each piece is an item.
func joined(b []byte) ([]byte, error) {
	out := make([]byte, 0, len(b))
	for at := 0; at < len(b); {
		if len(b)-at < itemHead {
			return nil, errors.New("its pieces end within the head of one: it is damaged")
		}
		n := int64(binary.LittleEndian.Uint32(b[at+4:]))
		if at += itemHead; n > int64(len(b)-at) {
			return nil, fmt.Errorf("a piece of it has %d bytes, of which there are %d: it is damaged", n, len(b)-at)
		}
		out = append(out, b[at:at+int(n)]...)
		at += int(n)
	}
	return out, nil
}

// normal returns the direction perpendicular to the slices.
func (s *slice) normal() [3]float64 {
	if len(s.orientation) != 6 {
		return [3]float64{0, 0, 1}
	}
	r, c := s.orientation[:3], s.orientation[3:]
	return [3]float64{r[1]*c[2] - r[2]*c[1], r[2]*c[0] - r[0]*c[2], r[0]*c[1] - r[1]*c[0]}
}

// along returns the position of the slice along the normal n.
func (s *slice) along(n [3]float64) float64 {
	return s.position[0]*n[0] + s.position[1]*n[1] + s.position[2]*n[2]
}

// stack builds a volume from the slices of a series. It sorts them by position, or by instance
// number if they have no position. name returns the path of a slice's file.
func stack(all []*slice, name func(file int32) string) (*volume, error) {
	first := all[0]
	placed := true
	for _, s := range all {
		placed = placed && len(s.position) == 3
		switch {
		case len(all) > 1 && s.frames > 1:
			return nil, fmt.Errorf("%s has %d frames, and its series %d files: read such files one by one", name(s.file), s.frames, len(all))
		case s.rows != first.rows || s.columns != first.columns || s.dtype != first.dtype || s.bits != first.bits || s.sign != first.sign || s.packed != first.packed:
			return nil, fmt.Errorf("%s has %d x %d voxels of %s, and %s of the same series %d x %d of %s: slices of a volume are alike",
				name(s.file), s.rows, s.columns, s.dtype, name(first.file), first.rows, first.columns, first.dtype)
		case !near(s.orientation, first.orientation):
			return nil, fmt.Errorf("%s has another direction than %s of the same series: slices of a volume are parallel", name(s.file), name(first.file))
		}
	}
	n := first.normal()
	slices.SortStableFunc(all, func(a, b *slice) int {
		if x, y := 0.0, 0.0; placed {
			if x, y = a.along(n), b.along(n); x < y {
				return -1
			} else if x > y {
				return 1
			}
		}
		return a.instance - b.instance
	})
	for i := 1; placed && i < len(all); i++ {
		if a, b := all[i-1], all[i]; b.along(n)-a.along(n) < 1e-4 {
			return nil, fmt.Errorf("%s and %s of the same series lie at the same place: it is not one volume but several (times, echoes); put each into a folder of its own", name(a.file), name(b.file))
		}
	}
	first = all[0]
	v := &volume{dtype: first.dtype, bits: first.bits, sign: first.sign, block: [3]int{1, first.rows, first.columns}}
	if by := packedBy[first.packed]; by != nil {
		v.codec = by(first.dtype.Size())
	}
	for _, s := range all {
		for _, b := range s.blocks {
			b.file, b.slope, b.inter = s.file, s.slope, s.inter
			v.blocks = append(v.blocks, b)
		}
		v.scaled = v.scaled || s.slope != 1 || s.inter != 0
	}
	v.shape = []int{len(v.blocks), first.rows, first.columns}
	if placed {
		v.affine = patient(all)
	}
	return v, v.check()
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-4 {
			return false
		}
	}
	return true
}

// patient returns the affine of the slices, nil if orientation or spacing is missing. As in
// NIfTI, x points to the right, y to the front and z to the head. DICOM has x and y reversed.
func patient(all []*slice) []byte {
	first, last := all[0], all[len(all)-1]
	if len(first.orientation) != 6 || len(first.spacing) != 2 {
		return nil
	}
	step := first.normal()
	for i := range step {
		step[i] *= first.gap
		if len(all) > 1 {
			step[i] = (last.position[i] - first.position[i]) / float64(len(all)-1)
		}
	}
	m := [16]float64{15: 1}
	for i := range 3 {
		m[4*i] = first.orientation[i] * first.spacing[1]
		m[4*i+1] = first.orientation[3+i] * first.spacing[0]
		m[4*i+2] = step[i]
		m[4*i+3] = first.position[i]
		if i < 2 {
			for k := range 4 {
				m[4*i+k] = -m[4*i+k]
			}
		}
	}
	return affineBytes(&m)
}
