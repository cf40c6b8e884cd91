// Package tarsource reads tar files at random, without unpacking them. It reads webdataset shards, whose samples
// are members with a common key, and tars of any other files. Package archive documents the meaning of member
// names.
//
// A tar file has no index, so opening reads the headers of all members once. Tar has no checksums for the content
// of members.
//
// Tar files that are compressed with gzip or zstd are read in order, as a stream. Opening decompresses them once.
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
	// window is the read size while small members are scanned. After a member of more than farApart bytes only far
	// bytes are read: the rest of its last block and the next header with its extensions.
	window   = 256 << 10
	farApart = 32 << 10
	far      = 4 * block
)

var archives = archive.Format{Name: "tar", Is: IsName, Scan: Scan, Compressed: compression, ScanStream: scanStream}

// Open lists the tar files of st (or takes the single object that st is) and scans the headers of their members.
func Open(ctx context.Context, url string, st store.Store, opt *archive.Options) (driver.Source, error) {
	return archive.Open(ctx, url, st, &archives, opt)
}

// IsName reports whether a path has the extension of a tar file, compressed or not.
func IsName(path string) bool {
	name := strings.ToLower(path)
	for _, end := range []string{".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// IsFile reports whether an object, or the data that it decompresses to, begins with the header of a tar file.
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

// isHeader reports whether a block is the header of a member.
func isHeader(b []byte) bool {
	if len(b) < block || [block]byte(b) == [block]byte{} {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(b)).Next()
	return err == nil || errors.Is(err, tar.ErrInsecurePath)
}

// compression detects the compression of a file from its first block.
func compression(head []byte) stream.Format {
	if isHeader(head) {
		return stream.Plain // a member name can look like the magic number of gzip
	}
	return stream.Detect(head)
}

// Scan calls add for each member of a tar file that is a file. Package tar reads whole blocks and seeks over the
// content, so that its reader then is at the content of a member.
func Scan(ctx context.Context, r io.ReaderAt, size int64, add func(m *archive.Member) error) error {
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

// scanStream scans a tar file while it is decompressed.
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
		return damaged(at, err, "the decompressed data ends there")
	}, add)
	if err != nil {
		return err
	}
	// Read the zeros after the last member, so that the checksum of the stream is verified.
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 32<<10))
	return err
}

// members calls add for each member that r has. pos returns the offset of r. check is called for each header and
// for an error in place of one.
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
		case errors.Is(err, tar.ErrInsecurePath): // names are not used as paths here
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
			return &archive.Damage{At: at, Err: fmt.Errorf("%s has an invalid size of %d bytes: the file is damaged", printed(h.Name), h.Size)}
		}
		if err := add(&archive.Member{Name: h.Name, At: pos(), Extent: h.Size, Size: h.Size}); err != nil {
			return err
		}
	}
}

// sparse reports whether a member is stored without its holes, in one of GNU tar's formats.
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

// damaged returns the error for an invalid header at offset at. Read errors already name their position.
func damaged(at int64, err error, ends string) error {
	text, own := strings.CutPrefix(err.Error(), "archive/tar: ")
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &archive.Damage{At: at, Err: fmt.Errorf("a member begins here, %s: it is cut off", ends)}
	case !own:
		return err
	case at == 0:
		return &archive.Damage{At: at, Err: fmt.Errorf("not a valid tar file: %s", text)}
	}
	return &archive.Damage{At: at, Err: fmt.Errorf("expected the header of a member, the file is damaged: %s", text)}
}

// unreadable refuses unsupported compressions.
func unreadable(r io.ReaderAt, size int64) error {
	b := make([]byte, min(size, 6))
	if _, err := r.ReadAt(b, 0); err != nil {
		return err
	}
	for _, c := range []struct{ magic, name, tool string }{{"BZh", "bzip2", "bunzip2"}, {"\xFD7zXZ\x00", "xz", "unxz"}} {
		if strings.HasPrefix(string(b), c.magic) {
			return fmt.Errorf("compression with %s is not supported: unpack it with %s, or compress it with gzip or zstd", c.name, c.tool)
		}
	}
	return nil
}

// file is the io.ReadSeeker for package tar. It reads windows of a store's object.
type file struct {
	r        io.ReaderAt
	size, at int64
	buf      []byte
	from     int64 // offset of buf
	jumped   int64 // distance of the last seek
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
		return 0, errors.New("seek before the start of the file")
	}
	if off != f.at {
		f.jumped = off - f.at
	}
	f.at = off
	return off, nil
}
