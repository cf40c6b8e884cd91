// Package tarsource reads tar files as they are, by index: shards that the
// webdataset library reads, whose samples are members with a name in common, and
// tars of any files. What names mean is said in package archive.
//
// A tar file has no index. Opening goes through the headers of all members once.
// The content of a member has no checksum in a tar file.
//
// Tar files that are compressed with gzip or zstd are read in order, like a stream:
// opening decompresses them once.
package tarsource

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	block = 512
	// window is how much is read at once while small members are gone through;
	// behind members of more than farApart only far bytes are read: what is left of
	// their last block, and the header of the next one, with its extended ones.
	window   = 256 << 10
	farApart = 32 << 10
	far      = 4 * block
)

var format = archive.Format{Name: "tar", Is: IsName, Scan: scan, Compressed: compression, ScanStream: scanStream}

// Open lists the tar files of st, or takes the one that it is, and goes through
// the headers of their members.
func Open(ctx context.Context, url string, st store.Store, opt *archive.Options) (driver.Source, error) {
	return archive.Open(ctx, url, st, &format, opt)
}

// IsName says whether a path looks like a tar file's, also a compressed one's.
func IsName(path string) bool {
	name := strings.ToLower(path)
	for _, end := range []string{".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// IsFile says whether an object begins with the header of a tar file, or decompresses
// to something that does.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), block))
	if o.ReadAt(ctx, b, 0) != nil {
		return false
	}
	if f := compression(b); f != stream.Plain {
		var rd stream.Reader
		defer rd.Close()
		rd.Open(ctx, o.ReadAt, o.Size(), f, 0)
		b = make([]byte, block)
		if _, err := io.ReadFull(&rd, b); err != nil {
			return false
		}
	}
	return isHeader(b)
}

// isHeader says whether a block is the header of a member.
func isHeader(b []byte) bool {
	if len(b) < block || [block]byte(b) == [block]byte{} {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(b)).Next()
	return err == nil || errors.Is(err, tar.ErrInsecurePath)
}

// compression is that of a file with such a first block.
func compression(head []byte) stream.Format {
	if isHeader(head) {
		return stream.Plain // a name that looks like gzip
	}
	return stream.Detect(head)
}

// scan goes through the headers of a tar file. Package tar reads the headers: it
// asks for whole blocks and seeks over what lies between them, so that the place
// of its reader is where the content of a member begins.
func scan(ctx context.Context, r io.ReaderAt, size int64, add func(m *archive.Member) error) error {
	if err := unreadable(r, size); err != nil {
		return err
	}
	f := &file{r: r, size: size}
	return members(ctx, f, func() int64 { return f.at }, func(at int64, h *tar.Header, err error) error {
		left := max(size-at, 0)
		switch {
		case err != nil:
			return damaged(at, err, fmt.Sprintf("the file ends %d bytes later", left))
		case h.Size > size-f.at:
			return &archive.Damage{At: at, Err: fmt.Errorf("%s of %d bytes begins here, the file ends %d bytes later: it is cut off", printed(h.Name), h.Size, left)}
		}
		return nil
	}, add)
}

// scanStream goes through a tar file while it is decompressed.
func scanStream(ctx context.Context, r *inorder.Scanner, add func(m *archive.Member) error) error {
	var last *tar.Header
	err := members(ctx, r, r.Pos, func(at int64, h *tar.Header, err error) error {
		if err == nil {
			last = h
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) && last != nil && r.Pos() < at {
			return &archive.Damage{At: r.Pos(), Err: inorder.Cut(io.EOF, printed(last.Name))}
		}
		return damaged(at, err, "what the file decompresses to ends there")
	}, add)
	if err != nil {
		return err
	}
	// Behind the last member stand zeros, and the checksum of it all.
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 32<<10))
	return err
}

// members goes through the members that r has, whose place is pos: check is called
// for each one and for what is wrong where one begins.
func members(ctx context.Context, r io.Reader, pos func() int64, check func(at int64, h *tar.Header, err error) error, add func(m *archive.Member) error) error {
	tr := tar.NewReader(r)
	end := int64(0) // of the last member
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := (end + block - 1) &^ (block - 1)
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, tar.ErrInsecurePath): // a name is a name here, and no path
		case err != nil:
			return check(at, nil, err)
		}
		if sparse(h) {
			return &archive.Damage{At: at, Err: fmt.Errorf("%s is a sparse file, which is not read: unpack the tar file and write it again without --sparse", printed(h.Name))}
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeCont {
			end = pos()
			continue
		}
		if err := check(at, h, nil); err != nil {
			return err
		}
		if end = pos() + h.Size; end < 0 {
			return &archive.Damage{At: at, Err: fmt.Errorf("%s is said to have %d bytes: the file is damaged", printed(h.Name), h.Size)}
		}
		if err := add(&archive.Member{Name: h.Name, At: pos(), Extent: h.Size, Size: h.Size}); err != nil {
			return err
		}
	}
}

// sparse says whether a member is stored without its holes, in one of the ways of
// GNU tar.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func printed(name string) string {
	const most = 100
	if len(name) > most {
		name = name[:most] + "..."
	}
	return fmt.Sprintf("the member %q", name)
}

// damaged says what is wrong where a header was expected. Errors of reading name
// their place already.
func damaged(at int64, err error, ends string) error {
	text, own := strings.CutPrefix(err.Error(), "archive/tar: ")
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &archive.Damage{At: at, Err: fmt.Errorf("a member begins here, %s: it is cut off", ends)}
	case !own:
		return err
	case at == 0:
		return &archive.Damage{At: at, Err: fmt.Errorf("not a tar file that can be read: %s", text)}
	}
	return &archive.Damage{At: at, Err: fmt.Errorf("no header of a member that can be read begins here, the file is damaged: %s", text)}
}

// unreadable refuses what is compressed in other ways.
func unreadable(r io.ReaderAt, size int64) error {
	b := make([]byte, min(size, 6))
	if _, err := r.ReadAt(b, 0); err != nil {
		return err
	}
	for _, c := range []struct{ magic, name, tool string }{{"BZh", "bzip2", "bunzip2"}, {"\xFD7zXZ\x00", "xz", "unxz"}} {
		if strings.HasPrefix(string(b), c.magic) {
			return fmt.Errorf("it is compressed with %s, which is not read: unpack it with %s, or compress it with gzip or zstd", c.name, c.tool)
		}
	}
	return nil
}

// file is the io.ReadSeeker that package tar reads: pieces of a store's object.
type file struct {
	r        io.ReaderAt
	size, at int64
	buf      []byte
	from     int64 // of buf
	jumped   int64 // by the last seek
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (int, error) {
	if f.at >= f.size {
		return 0, io.EOF
	}
	if f.at < f.from || f.at >= f.from+int64(len(f.buf)) {
		n := int64(window)
		if f.jumped > farApart {
			n = far
		}
		n = min(n, f.size-f.at)
		if int64(cap(f.buf)) < n {
			f.buf = make([]byte, window)
		}
		f.buf = f.buf[:n]
		if _, err := f.r.ReadAt(f.buf, f.at); err != nil {
			f.buf = f.buf[:0]
			return 0, err
		}
		f.from = f.at
	}
	n := copy(p, f.buf[f.at-f.from:])
	f.at += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (f *file) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += f.at
	case io.SeekEnd:
		off += f.size
	}
	if off < 0 {
		return 0, errors.New("a place in front of the file")
	}
	if off != f.at {
		f.jumped = off - f.at
	}
	f.at = off
	return off, nil
}
