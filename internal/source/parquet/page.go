package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"

	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/source/driver"
)

// Page is the decoded content of one or more pages, with access to single rows.
type Page struct {
	Rows int
	// Valid has a bit for each row with a value. It is nil if all rows have one.
	Valid []byte
	// Offsets are the offsets of lists in numbers: 4 bytes each, one more than rows.
	Offsets []byte
	// Elems has a bit for each number in a list that is not null. It is nil if none is null.
	Elems []byte
	// Sides are the lengths of nested lists, -1 if there are none. Uneven is true if lengths differ.
	Sides  []int64
	Uneven bool
	// Starts are the starts of byte strings in Values: 4 bytes each, one more than rows. A string ends gap bytes
	// before the next start. A row without a value starts where the next one does.
	Starts []byte
	gap    uint32
	// Index are the dictionary indexes of the rows' strings, 4 bytes each.
	Index []byte
	Dict  *Page
	// Values are numbers or strings. If Stored is set, they are the decompressed page unchanged, from byte Base on.
	Values []byte
	Stored bool
	Base   int64

	leaf *Leaf
}

func at32(b []byte, i int64) int64 { return int64(binary.LittleEndian.Uint32(b[4*i:])) }

// Has reports whether a row has a value.
func (p *Page) Has(row int64) bool { return columns.Bit(p.Valid, row) }

// Range returns the range of a row's value in in.Values, where in is p or p.Dict. The range is empty for a row
// without a value.
func (p *Page) Range(row int64) (in *Page, lo, hi int64) {
	switch {
	case !p.Has(row):
		return p, 0, 0
	case p.Offsets != nil:
		w := int64(p.leaf.Width)
		return p, at32(p.Offsets, row) * w, at32(p.Offsets, row+1) * w
	case p.Index != nil:
		return p.Dict.rangeOf(at32(p.Index, row))
	case p.Starts != nil:
		return p.rangeOf(row)
	}
	w := int64(p.leaf.Width)
	return p, row * w, (row + 1) * w
}

func (p *Page) rangeOf(i int64) (*Page, int64, int64) {
	return p, at32(p.Starts, i), at32(p.Starts, i+1) - int64(p.gap)
}

// First returns the number of the first element of a row's list.
func (p *Page) First(row int64) int64 { return at32(p.Offsets, row) }

// Bytes returns the size of the page in memory.
func (p *Page) Bytes() int64 {
	return int64(len(p.Valid) + len(p.Offsets) + len(p.Elems) + len(p.Starts) + len(p.Index) + len(p.Values))
}

// Raw is a page in the format of the file.
type Raw struct {
	*Header
	Body []byte
}

// Decoder decodes pages. It can be reused but is not safe for concurrent use.
type Decoder struct {
	Leaf  *Leaf
	Codec Codec
	// Dict is the decoded dictionary page, nil for none.
	Dict *Page
	// Alloc allocates the memory of a Page.
	Alloc func(n int) ([]byte, error)
	// Index is true if only the positions of values are needed. Then Values of a Stored page is nil.
	Index bool

	scratch    []byte
	reps, defs []uint8
}

// section decompresses the compressed part of a page. keep is true if the values are used in place. In version 2
// the levels come first, uncompressed.
func (d *Decoder) section(r Raw, keep bool) (levels, out []byte, err error) {
	if r.hasCRC && crc32.ChecksumIEEE(r.Body) != r.crc {
		return nil, nil, driver.Damaged(damaged("the checksum is %08x, expected %08x", crc32.ChecksumIEEE(r.Body), r.crc))
	}
	codec := d.Codec
	n := r.reps + r.defs
	levels, body := r.Body[:n], r.Body[n:]
	if r.kind == pageDataV2 && r.stored {
		codec = None
	}
	if err := codec.check(); err != nil {
		return nil, nil, err
	}
	size := r.Plain - n
	if codec == None && int64(len(body)) != size {
		return nil, nil, damaged("its page has %d bytes, expected %d", len(body), size)
	}
	keep = keep && !d.Index
	if codec == None && !keep {
		return levels, body, nil
	}
	if keep {
		if out, err = d.Alloc(int(size)); err != nil {
			return nil, nil, err
		}
	} else {
		if int64(cap(d.scratch)) < size {
			d.scratch = make([]byte, size)
		}
		out = d.scratch[:size]
	}
	return levels, out, codec.decompress(out, body)
}

// whole reports whether the stored values of a page can be used unchanged.
func (d *Decoder) whole(h *Header) bool {
	l := d.Leaf
	switch {
	case l.Width == 0:
		return h.IsPlain() || h.enc == encDeltaLength
	case l.Type == Boolean:
		return false
	}
	return h.IsPlain() && l.physical() == l.Width
}

// limit returns an error for pages that are too large to be held.
func limit(values, width int64, r *Header) error {
	n := values * width
	if n > MaxUnit {
		return fmt.Errorf("%d values in a page, which take %d bytes, are more than the limit of %d: write the file with smaller pages", values, n, MaxUnit)
	}
	if n > ratioFrom && n > ratio*max(r.Bytes, 1) {
		return damaged("%d values in a page of %d bytes", values, r.Bytes)
	}
	return nil
}

// Dictionary decodes a dictionary page.
func (d *Decoder) Dictionary(r Raw) (*Page, error) {
	l := d.Leaf
	n := int(r.Values)
	if r.enc != encPlain && r.enc != encPlainDict {
		return nil, unsupported("its dictionary is encoded as %s, which is not read", encodingName(r.enc))
	}
	if err := limit(r.Values, int64(max(l.Width, 4)), r.Header); err != nil {
		return nil, err
	}
	p := &Page{Rows: n, leaf: l}
	_, sec, err := d.section(r, d.whole(r.Header))
	if err != nil {
		return nil, err
	}
	if l.Width == 0 {
		return p, d.strings(p, sec, 0, n)
	}
	return p, d.plainNumbers(p, sec, n)
}

// plainNumbers decodes a page of unencoded numbers.
func (d *Decoder) plainNumbers(p *Page, sec []byte, n int) error {
	l := d.Leaf
	if d.whole(&Header{kind: pageDict}) {
		if len(sec) < n*l.Width {
			return damaged("%d bytes for %d values of %d", len(sec), n, l.Width)
		}
		p.Values, p.Stored = sec[:n*l.Width], true
		return nil
	}
	var err error
	if p.Values, err = d.Alloc(n * l.Width); err != nil {
		return err
	}
	return d.numbers(p.Values, sec, n, encPlain)
}

// numbers decodes n numbers without nulls.
func (d *Decoder) numbers(dst, src []byte, n int, enc int64) error {
	l := d.Leaf
	from := l.physical()
	switch {
	case enc == encDict || enc == encPlainDict:
		if n == 0 {
			return nil
		}
		if d.Dict == nil {
			return damaged("its dictionary is missing")
		}
		return gather(dst, src, n, d.Dict.Values, l.Width, d.Dict.Rows)
	case l.Type == Boolean && enc == encPlain:
		return plainBits(dst, src, n)
	case l.Type == Boolean && enc == encRLE:
		if len(src) < 4 || int64(binary.LittleEndian.Uint32(src)) > int64(len(src)-4) {
			return damaged("its values are cut off")
		}
		some, err := levels(dst[:n], src[4:], n, 1)
		if err == nil && !some {
			fill(dst[:n], 1)
		}
		return err
	case l.Type == Boolean:
	case enc == encPlain:
		if len(src) < n*from {
			return damaged("%d bytes for %d values of %d", len(src), n, from)
		}
		narrow(dst, src, n, from, l.Width)
		return nil
	case enc == encDelta && (l.Type == Int32 || l.Type == Int64):
		return deltaNumbers(dst, src, n, l.Width)
	case enc == encSplit:
		return joinSplit(dst, src, n, from, l.Width)
	}
	return unsupported("its values are encoded as %s, which is not read for this type", encodingName(enc))
}

// readLevels decodes the levels of a page and returns the offset of the values in the decompressed page. Levels are
// nil if all are the highest.
func (d *Decoder) readLevels(r Raw, raw, sec []byte) (reps, defs []uint8, values int64, err error) {
	n := int(r.Values)
	if r.kind == pageDataV2 {
		if reps, err = kept(&d.reps, n, d.Leaf.MaxRep, raw[:r.reps], levels); err == nil {
			defs, err = kept(&d.defs, n, d.Leaf.MaxDef, raw[r.reps:r.reps+r.defs], levels)
		}
	} else {
		rest := sec
		if reps, rest, err = levelsV1(&d.reps, n, d.Leaf.MaxRep, r.repEnc, rest); err == nil {
			defs, rest, err = levelsV1(&d.defs, n, d.Leaf.MaxDef, r.defEnc, rest)
		}
		values = int64(len(sec) - len(rest))
	}
	if err != nil {
		return nil, nil, 0, err
	}
	if d.Leaf.MaxRep > 0 && reps == nil { // the page only continues a row
		reps = sized(&d.reps, n)
		fill(reps, d.Leaf.MaxRep)
	}
	return reps, defs, values, nil
}

// levelsV1 decodes the levels at the start of a page of version 1 and returns the bytes after them. The encoding has
// no meaning if the highest level is 0, because there are then no levels. Parquet-java writes BIT_PACKED there.
func levelsV1(mem *[]uint8, n int, most uint8, enc int64, b []byte) (out []uint8, rest []byte, err error) {
	if most == 0 {
		return nil, b, nil
	}
	size, from := int64(0), int64(0)
	decode := levels
	switch enc {
	case encRLE:
		if len(b) < 4 {
			return nil, nil, damaged("its levels are cut off")
		}
		size, from = int64(binary.LittleEndian.Uint32(b)), 4
	case encBitPacked:
		size, decode = (int64(n)*int64(bits.Len8(most))+7)/8, packedLevels
	default:
		return nil, nil, unsupported("its levels are encoded as %s, which is not read", encodingName(enc))
	}
	if size > int64(len(b))-from {
		return nil, nil, damaged("its levels are cut off")
	}
	out, err = kept(mem, n, most, b[from:from+size], decode)
	return out, b[from+size:], err
}

// kept decodes n levels into reused memory. It returns nil if all are the highest.
func kept(mem *[]uint8, n int, most uint8, b []byte, decode func([]uint8, []byte, int, uint8) (bool, error)) ([]uint8, error) {
	if most == 0 {
		return nil, nil
	}
	out := sized(mem, n)
	if some, err := decode(out, b, n, most); err != nil || !some {
		return nil, err
	}
	return out, nil
}

func sized(mem *[]uint8, n int) []uint8 {
	if cap(*mem) < n {
		*mem = make([]uint8, n)
	}
	return (*mem)[:n]
}

// Data decodes the rows that begin in the first of some data pages. Values before them belong to a row of an
// earlier page, values after them to the next row. Byte strings must come as a single page.
func (d *Decoder) Data(pages []Raw, rows int64) (*Page, error) {
	l := d.Leaf
	total := int64(0)
	for _, r := range pages {
		width := int64(l.Width)
		if l.MaxRep == 0 {
			width = max(width, 4)
		}
		if err := limit(r.Values, width, r.Header); err != nil {
			return nil, err
		}
		total += r.Values
	}
	if total*int64(max(l.Width, 1)) > MaxUnit || rows > total || rows < 0 || l.MaxRep == 0 && rows != total {
		return nil, damaged("%d values in %d rows", total, rows)
	}
	if l.Width == 0 {
		if len(pages) != 1 || l.MaxRep > 0 {
			return nil, unsupported("lists of byte strings are not read")
		}
		return d.stringPage(pages[0], int(rows))
	}
	b := building{d: d, p: &Page{Rows: int(rows), leaf: l}, total: int(total)}
	for i := 1; i < len(l.Lists); i++ {
		b.p.Sides = append(b.p.Sides, -1)
	}
	var err error
	if l.MaxRep > 0 {
		if b.p.Offsets, err = d.Alloc(4 * (int(rows) + 1)); err != nil {
			return nil, err
		}
	}
	for _, r := range pages {
		if err := b.page(r, len(pages) == 1); err != nil {
			return nil, err
		}
	}
	return b.p, b.end()
}

// building is a Page of numbers under construction.
type building struct {
	d     *Decoder
	p     *Page
	total int  // of all pages, including nulls
	row   int  // rows that have begun
	slots int  // numbers, including nulls
	over  bool // the next row, which is not part of this Page, has begun
	open  [math.MaxUint8]bool
	count [math.MaxUint8]int64
}

// page adds a page.
func (b *building) page(r Raw, only bool) error {
	d, l := b.d, b.d.Leaf
	raw, sec, err := d.section(r, only && d.whole(r.Header))
	if err != nil {
		return err
	}
	reps, defs, from, err := d.readLevels(r, raw, sec)
	if err != nil {
		return err
	}
	first, dense := b.slots, int(r.Values)
	switch {
	case l.MaxRep == 0 && defs == nil:
		b.row += dense
		b.slots += dense
	case l.MaxRep == 0:
		dense, err = b.flat(defs)
	case defs == nil && l.MaxRep == 1:
		b.lists(reps)
	default:
		dense, err = b.nested(reps, defs)
	}
	if err != nil {
		return err
	}
	sec = sec[from:]
	n := b.slots - first
	if only && n == dense && d.whole(r.Header) {
		b.p.Base = from
		if err := d.plainNumbers(b.p, sec, n); err != nil {
			return err
		}
		if d.Index {
			b.p.Values = nil
		}
		return nil
	}
	if b.p.Values == nil {
		if b.p.Values, err = d.Alloc(b.total * l.Width); err != nil {
			return err
		}
	}
	dst := b.p.Values[first*l.Width : b.slots*l.Width]
	if err := d.numbers(dst, sec, dense, r.enc); err != nil {
		return err
	}
	if dense < n {
		spread(dst, b.bits(), first, n, dense, l.Width)
	}
	return nil
}

// bits returns the validity bits of the numbers.
func (b *building) bits() []byte {
	if b.p.Offsets != nil {
		return b.p.Elems
	}
	return b.p.Valid
}

// missing clears a validity bit.
func (b *building) missing(bits *[]byte, i, n int) error {
	if *bits == nil {
		mem, err := b.d.Alloc((n + 7) / 8)
		if err != nil {
			return err
		}
		fill(mem, 0xFF)
		*bits = mem
	}
	(*bits)[i>>3] &^= 1 << (i & 7)
	return nil
}

// spread moves dense numbers to the valid positions, from the last to the first.
func spread(dst, valid []byte, first, n, dense, width int) {
	for i := n - 1; i >= 0; i-- {
		at := dst[i*width : (i+1)*width]
		if columns.Bit(valid, int64(first+i)) {
			dense--
			copy(at, dst[dense*width:])
		} else {
			clear(at)
		}
	}
}

// flat adds rows of a column without lists.
func (b *building) flat(defs []uint8) (dense int, err error) {
	for _, v := range defs {
		if v == b.d.Leaf.MaxDef {
			dense++
		} else if err := b.missing(&b.p.Valid, b.row, b.total); err != nil {
			return 0, err
		}
		b.row++
		b.slots++
	}
	return dense, nil
}

// begin starts a row.
func (b *building) begin() {
	if b.over {
		return
	}
	binary.LittleEndian.PutUint32(b.p.Offsets[4*b.row:], uint32(b.slots))
	if b.row == b.p.Rows {
		b.over = true
		return
	}
	b.row++
}

// lists adds lists without nulls and empty lists.
func (b *building) lists(reps []uint8) {
	base := b.slots
	for at := 0; !b.over; at++ {
		n := bytes.IndexByte(reps[at:], 0)
		if n < 0 {
			break
		}
		at += n
		b.slots = base + at
		b.begin()
	}
	b.slots = base + len(reps)
}

// nested adds any other lists.
func (b *building) nested(reps, defs []uint8) (dense int, err error) {
	l := b.d.Leaf
	last := l.Lists[len(l.Lists)-1]
	for i, rep := range reps {
		def := l.MaxDef
		if defs != nil {
			def = defs[i]
		}
		if rep == 0 {
			if b.begin(); !b.over && def < l.Valid {
				if err := b.missing(&b.p.Valid, b.row-1, b.p.Rows); err != nil {
					return 0, err
				}
			}
		}
		for k := max(int(rep), 1); k < len(l.Lists); k++ { // these lists start again
			b.close(k)
			if b.open[k] = !b.over && b.row > 0 && def >= l.Lists[k-1]; b.open[k] && def < l.Lists[k] {
				b.p.Uneven = true // empty, or missing
			}
		}
		for k := max(int(rep)-1, 0); k < len(l.Lists); k++ {
			if def >= l.Lists[k] {
				b.count[k]++
			}
		}
		if def < last {
			continue
		}
		if def == l.MaxDef {
			dense++
		} else if err := b.missing(&b.p.Elems, b.slots, b.total); err != nil {
			return 0, err
		}
		b.slots++
	}
	return dense, nil
}

// close ends list k.
func (b *building) close(k int) {
	if b.open[k] {
		switch side := &b.p.Sides[k-1]; {
		case *side < 0:
			*side = b.count[k]
		case *side != b.count[k]:
			b.p.Uneven = true
		}
	}
	b.open[k], b.count[k] = false, 0
}

// end completes the Page.
func (b *building) end() error {
	l := b.d.Leaf
	if b.row != b.p.Rows {
		return damaged("it has %d rows, expected %d", b.row, b.p.Rows)
	}
	if l.MaxRep > 0 {
		if !b.over {
			binary.LittleEndian.PutUint32(b.p.Offsets[4*b.row:], uint32(b.slots))
		}
		for k := 1; k < len(l.Lists); k++ {
			b.close(k)
		}
	}
	if !b.p.Stored {
		b.p.Values = b.p.Values[:b.slots*l.Width]
	}
	return nil
}

// Starting returns the number of rows that begin in a page of lists. within reports whether the page continues a
// row of an earlier page.
func (d *Decoder) Starting(r Raw) (rows int64, within bool, err error) {
	if r.Values == 0 {
		return 0, false, nil
	}
	if err := limit(r.Values, 1, r.Header); err != nil {
		return 0, false, err
	}
	raw, sec, err := d.section(r, false)
	if err != nil {
		return 0, false, err
	}
	reps, _, _, err := d.readLevels(r, raw, sec)
	if err != nil {
		return 0, false, err
	}
	return int64(bytes.Count(reps, []byte{0})), reps[0] != 0, nil
}

// stringPage decodes a page of byte strings.
func (d *Decoder) stringPage(r Raw, rows int) (*Page, error) {
	p := &Page{Rows: rows, leaf: d.Leaf}
	raw, sec, err := d.section(r, d.whole(r.Header))
	if err != nil {
		return nil, err
	}
	_, defs, from, err := d.readLevels(r, raw, sec)
	if err != nil {
		return nil, err
	}
	b := building{d: d, p: p, total: rows}
	dense := rows
	if defs != nil {
		if dense, err = b.flat(defs); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Encoded():
		return p, d.indexes(p, sec[from:], dense)
	case r.enc == encPlain:
		return p, d.strings(p, sec, from, dense)
	case r.enc == encDeltaLength && d.Leaf.Type == ByteArray:
		return p, d.deltaLengths(p, sec[from:], dense)
	case r.enc == encDeltaBytes:
		return p, d.deltaStrings(p, sec[from:], dense)
	case r.enc == encSplit && d.Leaf.Type == FixedBytes:
		n := d.Leaf.Length
		if int64(dense)*int64(n) > int64(len(sec))-from {
			return nil, damaged("%d bytes for %d values of %d", len(sec), dense, n)
		}
		if p.Values, err = d.Alloc(dense * n); err != nil {
			return nil, err
		}
		if err := joinSplit(p.Values, sec[from:], dense, n, n); err != nil {
			return nil, err
		}
		return p, d.starts(p, func(i int) (int, error) { return i * n, nil }, dense)
	}
	return nil, unsupported("its values are encoded as %s, which is not read for this type", encodingName(r.enc))
}

// indexes decodes the dictionary indexes of the rows' strings.
func (d *Decoder) indexes(p *Page, src []byte, dense int) error {
	mem, err := d.Alloc(4 * p.Rows)
	if err != nil {
		return err
	}
	clear(mem)
	p.Index, p.Dict = mem, d.Dict
	if dense == 0 {
		return nil
	}
	if d.Dict == nil {
		return damaged("its dictionary is missing")
	}
	h, err := numbersOf(src)
	if err != nil {
		return err
	}
	var some [1024]uint32
	for row := 0; dense > 0; {
		part := some[:min(len(some), dense)]
		if err := h.numbers(part); err != nil {
			return err
		}
		for _, v := range part {
			if int64(v) >= int64(d.Dict.Rows) {
				return damaged("value %d of a dictionary of %d", v, d.Dict.Rows)
			}
			for !p.Has(int64(row)) {
				row++
			}
			binary.LittleEndian.PutUint32(mem[4*row:], v)
			row++
		}
		dense -= len(part)
	}
	return nil
}

// starts sets the starts of the rows' strings, of which dense have a value. at returns the start of string i and,
// for i == dense, the end.
func (d *Decoder) starts(p *Page, at func(i int) (int, error), dense int) error {
	mem, err := d.Alloc(4 * (p.Rows + 1))
	if err != nil {
		return err
	}
	p.Starts = mem
	next, err := at(0)
	if err != nil {
		return err
	}
	i := 0
	for row := range p.Rows {
		binary.LittleEndian.PutUint32(mem[4*row:], uint32(next))
		if p.Valid == nil || p.Has(int64(row)) {
			i++
			if next, err = at(i); err != nil {
				return err
			}
		}
	}
	binary.LittleEndian.PutUint32(mem[4*p.Rows:], uint32(next))
	if i != dense {
		return damaged("it has %d values, expected %d", i, dense)
	}
	return nil
}

// strings finds the strings in unencoded data from a byte on.
func (d *Decoder) strings(p *Page, sec []byte, from int64, dense int) error {
	p.Stored = true
	if !d.Index {
		p.Values = sec
	}
	if n := d.Leaf.Length; d.Leaf.Type == FixedBytes {
		if int64(len(sec))-from < int64(dense)*int64(n) {
			return damaged("%d bytes for %d values of %d", int64(len(sec))-from, dense, n)
		}
		return d.starts(p, func(i int) (int, error) { return int(from) + i*n, nil }, dense)
	}
	p.gap = 4
	next := int(from) // offset of the next length
	return d.starts(p, func(i int) (int, error) {
		at := next + 4
		if i == dense {
			return at, nil
		}
		if at > len(sec) {
			return 0, damaged("value %d of %d is after the end of its page", i, dense)
		}
		n := binary.LittleEndian.Uint32(sec[next:])
		if int64(n) > int64(len(sec)-at) {
			return 0, damaged("value %d has %d bytes, its page ends after %d", i, n, len(sec)-at)
		}
		next = at + int(n)
		return at, nil
	}, dense)
}

// deltaLengths finds strings that follow the list of their lengths.
func (d *Decoder) deltaLengths(p *Page, src []byte, dense int) error {
	lengths, rest, err := deltaList(src, dense)
	if err != nil {
		return err
	}
	if d.Index { // their positions would not be known
		if p.Values, err = d.Alloc(len(rest)); err != nil {
			return err
		}
		copy(p.Values, rest)
	} else {
		p.Values = rest
	}
	next := 0
	return d.starts(p, func(i int) (int, error) {
		at := next
		if i < dense {
			if lengths[i] < 0 || lengths[i] > int64(len(rest)-at) {
				return 0, damaged("value %d has %d bytes, its page ends after %d", i, lengths[i], len(rest)-at)
			}
			next += int(lengths[i])
		}
		return at, nil
	}, dense)
}

// deltaList decodes n delta-encoded numbers.
func deltaList(src []byte, n int) (out []int64, rest []byte, err error) {
	var dl delta
	if err := dl.open(src, n); err != nil {
		return nil, nil, err
	}
	if dl.left != n {
		return nil, nil, damaged("%d numbers, expected %d", dl.left, n)
	}
	out = make([]int64, n)
	if err := dl.next(out); err != nil {
		return nil, nil, err
	}
	return out, dl.rest(), nil
}

// deltaStrings decodes strings that share a prefix with the previous string.
func (d *Decoder) deltaStrings(p *Page, src []byte, dense int) error {
	prefixes, rest, err := deltaList(src, dense)
	if err != nil {
		return err
	}
	lengths, rest, err := deltaList(rest, dense)
	if err != nil {
		return err
	}
	total, before := int64(0), int64(0)
	for i, n := range lengths {
		if n < 0 || n > MaxUnit || prefixes[i] < 0 || prefixes[i] > before {
			return damaged("value %d shares %d bytes with the one before, which has %d, and adds %d", i, prefixes[i], before, n)
		}
		before = prefixes[i] + n
		if total += before; total > MaxUnit {
			return fmt.Errorf("its values take more than the limit of %d bytes: write the file with smaller pages", MaxUnit)
		}
	}
	if p.Values, err = d.Alloc(int(total)); err != nil {
		return err
	}
	last, next := 0, 0
	fixed := d.Leaf.Type == FixedBytes
	return d.starts(p, func(i int) (int, error) {
		if i == dense {
			return next, nil
		}
		at, pre, n := next, int(prefixes[i]), int(lengths[i])
		if n > len(rest) {
			return 0, damaged("value %d has %d bytes, its page ends after %d", i, n, len(rest))
		}
		if fixed && pre+n != d.Leaf.Length {
			return 0, damaged("value %d has %d bytes, all have %d", i, pre+n, d.Leaf.Length)
		}
		copy(p.Values[at:], p.Values[last:last+pre])
		copy(p.Values[at+pre:], rest[:n])
		rest = rest[n:]
		last, next = at, at+pre+n
		return at, nil
	}, dense)
}

// Number returns the dictionary index of a row's string.
func (p *Page) Number(row int64) int64 { return at32(p.Index, row) }

// String returns the range of string i.
func (p *Page) String(i int64) (lo, hi int64) {
	_, lo, hi = p.rangeOf(i)
	return lo, hi
}

// Small reports whether the decoder's memory is small enough to be kept for reuse.
func (d *Decoder) Small() bool { return cap(d.scratch)+cap(d.reps)+cap(d.defs) <= 8<<20 }
