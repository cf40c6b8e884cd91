package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/store"
)

// An unfinished upload is a folder of pieces. The name of a piece is its offset: NAME.partial/000000000000.
// Listings show one object NAME.partial.

// pieceDigits is the number of digits in a piece's name.
const pieceDigits = 15

// leftVersion is the version of an unfinished upload.
const leftVersion = "unfinished"

// pieces returns the prefix of an upload's pieces.
func (s *Store) pieces(name string) string { return s.key(name) + store.PartialSuffix + "/" }

// cutPiece returns the upload that a key is a piece, a lock or a draft of.
func cutPiece(key string) (whole, piece string, ok bool) {
	slash := strings.LastIndexByte(key, '/')
	if slash < 0 {
		return "", "", false
	}
	whole, ok = strings.CutSuffix(key[:slash], store.PartialSuffix)
	piece = key[slash+1:]
	if piece == "lock" || strings.HasPrefix(piece, "draft-") {
		return whole, piece, ok
	}
	return whole, piece, ok && len(piece) == pieceDigits && strings.Trim(piece, "0123456789") == ""
}

// left is an unfinished upload.
type left struct {
	pieces []Info // consecutive, from the beginning on
	size   int64
	other  []Info // invalid parts: pieces after a gap
	lock   Info
	time   time.Time
}

// add adds a key of a listing, in order.
func (l *left) add(piece string, i Info) {
	if i.ModTime.After(l.time) {
		l.time = i.ModTime
	}
	if piece == "lock" {
		l.lock = i
		return
	}
	at, err := strconv.ParseInt(piece, 10, 64)
	if err != nil || at != l.size || i.Size <= 0 || i.Size > maxPart || len(l.other) > 0 {
		l.other = append(l.other, i)
		return
	}
	l.pieces = append(l.pieces, i)
	l.size += i.Size
}

func (l *left) some() bool { return len(l.pieces) > 0 || len(l.other) > 0 || l.lock.Key != "" }

func (l *left) entry(name string) store.Entry {
	return store.Entry{Name: name, Size: l.size, Version: leftVersion, ModTime: l.time.Truncate(time.Second)}
}

// leftOf lists an unfinished upload.
func (s *Store) leftOf(ctx context.Context, name string) (*left, error) {
	l := &left{}
	q := Query{Prefix: s.pieces(name)}
	for pages := 0; ; pages++ {
		p, err := s.d.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, i := range p.Objects {
			if _, piece, ok := cutPiece(i.Key); ok && strings.HasPrefix(i.Key, q.Prefix) && !strings.Contains(i.Key[len(q.Prefix):], "/") {
				l.add(piece, i)
			}
		}
		if p.Next == "" {
			return l, nil
		}
		if p.Next == q.Next || pages > emptyPages {
			return nil, endless()
		}
		q.Next = p.Next
	}
}

// discard removes an unfinished upload from its end to its beginning, so that the rest is valid at any moment. It
// does not remove a held lock.
func (s *Store) discard(ctx context.Context, l *left) error {
	all := append(slices.Clone(l.pieces), l.other...)
	for _, i := range slices.Backward(all) {
		if err := s.d.Delete(ctx, i.Key); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	if l.lock.Key != "" {
		if err := s.d.Delete(ctx, l.lock.Key); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readPieces fills p from offset off of consecutive pieces.
func (s *Store) readPieces(ctx context.Context, pieces []Info, p []byte, off int64) error {
	for _, i := range pieces {
		if len(p) == 0 {
			return nil
		}
		if off >= i.Size {
			off -= i.Size
			continue
		}
		n := min(int64(len(p)), i.Size-off)
		if err := s.d.ReadAt(ctx, i, p[:n], off); err != nil {
			return err
		}
		p, off = p[n:], 0
	}
	if len(p) > 0 {
		return store.ErrShort
	}
	return nil
}

// leftObject reads an unfinished upload.
type leftObject struct {
	s    *Store
	name string
	left *left
}

func (o *leftObject) Size() int64     { return o.left.size }
func (o *leftObject) Version() string { return leftVersion }
func (o *leftObject) Close() error    { return nil }

func (o *leftObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case off < 0 || off > o.left.size || int64(len(p)) > o.left.size-off:
		err = fmt.Errorf("%w: it has %d bytes", store.ErrShort, o.left.size)
	default:
		err = o.s.readPieces(ctx, o.left.pieces, p, off)
	}
	if err != nil {
		return &store.Error{Op: "read", Path: o.s.Path(o.name), Off: off, Len: int64(len(p)), Err: err}
	}
	return nil
}
