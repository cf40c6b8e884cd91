package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// ReadOptions change how a pack is read. Nil means the defaults.
type ReadOptions struct {
	// VerifyChunks compares the checksum of every chunk before its first
	// record is used. It costs one read of each chunk as a whole.
	VerifyChunks bool
}

// Reader reads records of a pack by number. Its methods may be called from
// several goroutines at once, except Close.
//
// The index of a chunk is read at the first use of one of its records and kept
// in flat arrays: about 9 bytes per record, 17 with labels, 25 when sizes
// differ, and no pointers.
type Reader struct {
	dir  string
	man  *Manifest
	opt  ReadOptions
	cols []arrowipc.Column
	col  struct{ path, label, width, height, orientation, codec, image, exif, icc int }

	chunks []chunkRef
	first  []int64 // number of the first record of each chunk, and the total
	loaded []atomic.Bool
	locks  [64]sync.Mutex

	start  []uint32 // position of the image from the beginning of its chunk
	size   []uint32
	codec  []uint8
	orient []uint8
	label  []int64 // nil without labels
	width  []int32 // nil when all images are equally wide and high
	height []int32

	recs *recordIndex // of a pack without images, instead of all that
	bulk int

	ctx     context.Context
	st      store.Store
	entries []store.Entry // of the shards

	shardMu sync.Mutex
	fds     []atomic.Int32 // file descriptor + 1, 0 while not open
}

// chunkRef is the place of one chunk.
type chunkRef struct {
	shard  uint32
	number uint32 // in its shard
	rows   int64
	offset int64
	bytes  int64
	head   int64
	sum    Checksum
}

// Open opens the finished pack dir.
func Open(ctx context.Context, dir string, opt *ReadOptions) (*Reader, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	r := newReader(dir, m, opt)
	// The number of rows is bounded by the size of the shards. That they are
	// really so large is looked at before memory of that size is taken.
	r.ctx = ctx
	if err := r.statShards(); err != nil {
		return nil, err
	}
	at := m.Records
	if r.recs != nil {
		r.recs.allocate(at, len(r.chunks))
		return r, nil
	}
	r.start, r.size, r.codec, r.orient = make([]uint32, at), make([]uint32, at), make([]uint8, at), make([]uint8, at)
	if r.col.label >= 0 {
		r.label = make([]int64, at)
	}
	if im := m.image().Images; im.MinWidth != im.MaxWidth || im.MinHeight != im.MaxHeight {
		r.width, r.height = make([]int32, at), make([]int32, at)
	}
	return r, nil
}

// newReader makes a reader without an index of records.
func newReader(dir string, m *Manifest, opt *ReadOptions) *Reader {
	r := &Reader{dir: dir, man: m, cols: m.columns(), bulk: m.bulk()}
	if m.Version == RecordsVersion {
		r.recs = newRecordIndex(m)
	}
	if opt != nil {
		r.opt = *opt
	}
	for name, p := range map[string]*int{
		colPath: &r.col.path, colLabel: &r.col.label, colWidth: &r.col.width, colHeight: &r.col.height,
		colOrientation: &r.col.orientation, colCodec: &r.col.codec, colImage: &r.col.image, colExif: &r.col.exif, colICC: &r.col.icc,
	} {
		*p = m.field(name)
	}
	if i := r.col.path; r.recs != nil && i >= 0 && m.Fields[i].Kind != string(driver.KindText) {
		r.col.path = -1 // a field that happens to have this name
	}
	n := 0
	for i := range m.Shards {
		n += len(m.Shards[i].Chunks)
	}
	r.chunks = make([]chunkRef, 0, n)
	r.first = make([]int64, 0, n+1)
	at := int64(0)
	for i := range m.Shards {
		for k, c := range m.Shards[i].Chunks {
			r.chunks = append(r.chunks, chunkRef{uint32(i), uint32(k), c.Rows, c.Offset, c.Bytes, c.Head, c.XXH3})
			r.first = append(r.first, at)
			at += c.Rows
		}
	}
	r.first = append(r.first, at)
	r.loaded = make([]atomic.Bool, n)
	r.fds = make([]atomic.Int32, len(m.Shards))
	return r
}

// Close closes the shards.
func (r *Reader) Close() error {
	var first error
	for i := range r.fds {
		if fd := r.fds[i].Swap(0); fd > 0 {
			if err := unix.Close(int(fd - 1)); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// Manifest is the pack's manifest. It must not be changed.
func (r *Reader) Manifest() *Manifest { return r.man }

// Len is the number of records.
func (r *Reader) Len() int64 { return r.man.Records }

// Dir is the folder of the pack.
func (r *Reader) Dir() string { return r.dir }

// Whereabouts says in which shard and chunk record id lies, and in which row of it.
func (r *Reader) Whereabouts(id int64) (shard string, chunk, row int64) {
	c, row := r.locate(id)
	return r.man.Shards[r.chunks[c].shard].File, int64(r.chunks[c].number), row
}

// place names a row for messages.
func (r *Reader) place(c int, row int64) string {
	ref := &r.chunks[c]
	return fmt.Sprintf("%s, chunk %d, row %d", filepath.Join(r.dir, r.man.Shards[ref.shard].File), ref.number, row)
}

func (r *Reader) chunkPlace(c int) string {
	ref := &r.chunks[c]
	return fmt.Sprintf("%s, chunk %d (bytes %d to %d)", filepath.Join(r.dir, r.man.Shards[ref.shard].File), ref.number, ref.offset, ref.offset+ref.bytes)
}

// fd returns the descriptor of a shard, opened at first use.
func (r *Reader) fd(shard uint32) (int, error) {
	if v := r.fds[shard].Load(); v > 0 {
		return int(v - 1), nil
	}
	r.shardMu.Lock()
	defer r.shardMu.Unlock()
	if v := r.fds[shard].Load(); v > 0 {
		return int(v - 1), nil
	}
	s := &r.man.Shards[shard]
	path := filepath.Join(r.dir, s.File)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.EMFILE) {
			return 0, fmt.Errorf("cannot open %s: %w: raise the limit (ulimit -n), or pack with a larger --shard-size", path, err)
		}
		return 0, fmt.Errorf("cannot open %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != s.Bytes {
		unix.Close(fd)
		return 0, fmt.Errorf("%s has %d bytes, the manifest says %d: it was changed after packing; stoker verify says what is damaged", path, st.Size, s.Bytes)
	}
	// Records come in a random order. Without this the kernel takes a record
	// whose neighbours are in memory for part of a sequence, and reads ahead what
	// nobody has asked for: twice the bytes where half the data is cached.
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	r.fds[shard].Store(int32(fd + 1))
	return fd, nil
}

// pread fills b from off, or fails.
func pread(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pread(fd, b, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// verifyChunk compares the checksum of chunk c.
func (r *Reader) verifyChunk(c int, buf []byte) error {
	ref := &r.chunks[c]
	fd, err := r.fd(ref.shard)
	if err != nil {
		return err
	}
	err = checkChunk(fdReader(fd), Chunk{Offset: ref.offset, Bytes: ref.bytes, XXH3: ref.sum}, buf)
	if err != nil {
		return fmt.Errorf("%s is damaged: %w", r.chunkPlace(c), err)
	}
	return nil
}

// fdReader is an io.ReaderAt over a file descriptor.
type fdReader int

func (f fdReader) ReadAt(b []byte, off int64) (int, error) {
	if err := pread(int(f), b, off); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		return 0, err
	}
	return len(b), nil
}

// view is a chunk whose beginning is in memory: all columns but the images and
// what follows them.
type view struct {
	r    *Reader
	c    int
	head []byte
	lay  *arrowipc.Layout
}

// view reads the beginning of chunk c into buf and checks its layout.
func (r *Reader) view(c int, buf *[]byte) (*view, error) {
	ref := &r.chunks[c]
	fd, err := r.fd(ref.shard)
	if err != nil {
		return nil, err
	}
	*buf = grow(*buf, int(ref.head))
	if err := pread(fd, *buf, ref.offset); err != nil {
		return nil, fmt.Errorf("%s: %w", r.chunkPlace(c), err)
	}
	v, err := r.viewOf(c, *buf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; stoker verify says what else is damaged", r.chunkPlace(c), err)
	}
	return v, nil
}

// check makes sure that the small columns and the offsets of the images are
// all in the head, and that their offsets are in order.
func (v *view) check() error {
	r := v.r
	if int64(v.lay.Rows) != r.chunks[v.c].rows {
		return fmt.Errorf("%w: %d rows, the manifest says %d", arrowipc.ErrFormat, v.lay.Rows, r.chunks[v.c].rows)
	}
	if r.recs != nil {
		return v.checkRecords()
	}
	need := func(s arrowipc.Span) error {
		if s.Off+s.Len > int64(len(v.head)) {
			return fmt.Errorf("%w: a column ends behind the head", arrowipc.ErrFormat)
		}
		return nil
	}
	for i := range r.cols {
		if i == r.col.exif || i == r.col.icc {
			continue
		}
		if i != r.col.image {
			if err := need(v.lay.Values[i]); err != nil {
				return err
			}
		}
		if r.cols[i].OffsetWidth() == 0 {
			continue
		}
		if err := need(v.lay.Offsets[i]); err != nil {
			return err
		}
		if err := arrowipc.CheckOffsets(v.span(v.lay.Offsets[i]), v.lay.Rows, v.lay.Values[i].Len); err != nil {
			return err
		}
	}
	return nil
}

func (v *view) span(s arrowipc.Span) []byte { return v.head[s.Off : s.Off+s.Len] }

func (v *view) int64(col int, row int64) int64 {
	return int64(binary.LittleEndian.Uint64(v.head[v.lay.Values[col].Off+8*row:]))
}

func (v *view) int32(col int, row int64) int32 {
	return int32(binary.LittleEndian.Uint32(v.head[v.lay.Values[col].Off+4*row:]))
}

func (v *view) uint8(col int, row int64) uint8 { return v.head[v.lay.Values[col].Off+row] }

// value returns where value row of a UTF8 or Binary column lies, counted from
// the beginning of the chunk.
func (v *view) value(col int, row int64) (start, size int64) {
	o := v.head[v.lay.Offsets[col].Off+4*row:]
	a, b := binary.LittleEndian.Uint32(o), binary.LittleEndian.Uint32(o[4:])
	return v.lay.Values[col].Off + int64(a), int64(b - a)
}

func (v *view) path(row int64) string {
	start, size := v.value(v.r.col.path, row)
	return string(v.head[start : start+size])
}

// index copies what reading needs out of v into the flat arrays.
func (r *Reader) index(c int, v *view) error {
	if r.recs != nil {
		return r.indexRecords(c, v)
	}
	at := r.first[c]
	for row := range r.chunks[c].rows {
		if err := v.checkRow(row); err != nil {
			return err
		}
		start, size := v.value(r.col.image, row)
		i := at + row
		r.start[i], r.size[i], r.codec[i] = uint32(start), uint32(size), v.uint8(r.col.codec, row)
		r.orient[i] = v.uint8(r.col.orientation, row)
		if r.label != nil {
			r.label[i] = v.int64(r.col.label, row)
		}
		if r.width != nil {
			r.width[i], r.height[i] = v.int32(r.col.width, row), v.int32(r.col.height, row)
		}
	}
	return nil
}

// checkRow compares a row with what the manifest says of all rows.
func (v *view) checkRow(row int64) error {
	r := v.r
	im := r.man.image().Images
	_, size := v.value(r.col.image, row)
	w, h := v.int32(r.col.width, row), v.int32(r.col.height, row)
	codec := v.uint8(r.col.codec, row)
	if w < im.MinWidth || w > im.MaxWidth || h < im.MinHeight || h > im.MaxHeight || size > im.MaxBytes {
		return fmt.Errorf("%w: row %d is an image of %d x %d in %d bytes, outside of the manifest's statistics", arrowipc.ErrFormat, row, w, h, size)
	}
	name := codecNames[driver.Codec(codec)]
	if _, ok := im.CodecNumbers[name]; !ok {
		return fmt.Errorf("%w: row %d has image codec %d, which the manifest does not list", arrowipc.ErrFormat, row, codec)
	}
	if driver.Codec(codec) == driver.CodecRaw && size != 3*int64(w)*int64(h) {
		return fmt.Errorf("%w: row %d has %d bytes for %d x %d raw pixels", arrowipc.ErrFormat, row, size, w, h)
	}
	if r.col.label >= 0 {
		l, classes := v.int64(r.col.label, row), int64(len(r.man.Classes()))
		if l < 0 || l >= classes {
			return fmt.Errorf("%w: row %d has label %d of %d classes", arrowipc.ErrFormat, row, l, classes)
		}
	}
	return nil
}

// checkRows checks all rows of a chunk.
func (v *view) checkRows() error {
	for row := range v.r.chunks[v.c].rows {
		if err := v.checkRow(row); err != nil {
			return fmt.Errorf("%s: %w; stoker verify says what else is damaged", v.r.chunkPlace(v.c), err)
		}
	}
	return nil
}

// dims returns the size of image id, whose chunk is loaded.
func (r *Reader) dims(id int64) (w, h int32) {
	if r.width == nil {
		im := r.man.image().Images
		return im.MinWidth, im.MinHeight
	}
	return r.width[id], r.height[id]
}

// Record is one record as stored, with everything that the pack knows of it.
type Record struct {
	ID            int64
	Path          string
	Label         int64 // -1 in a pack without labels
	Class         string
	Width, Height int32
	Orientation   uint8
	Codec         driver.Codec
	Image         []byte
	// EXIF and ICC are set for images whose stored form has no room for them,
	// in packs made with metadata.
	EXIF, ICC []byte
	// Values are all fields of a record of a pack without images, in the order
	// of the manifest; the members above but ID and Path are then not set.
	Values []Value
}

// Record reads record id. It is made for tools; loaders use Read.
func (r *Reader) Record(id int64) (*Record, error) {
	if id < 0 || id >= r.Len() {
		return nil, fmt.Errorf("%s has %d records, 0 to %d; there is no record %d", r.dir, r.Len(), r.Len()-1, id)
	}
	c, row := r.locate(id)
	var buf []byte
	v, err := r.view(c, &buf)
	if err != nil {
		return nil, err
	}
	rec := &Record{}
	return rec, v.record(row, rec, nil)
}

// record fills rec with a row; the image is read into image when it fits.
func (v *view) record(row int64, rec *Record, image []byte) error {
	r := v.r
	if r.recs != nil {
		return v.recordOf(row, rec)
	}
	ref := &r.chunks[v.c]
	fd, err := r.fd(ref.shard)
	if err != nil {
		return err
	}
	*rec = Record{
		ID: r.first[v.c] + row, Path: v.path(row), Label: -1,
		Width: v.int32(r.col.width, row), Height: v.int32(r.col.height, row),
		Orientation: v.uint8(r.col.orientation, row), Codec: driver.Codec(v.uint8(r.col.codec, row)),
	}
	if r.col.label >= 0 {
		rec.Label = v.int64(r.col.label, row)
		if c := r.man.Classes(); rec.Label >= 0 && rec.Label < int64(len(c)) {
			rec.Class = c[rec.Label]
		}
	}
	start, size := v.value(r.col.image, row)
	rec.Image = grow(image, int(size))
	if err := pread(fd, rec.Image, ref.offset+start); err != nil {
		return fmt.Errorf("%s: %w", r.place(v.c, row), err)
	}
	for _, m := range []struct {
		col int
		out *[]byte
	}{{r.col.exif, &rec.EXIF}, {r.col.icc, &rec.ICC}} {
		if m.col < 0 {
			continue
		}
		if *m.out, err = r.farValue(fd, v, m.col, row); err != nil {
			return fmt.Errorf("%s: %w", r.place(v.c, row), err)
		}
	}
	return nil
}

// farValue reads a value of a column behind the images.
func (r *Reader) farValue(fd int, v *view, col int, row int64) ([]byte, error) {
	ref := &r.chunks[v.c]
	var o [8]byte
	if err := pread(fd, o[:], ref.offset+v.lay.Offsets[col].Off+4*row); err != nil {
		return nil, err
	}
	a, b := int64(binary.LittleEndian.Uint32(o[:])), int64(binary.LittleEndian.Uint32(o[4:]))
	if a > b || b > v.lay.Values[col].Len {
		return nil, fmt.Errorf("%w: column %s", arrowipc.ErrFormat, r.cols[col].Name)
	}
	if a == b {
		return nil, nil
	}
	out := make([]byte, b-a)
	return out, pread(fd, out, ref.offset+v.lay.Values[col].Off+a)
}
