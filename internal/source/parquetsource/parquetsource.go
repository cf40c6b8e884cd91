// Package parquetsource reads Parquet files at random: single files, folders and patterns, and folders with splits
// in the layout of `datasets`. Each row is a record, each column a field. Images and sounds are structs of bytes
// and path, as `datasets` stores them, or columns of bytes with such files.
//
// Opening reads the footers and finds the pages, from page indexes or page headers. It scans columns of text, bytes
// and lists once, because a batch must know the size of their values, but not columns of images. It holds columns
// of single numbers in memory.
//
// A page has many values and is decompressed as a whole. Two methods avoid decompressing it again for each record.
// Large values of pages that are uncompressed or compressed with Snappy are read alone: their positions are learnt
// when the first value of their page is needed (index). All other pages are cached, up to the memory budget
// (cache).
package parquetsource

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/columns"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/parquet"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open.
type Options = format.Options

const (
	// maxHeld limits the memory for columns of single numbers.
	maxHeld = 256 << 20
	// largeValue is the average size from which values are read alone.
	largeValue = 1 << 10
)

type source struct {
	info    driver.Info
	opt     Options
	list    *filelist.List
	meta    *parquet.Meta // of the first file
	columns []*columns.Column
	choice  *columns.Choice
	tracks  []*track
	track   []int   // by field
	quick   []bool  // by field: its values are held numbers
	groups  []group // row groups
	first   []int64 // first record of each row group
	files   *columns.Files
	memory  fixedrecords.Memory // memory of held columns
	cache   *blockcache.Cache

	mu       sync.Mutex
	missing  map[[2]int64]blockcache.Key // pages that Locate has requested
	decoders sync.Pool
}

// Open reads the metadata of the Parquet files in st, or of the single file that st is.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	s := &source{info: driver.Info{URL: url, Format: "parquet"}, missing: map[[2]int64]blockcache.Key{}, cache: blockcache.New()}
	if opt != nil {
		s.opt = *opt
	}
	if s.opt.Threads <= 0 {
		s.opt.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	var err error
	if s.list, err = listFiles(ctx, st, &s.opt); err != nil {
		return nil, err
	}
	if err := s.read(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	of := []string{"parquet", s.meta.Features}
	for i, f := range s.info.Fields {
		of = append(of, f.Name, string(f.Kind), s.columns[i].Name)
	}
	of = append(of, s.files.Fingerprints()...)
	s.info.Fingerprint = s.list.Fingerprint(of...)
	return s, nil
}

// read scans all files.
func (s *source) read(ctx context.Context) error {
	// The first file defines the columns.
	o, err := s.list.Open(ctx, 0)
	if err != nil {
		return err
	}
	s.meta, err = s.footer(ctx, o)
	if cerr := o.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return s.at(0, "", err)
	}
	all := columns.Of(s.meta.Schema.Columns, s.meta.Features)
	choice, wants, chosen, err := columns.Choose(s.list.Store, all, s.opt.Columns)
	if err != nil {
		return err
	}
	s.choice = choice
	for _, c := range chosen {
		n := c.Elem
		if n == nil {
			n = c.Value
		}
		s.columns = append(s.columns, c)
		s.track = append(s.track, s.trackOf(n.At))
	}
	paths := make([]int, len(wants)) // tracks of the paths of files
	for i, c := range s.columns {
		if paths[i] = -1; c.Paths != nil {
			paths[i] = s.trackOf(c.Paths.At)
		}
	}
	out := make([]opened, s.list.Len())
	out[0].meta = s.meta
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opt.Threads)
	for f := range out {
		g.Go(func() error { return s.look(gctx, f, &out[f]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s.join(out)
	if s.info.Len == 0 {
		return fmt.Errorf("%s has no rows", s.list.Store)
	}
	if s.info.Len > 1<<40 {
		return fmt.Errorf("%s has %d rows, the limit is %d", s.list.Store, s.info.Len, int64(1)<<40)
	}
	return s.fields(ctx, wants, paths)
}

// trackOf returns the track of a leaf. It creates the track if needed.
func (s *source) trackOf(leaf int) int {
	if i := slices.IndexFunc(s.tracks, func(t *track) bool { return t.at == leaf }); i >= 0 {
		return i
	}
	s.tracks = append(s.tracks, &track{leaf: s.meta.Schema.Leaves[leaf], at: leaf})
	return len(s.tracks) - 1
}

// fields sets the fields from the metadata, and scans columns if it does not suffice.
func (s *source) fields(ctx context.Context, wants []column.Want, paths []int) error {
	scan := &scanner{s: s, wants: wants, seen: make([]*column.Seen, len(s.tracks)), looked: make([]bool, len(s.tracks)), counted: make([]bool, len(s.tracks))}
	unknown := make([]bool, len(wants))
	at := 0 // fields so far
	for i, c := range s.columns {
		why, err := "", errors.Join(s.tracks[s.track[i]].refused, refusedAt(s.tracks, paths[i]))
		if err == nil {
			unknown[at], why, err = scan.column(ctx, i)
		}
		if errors.Is(err, parquet.ErrUnsupported) {
			why, err = "is not read: "+firstLine(err), nil
		}
		if err != nil {
			return err
		}
		if why != "" {
			if err := s.choice.Leave(c, why); err != nil {
				return err
			}
			continue
		}
		s.columns[at], s.track[at], paths[at] = c, s.track[i], paths[i]
		at++
	}
	s.columns, s.track, unknown = s.columns[:at], s.track[:at], unknown[:at]
	if err := s.choice.Some(at); err != nil {
		return err
	}
	s.files = columns.NewFiles(len(s.columns), s.opt.Files, s.opt.Folder, s.opt.Outside, s.opt.Threads)
	if err := s.findFiles(ctx, paths); err != nil {
		return err
	}
	for i := range unknown {
		if _, only := columns.Wanted(s.columns[i], &s.info.Fields[i]); unknown[i] && !only {
			s.info.Fields[i].MaxBytes = 0
		}
	}
	s.info.Objects = int64(s.list.Len()) + s.files.Len()
	for i, c := range s.columns {
		s.quick = append(s.quick, s.tracks[s.track[i]].held != nil && c.Plain(&s.info.Fields[i]))
	}
	return nil
}

// refusedAt returns the reason why a track is not read, nil if it is or if there is no track (-1).
func refusedAt(tracks []*track, n int) error {
	if n < 0 {
		return nil
	}
	return tracks[n].refused
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// scanner makes fields from the metadata and, if it does not suffice, from the values.
type scanner struct {
	s               *source
	wants           []column.Want
	seen            []*column.Seen // by track, as are the others
	looked, counted []bool
}

// column appends the field of column i. unknown is set for files whose sizes are not known. why is the reason that
// the column is not read.
func (x *scanner) column(ctx context.Context, i int) (unknown bool, why string, err error) {
	s, c, want := x.s, x.s.columns[i], x.wants[i]
	n := s.track[i]
	u, kind := x.seenOf(i), want.Kind
	if !x.looked[n] && c.Elem == nil && c.Value.Class == columns.Binaries && (kind == "" || kind == driver.KindMask) {
		x.looked[n] = true
		if err := s.lookAt(ctx, i, u); err != nil {
			return false, "", err
		}
	}
	if kind == "" && c.Elem == nil {
		kind = u.Decide(want.Name, s.info.Len)
	}
	picture := column.IsDecoded(kind)
	t := s.tracks[n]
	t.parts = t.parts || t.splits(picture, s.info.Len)
	unknown = c.Elem == nil && picture
	if !x.counted[n] && !unknown {
		x.counted[n] = true
		if err := s.facts(ctx, n, c, u); err != nil {
			return false, "", err
		}
	}
	if u.Uneven {
		return false, columns.Uneven, nil
	}
	f, err := u.Field(want, s.info.Len)
	if err != nil {
		return false, "", fmt.Errorf("%s: %w", s.list.Store, err)
	}
	if unknown {
		f.MaxBytes, f.Stats = 0, nil
	}
	s.info.Fields = append(s.info.Fields, f)
	return unknown, "", nil
}

// seenOf returns what is known of the track of column i, for all fields that are made from it.
func (x *scanner) seenOf(i int) *column.Seen {
	n := x.s.track[i]
	if x.seen[n] == nil {
		var of []column.Want
		for k := i; k < len(x.wants); k++ {
			if x.s.track[k] == n {
				of = append(of, x.wants[k])
			}
		}
		x.seen[n] = x.s.columns[i].Seen(of...)
	}
	return x.seen[n]
}

// Left implements driver.Leaver.
func (s *source) Left() []driver.Skipped { return s.choice.Left() }

// splits reports whether single values of a track are read alone.
func (t *track) splits(picture bool, rows int64) bool {
	if t.leaf.Width > 0 && t.leaf.MaxRep == 0 || !picture && t.plain/rows < largeValue {
		return false
	}
	return slices.ContainsFunc(t.units, func(u unit) bool { return u.codec == parquet.None || u.codec == parquet.Snappy })
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	if tables := int64(s.list.Len()); n >= tables {
		return s.files.Object(n - tables)
	}
	return s.list.Object(n, true)
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	n := filelist.Find(s.first, id)
	g := s.groups[n]
	row := id - s.first[n]
	return fmt.Sprintf("%s, row %d (row group %d, row %d)", s.list.Path(int(g.file)), g.row+row, g.number, row)
}

// Held implements driver.Holder: the held columns and the limit of the page cache.
func (s *source) Held() int64 { return s.memory.Total() + s.cache.Limit() }

// Useful implements driver.Cacher.
func (s *source) Useful() int64 {
	n := int64(0)
	for _, t := range s.tracks {
		// Indexes and offsets are added.
		size := t.plain + t.plain/8 + 8*s.info.Len
		switch {
		case t.held != nil:
		case t.parts: // some pages may have to be decompressed as a whole
			n += min(size, blockcache.First)
		default:
			n += size
		}
	}
	return n
}

// Keep implements driver.Cacher.
func (s *source) Keep(n int64) { s.cache.Keep(n) }

func (s *source) Close() error {
	s.cache.Close()
	s.memory.Free()
	return nil
}
