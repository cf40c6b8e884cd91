// Package faulttest is for tests: it wraps a store so that chosen operations are slow, hang, fail, end early or
// return wrong bytes.
//
//	s := faulttest.New(localstore.New(dir), 1,
//		faulttest.Delay(2*time.Second).On(faulttest.Read).Chance(0.01),
//		faulttest.Error(syscall.EIO).Named("shard-*").Times(3),
//		faulttest.Flip(4096).Named("labels.npy"))
package faulttest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Op is a kind of operation.
type Op string

// The operations. Those from Create on need a store that can be written to.
const (
	Open   Op = "open"
	List   Op = "list"
	Stat   Op = "stat"
	Read   Op = "read"
	Check  Op = "check"
	Create Op = "create"
	Resume Op = "resume"
	Write  Op = "write"
	Cut    Op = "cut" // Partial.Truncate
	Sync   Op = "sync"
	Commit Op = "commit"
	Remove Op = "remove"
)

type kind int

const (
	kindDelay kind = iota
	kindHang
	kindError
	kindShort
	kindTruncate
	kindFlip
	kindChanged
)

// Fault is a fault and the operations that it happens to: by default all that can have it. Its methods limit these
// operations and return the fault. A fault belongs to one store and must not be changed once the store is in use.
type Fault struct {
	kind  kind
	text  string
	delay time.Duration
	err   error
	at    int64

	ops      []Op
	pattern  string
	chance   float64
	times    int64
	after    int64
	from, to int64
	while    func() bool

	seen, hits atomic.Int64
}

// Delay makes operations take d longer, or less if ctx ends.
func Delay(d time.Duration) *Fault {
	return &Fault{kind: kindDelay, delay: d, text: "delay of " + d.String()}
}

// Hang makes operations wait until ctx is done.
func Hang() *Fault { return &Fault{kind: kindHang, text: "hang"} }

// Error makes operations fail with err.
func Error(err error) *Fault { return &Fault{kind: kindError, err: err, text: fmt.Sprint(err)} }

// Short makes reads return half of the bytes with store.ErrShort, and writes take half of the bytes and fail.
func Short() *Fault {
	return &Fault{kind: kindShort, ops: []Op{Read, Write}, text: "short"}
}

// Truncate makes objects end at size while they are open: reads after it and checks fail.
func Truncate(size int64) *Fault {
	return &Fault{kind: kindTruncate, at: size, ops: []Op{Read, Check}, text: fmt.Sprintf("truncated at %d", size)}
}

// Flip inverts a bit of the byte at off. A negative off counts from the end.
func Flip(off int64) *Fault {
	return &Fault{kind: kindFlip, at: off, ops: []Op{Read}, text: fmt.Sprintf("bit flipped at %d", off)}
}

// Changed makes objects have a different version than in their listing, and makes checks fail.
func Changed() *Fault {
	return &Fault{kind: kindChanged, ops: []Op{Open, Check}, text: "changed"}
}

// On limits the fault to kinds of operations.
func (f *Fault) On(ops ...Op) *Fault { f.ops = ops; return f }

// Named limits the fault to objects whose name matches a pattern of path.Match. A pattern without a slash is for
// the last part of the name.
func (f *Fault) Named(pattern string) *Fault { f.pattern = pattern; return f }

// Bytes limits the fault to reads that touch the bytes [from, to).
func (f *Fault) Bytes(from, to int64) *Fault { f.from, f.to = from, to; return f }

// Chance makes the fault happen with a probability.
func (f *Fault) Chance(p float64) *Fault { f.chance = p; return f }

// After skips the first n operations that the fault would happen to.
func (f *Fault) After(n int64) *Fault { f.after = n; return f }

// Times limits how often the fault happens.
func (f *Fault) Times(n int64) *Fault { f.times = n; return f }

// While limits the fault to the time in which on returns true. An example is the Load of an atomic.Bool.
func (f *Fault) While(on func() bool) *Fault { f.while = on; return f }

// Hits returns how often the fault has happened.
func (f *Fault) Hits() int64 { return f.hits.Load() }

// String describes the fault.
func (f *Fault) String() string { return f.text }

// Matches reports whether the fault is for an operation on an object, ignoring chance.
func (f *Fault) Matches(op Op, name string) bool { return f.matches(op, name, 0, 0) }

// matches reports whether the fault is for an operation, ignoring chance.
func (f *Fault) matches(op Op, name string, off, n int64) bool {
	if f.ops != nil && !slices.Contains(f.ops, op) {
		return false
	}
	if f.while != nil && !f.while() {
		return false
	}
	if f.to > f.from && (op != Read || off >= f.to || off+n <= f.from) {
		return false
	}
	if f.pattern != "" {
		if !strings.Contains(f.pattern, "/") {
			name = path.Base(name)
		}
		if ok, err := path.Match(f.pattern, name); err != nil || !ok {
			return false
		}
	}
	return true
}

// Store is a store with faults.
type Store struct {
	store.Store
	faults []*Fault

	mu  sync.Mutex
	rng *rand.Rand
}

// New returns s with faults, in their order: delays add up, and the first failure ends the operation. The random
// numbers for Chance come from seed. Memory mappings are hidden, so that every read is seen. The result can be
// written to if s can.
func New(s store.Store, seed uint64, faults ...*Fault) store.Store {
	f := &Store{Store: s, faults: faults, rng: rand.New(rand.NewPCG(seed, 0))}
	w, ok := store.As[store.WriteStore](s)
	if !ok {
		return f
	}
	r, ok := store.As[store.Resumer](s)
	if !ok {
		return &writable{f, w}
	}
	return &resumable{writable{f, w}, r}
}

// At implements store.Neighbour: the store of a path has the same faults.
func (s *Store) At(path string) store.Store {
	n, ok := store.As[store.Neighbour](s.Store)
	if !ok {
		return s
	}
	return New(n.At(path), 1, s.faults...)
}

// happening returns the faults of one operation.
func (s *Store) happening(op Op, name string, off, n int64) []*Fault {
	var out []*Fault
	for _, f := range s.faults {
		if !f.matches(op, name, off, n) {
			continue
		}
		s.mu.Lock()
		hit := f.chance == 0 || s.rng.Float64() < f.chance
		if hit && f.seen.Add(1) <= f.after || f.times > 0 && f.hits.Load() >= f.times {
			hit = false
		}
		if hit {
			f.hits.Add(1)
			out = append(out, f)
		}
		s.mu.Unlock()
	}
	return out
}

// wait does the delays before an operation and returns the error of the first fault that fails it.
func wait(ctx context.Context, faults []*Fault) error {
	for _, f := range faults {
		switch f.kind {
		case kindDelay:
			t := time.NewTimer(f.delay)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return context.Cause(ctx)
			}
		case kindHang:
			<-ctx.Done()
			return context.Cause(ctx)
		case kindError:
			return f.err
		}
	}
	return nil
}

func (s *Store) begin(ctx context.Context, op Op, verb, name string) ([]*Fault, error) {
	faults := s.happening(op, name, 0, 0)
	if err := wait(ctx, faults); err != nil {
		return nil, &store.Error{Op: verb, Path: s.Path(name), Err: err}
	}
	return faults, nil
}

func has(faults []*Fault, k kind) bool {
	return slices.ContainsFunc(faults, func(f *Fault) bool { return f.kind == k })
}

// Open opens an object whose reads have faults.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	faults, err := s.begin(ctx, Open, "open", name)
	if err != nil {
		return nil, err
	}
	below, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	o := &object{s: s, name: name, changed: has(faults, kindChanged)}
	o.Object = store.Intercept(below, true, o.read)
	return o, nil
}

// List lists. With Changed, entries have different versions. A folder below dir
// that fails goes to ListOptions.Bad.
func (s *Store) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	faults, err := s.begin(ctx, List, "list", dir)
	if err != nil {
		return err
	}
	closed := "" // the folder that fails, whose first entry has come
	return s.Store.List(ctx, dir, opt, func(e store.Entry) error {
		if closed != "" && strings.HasPrefix(e.Name, closed) {
			return nil
		}
		for at := range e.Name {
			if e.Name[at] != '/' || at <= len(dir) {
				continue
			}
			folder := e.Name[:at]
			if _, err := s.begin(ctx, List, "list", folder); err != nil {
				if closed = folder + "/"; opt == nil || opt.Bad == nil {
					return err
				}
				return opt.Bad(store.Entry{Name: folder, Dir: true}, err)
			}
		}
		if has(faults, kindChanged) {
			e.Version += otherVersion
		}
		return f(e)
	})
}

// Stat describes an object. With Changed it has a different version.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	faults, err := s.begin(ctx, Stat, "look at", name)
	if err != nil {
		return store.Entry{}, err
	}
	e, err := s.Store.Stat(ctx, name)
	if has(faults, kindChanged) {
		e.Version += otherVersion
	}
	return e, err
}

// otherVersion is added to the version of an object with Changed.
const otherVersion = " (changed)"

// object is an object with faults. It hides the mappings of the object inside.
type object struct {
	store.Object
	s       *Store
	name    string
	changed bool
}

// Unwrap returns the object inside.
func (o *object) Unwrap() store.Object { return o.Object }

func (o *object) Version() string {
	if o.changed {
		return o.Object.Version() + otherVersion
	}
	return o.Object.Version()
}

func (o *object) Check(ctx context.Context) error {
	faults, err := o.s.begin(ctx, Check, "look at", o.name)
	if err != nil {
		return err
	}
	if has(faults, kindChanged) || has(faults, kindTruncate) {
		return &store.Error{Op: "read", Path: o.s.Path(o.name), Err: store.ErrChanged}
	}
	return store.Check(ctx, o.Object)
}

func (o *object) read(ctx context.Context, next store.Next, p []byte, off int64) error {
	n := int64(len(p))
	faults := o.s.happening(Read, o.name, off, n)
	failed := func(err error) error {
		return &store.Error{Op: "read", Path: o.s.Path(o.name), Off: off, Len: n, Err: err}
	}
	if err := wait(ctx, faults); err != nil {
		return failed(err)
	}
	whole := n
	for _, f := range faults {
		switch f.kind {
		case kindShort:
			whole = min(whole, n/2)
		case kindTruncate:
			whole = min(whole, max(f.at-off, 0))
		}
	}
	if err := next.Read(ctx, p[:whole], off); err != nil {
		return err
	}
	if whole < n {
		return failed(fmt.Errorf("%w: %w", store.ErrChanged, store.ErrShort))
	}
	for _, f := range faults {
		at := f.at
		if at < 0 {
			at += o.Size()
		}
		if f.kind == kindFlip && at >= off && at < off+n {
			p[at-off] ^= 0x10
		}
	}
	return nil
}

// writable is a Store that can be written to.
type writable struct {
	*Store
	w store.WriteStore
}

func (s *writable) Create(ctx context.Context, name string) (store.Upload, error) {
	if _, err := s.begin(ctx, Create, "create", name); err != nil {
		return nil, err
	}
	u, err := s.w.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return &upload{Upload: u, s: s.Store, name: name}, nil
}

func (s *writable) Remove(ctx context.Context, name string) error {
	if _, err := s.begin(ctx, Remove, "remove", name); err != nil {
		return err
	}
	return s.w.Remove(ctx, name)
}

// resumable is a Store whose uploads can be continued.
type resumable struct {
	writable
	r store.Resumer
}

// Resume continues an upload.
func (s *resumable) Resume(ctx context.Context, name string) (store.Partial, error) {
	if _, err := s.begin(ctx, Resume, "go on with", name); err != nil {
		return nil, err
	}
	p, err := s.r.Resume(ctx, name)
	if err != nil {
		return nil, err
	}
	return &partial{upload{Upload: p, s: s.Store, name: name}, p}, nil
}

// upload is an upload with faults. After a failure it stays failed.
type upload struct {
	store.Upload
	s    *Store
	name string
	err  error
}

// before returns the faults of an operation, after their delays, or why it fails.
func (u *upload) before(ctx context.Context, op Op, verb string) ([]*Fault, error) {
	if u.err != nil {
		return nil, u.err
	}
	faults, err := u.s.begin(ctx, op, verb, u.name)
	if err != nil && ctx.Err() == nil {
		u.err = err
	}
	return faults, err
}

func (u *upload) Write(p []byte) (int, error) {
	faults, err := u.before(context.Background(), Write, "write")
	if err != nil {
		return 0, err
	}
	if !has(faults, kindShort) {
		return u.Upload.Write(p)
	}
	n, err := u.Upload.Write(p[:len(p)/2])
	if err == nil {
		err = &store.Error{Op: "write", Path: u.s.Path(u.name), Err: io.ErrShortWrite}
	}
	u.err = err
	return n, err
}

func (u *upload) Sync(ctx context.Context) error {
	if _, err := u.before(ctx, Sync, "write"); err != nil {
		return err
	}
	return u.Upload.Sync(ctx)
}

func (u *upload) Commit(ctx context.Context) error {
	if _, err := u.before(ctx, Commit, "write"); err != nil {
		return err
	}
	return u.Upload.Commit(ctx)
}

// partial is an upload of a resumable store.
type partial struct {
	upload
	p store.Partial
}

func (p *partial) Size() int64 { return p.p.Size() }

func (p *partial) ReadAt(ctx context.Context, b []byte, off int64) error {
	faults := p.s.happening(Read, p.name, off, int64(len(b)))
	if err := wait(ctx, faults); err != nil {
		return &store.Error{Op: "read", Path: p.s.Path(p.name), Off: off, Len: int64(len(b)), Err: err}
	}
	return p.p.ReadAt(ctx, b, off)
}

func (p *partial) Truncate(size int64) error {
	if _, err := p.before(context.Background(), Cut, "cut"); err != nil {
		return err
	}
	return p.p.Truncate(size)
}

// Suspend keeps what was written, like the store inside.
func (p *partial) Suspend(ctx context.Context) error {
	if _, err := p.before(ctx, Sync, "write"); err != nil {
		_ = p.p.Suspend(ctx)
		return err
	}
	return p.p.Suspend(ctx)
}
