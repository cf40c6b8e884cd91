package inorder

import (
	"context"
	"runtime"
	"sync"

	"github.com/stokerdata/stoker/internal/source/stream"
)

const (
	// largeWindow is from where on files are gone through one at a time.
	largeWindow = 8 << 20
	// maxStreams is how many files are gone through at a time.
	maxStreams = 16
)

// Limits bound what decompressing several files at a time takes.
type Limits struct {
	streams chan struct{}
	large   sync.Mutex // held while it takes much memory
}

// NewLimits are the limits of one source.
func NewLimits() *Limits {
	return &Limits{streams: make(chan struct{}, min(runtime.GOMAXPROCS(0), maxStreams))}
}

// Scanner goes through a compressed file for the first time.
type Scanner struct {
	lim    *Limits
	rd     stream.Reader
	file   File
	last   int64 // position of the last place
	locked bool
}

// Scan begins to go through a file, from byte at of it on, when it is its turn. The
// Scanner has to be closed.
func (l *Limits) Scan(ctx context.Context, read stream.ReadFunc, size int64, f stream.Format, at int64) (*Scanner, error) {
	select {
	case l.streams <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s := &Scanner{lim: l, file: File{Format: f}}
	s.rd.Open(ctx, read, size, f, at)
	return s, nil
}

// Close ends all that the Scanner has begun.
func (s *Scanner) Close() {
	s.rd.Close()
	if s.locked {
		s.lim.large.Unlock()
	}
	<-s.lim.streams
}

// Read implements io.Reader.
func (s *Scanner) Read(p []byte) (int, error) {
	n, err := s.rd.Read(p)
	if !s.locked && s.rd.Window() > largeWindow {
		s.locked = true
		s.lim.large.Lock()
	}
	return n, err
}

// Pos is how many bytes Read has given.
func (s *Scanner) Pos() int64 { return s.rd.Pos() }

// Mark notes that a record begins at a position, in what the last Read gave or right
// behind it. It becomes a place where that is of use.
func (s *Scanner) Mark(record, pos int64) {
	member, start := s.rd.Member()
	if start > pos {
		return
	}
	if k := len(s.file.Places); k == 0 || member > s.file.Places[k-1].At && pos-s.last >= apart {
		s.file.Places = append(s.file.Places, Place{record, member, pos - start, pos})
		s.last = pos
	}
}

// File is what was found out, but for the number of records.
func (s *Scanner) File() File {
	s.file.Window = s.rd.Window()
	return s.file
}
