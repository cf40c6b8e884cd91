// Package disk caches parts of remote objects on a local disk. Data is kept in chunks, and this process and all
// others that share the disk read it from there.
//
// A chunk is stored whole, the first time a part of it is read, as long as there is space. A Shelf works with the
// disk. This package decides how objects are cut into chunks, which chunks are kept and who reads them from the
// store.
package disk

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/store/pieces"
	"github.com/stokerdata/stoker/store"
)

// Piece is a range of an object that is kept as a whole or not at all.
type Piece = pieces.Piece

const (
	// PieceBytes is the default size of pieces, for objects without given pieces.
	PieceBytes = 8 << 20
	// MaxPiece is the maximum size of a piece: larger ones are cut.
	MaxPiece = 16 << 20
)

// Key identifies a chunk: a range of bytes of one version of an object.
type Key struct {
	// Object is a hash of the object's path, Version a hash of path and version.
	Object  uint64
	Version [16]byte
	// Off and Size are the range of bytes.
	Off, Size int64
}

// KeyOf makes the key of a chunk of an object.
func KeyOf(path, version string, off, size int64) Key {
	b := append(append([]byte(path), 0), version...)
	return Key{Object: xxh3.HashString(path), Version: xxh3.Hash128(b).Bytes(), Off: off, Size: size}
}

// String returns the name of the chunk, see ParseKey.
func (k Key) String() string {
	return fmt.Sprintf("%016x-%x-%x-%x", k.Object, k.Version[:], k.Off, k.Size)
}

// MaxChunk is the maximum size of a chunk that ParseKey accepts.
const MaxChunk = 1 << 28

// ParseKey returns the key with this name.
func ParseKey(name string) (k Key, ok bool) {
	f := strings.Split(name, "-")
	if len(f) != 4 || len(f[0]) != 16 {
		return k, false
	}
	var err [3]error
	k.Object, err[0] = strconv.ParseUint(f[0], 16, 64)
	k.Off, err[1] = strconv.ParseInt(f[2], 16, 64)
	k.Size, err[2] = strconv.ParseInt(f[3], 16, 64)
	v, bad := hex.DecodeString(f[1])
	if err != [3]error{} || bad != nil || len(v) != len(k.Version) || k.Off < 0 || k.Size < 0 || k.Size > MaxChunk {
		return k, false
	}
	copy(k.Version[:], v)
	return k, k.String() == name
}

// Hash returns a hash of the key.
func (k Key) Hash() uint64 {
	h := binary.LittleEndian.Uint64(k.Version[:])
	return pieces.Mix(h ^ pieces.Mix(uint64(k.Off)))
}

// Shelf stores chunks. Its methods may be called from any goroutine.
type Shelf interface {
	// Read fills p from an offset of a chunk. It returns false if the chunk is missing or damaged. A damaged chunk
	// is removed.
	Read(k Key, p []byte, off int64) bool
	// Begin announces that the caller is about to read a chunk from the store to keep it. It returns a Fill, or
	// there = true if the chunk has been stored in the meantime, or neither if there is no space. It waits while
	// another caller, in this process or another, stores the same chunk. What names the object in messages.
	Begin(ctx context.Context, k Key, what string) (f Fill, there bool, err error)
	// Drop removes a chunk whose bytes are not those of the store, though they are those that were stored here.
	Drop(k Key)
}

// Lender is a Shelf that also has chunks in memory.
type Lender interface {
	// Lend returns n bytes from an offset of a chunk, like store.Lender, until the Shelf is closed.
	Lend(k Key, off, n, tail int64, now time.Time) []byte
}

// Fill is a chunk that Begin has reserved. Exactly one of its methods is called, once.
type Fill interface {
	// Keep stores the chunk with the bytes b, if possible.
	Keep(b []byte)
	// Drop gives up the reservation.
	Drop()
}

// Peers are the other nodes, each of which keeps a part of the chunks. Its methods may be called from any
// goroutine.
type Peers interface {
	// Mine reports whether this node keeps a chunk, by its hash.
	Mine(hash uint64) bool
	// Read fills p from an offset of a chunk, from the node that keeps it. It returns false if that fails.
	Read(ctx context.Context, name string, hash uint64, p []byte, off int64) bool
}

// Options are the settings of a Disk.
type Options struct {
	Shelf Shelf
	// Cut has the pieces of objects. With nil they are cut every PieceBytes.
	Cut *Cut
	// Far reports whether a store is worth caching. nil means that all are.
	Remote func(store.Store) bool
	// Not reports whether a piece must not be added. Pieces that are already on the disk are used nevertheless. It
	// may be nil.
	Not func(Piece) bool
	// Peers are the nodes that share the chunks. With nil this node keeps all of them.
	Peers Peers
	// Buffers is the number of chunks that can be read at the same time when only a part of them is needed, Largest
	// the maximum size of these chunks. They take Buffers x Largest bytes.
	Buffers int
	Largest int64
}

// Disk is the cache for some stores. Its methods may be called from any goroutine, except Close, which must come
// after the last read.
type Disk struct {
	opt   Options
	lend  Lender // nil for none
	block *arena.Block
	free  chan []byte

	hits, hitBytes, missBytes atomic.Int64
}

// New makes the cache. The memory of its buffers is only taken when they are used.
func New(opt Options) (*Disk, error) {
	opt.Buffers = max(opt.Buffers, 1)
	opt.Largest = min(max(opt.Largest, PieceBytes), MaxPiece)
	d := &Disk{opt: opt, free: make(chan []byte, opt.Buffers)}
	d.lend, _ = opt.Shelf.(Lender)
	n := int64(opt.Buffers) * opt.Largest
	d.block = arena.NewBlock(arena.NewBudget(n+2<<20), arena.PurposeRead)
	mem, err := d.block.Bytes(int(n))
	if err != nil {
		return nil, err
	}
	for range opt.Buffers {
		d.free <- mem[:opt.Largest:opt.Largest]
		mem = mem[opt.Largest:]
	}
	return d, nil
}

// Stats are the counters of the cache.
type Stats struct {
	// Hits is the number of reads with at least a part from the disk, HitBytes the bytes from the disk, MissBytes
	// the bytes from the store.
	Hits      int64 `json:"hits"`
	HitBytes  int64 `json:"hit_bytes"`
	MissBytes int64 `json:"miss_bytes"`
}

// Stats returns the counters.
func (d *Disk) Stats() Stats {
	return Stats{Hits: d.hits.Load(), HitBytes: d.hitBytes.Load(), MissBytes: d.missBytes.Load()}
}

// Close frees the memory.
func (d *Disk) Close() { d.block.Free() }

// Store returns s with the cache around it.
func (d *Disk) Store(s store.Store) store.Store {
	if d.opt.Remote != nil && !d.opt.Remote(s) {
		return s
	}
	return &cached{s, d, false}
}

// Alone is Store without peers. Reads for peers use it.
func (d *Disk) Alone(s store.Store) store.Store {
	if d.opt.Remote != nil && !d.opt.Remote(s) {
		return s
	}
	return &cached{s, d, true}
}

type cached struct {
	store.Store
	d     *Disk
	alone bool
}

// Unwrap returns the store inside.
func (s *cached) Unwrap() store.Store { return s.Store }

// Open opens an object whose reads use the cache.
func (s *cached) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.around(name, o), nil
}

// OpenEntry opens an object from its listing entry, without a request to the store if possible.
func (s *cached) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	o, err := store.OpenEntry(ctx, s.Store, e)
	if err != nil {
		return nil, err
	}
	return s.around(e.Name, o), nil
}

func (s *cached) around(name string, o store.Object) store.Object {
	if o.Version() == "" { // without a version a change cannot be noticed
		return o
	}
	path := s.Path(name)
	ob := &object{d: s.d, alone: s.alone, path: path, key: KeyOf(path, o.Version(), 0, 0), size: o.Size(), pieces: s.d.opt.Cut.of(path)}
	o = store.Intercept(o, true, ob.read)
	if s.d.lend != nil {
		o = store.Lending(o, ob)
	}
	return o
}

// Cut has the pieces of objects. Objects without given pieces are cut every PieceBytes.
type Cut struct{ objects map[string][]Piece }

// NewCut makes a Cut from pieces in any order, which must not overlap. Pieces above MaxPiece are cut. With whole,
// the gaps between pieces become pieces as well. Size returns the size of an object.
func NewCut(list []Piece, whole bool, size func(path string) int64) *Cut {
	c := &Cut{objects: pieces.ByObject(slices.Clone(list))}
	for path, of := range c.objects {
		var out []Piece
		add := func(from, to int64) {
			for to-from > MaxPiece {
				out = append(out, Piece{Path: path, Off: from, Size: PieceBytes})
				from += PieceBytes
			}
			if to > from {
				out = append(out, Piece{Path: path, Off: from, Size: to - from})
			}
		}
		end := int64(0)
		for _, p := range of {
			if whole {
				add(end, p.Off)
			}
			add(p.Off, p.Off+p.Size)
			end = p.Off + p.Size
		}
		if whole {
			add(end, size(path))
		}
		c.objects[path] = out
	}
	return c
}

func (c *Cut) of(path string) []Piece {
	if c == nil {
		return nil
	}
	return c.objects[path]
}

// Keys returns the keys of all pieces of an object.
func (c *Cut) Keys(path, version string, size int64) []Key {
	o := &object{path: path, key: KeyOf(path, version, 0, 0), size: size, pieces: c.of(path)}
	keys := make([]Key, o.count())
	for i := range keys {
		keys[i] = o.keyOf(i)
	}
	return keys
}

// Drop removes the pieces of an object that have any of n bytes from an offset on.
func (d *Disk) Drop(path, version string, size, off, n int64) {
	for _, k := range d.opt.Cut.Keys(path, version, size) {
		if k.Off < off+n && off < k.Off+k.Size {
			d.opt.Shelf.Drop(k)
		}
	}
}

// object is an open object.
type object struct {
	d      *Disk
	alone  bool
	path   string
	key    Key // without Off and Size
	size   int64
	pieces []Piece // nil: cut every PieceBytes
}

func (o *object) count() int {
	if o.pieces != nil {
		return len(o.pieces)
	}
	return int((o.size + PieceBytes - 1) / PieceBytes)
}

func (o *object) at(i int) (off, size int64) {
	if o.pieces != nil {
		return o.pieces[i].Off, max(min(o.pieces[i].Size, o.size-o.pieces[i].Off), 0)
	}
	off = int64(i) * PieceBytes
	return off, min(PieceBytes, o.size-off)
}

func (o *object) keyOf(i int) Key {
	k := o.key
	k.Off, k.Size = o.at(i)
	return k
}

// read takes cached pieces from the disk and reads the rest.
func (o *object) read(ctx context.Context, next store.Next, p []byte, off int64) error {
	if off < 0 || off > o.size || int64(len(p)) > o.size-off || ctx.Err() != nil {
		return next.Read(ctx, p, off) // returns the right error
	}
	hit, start := int64(0), off
	err := pieces.Cut(o.count(), o.at, off, int64(len(p)), func(i int, off, n int64) error {
		to := p[off-start : off-start+n]
		if i < 0 {
			return o.past(ctx, next, to, off)
		}
		had, err := o.part(ctx, next, i, to, off)
		if had {
			hit += n
		}
		return err
	})
	if hit > 0 {
		o.d.hits.Add(1)
		o.d.hitBytes.Add(hit)
	}
	return err
}

// Lend implements store.Lender.
func (o *object) Lend(off, n, tail int64, now time.Time) []byte {
	i := int(off / PieceBytes)
	if o.pieces != nil {
		i = sort.Search(len(o.pieces), func(i int) bool { return o.pieces[i].Off > off }) - 1
	}
	if off < 0 || i < 0 || i >= o.count() {
		return nil
	}
	k := o.keyOf(i)
	b := o.d.lend.Lend(k, off-k.Off, n, tail, now)
	if b != nil {
		o.d.hits.Add(1)
		o.d.hitBytes.Add(n)
	}
	return b
}

// past reads bytes that are not cached.
func (o *object) past(ctx context.Context, next store.Next, p []byte, off int64) error {
	err := next.Read(ctx, p, off)
	if err == nil {
		o.d.missBytes.Add(int64(len(p)))
	}
	return err
}

// part reads a part of piece i and reports whether it came from the disk.
func (o *object) part(ctx context.Context, next store.Next, i int, p []byte, off int64) (had bool, err error) {
	k := o.keyOf(i)
	at, size := k.Off, k.Size
	if o.d.opt.Shelf.Read(k, p, off-at) {
		return true, nil
	}
	if size > o.d.opt.Largest || o.d.opt.Not != nil && o.d.opt.Not(Piece{Path: o.path, Off: at, Size: size}) {
		return false, o.past(ctx, next, p, off)
	}
	if peers := o.d.opt.Peers; peers != nil && !o.alone && !peers.Mine(k.Hash()) {
		if peers.Read(ctx, k.String(), k.Hash(), p, off-at) {
			return false, nil
		}
		if !peers.Mine(k.Hash()) { // the peer has no space or is overloaded
			return false, o.past(ctx, next, p, off)
		}
	}
	for range 3 { // the chunk may be damaged right after it was stored
		fill, there, err := o.d.opt.Shelf.Begin(ctx, k, o.path)
		switch {
		case err != nil:
			return false, err
		case fill != nil:
			return false, o.fill(ctx, next, fill, at, size, p, off)
		case there && o.d.opt.Shelf.Read(k, p, off-at):
			return true, nil
		case !there:
			return false, o.past(ctx, next, p, off)
		}
	}
	return false, o.past(ctx, next, p, off)
}

// fill reads a piece from the store to keep it, and copies the wanted part to p.
func (o *object) fill(ctx context.Context, next store.Next, fill Fill, at, size int64, p []byte, off int64) error {
	kept := false
	defer func() { // also if the store panics
		if !kept {
			fill.Drop()
		}
	}()
	all := p
	if int64(len(p)) < size {
		select {
		case b := <-o.d.free:
			defer func() { o.d.free <- b }()
			all = b[:size]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := o.past(ctx, next, all, at); err != nil {
		return err
	}
	kept = true
	fill.Keep(all)
	if int64(len(p)) < size {
		copy(p, all[off-at:])
	}
	return nil
}
