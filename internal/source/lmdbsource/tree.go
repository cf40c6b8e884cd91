package lmdbsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/store"
)

// LMDB's format on 64-bit machines. A file has pages of one size. A page begins with its number (8 bytes), 2 unused
// bytes, its flags (2), and the start and end of its free space (2 each). A chain of overflow pages for one large
// value has the number of pages (4) instead.
//
// Pages 0 and 1 are meta pages. The one with the later transaction is valid. A branch or a leaf has the offsets of
// its nodes, 2 bytes each, in the order of their keys. A node has the size of its data and flags (or in a branch
// the number of a child page), 6 bytes together, then the size of its key (2), and the key. In a leaf the data
// follows, or the number of its first overflow page.
const (
	headerBytes = 16
	nodeBytes   = 8
	metaBytes   = 136 // after the page header
	dbBytes     = 48

	magic   = 0xBEEFC0DE
	version = 1
	noPage  = math.MaxUint64

	isBranch   = 1
	isLeaf     = 2
	isOverflow = 4
	isMeta     = 8
	kinds      = isBranch | isLeaf | isOverflow | isMeta | 0x20 | 0x40

	bigData = 1
	subData = 2
	dupData = 4

	dupSort = 4

	minPage, maxPage = 512, 64 << 10
	maxDepth         = 32
)

// database is a B-tree in the file.
type database struct {
	flags, depth          uint16
	branch, leaf, entries uint64
	root                  uint64
}

func parseDatabase(b []byte) database {
	le := binary.LittleEndian
	return database{
		flags: le.Uint16(b[4:]), depth: le.Uint16(b[6:]), branch: le.Uint64(b[8:]), leaf: le.Uint64(b[16:]), entries: le.Uint64(b[32:]), root: le.Uint64(b[40:]),
	}
}

// file is an open file.
type file struct {
	o     store.Object
	path  string
	page  int64
	pages uint64
	main  database
}

// damaged returns an error about a page.
func (f *file) damaged(page uint64, format string, a ...any) error {
	return fmt.Errorf("%s, page %d (byte %d): %s: it is damaged, or is being written", f.path, page, int64(page)*f.page, fmt.Sprintf(format, a...))
}

// meta is the content of a meta page.
type meta struct {
	page, last, txn uint64
	main            database
}

func parseMeta(b []byte) (m meta, err error) {
	le := binary.LittleEndian
	b = b[headerBytes:]
	switch {
	case le.Uint32(b) != magic:
		return m, errors.New("not an LMDB database of a 64-bit little-endian machine")
	case le.Uint32(b[4:]) != version:
		return m, fmt.Errorf("unsupported version %d of LMDB's format (supported: %d)", le.Uint32(b[4:]), version)
	}
	m.page, m.main, m.last, m.txn = uint64(le.Uint32(b[24:])), parseDatabase(b[24+dbBytes:]), le.Uint64(b[120:]), le.Uint64(b[128:])
	if m.page < minPage || m.page > maxPage || m.page&(m.page-1) != 0 {
		return m, fmt.Errorf("invalid page size %d", m.page)
	}
	return m, nil
}

// IsFile reports whether an object begins like an LMDB database.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	b := filelist.Head(ctx, st, name, headerBytes+metaBytes)
	if len(b) < headerBytes+metaBytes {
		return false
	}
	_, err := parseMeta(b)
	return err == nil
}

// openFile reads the meta pages.
func openFile(ctx context.Context, o store.Object, path string) (*file, error) {
	f := &file{o: o, path: path}
	b := make([]byte, headerBytes+metaBytes)
	if o.Size() < int64(len(b)) {
		return nil, fmt.Errorf("%s: %d bytes are too few for an LMDB database: it is cut off, or is not a database", path, o.Size())
	}
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return nil, err
	}
	m, err := parseMeta(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.page = int64(m.page)
	if o.Size() >= f.page+int64(len(b)) {
		if err := o.ReadAt(ctx, b, f.page); err != nil {
			return nil, err
		}
		if other, err := parseMeta(b); err == nil && other.page == m.page && other.txn > m.txn {
			m = other
		}
	}
	f.pages, f.main = uint64(o.Size()/f.page), m.main
	if m.last >= f.pages {
		return nil, fmt.Errorf("%s: it has %d pages of %d bytes, but its meta page has %d: it is cut off", path, f.pages, f.page, m.last+1)
	}
	f.pages = m.last + 1
	return f, nil
}

// read reads a page into b and checks its number and kind.
func (f *file) read(ctx context.Context, n uint64, kind uint16, b []byte) error {
	if n < 2 || n >= f.pages {
		return f.damaged(min(n, f.pages), "a page of number %d of %d", n, f.pages)
	}
	if err := f.o.ReadAt(ctx, b, int64(n)*f.page); err != nil {
		return err
	}
	le := binary.LittleEndian
	switch {
	case le.Uint64(b) != n:
		return f.damaged(n, "its header has page number %d", le.Uint64(b))
	case le.Uint16(b[10:])&kinds != kind:
		return f.damaged(n, "it has the kind %#x, expected %#x", le.Uint16(b[10:])&kinds, kind)
	}
	return nil
}

// node is a node of a page.
type node struct {
	at    int // offset in the page
	key   []byte
	data  []byte // data in a leaf
	size  uint32 // size of the value
	flags uint16
	below uint64 // child page, in a branch
}

// nodes calls visit for the nodes of a page.
func (f *file) nodes(n uint64, b []byte, leaf bool, visit func(x node) error) error {
	le := binary.LittleEndian
	lower := int(le.Uint16(b[12:]))
	if lower < headerBytes || lower > len(b) || lower%2 != 0 {
		return f.damaged(n, "its free space begins at byte %d", lower)
	}
	for i := headerBytes; i < lower; i += 2 {
		at := int(le.Uint16(b[i:]))
		if at < lower || at+nodeBytes > len(b) {
			return f.damaged(n, "a node at byte %d", at)
		}
		x := node{at: at, flags: le.Uint16(b[at+4:])}
		x.size = uint32(le.Uint16(b[at:])) | uint32(le.Uint16(b[at+2:]))<<16
		key := at + nodeBytes
		end := key + int(le.Uint16(b[at+6:]))
		if end > len(b) {
			return f.damaged(n, "a key of %d bytes at byte %d", end-key, key)
		}
		x.key = b[key:end:end]
		if !leaf {
			x.below = uint64(x.size) | uint64(x.flags)<<32
		} else {
			inline := int64(x.size)
			if x.flags&bigData != 0 {
				inline = 8
			}
			if inline > int64(len(b)-end) {
				return f.damaged(n, "a value of %d bytes at byte %d", x.size, end)
			}
			x.data = b[end : end+int(inline) : end+int(inline)]
		}
		if err := visit(x); err != nil {
			return err
		}
	}
	return nil
}

// leaves lists the leaves of a tree in the order of their keys.
func (f *file) leaves(ctx context.Context, db *database) ([]uint64, error) {
	if db.root == noPage || db.entries == 0 {
		return nil, nil
	}
	if db.depth < 1 || db.depth > maxDepth || db.leaf > f.pages || db.branch > f.pages || db.leaf == 0 {
		return nil, f.damaged(0, "a tree of depth %d with %d leaves and %d branches", db.depth, db.leaf, db.branch)
	}
	level := []uint64{db.root}
	for range db.depth - 1 {
		below := make([][]uint64, len(level))
		err := f.parallel(ctx, len(level), func(ctx context.Context, i int, b []byte) error {
			if err := f.read(ctx, level[i], isBranch, b); err != nil {
				return err
			}
			return f.nodes(level[i], b, false, func(x node) error {
				below[i] = append(below[i], x.below)
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
		var next []uint64
		for _, p := range below {
			if next = append(next, p...); uint64(len(next)) > db.leaf+db.branch {
				return nil, f.damaged(level[0], "a level of more than the %d pages of its tree", db.leaf+db.branch)
			}
		}
		level = next
	}
	if uint64(len(level)) != db.leaf {
		return nil, f.damaged(db.root, "a tree of %d leaves, but its meta page has %d", len(level), db.leaf)
	}
	return level, nil
}

// parallel calls do for the numbers below n, each with a page buffer.
func (f *file) parallel(ctx context.Context, n int, do func(ctx context.Context, i int, b []byte) error) error {
	const block = 64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < n; from += block {
		g.Go(func() error {
			b := make([]byte, f.page)
			for i := from; i < min(from+block, n); i++ {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := do(ctx, i, b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
