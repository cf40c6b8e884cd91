package zarrsource

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/inflate"
	"github.com/stokerdata/stoker/store"
)

// A zip store is a zip file whose members are the files of a Zarr folder, as written by zarr's ZipStore. Here it is
// a store.Store. Zarr does not compress the members, because chunks already are, so these are read in place.
// Compressed members are inflated when they are opened.

const (
	maxMembers  = 1 << 24
	maxInflated = 256 << 20
)

// IsZip reports whether st is a zip file with a Zarr array or group.
func IsZip(ctx context.Context, st store.Store) bool {
	z, err := openZip(ctx, st)
	return err == nil && Is(ctx, z)
}

// openZip returns a store of the members of the zip file that st is.
func openZip(ctx context.Context, st store.Store) (*zipStore, error) {
	o, err := st.Open(ctx, "")
	if err != nil {
		return nil, err
	}
	defer o.Close()
	fail := func(err error) error { return &store.Error{Op: "read", Path: st.Path(""), Err: err} }
	r, err := zip.NewReader(readerAt{ctx, o}, o.Size())
	if err != nil {
		return nil, fail(err)
	}
	if len(r.File) > maxMembers {
		return nil, fail(fmt.Errorf("it has more than %d members", maxMembers))
	}
	z := &zipStore{st: st, version: o.Version(), members: map[string]*zipMember{}}
	root, found := "", false
	for _, f := range r.File {
		dir, base := path.Split(f.Name)
		if base == thirdName || base == groupName || base == arrayName || base == allName {
			if !found || len(dir) < len(root) {
				root, found = dir, true
			}
		}
	}
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, f := range r.File {
		name, below := strings.CutPrefix(f.Name, root)
		if !below || name == "" || strings.HasSuffix(name, "/") || store.CheckName(name) != nil {
			continue
		}
		if f.Method != zip.Store && f.Method != zip.Deflate || f.Flags&1 != 0 {
			return nil, fail(fmt.Errorf("its member %.80q is encrypted or compressed with method %d, which is not supported: write it without", f.Name, f.Method))
		}
		at, err := f.DataOffset()
		if err != nil {
			return nil, fail(fmt.Errorf("its member %.80q: %w", f.Name, err))
		}
		size := int64(min(f.UncompressedSize64, 1<<62))
		if f.Method == zip.Deflate && size > maxInflated {
			return nil, fail(fmt.Errorf("its member %.80q is compressed and has %d bytes, which is too large: write it without compression", f.Name, size))
		}
		if end := at + int64(min(f.CompressedSize64, 1<<62)); end > o.Size() || f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64 {
			return nil, fail(fmt.Errorf("its member %.80q is outside of the file: it is damaged", f.Name))
		}
		if _, twice := z.members[name]; !twice {
			z.names = append(z.names, name)
		}
		m := &zipMember{at: at, packed: int64(f.CompressedSize64), deflated: f.Method == zip.Deflate, crc: f.CRC32}
		m.entry = store.Entry{Name: name, Size: size, Version: z.versionOf(z.version, m), ModTime: e.ModTime}
		z.members[name] = m // the last member of a name counts
	}
	sort.Strings(z.names)
	return z, nil
}

// readerAt is an object for package zip.
type readerAt struct {
	ctx context.Context
	o   store.Object
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := len(p)
	if off >= r.o.Size() {
		return 0, io.EOF
	}
	if int64(n) > r.o.Size()-off {
		n = int(r.o.Size() - off)
	}
	if err := r.o.ReadAt(r.ctx, p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

type zipMember struct {
	at, packed int64
	deflated   bool
	crc        uint32
	entry      store.Entry
}

// zipStore is a zip file as a store.
type zipStore struct {
	st      store.Store
	version string // version of the zip file
	members map[string]*zipMember
	names   []string // sorted
}

func (z *zipStore) versionOf(file string, m *zipMember) string {
	return fmt.Sprintf("%s/%d/%08x", file, m.at, m.crc)
}

// Open implements store.Store.
func (z *zipStore) Open(ctx context.Context, name string) (store.Object, error) {
	m := z.members[name]
	if m == nil {
		return nil, &store.Error{Op: "open", Path: z.Path(name), Err: store.ErrNotExist}
	}
	o, err := z.st.Open(ctx, "")
	if err != nil {
		return nil, err
	}
	if !m.deflated {
		return &stored{o, m, z, name}, nil
	}
	defer o.Close()
	packed := make([]byte, m.packed)
	if err := o.ReadAt(ctx, packed, m.at); err != nil {
		return nil, err
	}
	b := make([]byte, m.entry.Size)
	n, _, err := inflate.Raw(b, packed)
	if err == nil && (n < len(b) || crc32.ChecksumIEEE(b) != m.crc) {
		err = errors.New("the checksum of its content is wrong: the file is damaged")
	}
	if err != nil {
		return nil, &store.Error{Op: "read", Path: z.Path(name), Err: err}
	}
	return &inflated{b, z.versionOf(o.Version(), m), z.Path(name)}, nil
}

// List implements store.Store.
func (z *zipStore) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	prefix := dir
	if dir != "" {
		prefix += "/"
	}
	for _, name := range z.names[sort.SearchStrings(z.names, prefix):] {
		rest, below := strings.CutPrefix(name, prefix)
		if !below {
			break
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if opt != nil && (opt.Keep != nil && !opt.Keep(name)) || (opt == nil || !opt.Hidden) && (rest[0] == '.' || strings.Contains(rest, "/.")) {
			continue
		}
		if err := f(z.members[name].entry); err != nil {
			return err
		}
	}
	return nil
}

// Stat implements store.Store.
func (z *zipStore) Stat(_ context.Context, name string) (store.Entry, error) {
	if m := z.members[name]; m != nil {
		return m.entry, nil
	}
	at := sort.SearchStrings(z.names, name+"/")
	if name == "" || at < len(z.names) && strings.HasPrefix(z.names[at], name+"/") {
		return store.Entry{Name: name, Dir: true}, nil
	}
	return store.Entry{}, &store.Error{Op: "look at", Path: z.Path(name), Err: store.ErrNotExist}
}

// String implements store.Store.
func (z *zipStore) String() string { return z.st.Path("") }

// Path implements store.Store.
func (z *zipStore) Path(name string) string {
	if name == "" {
		return z.st.Path("")
	}
	return z.st.Path("") + "/" + name
}

// Close implements store.Store. The caller of openZip closes the zip file.
func (z *zipStore) Close() error { return nil }

// stored is an uncompressed member, which is read from the zip file.
type stored struct {
	store.Object
	m    *zipMember
	z    *zipStore
	name string
}

func (s *stored) Size() int64     { return s.m.entry.Size }
func (s *stored) Version() string { return s.z.versionOf(s.Object.Version(), s.m) }

func (s *stored) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > s.m.entry.Size-off {
		return &store.Error{Op: "read", Path: s.z.Path(s.name), Off: off, Len: int64(len(p)), Err: store.ErrShort}
	}
	return s.Object.ReadAt(ctx, p, s.m.at+off)
}

// inflated is a decompressed member.
type inflated struct {
	b             []byte
	version, path string
}

func (m *inflated) Size() int64     { return int64(len(m.b)) }
func (m *inflated) Version() string { return m.version }
func (m *inflated) Close() error    { return nil }

func (m *inflated) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || int64(len(p)) > int64(len(m.b))-off {
		return &store.Error{Op: "read", Path: m.path, Off: off, Len: int64(len(p)), Err: store.ErrShort}
	}
	copy(p, m.b[off:])
	return nil
}
