package inorder

import (
	"context"
	"runtime"
	"sync"

	"github.com/stokerdata/stoker/internal/source/stream"
)

const (
	// largeWindow is the window size above which files are scanned one at a time.
	largeWindow = 8 << 20
	// maxStreams is the maximum number of files scanned at the same time.
	maxStreams = 16
)

// Limits limit the resources for scanning several files at the same time.
type Limits struct {
	streams chan struct{}
	large   sync.Mutex // held while a file with a large window is scanned
}

// NewLimits returns the limits for one source.
func NewLimits() *Limits {
	return &Limits{streams: make(chan struct{}, min(runtime.GOMAXPROCS(0), maxStreams))}
}

// Scanner scans a compressed file once.
type Scanner struct {
	lim    *Limits
	rd     stream.Reader
	file   File
	last   int64 // Pos of the last restart point
	locked bool
}

// Scan starts to scan a file from byte at on, as soon as the limits allow it. The caller must close the Scanner.
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

// Close stops the Scanner and releases its share of the limits.
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

// Pos returns the number of bytes that Read returned.
func (s *Scanner) Pos() int64 { return s.rd.Pos() }

// Mark notes that a record begins at pos, which is in the bytes of the last Read or directly after them. It becomes
// a restart point if it is far enough from the last one.
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

// File returns the index of the file, without the number of records.
func (s *Scanner) File() File {
	s.file.Window = s.rd.Window()
	return s.file
}
