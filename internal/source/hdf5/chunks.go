package hdf5

import (
	"errors"
	"fmt"
	"math/bits"
	"sort"
)

// Chunks has the positions of a data set's written chunks, in row-major order.
type Chunks struct {
	// at are the numbers of the chunks, nil if all chunks exist.
	at     []int64
	offset []int64
	size   []uint32 // nil if all chunks have the same size
	mask   []uint32 // nil if no chunk skips a filter
	bytes  int64    // size of a chunk if size is nil
}

// Place is the position of a chunk: Size bytes from Offset on. The filters with a bit in Mask were not applied.
type Place struct {
	Offset, Size int64
	Mask         uint32
}

// Len returns the number of written chunks.
func (c *Chunks) Len() int { return len(c.offset) }

// Find returns the position of chunk n. ok is false if the chunk was never written.
func (c *Chunks) Find(n int64) (Place, bool) {
	i := int(n)
	if c.at != nil {
		i = sort.Search(len(c.at), func(i int) bool { return c.at[i] >= n })
		if i == len(c.at) || c.at[i] != n {
			return Place{}, false
		}
	} else if n < 0 || n >= int64(len(c.offset)) {
		return Place{}, false
	}
	p := Place{Offset: c.offset[i], Size: c.bytes}
	if c.size != nil {
		p.Size = int64(c.size[i])
	}
	if c.mask != nil {
		p.Mask = c.mask[i]
	}
	return p, true
}

// lister collects the chunks of a data set.
type lister struct {
	d    *Dataset
	f    *File
	grid []int64 // chunks per axis
	full []int64 // maximum of chunks per axis, undefined without a limit
	all  int64
	out  *Chunks
	last int64
}

// Chunks reads the positions of the chunks of a data set.
func (d *Dataset) Chunks() (*Chunks, error) {
	if d.Layout != Chunked {
		return nil, errors.New("it has no chunks")
	}
	n, _ := elements(d.Chunk)
	l := &lister{d: d, f: d.f, out: &Chunks{bytes: n * d.Type.Size}, last: -1}
	for i, side := range d.Dims {
		l.grid = append(l.grid, (side-1)/d.Chunk[i]+1)
		if side == 0 {
			l.grid[i] = 0
		}
		full := undefined
		if d.most[i] != undefined {
			full = (d.most[i]-1)/d.Chunk[i] + 1
		}
		l.full = append(l.full, full)
	}
	var ok bool
	if l.all, ok = elements(l.grid); !ok {
		return nil, fmt.Errorf("damaged: %v chunks", l.grid)
	}
	if len(d.Filters) > 0 {
		l.out.size = []uint32{}
	}
	if d.index.addr == undefined || l.all == 0 {
		l.out.at = []int64{}
		return l.out, nil
	}
	var err error
	switch d.index.kind {
	case treeV1:
		err = l.treeV1()
	case singleChunk:
		size := l.out.bytes
		if d.index.flags&2 != 0 {
			size = d.index.size
		}
		err = l.add(0, d.index.addr, uint64(size), d.index.mask)
	case implicit:
		err = l.arrayOrder(func(i int64) (int64, uint64, uint32) { return d.index.addr + i*l.out.bytes, uint64(l.out.bytes), 0 })
	case fixedArray:
		err = l.fixedArray()
	case extensible:
		err = l.extensible()
	case treeV2:
		err = l.treeV2()
	}
	if err == nil && int64(len(l.out.offset)) == l.all {
		l.out.at = nil
	} else if l.out.at == nil {
		l.out.at = []int64{}
	}
	return l.out, err
}

// coords sets out to the coordinates of chunk n in the grid.
func (l *lister) coords(n int64, out []int64) {
	for i := len(l.grid) - 1; i >= 0; i-- {
		out[i] = n % l.grid[i]
		n /= l.grid[i]
	}
}

// add adds a chunk. Chunks must be added in ascending order.
func (l *lister) add(n, addr int64, size uint64, mask uint32) error {
	d := l.d
	if addr == undefined {
		return nil
	}
	if n <= l.last || n >= l.all {
		return fmt.Errorf("damaged: its index lists chunk %d after chunk %d, of %d", n, l.last, l.all)
	}
	l.last = n
	if l.out.size == nil && size != uint64(l.out.bytes) {
		return fmt.Errorf("damaged: chunk %d has %d bytes and no filters, expected %d", n, size, l.out.bytes)
	}
	if size == 0 || size > 1<<32-1 {
		return fmt.Errorf("damaged: chunk %d has %d bytes", n, size)
	}
	if err := l.f.within(addr, int64(size), fmt.Sprintf("chunk %d", n)); err != nil {
		return err
	}
	o := l.out
	if d.index.flags&partialUnfiltered != 0 && len(d.Filters) > 0 && l.partial(n) {
		mask = 1<<32 - 1
	}
	if mask != 0 && o.mask == nil {
		o.mask = make([]uint32, len(o.offset), cap(o.offset))
	}
	o.at = append(o.at, n)
	o.offset = append(o.offset, l.f.base+addr)
	if o.size != nil {
		o.size = append(o.size, uint32(size))
	}
	if o.mask != nil {
		o.mask = append(o.mask, mask)
	}
	return nil
}

// partial reports whether a chunk extends over an edge of the data set.
func (l *lister) partial(n int64) bool {
	at := make([]int64, len(l.grid))
	l.coords(n, at)
	for i, c := range at {
		if (c+1)*l.d.Chunk[i] > l.d.Dims[i] {
			return true
		}
	}
	return false
}

// number returns the number of the chunk at these coordinates of the grid. It returns false for coordinates
// outside, because a data set may have shrunk.
func (l *lister) number(at func(axis int) uint64) (int64, bool) {
	n := int64(0)
	for i, side := range l.grid {
		c := at(i)
		if c >= uint64(side) {
			return 0, false
		}
		n = n*side + int64(c)
	}
	return n, true
}

func (l *lister) treeV1() error {
	rank := len(l.d.Dims)
	t := &oldTree{f: l.f, kind: 1, key: 8 + 8*(rank+1)}
	return t.walk(l.d.index.addr, func(key []byte, child int64) error {
		k := l.f.decode(key)
		size, mask := k.u32(), k.u32()
		even := true
		n, ok := l.number(func(i int) uint64 {
			v, side := k.number(8), uint64(l.d.Chunk[i])
			even = even && v%side == 0
			return v / side
		})
		if !even {
			return l.f.damaged(child, "a chunk overlaps another one")
		}
		if !ok {
			return nil
		}
		return l.add(n, child, uint64(size), mask)
	})
}

func (l *lister) treeV2() error {
	rank := len(l.d.Dims)
	kind := 10
	if len(l.d.Filters) > 0 {
		kind = 11
	}
	return l.f.newTree(l.d.index.addr, kind, func(rec []byte, size int) error {
		k := l.f.decode(rec)
		addr := k.offset()
		bytes, mask := uint64(l.out.bytes), uint32(0)
		if kind == 11 {
			width := size - l.f.offsets - 4 - 8*rank
			if width < 1 || width > 8 {
				return l.f.damaged(l.d.index.addr, "records of %d bytes in an index of chunks", size)
			}
			bytes, mask = k.number(width), k.u32()
		}
		n, ok := l.number(func(int) uint64 { return k.number(8) })
		if k.bad {
			return l.f.damaged(l.d.index.addr, "records of %d bytes in an index of chunks", size)
		}
		if !ok {
			return nil
		}
		return l.add(n, addr, bytes, mask)
	})
}

// arrayOrder adds the chunks of an array index. entry returns an element of the array. The elements are ordered as
// if the data set had its maximum size, and the axis without a limit varies slowest.
func (l *lister) arrayOrder(entry func(i int64) (addr int64, size uint64, mask uint32)) error {
	const most = 1 << 26
	if l.d.index.kind != implicit && l.all > most {
		return fmt.Errorf("it has %d chunks, the limit is %d: write it again with larger chunks", l.all, most)
	}
	strides, err := l.strides()
	if err != nil {
		return err
	}
	at := make([]int64, len(l.grid))
	for n := range l.all {
		l.coords(n, at)
		i := int64(0)
		for k, c := range at {
			i += c * strides[k]
		}
		addr, size, mask := entry(i)
		if err := l.add(n, addr, size, mask); err != nil {
			return err
		}
	}
	return nil
}

// strides returns the distances in an array index of neighbouring chunks, by axis.
func (l *lister) strides() ([]int64, error) {
	rank := len(l.grid)
	order := make([]int, 0, rank) // slowest first
	for i, n := range l.full {
		if n == undefined {
			order = append(order, i)
		}
	}
	if len(order) > 1 {
		return nil, errors.New("damaged: its index of chunks allows one axis without a limit, but it has several")
	}
	for i, n := range l.full {
		if n != undefined {
			order = append(order, i)
		}
	}
	out := make([]int64, rank)
	step := int64(1)
	for k := rank - 1; k >= 0; k-- {
		i := order[k]
		out[i] = step
		if k > 0 {
			hi, lo := bits.Mul64(uint64(step), uint64(max(l.full[i], 1)))
			if hi != 0 || lo > 1<<50 {
				return nil, errors.New("damaged: its index of chunks is too large for any file")
			}
			step = int64(lo)
		}
	}
	return out, nil
}

// elems decodes the elements of array indexes.
type elems struct {
	l     *lister
	size  int // of an entry
	width int // bytes of a chunk's size, 0 if there are no filters
}

func (l *lister) elems(client, size int) (*elems, error) {
	e := &elems{l: l, size: size}
	want := l.f.offsets
	if len(l.d.Filters) > 0 {
		e.width = size - l.f.offsets - 4
		want = l.f.offsets + e.width + 4
	}
	if client > 1 || (client == 1) != (e.width != 0) || size != want || e.width < 0 || e.width > 8 {
		return nil, l.f.damaged(l.d.index.addr, "an index of chunks with entries of %d bytes of type %d", size, client)
	}
	return e, nil
}

// at decodes element i of b.
func (e *elems) at(b []byte, i int64) (addr int64, size uint64, mask uint32) {
	d := e.l.f.decode(b[i*int64(e.size) : (i+1)*int64(e.size)])
	addr, size = d.offset(), uint64(e.l.out.bytes)
	if e.width > 0 {
		size, mask = d.number(e.width), d.u32()
	}
	return addr, size, mask
}

func (l *lister) fixedArray() error {
	f, addr := l.f, l.d.index.addr
	d, err := f.checked(addr, int64(8+f.lengths+f.offsets+4), "FAHD", "index of chunks")
	if err != nil {
		return err
	}
	d.skip(1)
	client, size, pageBits := d.u8(), d.u8(), d.u8()
	n, block := d.length(), d.offset()
	e, err := l.elems(client, size)
	if err != nil {
		return err
	}
	if d.bad || pageBits > 30 || n > f.size {
		return f.damaged(addr, "an index of %d chunks in pages of 2^%d", n, pageBits)
	}
	if block == undefined {
		return nil
	}
	head := int64(6 + f.offsets)
	page := int64(1) << pageBits
	if n <= page {
		b, err := f.checked(block, head+n*int64(size)+4, "FADB", "index of chunks")
		if err != nil {
			return err
		}
		all := b.b[head:]
		return l.arrayOrder(func(i int64) (int64, uint64, uint32) {
			if i >= n {
				return undefined, 0, 0
			}
			return e.at(all, i)
		})
	}
	pages := (n + page - 1) / page
	bitmap := (pages + 7) / 8
	b, err := f.checked(block, head+bitmap+4, "FADB", "index of chunks")
	if err != nil {
		return err
	}
	there := b.b[head:]
	p := &pager{f: f, at: block + head + bitmap + 4, page: page, entry: int64(size), count: n, there: there}
	return l.paged(e, p)
}

// pager reads the elements of an array index in pages with a checksum each.
type pager struct {
	f     *File
	at    int64 // offset of the first page
	page  int64 // elements per page
	entry int64
	count int64
	there []byte // one bit per page that was written
	have  int64  // number of the last page that was read, from 1
	b     []byte
}

// get returns the page of element i and the element's number in it. The page is nil if it was never written.
func (p *pager) get(i int64) ([]byte, int64, error) {
	n := i / p.page
	if i >= p.count || p.there[n/8]&(0x80>>(n%8)) == 0 {
		return nil, 0, nil
	}
	if p.have != n+1 {
		count := min(p.page, p.count-n*p.page)
		at := p.at + n*(p.page*p.entry+4)
		size := count * p.entry
		b, err := p.f.read(at, size+4, "page of an index of chunks")
		if err != nil {
			return nil, 0, err
		}
		d := p.f.decode(b[size:])
		if got, want := checksum(b[:size]), d.u32(); got != want {
			return nil, 0, p.f.damaged(at, "the checksum of a page of an index of chunks is %08x, expected %08x", got, want)
		}
		p.b, p.have = b[:size], n+1
	}
	return p.b, i % p.page, nil
}

// paged adds the chunks of a paged index.
func (l *lister) paged(e *elems, p *pager) error {
	var bad error
	err := l.arrayOrder(func(i int64) (int64, uint64, uint32) {
		b, k, err := p.get(i)
		if err != nil || b == nil {
			if bad == nil {
				bad = err
			}
			return undefined, 0, 0
		}
		return e.at(b, k)
	})
	if bad != nil {
		return bad
	}
	return err
}

// extArray is an extensible array. Its first elements are in its index block. Later ones are in data blocks of
// growing size, which the index block (for the first groups) or secondary blocks point to.
type extArray struct {
	l         *lister
	e         *elems
	f         *File
	addr      int64
	inIndex   int64 // elements in the index block
	first     int64 // elements of the first data blocks
	pageBits  int
	offBytes  int
	direct    int // groups of blocks that the index block points to
	index     []byte
	blocks    []int64 // addresses in the index block
	groups    []int64
	lastGroup int64
	group     *decoder // last secondary block that was read
	lastBlock int64
	block     []byte
	pages     *pager
}

func (l *lister) extensible() error {
	f, addr := l.f, l.d.index.addr
	d, err := f.checked(addr, int64(12+6*f.lengths+f.offsets+4), "EAHD", "index of chunks")
	if err != nil {
		return err
	}
	d.skip(1)
	client, size := d.u8(), d.u8()
	e, err := l.elems(client, size)
	if err != nil {
		return err
	}
	x := &extArray{l: l, e: e, f: f, addr: addr, lastGroup: -1, lastBlock: -1}
	maxBits := d.u8()
	x.inIndex = int64(d.u8())
	x.first = int64(d.u8())
	pointers := d.u8()
	x.pageBits = d.u8()
	d.skip(6 * f.lengths)
	at := d.offset()
	power := func(n int64) bool { return n > 0 && n&(n-1) == 0 }
	if d.bad || maxBits < 1 || maxBits > 64 || !power(x.first) || !power(int64(pointers)) || pointers < 2 || x.pageBits > 30 {
		return f.damaged(addr, "an index of chunks that grows by blocks of %d, %d of them, pages of 2^%d", x.first, pointers, x.pageBits)
	}
	if at == undefined {
		return nil
	}
	x.offBytes = (maxBits + 7) / 8
	x.direct = 2 * (bits.Len(uint(pointers)) - 1)
	all := 1 + maxBits - (bits.Len64(uint64(x.first)) - 1)
	if all < x.direct {
		return f.damaged(addr, "an index of chunks for 2^%d with %d blocks", maxBits, pointers)
	}
	nblocks, ngroups := 2*(pointers-1), all-x.direct
	head := int64(6 + f.offsets)
	b, err := f.checked(at, head+x.inIndex*int64(size)+int64((nblocks+ngroups)*f.offsets)+4, "EAIB", "index of chunks")
	if err != nil {
		return err
	}
	b.at = int(head)
	x.index = b.bytes(int(x.inIndex) * size)
	for range nblocks {
		x.blocks = append(x.blocks, b.offset())
	}
	for range ngroups {
		x.groups = append(x.groups, b.offset())
	}
	var bad error
	err = l.arrayOrder(func(i int64) (int64, uint64, uint32) {
		if bad != nil {
			return undefined, 0, 0
		}
		b, k, err := x.find(i)
		if err != nil {
			bad = err
		}
		if b == nil {
			return undefined, 0, 0
		}
		return e.at(b, k)
	})
	if bad != nil {
		return bad
	}
	return err
}

// find returns the bytes that contain element i, and its number in them.
func (x *extArray) find(i int64) ([]byte, int64, error) {
	if i < x.inIndex {
		return x.index, i, nil
	}
	i -= x.inIndex
	// Group g has 2^(g/2) blocks of first * 2^((g+1)/2) entries.
	begin, before := int64(0), int64(0)
	for g := 0; g < x.direct+len(x.groups); g++ {
		count, n := int64(1)<<(g/2), x.first<<((g+1)/2)
		if i-begin >= count*n {
			begin, before = begin+count*n, before+count
			continue
		}
		block := (i - begin) / n
		k := (i - begin) % n
		start := begin + block*n
		if g < x.direct {
			if before+block >= int64(len(x.blocks)) {
				return nil, 0, x.f.damaged(x.addr, "an index of chunks has no block %d", before+block)
			}
			// The HDF5 library computes the start as if all blocks before had this size.
			return x.entry(x.blocks[before+block], begin+(before+block)*n, n, k, nil)
		}
		addr, there, err := x.secondary(g, begin, count, n, block)
		if err != nil {
			return nil, 0, err
		}
		return x.entry(addr, start, n, k, there)
	}
	return nil, 0, nil
}

// secondary returns the address of a data block from a secondary block, and the bitmap of its written pages.
func (x *extArray) secondary(g int, begin, count, n, block int64) (int64, []byte, error) {
	f, addr := x.f, x.groups[g-x.direct]
	if addr == undefined {
		return undefined, nil, nil
	}
	head := int64(6 + f.offsets + x.offBytes)
	bitmap := int64(0)
	if page := int64(1) << x.pageBits; n > page {
		bitmap = (n/page + 7) / 8
	}
	if x.lastGroup != int64(g) {
		d, err := f.checked(addr, head+count*(bitmap+int64(f.offsets))+4, "EASB", "index of chunks")
		if err != nil {
			return 0, nil, err
		}
		d.skip(2 + f.offsets)
		if got := d.number(x.offBytes); got != uint64(begin) {
			return 0, nil, f.damaged(addr, "a part of an index starts at chunk %d, expected %d", got, begin)
		}
		x.group, x.lastGroup = d, int64(g)
	}
	d := *x.group
	d.at = int(head)
	maps := d.bytes(int(count * bitmap))
	d.skip(int(block) * f.offsets)
	to := d.offset()
	if d.bad {
		return 0, nil, f.damaged(addr, "a part of an index of chunks is cut off")
	}
	if bitmap == 0 {
		return to, nil, nil
	}
	return to, maps[block*bitmap : (block+1)*bitmap], nil
}

// entry returns the bytes that contain element k of a block of n elements, and its number in them.
func (x *extArray) entry(addr, start, n, k int64, there []byte) ([]byte, int64, error) {
	if addr == undefined {
		return nil, 0, nil
	}
	f := x.f
	if x.lastBlock != addr {
		head := int64(6 + f.offsets + x.offBytes)
		size := head + 4
		paged := n > int64(1)<<x.pageBits
		if !paged {
			size += n * int64(x.e.size)
		} else if there == nil {
			return nil, 0, f.damaged(x.addr, "an index of chunks has unexpected pages")
		}
		d, err := f.checked(addr, size, "EADB", "index of chunks")
		if err != nil {
			return nil, 0, err
		}
		d.skip(2 + f.offsets)
		if got := d.number(x.offBytes); got != uint64(start) {
			return nil, 0, f.damaged(addr, "a part of an index starts at chunk %d, expected %d", got, start)
		}
		x.block, x.pages, x.lastBlock = d.b[head:], nil, addr
		if paged {
			x.pages = &pager{f: f, at: addr + size, page: 1 << x.pageBits, entry: int64(x.e.size), count: n, there: there}
		}
	}
	if x.pages != nil {
		return x.pages.get(k)
	}
	return x.block, k, nil
}
