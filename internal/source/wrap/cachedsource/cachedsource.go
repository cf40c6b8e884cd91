// Package cachedsource adds the record cache (package cache) to a source of images. The first read
// of a JPEG stores it in the cache as dct, which decodes several times faster to the same pixels.
// Later reads come from the cache, as from a pack.
//
// The cache works for sources whose images are one extent each, with the unmodified bytes of the
// image, for example folders of files, local or remote, and tables of paths. The key of an image
// identifies its file and the bytes in it, however the source names the file (key.go). The object
// numbers of the cache segments come before the numbers of the source's objects.
//
// A source lists its files once, and may be read for days. So a cached record of a local file is only
// used if the file is still the listed one, which costs a system call per record. Otherwise the record
// is read from the source, as without a cache.
package cachedsource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options set where and when records are cached.
type Options struct {
	// Dir is the cache folder and Limit its size in bytes. Both are passed to cache.At.
	Dir   string
	Limit int64
	// Files limits the cache to images in files of their own.
	Files bool
	// Allow reports whether the records of a group may be encoded for the cache now, which takes
	// about as long as decoding them. Nil means always.
	Allow func() bool
	// Wait makes Parse wait until the cache has written its records. By default Parse skips records
	// if the cache is slower. With Wait everything read once is in the cache.
	Wait bool
	// Spent is called with the number of encoded records and the time that encoding took.
	Spent func(records int, took time.Duration)
	// Say is called once with the reason if there is no cache or if caching stops. It may be nil.
	Say func(string)
	// Opened is called with the source that has the cache.
	Opened func(*Source)
}

// Source is a source with a cache.
type Source struct {
	driver.Mapped
	info  driver.Info
	sizer driver.Sizer
	field int
	dir   *cache.Dir
	set   *cache.Set
	opt   Options
	names *names
	of    sample
	only  []bool // wants the field
	// largest is the size of the largest value to cache.
	largest int64

	// at maps each record to its number in the set plus one, 0 if unknown, or to changed.
	at       []atomic.Int32
	objects  *recordread.Objects // of the source, to read records again that are damaged in the cache
	encoders chan *cdec.DCTEncoder
	whole    sync.Mutex // held while an image is encoded whose coefficients are all in memory

	hits, misses, failed atomic.Int64
}

// segments is the number of the first object of the source itself.
const segments = cache.MaxSegments

// changed marks the records of files that have changed since they were listed.
const changed = -1

// Open adds a cache to src. If that is not possible it passes the reason to Say and returns src,
// since the cache is only an optimisation.
func Open(src driver.Source, opt Options) driver.Source {
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	s, err := open(src, opt)
	if err != nil {
		opt.Say(fmt.Sprintf("there is no cache: %v", err))
		return src
	}
	if s == nil {
		return src
	}
	if opt.Opened != nil {
		opt.Opened(s)
	}
	return s
}

func open(src driver.Source, opt Options) (*Source, error) {
	s := &Source{info: *src.Info(), field: imageOf(src.Info()), opt: opt}
	s.Base = src
	if s.field < 0 || s.info.Len == 0 || s.info.Objects == 0 || s.info.Sequential {
		return nil, nil
	}
	if driver.EpochsOf(src) || driver.VariantsOf(src) > 1 {
		return nil, nil
	}
	// Cached records are no longer in the chunks of the source.
	s.Without = []any{(*driver.Chunker)(nil)}
	if s.sizer, _ = driver.As[driver.Sizer](src); s.sizer == nil {
		s.Without = append(s.Without, (*driver.Sizer)(nil))
	}
	s.look()
	if s.names.store(s.of.store) == "" || opt.Files && !s.of.files || s.of.remote() {
		return nil, nil
	}
	var err error
	if s.dir, err = cache.At(opt.Dir, opt.Limit); err != nil {
		return nil, err
	}
	if s.set, err = cache.Open(s.dir, s.of.origin, func(why string) { opt.Say("nothing more is cached: " + why) }); err != nil {
		return nil, err
	}
	s.at = make([]atomic.Int32, s.info.Len)
	s.objects = recordread.NewObjects(src, nil)
	s.info.Objects += segments
	// The cached bytes may be larger than the file. Read buffers have space for an eighth more than
	// the largest file.
	m := s.info.Fields[s.field].MaxBytes
	s.largest = m + m/8 + 512<<10
	s.encoders = make(chan *cdec.DCTEncoder, 64)
	return s, nil
}

// look finds out how the images of the source are named.
func (s *Source) look() {
	s.names, s.only = newNames(), make([]bool, len(s.info.Fields))
	s.only[s.field] = true
	s.of = s.names.look(s.Base, s.field)
}

// imageOf returns the first field of images, or -1.
func imageOf(info *driver.Info) int {
	return slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Kind == driver.KindImage })
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return &s.info }

// Data returns the store of the records that are not cached.
func (s *Source) Data() store.Store { return s.of.store }

// Object implements driver.Source.
func (s *Source) Object(n int64) driver.Object {
	if n >= segments {
		return s.Base.Object(n - segments)
	}
	dir, name := path.Split(s.set.SegmentPath(int(n)))
	return driver.Object{Store: files{dir}, Entry: store.Entry{Name: name}, Keep: true}
}

// Sizes implements driver.Sizer. It has no sizes for images, since a record may be read from the
// file or from the cache.
func (s *Source) Sizes(field int, ids, sizes []int64) bool {
	return field != s.field && s.sizer.Sizes(field, ids, sizes)
}

// Useful implements driver.Cacher. Records wait in memory until they are written, and encoding takes
// twice as much. The source gets the rest.
func (s *Source) Useful() int64 { return 3*cache.MaxWaiting + driver.Useful(s.Base) }

// Keep implements driver.Cacher.
func (s *Source) Keep(n int64) {
	own := min(n, 3*cache.MaxWaiting)
	s.set.SetWaiting(own / 3)
	driver.Keep(s.Base, n-own)
}

// Held implements driver.Holder.
func (s *Source) Held() int64 { return 3*s.set.Waiting() + driver.Held(s.Base) }

// maxPixels is the size limit of an image to encode.
const maxPixels = 64 << 20

// encode returns the dct encoding of a JPEG. Progressive JPEGs need all of their coefficients in
// memory, so only one is encoded at a time.
func (s *Source) encode(enc *cdec.DCTEncoder, jpeg []byte, info *imagefile.Info) ([]byte, error) {
	pixels := int64(info.Width) * int64(info.Height)
	if pixels > maxPixels {
		return nil, &cdec.NotDCT{Reason: cdec.NotDCTTooLarge}
	}
	dct, err := enc.EncodeRows(jpeg)
	// Three components of two bytes per pixel, plus the working memory of libjpeg.
	if not := (*cdec.NotDCT)(nil); errors.As(err, &not) && not.Reason == cdec.NotDCTIncomplete && 8*pixels < s.set.Waiting() {
		s.whole.Lock()
		defer s.whole.Unlock()
		return enc.Encode(jpeg)
	}
	return dct, err
}

// key returns the cache key of the image at an extent of the source, and its path or URL.
func (s *Source) key(e *driver.Extent) (cache.Key, string) {
	o := s.Base.Object(e.Object)
	return s.names.key(&o, e)
}

// find returns the number in the set of the image of a record, which is at extent e of the source, or -1.
func (s *Source) find(id int64, e *driver.Extent) int32 {
	if n := s.at[id].Load(); n == changed {
		return -1
	} else if n > 0 {
		if !s.set.Record(n - 1).Damaged() {
			return n - 1
		}
		s.at[id].Store(0)
	}
	k, _ := s.key(e)
	n := s.set.Find(&k)
	if n >= 0 {
		s.at[id].Store(n + 1)
	}
	return n
}

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) {
	s.Base.Locate(g)
	for k := range g.Missing {
		g.Missing[k].Object += segments
	}
	var images []driver.Extent
	if !s.of.alone {
		images = s.located(g)
	}
	for k, id := range g.IDs {
		for i := g.First[k]; i < g.First[k+1]; i++ {
			e := &g.Extents[i]
			image := s.of.alone && g.Wants(s.field) && g.First[k+1]-g.First[k] == 1 || images != nil && *e == images[k]
			if image && g.Records[k].Err == nil {
				if n := s.find(id, e); n >= 0 {
					if r := s.set.Record(n); r.Size > 0 {
						*e = driver.Extent{Object: int64(r.Segment), Offset: r.Offset, Size: r.Stored(), Field: -1}
						continue
					}
				}
			}
			e.Object += segments
		}
	}
}

// Learn implements driver.Indexer.
func (s *Source) Learn(e driver.Extent, b []byte) error {
	e.Object -= segments
	return recordread.Learn(s.Base, e, b)
}

// Parse implements driver.Source. It encodes records that are not cached yet, if Allow permits it,
// and returns the encoded form, so that the entropy coding is decoded only once.
func (s *Source) Parse(g *driver.Group) error {
	var images []driver.Extent // only needed for hits
	for k, id := range g.IDs {
		i := hit(g, k)
		if i >= 0 && images == nil {
			images = s.located(g)
		}
		switch {
		case i < 0:
		case s.stale(id, &images[k]):
			s.reread(g, k, i)
		case g.Records[k].Err != nil || !s.sound(g, k, i):
			s.failed.Add(1)
			if n := s.at[id].Swap(0); n > 0 {
				s.set.Drop(n - 1)
			}
			s.reread(g, k, i)
		}
	}
	if err := s.Base.Parse(g); err != nil {
		return err
	}
	hits, misses, unknown := 0, 0, false
	for k, id := range g.IDs {
		i := hit(g, k)
		switch {
		case g.Records[k].Err != nil || !g.Wants(s.field) || g.First[k+1] == g.First[k]:
		case i >= 0:
			s.describe(g, k, i)
			hits++
		default:
			misses++
			unknown = unknown || s.at[id].Load() == 0
		}
	}
	s.hits.Add(int64(hits))
	s.misses.Add(int64(misses))
	if unknown && (s.opt.Allow == nil || s.opt.Allow()) {
		s.learn(g)
	}
	return nil
}

// hit returns the extent of a record that was located in the cache, or -1.
func hit(g *driver.Group, k int) int32 {
	for i := g.First[k]; i < g.First[k+1]; i++ {
		if g.Extents[i].Object < segments {
			return i
		}
	}
	return -1
}

// stale reports whether the file of a record, whose image is at extent e of the source, is not the listed one any more,
// and remembers that.
func (s *Source) stale(id int64, e *driver.Extent) bool {
	if e.Object < 0 {
		return false
	}
	o := s.Base.Object(e.Object)
	_, f := s.names.where(&o)
	if f.real == "" { // a request to a server
		return false
	}
	now, err := o.Store.Stat(context.Background(), o.Entry.Name)
	same := err == nil && now.Size == o.Entry.Size && now.Version == o.Entry.Version
	if same && (!f.fixed || now.ID == o.Entry.ID || o.Entry.ID == 0) {
		return false
	}
	s.at[id].Store(changed)
	return true
}

// record returns the cached record that was located at extent i. It returns nil if the cache has another record
// there by now.
func (s *Source) record(g *driver.Group, k int, i int32) *cache.Record {
	n := s.at[g.IDs[k]].Load()
	if n <= 0 {
		return nil
	}
	e := &g.Extents[i]
	if r := s.set.Record(n - 1); int64(r.Segment) == e.Object && r.Offset == e.Offset {
		return r
	}
	return nil
}

// sound reports whether the bytes read from the cache are the bytes that were written.
func (s *Source) sound(g *driver.Group, k int, i int32) bool {
	r := s.record(g, k, i)
	return r != nil && r.Check(g.Bytes[i])
}

// reread reads a record from the source because the cached bytes at extent i are of no use. It is the only
// place where Parse waits for a read.
func (s *Source) reread(g *driver.Group, k int, i int32) {
	rd := recordread.NewDirect(s.Base, s.objects)
	recs, err := rd.Read(context.Background(), []int64{g.IDs[k]})
	rec := &g.Records[k]
	if err == nil {
		err = recs[0].Err
	}
	if rec.Err = err; err != nil {
		return
	}
	g.Bytes[i] = recs[0].Values[s.field].Bytes
	g.Extents[i].Object, g.Extents[i].Size = segments, int64(len(g.Bytes[i])) // an object of the source
}

// describe makes the value of a record read from the cache.
func (s *Source) describe(g *driver.Group, k int, i int32) {
	r := s.record(g, k, i)
	v := &g.Records[k].Values[s.field]
	v.Bytes = g.Bytes[i][:r.Size]
	v.Codec, v.Width, v.Height = driver.Codec(r.Codec), int32(r.Width), int32(r.Height)
	v.Channels, v.Orientation = int32(r.Channels), int32(r.Orientation)
}

// learn adds the records of a group that are not cached yet.
func (s *Source) learn(g *driver.Group) {
	var enc *cdec.DCTEncoder
	select {
	case enc = <-s.encoders:
	default:
		var err error
		if enc, err = cdec.NewDCTEncoder(); err != nil {
			return
		}
	}
	images := s.located(g)
	b := s.set.Begin(s.opt.Wait)
	start, n := time.Now(), 0
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if b != nil && !b.Room() {
			s.set.Keep(b, s.opt.Wait)
			b = s.set.Begin(s.opt.Wait)
		}
		if b == nil {
			break
		}
		if rec.Err != nil || images == nil || images[k].Object < 0 || hit(g, k) >= 0 || s.at[id].Load() != 0 || !s.unmodified(g, k) {
			continue
		}
		if s.stale(id, &images[k]) {
			continue // the bytes may be those of the new file
		}
		if s.keep(b, enc, g, k, &images[k]) {
			n++
		}
	}
	if n > 0 && s.opt.Spent != nil {
		s.opt.Spent(n, time.Since(start))
	}
	if b != nil {
		s.set.Keep(b, s.opt.Wait)
	}
	select {
	case s.encoders <- enc:
	default:
		enc.Close()
	}
}

// unmodified reports whether the value of an image is the bytes that were read, since the bytes of the cache take
// their place.
func (s *Source) unmodified(g *driver.Group, k int) bool {
	v := g.Records[k].Values[s.field].Bytes
	_, read := g.Of(k)
	return len(v) > 0 && slices.ContainsFunc(read, func(b []byte) bool { return len(b) == len(v) && &b[0] == &v[0] })
}

// keep adds a record to the batch to cache, and returns its value in the encoded form. Its image is at extent e of
// the source.
func (s *Source) keep(b *cache.Batch, enc *cdec.DCTEncoder, g *driver.Group, k int, e *driver.Extent) bool {
	v := &g.Records[k].Values[s.field]
	m := cache.Meta{}
	m.Key, m.Name = s.key(e)
	if cache.Below(m.Name, s.of.origin) {
		m.Name = strings.TrimPrefix(m.Name[len(s.of.origin):], "/")
	}
	if n, ok := b.Claim(&m.Key); n >= 0 { // cached since it was located
		s.at[g.IDs[k]].Store(n + 1)
		return false
	} else if !ok {
		return false
	}
	if imagefile.Detect(v.Bytes) != driver.CodecJPEG {
		b.Add(&m, nil)
		return true
	}
	info, err := imagefile.Probe(v.Bytes)
	var dct []byte
	if err == nil {
		dct, err = s.encode(enc, v.Bytes, &info)
	}
	if errors.Is(err, cdec.ErrMemory) {
		return false
	}
	if err != nil || int64(len(dct)) > s.largest {
		b.Add(&m, nil) // not encodable: remember that for next time
		return true
	}
	m.Width, m.Height, m.Codec = uint32(info.Width), uint32(info.Height), uint8(driver.CodecDCT)
	m.Channels, m.Orientation = uint8(min(info.Channels, 255)), uint8(info.Orientation)
	b.Add(&m, dct)
	if g.Alloc == nil {
		return true
	}
	if own, err := g.Alloc(len(dct)); err == nil {
		copy(own, dct)
		v.Bytes, v.Codec, v.Width, v.Height = own, driver.CodecDCT, info.Width, info.Height
		v.Channels, v.Orientation = int32(m.Channels), int32(m.Orientation)
	}
	return true
}

// Stats are the counters of a cache since the source was opened.
type Stats struct {
	// Folder is the folder of the cache.
	Folder string `json:"folder"`
	// Hits were read from the cache, Misses from the source. Damaged were cached and could not be
	// used.
	Hits    int64 `json:"hits"`
	Misses  int64 `json:"misses"`
	Damaged int64 `json:"damaged"`
	// Kept and KeptBytes count the records that this process added. Records is the number of cached
	// records of the dataset.
	Kept      int64 `json:"kept"`
	KeptBytes int64 `json:"kept_bytes"`
	Records   int64 `json:"records"`
	// Note is the reason why caching stopped, "" if it has not.
	Note string `json:"note,omitempty"`
}

// Cached returns how many records of src are in the cache at dir. It does not create a cache.
func Cached(src driver.Source, dir *cache.Dir) (n int64) {
	s := &Source{info: *src.Info(), field: imageOf(src.Info())}
	s.Base = src
	if s.field < 0 || s.info.Objects == 0 || s.info.Len == 0 || s.info.Sequential {
		return 0
	}
	s.look()
	if s.names.store(s.of.store) == "" {
		return 0
	}
	keys := dir.Keys(s.of.origin)
	if len(keys) == 0 {
		return 0
	}
	g := driver.Group{Want: s.only}
	for i := range s.info.Len {
		g.Begin([]int64{i}, len(s.info.Fields))
		src.Locate(&g)
		if len(g.Extents) == 1 {
			if k, _ := s.key(&g.Extents[0]); keys[k] {
				n++
			}
		}
	}
	return n
}

// Cached returns how many records are in the cache.
func (s *Source) Cached() int64 { return Cached(s.Base, s.dir) }

// Stats returns the counters of the cache.
func (s *Source) Stats() Stats {
	st := Stats{Folder: s.set.Path(), Hits: s.hits.Load(), Misses: s.misses.Load(), Damaged: s.failed.Load(), Records: s.set.Len()}
	st.Kept, st.KeptBytes = s.set.Kept()
	return st
}

// Close implements driver.Source.
func (s *Source) Close() error {
	err := s.set.Close()
	for {
		select {
		case enc := <-s.encoders:
			enc.Close()
			continue
		default:
		}
		break
	}
	if cerr := s.objects.Close(); err == nil {
		err = cerr
	}
	if cerr := s.Base.Close(); err == nil {
		err = cerr
	}
	return err
}
