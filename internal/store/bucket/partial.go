package bucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/stokerdata/stoker/store"
)

// flushEvery is how old what was written may become before it is durable: what a
// process loses that is killed.
const flushEvery = 5 * time.Second

// partial is an upload that outlives the process. What was written lies in pieces of
// LeastPart bytes or more, then one that is shorter and written again when it has
// grown, and then in memory.
type partial struct {
	s    *Store
	name string
	lock *lock
	ctx  context.Context // of what is sent in the background, not cancelled
	out  *sender

	sealed []*Info // their versions are known behind a wait for what was sent
	at     int64   // where buf begins
	buf    []byte  // behind the sealed pieces
	kept   int     // how many bytes of buf are durable, in a piece of their own
	last   time.Time
	dead   error // what made it useless
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

// adopt goes on with what there is: the object in place, or pieces. When both are
// there a commit was cut off behind its end, or the taking back of an object was
// before it: the object is whole in both.
func (p *partial) adopt(ctx context.Context) error {
	old, err := p.s.leftOf(ctx, p.name)
	if err != nil {
		return err
	}
	old.lock = Info{} // our own
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

// take goes on with pieces.
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

// reopen takes the last piece back into memory when it is too short to stay.
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

// seal sends the buffer as a piece that stays.
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

// flush makes everything durable.
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

// Sync makes what was written durable.
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

// Commit puts the object in place, out of its pieces.
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
	// It is in place: what is left of the pieces does no harm.
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

// durable are all pieces, behind a flush.
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

// end gives the lock back.
func (p *partial) end(ctx context.Context) error {
	l := p.lock
	p.lock, p.buf = nil, nil
	return l.end(ctx)
}

// Abort removes what was written.
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

// truncate removes what lies behind, its end first: what is there at any moment is a
// beginning of what there was.
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
