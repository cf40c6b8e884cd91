package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/wrap/variants"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The names of the files of a pack.
const (
	ManifestName = "manifest.json"
	// JournalName is the file that an unfinished pack has instead.
	JournalName = "unfinished.journal"
)

// FormatName and Version are in every manifest.
const (
	FormatName = "stoker-pack"
	Version    = 5
)

// Limits of a reader.
const (
	maxManifestBytes = 1 << 30
	maxChunkBytes    = 1<<31 + 1<<28
	maxHeadBytes     = 1 << 28
	maxRecords       = 1 << 40
)

// Manifest is the content of manifest.json.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Writer names the program that made the pack, for information.
	Writer string `json:"writer"`
	// Fingerprint identifies the content: see Manifest.computeFingerprint.
	Fingerprint string `json:"fingerprint"`
	Records     int64  `json:"records"`
	// Bytes is the size of all shards.
	Bytes  int64   `json:"bytes"`
	Fields []Field `json:"fields"`
	// Paths is true if the shards have a column of the records' paths. Fields of files have their own paths.
	Paths   bool     `json:"paths,omitempty"`
	Source  Source   `json:"source"`
	Options Settings `json:"options"`
	// Skipped are the inputs that are not in the pack.
	Skipped []Skipped `json:"skipped"`
	// Beside counts files of the source that are of another kind than the records.
	Beside []driver.SkippedGroup `json:"beside,omitempty"`
	Shards []Shard               `json:"shards"`
	// Parts, in the manifest of a piece, is the number of pieces that make the pack.
	Parts int `json:"parts,omitempty"`
	// Appended lists the sources that were appended to the pack, in this order.
	Appended []Appended `json:"appended,omitempty"`
}

// Appended is a source that was appended to a pack.
type Appended struct {
	Source  Source   `json:"source"`
	Options Settings `json:"options"`
	Records int64    `json:"records"`
}

// Source describes the data that a pack was made from.
type Source struct {
	Kind string `json:"kind"` // the format: "folder", "npy", "pack", ...
	Path string `json:"path"`
	// Files and Bytes count the inputs, with the skipped ones.
	Files       int64  `json:"files"`
	Bytes       int64  `json:"bytes"`
	Fingerprint string `json:"fingerprint"`
}

// Settings are the options that decide about the bytes of a pack.
type Settings struct {
	Images string `json:"images,omitempty"`
	Resize string `json:"resize,omitempty"`
	// Other changes to the pixels of images.
	Crop          string `json:"crop,omitempty"`
	Grayscale     bool   `json:"grayscale,omitempty"`
	Interpolation string `json:"interpolation,omitempty"`
	Quality       int    `json:"reencode_quality,omitempty"`
	// Transforms are the transforms applied before packing, as outputs of a loader in JSON. Augment is the number of
	// variants per record, stored in the fields image~0, image~1, and so on. Audio is the format of stored
	// recordings. Seed is the seed of random transforms.
	Transforms string `json:"transforms,omitempty"`
	Augment    int    `json:"augment,omitempty"`
	Audio      string `json:"audio,omitempty"`
	Seed       uint64 `json:"seed,omitempty"`
	Metadata   bool   `json:"metadata,omitempty"`
	Check      string `json:"check,omitempty"`
	ChunkBytes int64  `json:"chunk_bytes"`
	ShardBytes int64  `json:"shard_bytes"`
}

// Skipped is an input that is not in the pack.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Shard is one Arrow file.
type Shard struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	Records int64  `json:"records"`
	// FrameXXH3 is the checksum of the bytes outside of Chunks: those before the first chunk and those after the last
	// one.
	FrameXXH3 Checksum `json:"frame_xxh3"`
	Chunks    []Chunk  `json:"chunks"`
}

// Chunk is one record batch message of a shard.
type Chunk struct {
	// Offset and Bytes are the location of the message with its body.
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
	// Head is the number of bytes from Offset that locate everything else. One read of them is the index of the
	// chunk.
	Head int64 `json:"head"`
	Rows int64 `json:"rows"`
	// XXH3 is the checksum of all Bytes, as 16 hexadecimal digits.
	XXH3 Checksum `json:"xxh3"`
	// HeadXXH3 is the checksum of the first Head bytes.
	HeadXXH3 Checksum `json:"head_xxh3"`
	// Removed lists the removed rows: the first row and the number of rows of each run.
	Removed []int64 `json:"removed,omitempty"`
}

// Checksum is an XXH3-64 that JSON shows as 16 hexadecimal digits.
type Checksum uint64

// MarshalText implements encoding.TextMarshaler.
func (c Checksum) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(c)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Checksum) UnmarshalText(b []byte) error {
	if len(b) != 16 {
		return fmt.Errorf("checksum %q does not have 16 digits", b)
	}
	var v uint64
	for _, d := range b {
		switch {
		case d >= '0' && d <= '9':
			v = v<<4 | uint64(d-'0')
		case d >= 'a' && d <= 'f':
			v = v<<4 | uint64(d-'a'+10)
		default:
			return fmt.Errorf("checksum %q is not hexadecimal", b)
		}
	}
	*c = Checksum(v)
	return nil
}

// codecNames are the names of the codecs in manifests.
var codecNames = map[driver.Codec]string{
	driver.CodecJPEG: "jpeg", driver.CodecPNG: "png", driver.CodecBMP: "bmp", driver.CodecGIF: "gif",
	driver.CodecWebP: "webp", driver.CodecTIFF: "tiff", driver.CodecRaw: "raw", driver.CodecDCT: "dct",
	driver.CodecRuns: "runs", driver.CodecPNM: "pnm", driver.CodecPFM: "pfm", driver.CodecFlo: "flo",
	driver.CodecJXL: "jxl", driver.CodecAVIF: "avif",
}

// CodecName returns the name of a codec in manifests and messages.
func CodecName(c driver.Codec) string {
	if n, ok := codecNames[c]; ok {
		return n
	}
	return fmt.Sprintf("codec %d", c)
}

// Field returns the field of that name, nil when there is none.
func (m *Manifest) Field(name string) *Field {
	for i := range m.Fields {
		if m.Fields[i].Name == name {
			return &m.Fields[i]
		}
	}
	return nil
}

// FieldOf returns the first field of a kind, nil when there is none.
func (m *Manifest) FieldOf(kind driver.Kind) *Field {
	for i := range m.Fields {
		if m.Fields[i].Kind == kind {
			return &m.Fields[i]
		}
	}
	return nil
}

// finish sets the fingerprint and returns the encoded manifest.
func (m *Manifest) finish() ([]byte, error) {
	m.Fingerprint = m.computeFingerprint()
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("the new manifest does not pass its own checks: %w", err)
	}
	b, err := m.marshal()
	if err == nil && len(b) > maxManifestBytes {
		return nil, fmt.Errorf("the manifest has %d bytes, and readers accept %d: pack fewer classes or larger chunks", len(b), maxManifestBytes)
	}
	return b, err
}

// computeFingerprint hashes everything that determines the records and their order. That is the fields (with class
// names and statistics), and the location, rows and checksum of every chunk. The hash is XXH3-128 as 32 hexadecimal
// digits.
func (m *Manifest) computeFingerprint() string {
	h := xxh3.New()
	fields, _ := marshalLine(m.Fields)
	_, _ = h.Write(fields)
	var b []byte
	for i := range m.Shards {
		s := &m.Shards[i]
		b = append(b[:0], s.File...)
		for _, v := range []int64{s.Bytes, s.Records, int64(len(s.Chunks))} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		for _, c := range s.Chunks {
			for _, v := range []uint64{uint64(c.Offset), uint64(c.Bytes), uint64(c.Head), uint64(c.Rows), uint64(c.XXH3), uint64(c.HeadXXH3)} {
				b = binary.LittleEndian.AppendUint64(b, v)
			}
			if len(c.Removed) > 0 {
				b = binary.LittleEndian.AppendUint64(b, uint64(len(c.Removed)))
				for _, v := range c.Removed {
					b = binary.LittleEndian.AppendUint64(b, uint64(v))
				}
			}
		}
		_, _ = h.Write(b)
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// marshal writes the manifest as JSON with one chunk, class or skipped file per
// line: small enough for millions of chunks, readable in a pager.
func (m *Manifest) marshal() ([]byte, error) {
	var out bytes.Buffer
	var firstErr error
	raw := func(v any) []byte {
		b, err := marshalLine(v)
		if err != nil && firstErr == nil {
			firstErr = err
		}
		return b
	}
	line := func(name string, v any) { fmt.Fprintf(&out, "  %q: %s,\n", name, raw(v)) }
	out.WriteString("{\n")
	line("format", m.Format)
	line("version", m.Version)
	line("writer", m.Writer)
	line("fingerprint", m.Fingerprint)
	line("records", m.Records)
	line("bytes", m.Bytes)
	writeList(&out, "  ", "fields", len(m.Fields), func(i int) { out.Write(raw(m.Fields[i])) })
	out.WriteString(",\n")
	if m.Paths {
		line("paths", m.Paths)
	}
	line("source", m.Source)
	line("options", m.Options)
	if m.Parts > 0 {
		line("parts", m.Parts)
	}
	if len(m.Appended) > 0 {
		writeList(&out, "  ", "appended", len(m.Appended), func(i int) { out.Write(raw(m.Appended[i])) })
		out.WriteString(",\n")
	}
	writeList(&out, "  ", "skipped", len(m.Skipped), func(i int) { out.Write(raw(m.Skipped[i])) })
	out.WriteString(",\n")
	if len(m.Beside) > 0 {
		line("beside", m.Beside)
	}
	writeList(&out, "  ", "shards", len(m.Shards), func(i int) {
		s := &m.Shards[i]
		fmt.Fprintf(&out, "{\"file\": %s, \"bytes\": %d, \"records\": %d, \"frame_xxh3\": %s,\n", raw(s.File), s.Bytes, s.Records, raw(s.FrameXXH3))
		writeList(&out, "     ", "chunks", len(s.Chunks), func(k int) { out.Write(raw(s.Chunks[k])) })
		out.WriteString("}")
	})
	out.WriteString(",\n")
	fmt.Fprintf(&out, manifestSum, xxh3.Hash(out.Bytes()))
	return out.Bytes(), firstErr
}

// manifestSum is the end of a manifest: the checksum of all bytes before it.
const manifestSum = "  \"xxh3\": \"%016x\"\n}\n"

var (
	errSum   = errors.New("it does not match the checksum at its end")
	errNoSum = errors.New("it does not end with a checksum")
)

// checkManifestSum compares the bytes of a manifest with the checksum at their end.
func checkManifestSum(b []byte) error {
	n := len(b) - len(fmt.Sprintf(manifestSum, 0))
	switch {
	case n < 0 || !bytes.HasPrefix(b[n:], []byte(manifestSum[:strings.Index(manifestSum, "%")])):
		return errNoSum
	case string(b[n:]) != fmt.Sprintf(manifestSum, xxh3.Hash(b[:n])):
		return errSum
	}
	return nil
}

// marshalLine is json.Marshal without escapes for HTML.
func marshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func writeList(out *bytes.Buffer, indent, name string, n int, item func(i int)) {
	fmt.Fprintf(out, "%s%q: [", indent, name)
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(out, "\n%s  ", indent)
		item(i)
	}
	if n > 0 {
		fmt.Fprintf(out, "\n%s", indent)
	}
	out.WriteByte(']')
}

// ErrUnfinished is in the error of a reader for a folder that is being packed, or whose packing was interrupted.
var ErrUnfinished = errors.New("unfinished pack")

// ErrDamaged is in the error of a reader that meets a manifest which is damaged.
var ErrDamaged = errors.New("the manifest is damaged")

// errNoManifest is both: packing did not begin with these shards, or their manifest was removed.
var errNoManifest error = noManifest{}

type noManifest struct{}

func (noManifest) Error() string        { return ErrUnfinished.Error() }
func (noManifest) Is(target error) bool { return target == ErrUnfinished || target == ErrDamaged }

// ErrNotPack is in the error of a reader if the location is not a pack.
var ErrNotPack = errors.New("not a pack")

// IsPack reports whether dir looks like a pack, finished or not. A folder that
// only happens to have a file of the manifest's name is none.
func IsPack(dir string) bool {
	st, err := stores.Open(context.Background(), dir)
	return err == nil && IsPackStore(context.Background(), st)
}

// IsPackStore is IsPack for the root of any store.
func IsPackStore(ctx context.Context, st store.Store) bool {
	if e, err := st.Stat(ctx, ""); err != nil || !e.Dir {
		return false
	}
	// Over a network one listing is cheaper than a request for each object.
	if hasShards(ctx, st) {
		return true
	}
	if isManifest(ctx, st) {
		return true
	}
	e, err := st.Stat(ctx, JournalName+store.PartialSuffix)
	return err == nil && !e.Dir
}

// isManifest reports whether the store has a manifest of a pack.
func isManifest(ctx context.Context, st store.Store) bool {
	o, err := st.Open(ctx, ManifestName)
	if err != nil {
		return false
	}
	defer o.Close()
	b := make([]byte, min(o.Size(), 4096))
	return o.ReadAt(ctx, b, 0) == nil && bytes.Contains(b, []byte(`"`+FormatName+`"`))
}

// hasShards reports whether there are files with names of shards.
func hasShards(ctx context.Context, st store.Store) bool {
	found := errors.New("found")
	err := st.List(ctx, "", &store.ListOptions{Shallow: true, Keep: isShard}, func(e store.Entry) error {
		if e.Dir {
			return nil
		}
		return found
	})
	return errors.Is(err, found)
}

// ReadManifest reads and checks the manifest of the pack in the folder dir.
func ReadManifest(dir string) (*Manifest, error) {
	ctx := context.Background()
	st, err := stores.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return readManifest(ctx, st)
}

func readManifest(ctx context.Context, st store.Store) (*Manifest, error) {
	return readManifestOf(ctx, st, nil)
}

// readManifestOf is readManifest for a pack whose objects are listed. objects is nil if they are not.
func readManifestOf(ctx context.Context, st store.Store, objects listed) (*Manifest, error) {
	b, err := objects.manifest(ctx, st)
	if err != nil {
		if errors.Is(err, store.ErrNotExist) {
			return nil, missingManifest(ctx, st)
		}
		return nil, fmt.Errorf("cannot open the pack %s: %w", st, store.Cause(err))
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(ManifestName), err)
	}
	return m, nil
}

// missingManifest returns an error that explains why the manifest is missing.
func missingManifest(ctx context.Context, st store.Store) error {
	e, err := st.Stat(ctx, "")
	switch {
	case err != nil:
		return fmt.Errorf("cannot open %s: %w", st, store.Cause(err))
	case !e.Dir:
		return fmt.Errorf("%s is a file, %w: a pack is a folder with %s", st, ErrNotPack, ManifestName)
	}
	if h, err := readJournalHeader(ctx, st, JournalName); err == nil {
		return fmt.Errorf("%s is an %w; finish it with: %s", st, ErrUnfinished, h.command(st.String()))
	}
	if f, err := pieces(ctx, st); err == nil && len(f.names) > 0 {
		return fmt.Errorf("%s is an %w: it has %d pieces; when all are written, stoker pack --commit %s makes it whole", st, ErrUnfinished, len(f.names), units.Shell(st.String()))
	}
	if hasShards(ctx, st) {
		return fmt.Errorf("%s is an %w: it has shards and no %s; pack it again with stoker pack --restart", st, errNoManifest, ManifestName)
	}
	return fmt.Errorf("%s is %w: it has no %s", st, ErrNotPack, ManifestName)
}

// parseManifest decodes and checks a manifest, and trusts nothing in it. A manifest that passes has shards numbered
// without gaps and known columns. Its chunks are inside of their shard and do not overlap.
func parseManifest(b []byte) (*Manifest, error) {
	m, err := decodeManifest(b)
	sum := checkManifestSum(b)
	switch {
	case errors.Is(sum, errSum) && err != nil: // the checksum exists, and shows that the cause is damage
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	case err == nil && sum != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, sum)
	}
	return m, err
}

func decodeManifest(b []byte) (*Manifest, error) {
	var v struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if v.Format != FormatName {
		return nil, fmt.Errorf("%w: format is %q, not %q", ErrNotPack, v.Format, FormatName)
	}
	switch {
	case v.Version < Version:
		return nil, fmt.Errorf("packed by an older stoker (format version %d, this one reads %d): pack it again", v.Version, Version)
	case v.Version > Version:
		return nil, fmt.Errorf("this pack has format version %d and this program reads version %d: use a newer stoker", v.Version, Version)
	}
	m := new(Manifest)
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	sch, err := newSchema(m.Fields, m.Paths)
	if err != nil {
		return err
	}
	for i := range m.Fields {
		if err := m.Fields[i].checkStats(m.Records, m.Stored() > m.Records); err != nil {
			return fmt.Errorf("field %q: %w", m.Fields[i].Name, err)
		}
	}
	if err := m.checkVariants(); err != nil {
		return err
	}
	rowBytes := sch.leastRowBytes()
	var records, removed, size int64
	seen := make(map[string]bool, len(m.Shards))
	for i := range m.Shards {
		s := &m.Shards[i]
		if store.CheckName(s.File) != nil || s.File == "" || strings.ContainsAny(s.File, "/\\\x00") || s.File[0] == '.' || seen[s.File] {
			return fmt.Errorf("shard %d has the file name %q", i, s.File)
		}
		seen[s.File] = true
		at, rows := int64(0), int64(0)
		for k, c := range s.Chunks {
			switch {
			case c.Offset < at || c.Bytes <= 0 || c.Bytes > maxChunkBytes || c.Offset > s.Bytes-c.Bytes:
				return fmt.Errorf("%s, chunk %d: bytes %d to %d of %d", s.File, k, c.Offset, c.Offset+c.Bytes, s.Bytes)
			case c.Head <= 0 || c.Head > c.Bytes || c.Head > maxHeadBytes:
				return fmt.Errorf("%s, chunk %d: head of %d bytes in %d", s.File, k, c.Head, c.Bytes)
			case c.Rows <= 0 || c.Rows > c.Bytes/rowBytes:
				return fmt.Errorf("%s, chunk %d: %d rows in %d bytes", s.File, k, c.Rows, c.Bytes)
			}
			if err := c.checkRemoved(); err != nil {
				return fmt.Errorf("%s, chunk %d: %w", s.File, k, err)
			}
			removed += c.removed()
			at = c.Offset + c.Bytes
			rows += c.Rows
		}
		if rows != s.Records {
			return fmt.Errorf("%s: %d records, but its chunks have %d", s.File, s.Records, rows)
		}
		records += rows
		size += s.Bytes
		if records > maxRecords || size < 0 {
			return fmt.Errorf("more than %d records", int64(maxRecords))
		}
	}
	if records-removed != m.Records {
		return fmt.Errorf("%d records, but its shards have %d", m.Records, records-removed)
	}
	if size != m.Bytes {
		return fmt.Errorf("%d bytes, but its shards have %d", m.Bytes, size)
	}
	if fp := m.computeFingerprint(); fp != m.Fingerprint {
		return fmt.Errorf("its fingerprint is %s and its content has %s: it was changed after packing", m.Fingerprint, fp)
	}
	return nil
}

// checkVariants checks the variants of records and returns the problem.
func (m *Manifest) checkVariants() error {
	n := m.Options.Augment
	if n < 0 || n > driver.MaxVariants {
		return fmt.Errorf("%d variants of each record: there are up to %d", n, driver.MaxVariants)
	}
	if n < 2 {
		return nil
	}
	fields := make([]driver.Field, len(m.Fields))
	for i := range m.Fields {
		fields[i] = m.Fields[i].driver()
	}
	_, err := variants.Fields(fields, n)
	return err
}
