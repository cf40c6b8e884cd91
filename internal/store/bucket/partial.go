package bucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/stokerdata/stoker/store"
)

// flushEvery is the maximum age of data that is not durable yet. A killed process loses it.
const flushEvery = 5 * time.Second

// partial is an upload that outlives the process. Written data is in pieces of at least LeastPart bytes, then in
// one shorter piece that is replaced as it grows, and then in memory.
type partial struct {
	s    *Store
	name string
	lock *lock
	ctx  context.Context // of background requests, not cancelled
	out  *sender

	sealed []*Info // versions are valid after out.wait
	at     int64   // offset of buf
	buf    []byte  // data after the sealed pieces
	kept   int     // durable bytes of buf, in their own piece
	last   time.Time
	dead   error // the error that made it unusable
}

// Resume implements store.Resumer.
func (s *Store) Resume(ctx context.Context, name string) (store.Partial, error) {
	p, err := s.resume(ctx, name)
	if err != nil {
		return nil, s.failed("go on with", name, err)
	}
	return p, nil
}

func (s *Store) resume(ctx context.Context, name string) (*partial, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	if s.key(name) == "" {
		return nil, errors.New("it is a bucket")
	}
	l, err := s.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &partial{s: s, name: name, lock: l, ctx: context.WithoutCancel(ctx), out: newSender(), last: time.Now()}
	if err := p.adopt(ctx); err != nil {
		_ = l.end(p.ctx)
		return nil, err
	}
	return p, nil
}

// adopt continues with the existing object or pieces. If both exist, a crash came after a commit, or while an
// object was reopened. The object is complete in both.
func (p *partial) adopt(ctx context.Context) error {
	old, err := p.s.leftOf(ctx, p.name)
	if err != nil {
		return err
	}
	old.lock = Info{} // this is our lock
	whole, err := p.s.d.Stat(ctx, p.s.key(p.name))
	if err == nil {
		err = sane(whole)
	}
	switch {
	case errors.Is(err, store.ErrNotExist):
		return p.take(ctx, old)
	case err != nil:
		return err
	}
	if err := p.s.discard(ctx, old); err != nil {
		return err
	}
	for off := int64(0); off < whole.Size; {
		b := make([]byte, min(whole.Size-off, int64(partSize(len(p.sealed)))))
		if err := p.s.d.ReadAt(ctx, whole, b, off); err != nil {
			return err
		}
		if _, err := p.write(b); err != nil {
			return err
		}
		off += int64(len(b))
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	return p.s.d.Delete(ctx, whole.Key)
}

// take continues with pieces.
func (p *partial) take(ctx context.Context, old *left) error {
	if len(old.other) > 0 {
		if err := p.s.discard(ctx, &left{pieces: old.other}); err != nil {
			return err
		}
	}
	for i := range old.pieces {
		p.sealed = append(p.sealed, &old.pieces[i])
	}
	p.at = old.size
	return p.reopen(ctx)
}

// reopen loads the last piece into memory if it is too short.
func (p *partial) reopen(ctx context.Context) error {
	if len(p.sealed) == 0 {
		return nil
	}
	last := p.sealed[len(p.sealed)-1]
	if last.Size >= LeastPart {
		return nil
	}
	b := make([]byte, last.Size)
	if err := p.s.d.ReadAt(ctx, *last, b, 0); err != nil {
		return err
	}
	p.sealed = p.sealed[:len(p.sealed)-1]
	p.at -= last.Size
	p.buf, p.kept = b, len(b)
	return nil
}

func (p *partial) failed(op string, err error) error { return p.s.failed(op, p.name, err) }

func (p *partial) usable(op string) error {
	if p.lock == nil {
		return p.failed(op, os.ErrClosed)
	}
	err := p.dead
	if err == nil {
		err = p.out.failure()
	}
	if err == nil {
		err = p.lock.mine()
	}
	if err != nil {
		return p.failed(op, fmt.Errorf("an earlier write failed: %w", err))
	}
	return nil
}

// Write appends b.
func (p *partial) Write(b []byte) (int, error) {
	if err := p.usable("write"); err != nil {
		return 0, err
	}
	n, err := p.write(b)
	if err == nil && len(p.buf) > p.kept && time.Since(p.last) > flushEvery {
		err = p.flush(p.ctx)
	}
	if err != nil {
		p.dead = err
		return n, p.failed("write", err)
	}
	return n, nil
}

func (p *partial) write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		size := partSize(len(p.sealed))
		if k := min(len(b)-n, size-len(p.buf)); k > 0 {
			p.buf = append(p.buf, b[n:n+k]...)
			n += k
		}
		if len(p.buf) >= size {
			p.seal()
			if err := p.out.failure(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *partial) pieceKey(at int64) string {
	return fmt.Sprintf("%s%0*d", p.s.pieces(p.name), pieceDigits, at)
}

// seal sends the buffer as a final piece.
func (p *partial) seal() {
	data, piece := p.buf, &Info{Key: p.pieceKey(p.at), Size: int64(len(p.buf))}
	p.sealed = append(p.sealed, piece)
	p.at += piece.Size
	p.buf, p.kept, p.last = nil, 0, time.Now()
	p.out.send(func() error {
		got, err := p.s.d.Put(p.ctx, piece.Key, data, Condition{})
		piece.Version = got.Version
		return err
	})
}

// flush makes all data durable.
func (p *partial) flush(ctx context.Context) error {
	p.last = time.Now()
	if len(p.buf) >= LeastPart {
		p.seal()
	}
	if err := p.out.wait(); err != nil {
		return err
	}
	if p.kept == len(p.buf) {
		return nil
	}
	if _, err := p.s.d.Put(ctx, p.pieceKey(p.at), p.buf, Condition{}); err != nil {
		return err
	}
	p.kept = len(p.buf)
	return nil
}

// Sync makes the written data durable.
func (p *partial) Sync(ctx context.Context) error {
	if err := p.usable("write"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return p.failed("write", context.Cause(ctx))
	}
	if err := p.flush(ctx); err != nil {
		p.dead = err
		return p.failed("write", err)
	}
	return nil
}

// Commit creates the object from its pieces.
func (p *partial) Commit(ctx context.Context) error {
	if err := p.usable("write"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return p.failed("write", context.Cause(ctx))
	}
	if err := p.commit(ctx); err != nil {
		p.dead = err
		return p.failed("write", err)
	}
	// The object exists, so remaining pieces do no harm.
	err := p.drop(ctx)
	if cerr := p.end(ctx); err == nil {
		err = cerr
	}
	if err != nil {
		return p.failed("write", err)
	}
	return nil
}

func (p *partial) commit(ctx context.Context) error {
	key := p.s.key(p.name)
	if len(p.sealed) == 0 {
		_, err := p.s.d.Put(ctx, key, p.buf, Condition{})
		return err
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	if err := p.lock.mine(); err != nil {
		return err
	}
	if err := p.s.d.Sweep(ctx, key); err != nil {
		return err
	}
	return p.s.d.Concat(ctx, key, p.durable())
}

// durable returns all pieces. flush must have been called.
func (p *partial) durable() []Info {
	all := make([]Info, 0, len(p.sealed)+1)
	for _, i := range p.sealed {
		all = append(all, *i)
	}
	if p.kept > 0 {
		all = append(all, Info{Key: p.pieceKey(p.at), Size: int64(p.kept)})
	}
	return all
}

// drop removes the pieces.
func (p *partial) drop(ctx context.Context) error {
	_ = p.out.wait()
	return p.s.discard(ctx, &left{pieces: p.durable()})
}

// end releases the lock.
func (p *partial) end(ctx context.Context) error {
	l := p.lock
	p.lock, p.buf = nil, nil
	return l.end(ctx)
}

// Abort removes the upload.
func (p *partial) Abort() error {
	if p.lock == nil {
		return nil
	}
	var err error
	if p.lock.mine() == nil {
		err = p.drop(p.ctx)
	}
	if cerr := p.end(p.ctx); err == nil {
		err = cerr
	}
	if err != nil {
		return p.failed("remove", err)
	}
	return nil
}

// Suspend implements store.Partial.
func (p *partial) Suspend(ctx context.Context) error {
	err := p.Sync(ctx)
	if p.lock == nil {
		return err
	}
	_ = p.out.wait()
	if cerr := p.end(p.ctx); cerr != nil && err == nil {
		err = p.failed("write", cerr)
	}
	return err
}

// Size implements store.Partial.
func (p *partial) Size() int64 { return p.at + int64(len(p.buf)) }

// ReadAt implements store.Partial.
func (p *partial) ReadAt(ctx context.Context, b []byte, off int64) error {
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case p.lock == nil:
		err = os.ErrClosed
	case off < 0 || off > p.Size() || int64(len(b)) > p.Size()-off:
		err = fmt.Errorf("%w: it has %d bytes", store.ErrShort, p.Size())
	default:
		err = p.out.wait()
	}
	n := int64(len(b))
	if err == nil && off < p.at {
		err = p.s.readPieces(ctx, p.durable(), b[:min(n, p.at-off)], off)
	}
	if err != nil {
		return &store.Error{Op: "read", Path: p.s.Path(p.name + store.PartialSuffix), Off: off, Len: n, Err: err}
	}
	if off+n > p.at {
		from := max(off, p.at)
		copy(b[from-off:], p.buf[from-p.at:])
	}
	return nil
}

// Truncate implements store.Partial.
func (p *partial) Truncate(size int64) error {
	if err := p.usable("cut"); err != nil {
		return err
	}
	if size < 0 || size > p.Size() {
		return p.failed("cut", fmt.Errorf("to %d bytes: it has %d", size, p.Size()))
	}
	if err := p.truncate(size); err != nil {
		p.dead = err
		return p.failed("cut", err)
	}
	return nil
}

// truncate removes data from the end, so that the rest is a valid beginning at any moment.
func (p *partial) truncate(size int64) error {
	if err := p.out.wait(); err != nil {
		return err
	}
	for size < p.at {
		if p.kept > 0 {
			if err := p.s.discard(p.ctx, &left{pieces: []Info{{Key: p.pieceKey(p.at)}}}); err != nil {
				return err
			}
		}
		last := p.sealed[len(p.sealed)-1]
		b := make([]byte, last.Size)
		if size > p.at-last.Size {
			if err := p.s.d.ReadAt(p.ctx, *last, b, 0); err != nil {
				return err
			}
		}
		p.sealed = p.sealed[:len(p.sealed)-1]
		p.at -= last.Size
		p.buf, p.kept = b, len(b)
	}
	n := int(size - p.at)
	p.buf = p.buf[:n]
	switch {
	case p.kept <= n:
		return nil
	case n == 0:
		p.kept = 0
		return p.s.discard(p.ctx, &left{pieces: []Info{{Key: p.pieceKey(p.at)}}})
	}
	p.kept = 0
	_, err := p.s.d.Put(p.ctx, p.pieceKey(p.at), p.buf, Condition{})
	if err == nil {
		p.kept = n
	}
	return err
}
