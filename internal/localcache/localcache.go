// Package localcache caches remote data on a disk of this machine. It decides which data is remote, cuts it into chunks and
// opens their cache (internal/store/disk over internal/cache). The pipeline and stoker cache warm use it.
package localcache

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/peer"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// maxObjects is the largest number of objects that are cut into pieces one by one, or checked for other versions.
const maxObjects = 1 << 22

// Local returns the path of a store of local files, "" for other stores.
func Local(s store.Store) string {
	if id, ok := store.As[store.Identifier](s); ok {
		if name, _ := id.Identity(); filepath.IsAbs(name) {
			return name
		}
	}
	return ""
}

// Far reports whether a store is remote: a bucket, a web server, or a network file system.
func Remote(s store.Store) bool {
	path := Local(s)
	if path == "" {
		return true
	}
	m, ok := proc.Live.MountOf(path)
	return ok && proc.RemoteFiles(m.Type) != ""
}

// Of reports whether the data of a source is remote.
func Of(src driver.Source) bool {
	return src.Info().Objects > 0 && Remote(src.Object(0).Store)
}

// Mounted reports whether the files of a source are on a mount of a server, or of another
// program (FUSE).
func Mounted(src driver.Source) bool {
	n := src.Info().Objects
	if n == 0 {
		return false
	}
	o := src.Object(n - 1) // the first ones may be of a cache
	path := Local(o.Store)
	if path == "" {
		return false
	}
	m, ok := proc.Live.MountOf(filepath.Join(path, o.Entry.Name))
	return ok && (proc.RemoteFiles(m.Type) != "" || m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse."))
}

// Chunks returns the best pieces of a source's objects, nil if the source has no chunks.
func Chunks(src driver.Source) (list []disk.Piece) {
	starts, own := driver.ChunksOf(src)
	for c := range len(starts) - 1 {
		e := own.Chunk(c)
		ob := src.Object(e.Object)
		list = append(list, disk.Piece{Path: ob.Store.Path(ob.Entry.Name), Off: e.Offset, Size: e.Size})
	}
	return list
}

// Pieces are the chunks of a source, or parts of its objects of the same size.
func Pieces(src driver.Source) []disk.Piece {
	if list := Chunks(src); list != nil {
		return list
	}
	var list []disk.Piece
	for n := range min(src.Info().Objects, maxObjects) {
		ob := src.Object(n)
		path := ob.Store.Path(ob.Entry.Name)
		for off := int64(0); off < ob.Entry.Size; off += disk.PieceBytes {
			list = append(list, disk.Piece{Path: path, Off: off, Size: min(disk.PieceBytes, ob.Entry.Size-off)})
		}
	}
	return list
}

// Options configure the cache.
type Options struct {
	// Dir is the folder and Limit its size limit in bytes, as for cache.At.
	Dir   string
	Limit int64
	// Memory reports whether a piece is cached in memory. Such pieces are not cached on the disk if there is not enough
	// space for all. Memory is nil if no pieces are cached in memory.
	Memory func(disk.Piece) bool
	// Peers are the nodes that cache a part each, nil for this node alone. Below decorates the stores for reads that
	// other nodes request.
	Peers *peer.Options
	Below func(store.Store) store.Store
	// Buffers is the number of chunks that may be read concurrently when only parts of them are needed. Each chunk has
	// at most Largest bytes.
	Buffers int
	Largest int64
	// Say is called once when nothing can be cached any more.
	Say func(string)
}

// Cache is the disk cache for the data of a source.
type Cache struct {
	*disk.Disk
	Chunks *cache.Chunks
	// Whole reports that the cache has space for all of the data.
	Whole bool
	src   driver.Source
	cut   *disk.Cut
	peers *served // nil without other nodes
	pages bool    // PagesVariable allows cached bytes in the system's cache
	lends atomic.Bool
}

// PagesVariable is the environment variable that controls whether records may be used directly from the system's cache:
// "auto" if there is ample memory for it, or "off".
const PagesVariable = "STOKER_CACHE_PAGES"

// lendShare is the factor by which the free memory must exceed the data, because other programs also need memory.
const lendShare = 2

// Largest returns the size of the largest piece of a source that can be cached.
func Largest(src driver.Source) int64 {
	most := int64(disk.PieceBytes)
	for _, c := range Chunks(src) {
		most = max(most, min(c.Size, disk.MaxPiece))
	}
	return most
}

// Open opens the cache of a source with remote data. Chunks of objects whose version has changed are removed.
func Open(src driver.Source, opt Options) (*Cache, error) {
	pages := true
	switch v := os.Getenv(PagesVariable); v {
	case "", "auto":
	case "off":
		pages = false
	default:
		return nil, fmt.Errorf("%s is %q in the environment, must be auto or off", PagesVariable, v)
	}
	dir, err := cache.At(opt.Dir, opt.Limit)
	if err != nil {
		return nil, err
	}
	origin := originOf(src.Object(0).Store)
	chunks, err := cache.OpenChunks(dir, origin, func(why string) { opt.Say("nothing more is cached: " + why) })
	if err != nil {
		return nil, err
	}
	limit, _ := dir.Limit()
	not, whole := opt.Memory, limit > total(src)
	if whole {
		not = nil // they are there for the next job, too
	}
	c := &Cache{Chunks: chunks, Whole: whole, pages: pages, src: src, cut: disk.NewCut(Chunks(src), false, nil)}
	var peers disk.Peers // without any it is nil
	if opt.Peers != nil {
		c.peers = &served{}
		if c.peers.Peers, err = peer.New(*opt.Peers); err != nil {
			_ = chunks.Close()
			return nil, err
		}
		peers = c.peers
	}
	if c.Disk, err = disk.New(disk.Options{
		Peers: peers,
		Shelf: chunks, Cut: c.cut, Remote: Remote, Not: not, Buffers: opt.Buffers, Largest: opt.Largest,
	}); err == nil {
		if err = c.forget(); err != nil {
			c.Disk.Close()
		}
	}
	if err == nil && c.peers != nil {
		if err = c.serve(opt.Peers, opt.Below); err != nil {
			c.Disk.Close()
		}
	}
	if err != nil {
		_ = chunks.Close()
		return nil, fmt.Errorf("opening the cache of %s: %w", origin, err)
	}
	return c, nil
}

// Lend switches later reads to the system's cache and uses the records there. It does so only if all data is on the
// disk and there is ample free memory. The parameter inMemory is the number of bytes that are cached in memory already,
// so that nothing is stored twice. Further calls have no effect.
func (c *Cache) Lend(inMemory int64) {
	if c.lends.Load() || !c.Whole || !c.pages {
		return
	}
	free, err := proc.Live.FreeMemory()
	if rest := total(c.src) - inMemory; err == nil && rest > 0 && rest <= free/lendShare {
		c.lends.Store(true)
		c.Chunks.StartLending()
	}
}

// originOf returns the name of a store's data in the cache.
func originOf(s store.Store) string {
	if id, ok := store.As[store.Identifier](s); ok {
		name, _ := id.Identity()
		return name
	}
	return s.String()
}

// total returns about the size of a whole source in the cache.
func total(src driver.Source) (n int64) {
	for i := range src.Info().Objects {
		n += src.Object(i).Entry.Size
	}
	return n + n/100
}

// forget removes chunks of other versions.
func (c *Cache) forget() error {
	if !c.Chunks.Any() {
		return nil
	}
	now := map[uint64][16]byte{}
	for n := range min(c.src.Info().Objects, maxObjects) {
		ob := c.src.Object(n)
		k := disk.KeyOf(ob.Store.Path(ob.Entry.Name), ob.Entry.Version, 0, 0)
		now[k.Object] = k.Version
	}
	return c.Chunks.Forget(now)
}

// Keys calls f for all chunks of the source's data, with the bytes of each.
func (c *Cache) Keys(f func(object int64, off, size int64, k disk.Key) error) error {
	for n := range c.src.Info().Objects {
		ob := c.src.Object(n)
		if !Remote(ob.Store) {
			continue
		}
		for _, k := range c.cut.Keys(ob.Store.Path(ob.Entry.Name), ob.Entry.Version, ob.Entry.Size) {
			if err := f(n, k.Off, k.Size, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// Uses returns when chunks of the source are first needed in an epoch and in the next one. first returns that for a
// chunk, with -1 for never. The result is nil if a chunk is larger than a piece of the cache.
func (c *Cache) Uses(first func(chunk int) (now, next int64)) (uses []cache.Use) {
	starts, own := driver.ChunksOf(c.src)
	for n := range len(starts) - 1 {
		e := own.Chunk(n)
		if e.Size > disk.MaxPiece {
			return nil
		}
		ob := c.src.Object(e.Object)
		u := cache.Use{Key: disk.KeyOf(ob.Store.Path(ob.Entry.Name), ob.Entry.Version, e.Offset, e.Size)}
		u.Now, u.Next = first(n)
		if u.Now >= 0 || u.Next >= 0 {
			uses = append(uses, u)
		}
	}
	return uses
}

// Stats are the statistics of the cache.
type Stats struct {
	disk.Stats
	cache.ChunkStats
	// Peers has the statistics of the exchange with other nodes.
	Peers *peer.Stats `json:"peers,omitempty"`
	// Note is the reason why nothing more is cached, or empty.
	Note string `json:"note,omitempty"`
}

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	s := Stats{Stats: c.Disk.Stats(), ChunkStats: c.Chunks.Stats()}
	if c.peers != nil {
		s.Peers = c.peers.stats()
	}
	return s
}

// Close closes the cache after all reads through it have ended.
func (c *Cache) Close() error {
	var err error
	if c.peers != nil {
		err = c.peers.close()
	}
	c.Disk.Close()
	if cerr := c.Chunks.Close(); err == nil {
		err = cerr
	}
	return err
}
