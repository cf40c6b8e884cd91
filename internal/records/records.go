// Package records serves single records of data, decoded, to the processes of one user: the random
// access of Python's Dataset. A client sends requests as JSON and gets answers as JSON. Values are
// in memory that the client shares with the server.
package records

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/wrap/sequence"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// Sequence sets how sequences are cut from documents of tokens.
type Sequence struct {
	Length  int64    `json:"length"`
	Packing string   `json:"packing"`
	Fields  []string `json:"fields"`
	NoShift bool     `json:"no_shift"`
	DType   string   `json:"dtype"`
	Pad     int64    `json:"pad"`
}

// Request is a request of a client.
type Request struct {
	// URL is the data. Data that is requested again with the same URL, Opened and Sequence stays
	// open. Opened identifies one call of stoker.open, which sees the files of that time.
	URL      string    `json:"url"`
	Opened   string    `json:"opened"`
	Sequence *Sequence `json:"sequence,omitempty"`
	// Records are the records to decode. Without them the answer describes the data.
	Records []int64 `json:"records,omitempty"`
	// Listen asks for the samples per second of recordings, which reads some of them.
	Listen bool `json:"listen,omitempty"`
}

// Field describes a field after decoding.
type Field struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	DType string `json:"dtype,omitempty"`
	// Shape has -1 for a side that differs between records.
	Shape   []int    `json:"shape"`
	Classes []string `json:"classes,omitempty"`
	Format  string   `json:"format,omitempty"`
	Boxes   string   `json:"boxes,omitempty"`
	Rate    int      `json:"rate,omitempty"`
}

// Info describes data.
type Info struct {
	// Shown is the URL without passwords and secret options, for people.
	Shown       string  `json:"shown"`
	Len         int64   `json:"len"`
	Format      string  `json:"format"`
	Sequential  bool    `json:"sequential,omitempty"`
	Fingerprint string  `json:"fingerprint"`
	Fields      []Field `json:"fields"`
}

// Bad is a record that cannot be read or decoded.
type Bad struct {
	K      int    `json:"k"` // its place in Request.Records
	Record int64  `json:"record"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Answer answers a request. Error is set if the whole request failed.
type Answer struct {
	Error string `json:"error,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	// Size is the size of the shared memory that is in use: first the table, then the values.
	Size  int64    `json:"size,omitempty"`
	Names []string `json:"names,omitempty"`
	Bad   []Bad    `json:"bad,omitempty"`
}

// maxOpen limits the sources that stay open.
const maxOpen = 16

// opened is a source that is open or about to be.
type opened struct {
	key  string
	once sync.Once
	src  driver.Source
	obj  *recordread.Objects
	err  error

	users int // guarded by Server.mu
	turn  int64
}

func (o *opened) open(ctx context.Context, r *Request) {
	src, err := source.Open(ctx, r.URL, &source.Options{Documents: r.Sequence != nil})
	if err == nil && r.Sequence != nil {
		s := r.Sequence
		base := src
		src, err = sequence.Open(ctx, base, &sequence.Options{
			Length: s.Length, Packing: s.Packing, Fields: s.Fields, NoShift: s.NoShift, DType: driver.DType(s.DType), Pad: s.Pad,
		})
		if err != nil {
			_ = base.Close() // the refusal is what counts
		}
	}
	if err != nil {
		o.err = err
		return
	}
	o.src, o.obj = src, recordread.NewObjects(src, nil)
}

func (o *opened) close() {
	if o.src == nil {
		return
	}
	// An error on closing a file that was only read loses nothing.
	_ = o.obj.Close()
	_ = o.src.Close()
}

// Server serves the records of any number of sources.
type Server struct {
	threads int

	mu    sync.Mutex
	open  map[string]*opened
	turns int64
	// idle are decoders that no goroutine uses.
	idle []*kind.RecordDecoder
}

// NewServer returns a server that decodes with a number of threads for each client.
func NewServer(threads int) *Server {
	return &Server{threads: max(threads, 1), open: map[string]*opened{}}
}

// use returns the source of a request. The caller calls done after its last use.
func (s *Server) use(ctx context.Context, r *Request) (o *opened, done func(), err error) {
	key := fmt.Sprintf("%s\x00%s\x00%+v", r.URL, r.Opened, r.Sequence)
	if r.Sequence != nil {
		key = fmt.Sprintf("%s\x00%s\x00%+v", r.URL, r.Opened, *r.Sequence)
	}
	s.mu.Lock()
	o = s.open[key]
	if o == nil {
		o = &opened{key: key}
		s.open[key] = o
	}
	s.turns++
	o.users, o.turn = o.users+1, s.turns
	s.mu.Unlock()
	done = func() {
		s.mu.Lock()
		o.users--
		stale := s.staleLocked()
		s.mu.Unlock()
		for _, old := range stale {
			old.close()
		}
	}
	o.once.Do(func() { o.open(ctx, r) })
	if o.err != nil {
		err = o.err
		s.mu.Lock()
		if s.open[key] == o { // the next request tries again
			delete(s.open, key)
		}
		s.mu.Unlock()
		done()
		return nil, nil, err
	}
	return o, done, nil
}

// staleLocked removes and returns the sources that were not used for the longest time.
func (s *Server) staleLocked() (stale []*opened) {
	for len(s.open) > maxOpen {
		var oldest *opened
		for _, o := range s.open {
			if o.users == 0 && (oldest == nil || o.turn < oldest.turn) {
				oldest = o
			}
		}
		if oldest == nil {
			return stale
		}
		delete(s.open, oldest.key)
		stale = append(stale, oldest)
	}
	return stale
}

// Close closes everything that is open.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		o.close()
	}
	for _, d := range s.idle {
		d.Close()
	}
	s.open, s.idle = map[string]*opened{}, nil
}

func (s *Server) decoder() (*kind.RecordDecoder, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		d := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return d, nil
	}
	return kind.NewRecordDecoder()
}

func (s *Server) release(d *kind.RecordDecoder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < 4*s.threads {
		s.idle = append(s.idle, d)
		return
	}
	d.Close()
}

// answer does a request. Values go to m. Sources are opened with the context of the server, since other clients may
// also use them, and read with that of the client.
func (s *Server) answer(server, ctx context.Context, r *Request, m *memory) *Answer {
	o, done, err := s.use(server, r)
	if err != nil {
		return &Answer{Error: err.Error()}
	}
	defer done()
	if r.Records == nil {
		info, err := describe(ctx, o.src, r.Listen)
		if err != nil {
			return &Answer{Error: err.Error()}
		}
		info.Shown = source.Hide(r.URL, r.URL)
		return &Answer{Info: info}
	}
	a, err := s.read(ctx, o, r.Records, m)
	if err != nil {
		return &Answer{Error: err.Error()}
	}
	return a
}

// describe describes a source.
func describe(ctx context.Context, src driver.Source, listen bool) (*Info, error) {
	in := src.Info()
	out := &Info{Len: in.Len, Format: in.Format, Sequential: in.Sequential, Fingerprint: in.Fingerprint, Fields: []Field{}}
	for i := range in.Fields {
		f := &in.Fields[i]
		t, shape := kind.Element(f)
		one := Field{Name: f.Name, Kind: string(f.Kind), DType: t, Shape: shape, Classes: f.Classes, Format: string(f.Format), Boxes: f.Boxes}
		if one.Shape == nil {
			one.Shape = []int{}
		}
		if listen && f.Kind == driver.KindAudio {
			h, err := kind.Listen(ctx, src, i)
			if err != nil {
				return nil, err
			}
			one.Rate = h.Rate
		}
		out.Fields = append(out.Fields, one)
	}
	return out, nil
}

// read reads and decodes records into m.
func (s *Server) read(ctx context.Context, o *opened, ids []int64, m *memory) (*Answer, error) {
	info := o.src.Info()
	n, fields := len(ids), len(info.Fields)
	m.reset()
	table, _, err := m.alloc(int64(n) * int64(fields) * entryBytes)
	if err != nil {
		return nil, err
	}
	clear(table)
	a := &Answer{Names: make([]string, n)}
	var mu sync.Mutex // of a.Bad and failed
	var failed error
	threads := min(s.threads, n)
	piece := max(1, min(pieceRecords, n/(4*max(threads, 1))))
	if info.Sequential { // it is read once, from the first record to the last
		threads, piece = 1, n
	}
	var next int
	take := func() (lo, hi int) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			return n, n
		}
		lo, hi = next, min(next+piece, n)
		next = hi
		return lo, hi
	}
	work := func() error {
		d, err := s.decoder()
		if err != nil {
			return err
		}
		defer s.release(d)
		reader := recordread.NewDirect(o.src, o.obj)
		var at int64 // of the value
		alloc := func(n int64) (b []byte, err error) {
			b, at, err = m.alloc(n)
			return b, err
		}
		for {
			lo, hi := take()
			if lo >= hi {
				return nil
			}
			recs, err := reader.Read(ctx, ids[lo:hi])
			if err != nil {
				return err
			}
			for k := range recs {
				rec := &recs[k]
				a.Names[lo+k] = o.src.Name(rec.ID)
				err := rec.Err
				for f := 0; f < fields && err == nil; f++ {
					var out kind.Decoded
					if out, err = d.Decode(&info.Fields[f], &rec.Values[f], alloc); err != nil {
						if errors.Is(err, errMemory) {
							return err
						}
						err = fmt.Errorf("field %q: %w", info.Fields[f].Name, err)
						break
					}
					entry(table[((lo+k)*fields+f)*entryBytes:][:entryBytes], at, &out)
				}
				if err != nil {
					mu.Lock()
					a.Bad = append(a.Bad, Bad{lo + k, rec.ID, find(ctx, o.src, rec.ID), err.Error()})
					mu.Unlock()
				}
			}
		}
	}
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			if err := work(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = err
				}
			}
		})
	}
	all.Wait()
	a.Size = m.used()
	return a, failed
}

// pieceRecords limits the records that a goroutine reads at a time.
const pieceRecords = 16

// find returns the location of a record, for messages.
func find(ctx context.Context, src driver.Source, id int64) string {
	if f, ok := driver.As[driver.Finder](src); ok {
		return f.Find(ctx, id)
	}
	return src.Name(id)
}
