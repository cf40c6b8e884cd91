// Package disk holds a part of what a store has on a disk of this machine: what is read
// of a store far away is kept in chunks, and read from the disk from then on, in this
// process and in all others that share the disk.
//
// A chunk is kept when the first part of it is read, as a whole, as long as there is
// room. What the disk does is a Shelf's business; what belongs to a chunk, who reads it
// from the store, and what is said of it, is this package's.
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

// Piece is a range of an object that is kept as a whole, or not.
type Piece = pieces.Piece

const (
	// PieceBytes is how large the pieces are of objects of which nobody says where they
	// are best cut.
	PieceBytes = 8 << 20
	// MaxPiece is the largest piece that there is: a larger one is cut.
	MaxPiece = 16 << 20
)

// Key is what a chunk is known by: bytes of one version of an object.
type Key struct {
	// Object is a hash of the object's path, Version one of path and version.
	Object  uint64
	Version [16]byte
	// Off and Size are the bytes.
	Off, Size int64
}

// KeyOf makes the key of a chunk of an object.
func KeyOf(path, version string, off, size int64) Key {
	b := append(append([]byte(path), 0), version...)
	return Key{Object: xxh3.HashString(path), Version: xxh3.Hash128(b).Bytes(), Off: off, Size: size}
}

// String is the name of a chunk.
func (k Key) String() string {
	return fmt.Sprintf("%016x-%x-%x-%x", k.Object, k.Version[:], k.Off, k.Size)
}

// MaxChunk is the largest chunk that has a name.
const MaxChunk = 1 << 28

// ParseKey is the chunk that has a name.
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

// Hash of a key.
func (k Key) Hash() uint64 {
	h := binary.LittleEndian.Uint64(k.Version[:])
	return pieces.Mix(h ^ pieces.Mix(uint64(k.Off)))
}

// Shelf is where chunks are kept. Its methods may be called from any goroutine.
type Shelf interface {
	// Read fills p from an offset of a chunk. It says false where that is not there, or
	// is not what was kept: it is then gone.
	Read(k Key, p []byte, off int64) bool
	// Begin says that somebody is about to read a chunk of the store to keep it. There
	// are three answers: a Fill, that it is there by now, and neither, since there is no
	// room. It waits while somebody else, in this process or another, is at it. What is
	// for messages.
	Begin(ctx context.Context, k Key, what string) (f Fill, there bool, err error)
}

// Lender is a Shelf that has chunks in memory, too.
type Lender interface {
	// Lend returns n bytes from an offset of a chunk, as store.Lender does, until the Shelf
	// is closed.
	Lend(k Key, off, n, tail int64, now time.Time) []byte
}

// Fill is a chunk that somebody has said to keep. One of its methods is called, once.
type Fill interface {
	// Keep keeps the chunk, whose bytes these are, where that can be.
	Keep(b []byte)
	// Drop gives it up.
	Drop()
}

// Peers are other nodes that keep a part each. Its methods may be called from any
// goroutine.
type Peers interface {
	// Mine says whether this node keeps a chunk, by its hash.
	Mine(hash uint64) bool
	// Read fills p from an offset of a chunk, from the node that keeps it, or says false.
	Read(ctx context.Context, name string, hash uint64, p []byte, off int64) bool
}

// Options say what is kept, and where.
type Options struct {
	Shelf Shelf
	// Cut says into which pieces objects are cut, nil for every PieceBytes.
	Cut *Cut
	// Far says which stores are worth it, nil for all.
	Far func(store.Store) bool
	// Not says which pieces are not to be kept, though what is there of them is used;
	// nil for none.
	Not func(Piece) bool
	// Peers are the nodes that keep a part each, nil where this one keeps all.
	Peers Peers
	// Buffers is how many chunks may be read at once of which only a part was asked for,
	// and Largest the largest of them. They take Buffers x Largest bytes.
	Buffers int
	Largest int64
}

// Disk is what is kept of some stores. Its methods may be called from any goroutine,
// except Close, which is called when nobody reads any more.
type Disk struct {
	opt   Options
	lend  Lender // nil for none
	block *arena.Block
	free  chan []byte

	hits, hitBytes, missBytes atomic.Int64
}

// New makes the cache. The memory of its buffers is taken as they are used.
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

// Stats are what was kept and what that has saved.
type Stats struct {
	// Hits are reads of which a part at least came from the disk, HitBytes those bytes;
	// MissBytes were read of the store.
	Hits      int64 `json:"hits"`
	HitBytes  int64 `json:"hit_bytes"`
	MissBytes int64 `json:"miss_bytes"`
}

// Stats returns the counters.
func (d *Disk) Stats() Stats {
	return Stats{Hits: d.hits.Load(), HitBytes: d.hitBytes.Load(), MissBytes: d.missBytes.Load()}
}

// Close gives the memory back.
func (d *Disk) Close() { d.block.Free() }

// Store is s with what is kept in front of it.
func (d *Disk) Store(s store.Store) store.Store {
	if d.opt.Far != nil && !d.opt.Far(s) {
		return s
	}
	return &cached{s, d, false}
}

// Alone is Store without other nodes: what they read is read through it.
func (d *Disk) Alone(s store.Store) store.Store {
	if d.opt.Far != nil && !d.opt.Far(s) {
		return s
	}
	return &cached{s, d, true}
}

type cached struct {
	store.Store
	d     *Disk
	alone bool
}

// Unwrap finds the abilities of the store below.
func (s *cached) Unwrap() store.Store { return s.Store }

// Open opens an object.
func (s *cached) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.around(name, o), nil
}

// OpenEntry opens an object that was described, without asking the store where it need
// not be asked.
func (s *cached) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	o, err := store.OpenEntry(ctx, s.Store, e)
	if err != nil {
		return nil, err
	}
	return s.around(e.Name, o), nil
}

func (s *cached) around(name string, o store.Object) store.Object {
	if o.Version() == "" { // nobody could tell whether it is the same object
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

// Cut says into which pieces objects are cut: into given ones, or, those of which none
// are given, every PieceBytes.
type Cut struct{ objects map[string][]Piece }

// NewCut makes a Cut of pieces, in any order. They must not overlap. Pieces that are too
// large are cut, and with whole what lies between them is pieces, too; size says how
// large an object is.
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

// Keys are those of all pieces of an object.
func (c *Cut) Keys(path, version string, size int64) []Key {
	o := &object{path: path, key: KeyOf(path, version, 0, 0), size: size, pieces: c.of(path)}
	keys := make([]Key, o.count())
	for i := range keys {
		keys[i] = o.keyOf(i)
	}
	return keys
}

// object is an open object.
type object struct {
	d      *Disk
	alone  bool
	path   string
	key    Key // without a place
	size   int64
	pieces []Piece // nil: a grid of PieceBytes
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

// read takes what is kept from there, and reads the rest.
func (o *object) read(ctx context.Context, next store.Next, p []byte, off int64) error {
	if off < 0 || off > o.size || int64(len(p)) > o.size-off || ctx.Err() != nil {
		return next.Read(ctx, p, off) // which says what is wrong
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

// past reads what is not kept.
func (o *object) past(ctx context.Context, next store.Next, p []byte, off int64) error {
	err := next.Read(ctx, p, off)
	if err == nil {
		o.d.missBytes.Add(int64(len(p)))
	}
	return err
}

// part reads a part of piece i, and says whether it came from the disk.
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
		if !peers.Mine(k.Hash()) { // it has no room, or too much to do
			return false, o.past(ctx, next, p, off)
		}
	}
	for range 3 { // it may be damaged as soon as it is there
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

// fill reads a piece of the store to keep it, and gives the part that was asked for.
func (o *object) fill(ctx context.Context, next store.Next, fill Fill, at, size int64, p []byte, off int64) error {
	kept := false
	defer func() { // also when the store panics
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
