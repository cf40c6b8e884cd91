package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Records appended to a finished pack are written like the pieces of a pack, with higher numbers than the existing
// shards. The manifest is replaced last, so readers see all of the new records or none. A reader with the old
// manifest keeps working, because no shard changes.

// nextPiece returns the first piece number that sorts after the names of all shards of the pack. Other tools read
// shards in the order of their names.
func (m *Manifest) nextPiece() int {
	next := 0
	for i := range m.Shards {
		var n, k int
		if _, err := fmt.Sscanf(m.Shards[i].File, "shard-%d-%d"+shardSuffix, &n, &k); err == nil {
			next = max(next, n+1)
		} else if _, err := fmt.Sscanf(m.Shards[i].File, "shard-%d"+shardSuffix, &n); err == nil {
			next = max(next, n+1)
		}
	}
	return next
}

// holds reports whether the pack already contains the source.
func (m *Manifest) holds(s *Source) bool {
	return m.Source.Fingerprint == s.Fingerprint || slices.ContainsFunc(m.Appended, func(a Appended) bool { return a.Source.Fingerprint == s.Fingerprint })
}

// asBefore sets unset options to the settings of the pack.
func (o *Options) asBefore(s *Settings) error {
	if o.Images == "" {
		o.Images = s.Images
	}
	var err error
	if o.Resize == (Resize{}) && len(o.Resolutions) == 0 {
		if o.Resolutions, err = ParseResizes(s.Resize); err != nil {
			return err
		}
	}
	if o.Crop == (Resize{}) {
		if o.Crop, err = ParseResize(s.Crop); err != nil {
			return err
		}
	}
	o.Grayscale = o.Grayscale || s.Grayscale
	if o.Interpolation == "" {
		o.Interpolation = s.Interpolation
	}
	if o.Quality == 0 {
		o.Quality = s.Quality
	}
	o.Metadata = o.Metadata || s.Metadata
	if o.Transforms == "" {
		o.Transforms, o.Augment, o.Audio, o.Seed = s.Transforms, s.Augment, s.Audio, s.Seed
	}
	if o.Check == "" {
		o.Check = s.Check
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = s.ChunkBytes
	}
	if o.ShardBytes == 0 {
		o.ShardBytes = s.ShardBytes
	}
	return nil
}

// addTo is WriteTo for an existing pack.
func addTo(ctx context.Context, src driver.Source, dst store.WriteStore, opt *Options) (*Summary, error) {
	m, err := readManifest(ctx, dst)
	if errors.Is(err, ErrNotPack) || errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("there is no pack %s to append to: make it without --append", dst)
	} else if err != nil {
		return nil, err
	}
	o := *opt
	if err := o.asBefore(&m.Options); err != nil {
		return nil, err
	}
	c, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	in, err := prepare(src, dst, c)
	if err != nil {
		return nil, err
	}
	defer in.obj.Close()
	if err := in.into(m, dst.String()); err != nil {
		return nil, err
	}
	if s := in.source(); m.holds(&s) {
		return &Summary{Manifest: m, Unchanged: true}, nil
	}
	if c.Piece.Base = m.nextPiece(); c.Piece.Base+max(c.Piece.Parts, 1) > MaxPieces {
		return nil, fmt.Errorf("%s was appended to so often that there are no more names for shards: pack all of it again", dst)
	}
	if c.Piece.some() {
		return run(ctx, in, dst, c)
	}
	c.Piece.Whole = true
	sum, err := run(ctx, in, dst, c)
	if err != nil {
		return nil, err
	}
	if sum.Manifest, err = CommitTo(ctx, dst, 0); err != nil {
		return nil, err
	}
	return &Summary{Manifest: sum.Manifest, Resumed: sum.Resumed}, nil
}

// into prepares the input for appending to an existing pack. The fields are those of the pack, and new class names
// follow the old ones.
func (in *sourceInput) into(m *Manifest, pack string) error {
	differs := func(format string, a ...any) error {
		return fmt.Errorf("%s cannot be appended to %s: %s", in.info.URL, pack, fmt.Sprintf(format, a...))
	}
	names := func(fields []Field) string {
		var all []string
		for i := range fields {
			all = append(all, fields[i].Name)
		}
		return strings.Join(all, ",")
	}
	if a, b := names(in.out), names(m.Fields); a != b {
		return differs("its fields are %s and those of the pack %s; --select and --rename change them", a, b)
	}
	in.to = m
	in.renumber = make([][]int64, len(in.out))
	for i := range in.out {
		f, have := &in.out[i], m.Fields[i]
		have.Stats = driver.FieldStats{}
		classes := have.Classes
		if (f.Classes == nil) != (classes == nil) {
			return differs("the classes of field %q have names in only one of them", f.Name)
		}
		if f.Classes != nil {
			classes, in.renumber[i] = mergeClasses(classes, f.Classes)
			if in.renumber[i] != nil && f.Kind == driver.KindMask {
				return differs("the classes of masks in field %q have other numbers there", f.Name)
			}
		}
		if !driver.SameColumns(f.Columns, have.Columns) {
			return differs("field %q is made of its columns in another way: --tensors-of %s makes it as the pack has it", f.Name, pack)
		}
		f.Classes, have.Classes, have.Metadata = nil, nil, f.Metadata
		if err := sameFields([]Field{have}, []Field{*f}); err != nil {
			return differs("field %q is %s there and %s in the pack", f.Name, f.typeText(), m.Fields[i].typeText())
		}
		if f.Metadata != m.Fields[i].Metadata {
			return differs("field %q has metadata in only one of them", f.Name)
		}
		f.Classes = classes
	}
	return nil
}

// typeText returns the kind of a field with its properties, as text.
func (f *Field) typeText() string {
	s := string(f.Kind)
	if f.DType != "" {
		s += fmt.Sprintf(" of %s", f.DType)
	}
	if len(f.Shape) > 0 {
		s += fmt.Sprintf(" %v", f.Shape)
	}
	if f.Format != "" {
		s += " " + string(f.Format)
	}
	return s
}

// mergeClasses returns the classes old followed by the new ones of add, and the merged number of each class of add.
// The numbers are nil if no class changes its number.
func mergeClasses(old, add []string) (all []string, renumber []int64) {
	place := make(map[string]int64, len(old))
	for i, name := range old {
		if _, ok := place[name]; !ok {
			place[name] = int64(i)
		}
	}
	all = slices.Clone(old)
	same := true
	for i, name := range add {
		n, ok := place[name]
		if !ok {
			n = int64(len(all))
			all = append(all, name)
			place[name] = n
		}
		renumber = append(renumber, n)
		same = same && n == int64(i)
	}
	if same {
		return all, nil
	}
	return all, renumber
}

// renumbered returns a value with the class numbers of the pack.
func (in *sourceInput) renumbered(field int, v *driver.Value) (*driver.Value, error) {
	if in.renumber == nil || in.renumber[field] == nil {
		return v, nil
	}
	to := in.renumber[field]
	number := func(n int64) (int64, error) {
		if n < 0 || n >= int64(len(to)) {
			return 0, &BadInput{Reason: fmt.Sprintf("class number %d of %d", n, len(to))}
		}
		return to[n], nil
	}
	w := *v
	var err error
	if in.out[field].Kind == driver.KindLabel {
		w.Int, err = number(v.Int)
		return &w, err
	}
	w.Bytes = slices.Clone(v.Bytes)
	for i := 0; i+8 <= len(w.Bytes) && err == nil; i += 8 {
		var n int64
		n, err = number(dtype.I64.Int(w.Bytes[i:]))
		binary.LittleEndian.PutUint64(w.Bytes[i:], uint64(n))
	}
	return &w, err
}

// commitAppended adds the pieces that were appended to the finished pack in st to its manifest.
func commitAppended(ctx context.Context, st store.WriteStore, f found, parts int) (*Manifest, error) {
	names := f.names
	m, done, err := changing(ctx, st)
	if err != nil {
		return nil, err
	}
	defer done()
	have := make(map[string]bool, len(m.Shards))
	for i := range m.Shards {
		have[m.Shards[i].File] = true
	}
	var pieces []*Manifest
	fresh, told, records := false, true, int64(0)
	for _, name := range names {
		p, err := readPiece(ctx, st, name)
		if err != nil {
			return nil, err
		}
		fresh = fresh || slices.ContainsFunc(p.Shards, func(s Shard) bool { return !have[s.File] })
		told = told && m.holds(&p.Source)
		records += p.Records
		pieces = append(pieces, p)
	}
	if !fresh && (records > 0 || told) {
		// An earlier Commit wrote the manifest and did not come to removing these.
		return committed(ctx, st, m, f)
	}
	if len(f.unfinished) > 0 {
		return nil, fmt.Errorf("%s: %s is not finished: the command that wrote it goes on with it", st, f.unfinished[0])
	}
	base := m.nextPiece()
	if parts == 0 {
		parts = max(pieces[0].Parts, 1)
	}
	for i, p := range pieces {
		number := pieceNumber(names[i])
		if number != base+i {
			return nil, fmt.Errorf("%s: piece %d of what is appended is missing, %d others are there: write it, then commit", st, i, len(names))
		}
		if p.Parts != pieces[0].Parts || p.Parts > 0 && p.Source.Fingerprint != pieces[0].Source.Fingerprint || p.Options != pieces[0].Options {
			return nil, fmt.Errorf("%s does not belong to %s: it is of another source, or was written with other options", st.Path(names[i]), names[0])
		}
		if err := m.take(p, i == 0); err != nil {
			return nil, fmt.Errorf("%s cannot be appended to %s: %w", st.Path(names[i]), st, err)
		}
	}
	if len(pieces) != parts {
		return nil, fmt.Errorf("%s has %d of %d pieces to append: write the others, then commit", st, len(pieces), parts)
	}
	if records == 0 {
		err := fmt.Errorf("nothing in %s could be packed; %s stays unchanged", pieces[0].Source.Path, st)
		if s := pieces[0].Skipped; len(s) > 0 {
			err = fmt.Errorf("%w; the first one is %s: %s", err, s[0].Path, s[0].Reason)
		}
		return nil, errors.Join(err, removePieces(ctx, st, f))
	}
	for _, p := range pieces {
		if err := checkShards(ctx, st, p.Shards); err != nil {
			return nil, err
		}
	}
	if err := replaceManifest(ctx, st, m); err != nil {
		return nil, err
	}
	return committed(ctx, st, m, f)
}

// take adds a piece to the pack. first is true for the first appended piece.
func (m *Manifest) take(p *Manifest, first bool) error {
	if p.Paths != m.Paths {
		return errors.New("one of them has paths")
	}
	for i := range min(len(m.Fields), len(p.Fields)) {
		old, now := m.Fields[i].Classes, p.Fields[i].Classes
		if len(now) >= len(old) && slices.Equal(old, now[:len(old)]) {
			m.Fields[i].Classes = now // new names follow the old ones
		}
	}
	if err := sameFields(m.Fields, p.Fields); err != nil {
		return err
	}
	for i := range m.Fields {
		MergeStats(&m.Fields[i].Stats, &p.Fields[i].Stats, m.Fields[i].Classes != nil)
	}
	m.Shards = append(m.Shards, p.Shards...)
	m.Skipped = append(m.Skipped, p.Skipped...)
	m.Beside = append(m.Beside, p.Beside...)
	if first {
		m.Appended = append(m.Appended, Appended{Source: p.Source, Options: p.Options})
	}
	a := &m.Appended[len(m.Appended)-1]
	if !first && a.Source.Fingerprint != p.Source.Fingerprint { // pieces with separate sources
		a.Source.Files += p.Source.Files
		a.Source.Bytes += p.Source.Bytes
	}
	a.Records += p.Records
	return nil
}
