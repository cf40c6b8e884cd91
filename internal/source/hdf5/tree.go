package hdf5

// oldTree is a B-tree of version 1.
type oldTree struct {
	f    *File
	kind int // 0 for names, 1 for chunks
	key  int // size of a key
}

// walk calls leaf for each child of the leaves, with the key before it.
func (t *oldTree) walk(root int64, leaf func(key []byte, child int64) error) error {
	if root == undefined {
		return nil
	}
	seen := map[int64]bool{}
	return t.node(root, -1, seen, leaf)
}

func (t *oldTree) node(addr int64, level int, seen map[int64]bool, leaf func(key []byte, child int64) error) error {
	f := t.f
	if seen[addr] {
		return f.damaged(addr, "a node of an index is listed twice")
	}
	seen[addr] = true
	d, err := f.signed(addr, int64(8+2*f.offsets), "TREE", "node of an index")
	if err != nil {
		return err
	}
	kind, at, n := d.u8(), d.u8(), d.u16()
	if kind != t.kind || level >= 0 && at != level {
		return f.damaged(addr, "a node of an index of type %d and level %d", kind, at)
	}
	b, err := f.read(addr+int64(8+2*f.offsets), int64(n*(t.key+f.offsets)), "node of an index")
	if err != nil {
		return err
	}
	d = f.decode(b)
	for range n {
		key := d.bytes(t.key)
		child := d.offset()
		if at == 0 {
			err = leaf(key, child)
		} else {
			err = t.node(child, at-1, seen, leaf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newTree reads a B-tree of version 2 and calls record for each of its records, in order.
func (f *File) newTree(addr int64, kind int, record func(rec []byte, size int) error) error {
	d, err := f.checked(addr, int64(4+1+1+4+2+2+1+1+f.offsets+2+f.lengths+4), "BTHD", "index")
	if err != nil {
		return err
	}
	d.skip(1)
	t := &newTree{f: f, kind: d.u8(), seen: map[int64]bool{}, record: record}
	t.node, t.size = int64(d.u32()), int64(d.u16())
	depth := d.u16()
	d.skip(2)
	root := d.offset()
	n := d.u16()
	if d.bad || t.kind != kind || t.node < 16 || t.node > maxBlock || t.size < 1 || t.size > t.node-10 || depth > 32 {
		return f.damaged(addr, "an index of type %d, nodes of %d bytes, records of %d and depth %d", t.kind, t.node, t.size, depth)
	}
	if root == undefined || n == 0 {
		return nil
	}
	// For each level: the maximum number of records of a node, and the size of the number of all records below a
	// node.
	most := uint64((t.node - 10) / t.size)
	all := most
	t.count = bytesFor(most)
	t.below = []int{0}
	for range depth {
		ptr := uint64(f.offsets + t.count + t.below[len(t.below)-1])
		if uint64(t.node-10) < uint64(t.size)+2*ptr {
			return f.damaged(addr, "an index of nodes of %d bytes and depth %d", t.node, depth)
		}
		most = (uint64(t.node-10) - ptr) / (uint64(t.size) + ptr)
		if all > 1<<40 {
			all = 1 << 40 // no file has so many
		}
		all = (most+1)*all + most
		t.below = append(t.below, bytesFor(all))
	}
	return t.visit(root, depth, n)
}

type newTree struct {
	f          *File
	kind       int
	node, size int64
	count      int   // bytes of the number of records in a node
	below      []int // by level, bytes of the number of all records in and below it
	seen       map[int64]bool
	record     func(rec []byte, size int) error
}

func (t *newTree) visit(addr int64, level, n int) error {
	f := t.f
	if t.seen[addr] {
		return f.damaged(addr, "a node of an index is listed twice")
	}
	t.seen[addr] = true
	// The checksum follows the used part of a node.
	size := 6 + int64(n)*t.size
	name := "BTLF"
	if level > 0 {
		name = "BTIN"
		ptr := int64(f.offsets + t.count)
		if level > 1 {
			ptr += int64(t.below[level-1])
		}
		size += int64(n+1) * ptr
	}
	if size+4 > t.node {
		return f.damaged(addr, "%d records of %d bytes in a node of %d", n, t.size, t.node)
	}
	d, err := f.checked(addr, size+4, name, "node of an index")
	if err != nil {
		return err
	}
	d.skip(1)
	if kind := d.u8(); kind != t.kind {
		return f.damaged(addr, "a node of type %d in an index of type %d", kind, t.kind)
	}
	recs := d.bytes(n * int(t.size))
	for i := 0; i <= n; i++ {
		if level > 0 {
			child, count := d.offset(), int(min(d.number(t.count), 1<<30))
			if level > 1 {
				d.skip(t.below[level-1])
			}
			if d.bad {
				return f.damaged(addr, "a node of an index is cut off")
			}
			if err := t.visit(child, level-1, count); err != nil {
				return err
			}
		}
		if i < n {
			if err := t.record(recs[i*int(t.size):(i+1)*int(t.size)], int(t.size)); err != nil {
				return err
			}
		}
	}
	return nil
}
