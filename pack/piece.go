package pack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// A pack can be written in pieces, by different processes or machines, and in any order. Each piece has its own
// shards, journal and manifest, whose names contain its number. Commit merges the manifests of all pieces. The shards
// do not change.

// Piece selects the piece of a pack that a run writes. The zero value means the whole pack.
type Piece struct {
	// Part and Parts cut the inputs: part 0 of 4 is the first quarter of them.
	Part, Parts int
	// Number is the number of the piece, for inputs that are not cut. Pieces of a pack are numbered from 0 and stored
	// in this order.
	Number int
	// Whole is true if the piece with number Number has all inputs of the run.
	Whole bool
	// Base is added to the number of a piece that is appended to a pack.
	Base int
}

// MaxPieces is the most pieces of a pack.
const MaxPieces = 100_000

// ParsePiece reads "3/16": part 3 of 0 to 15.
func ParsePiece(s string) (Piece, error) {
	part, parts, ok := strings.Cut(s, "/")
	i, err := strconv.Atoi(part)
	n, err2 := strconv.Atoi(parts)
	if !ok || err != nil || err2 != nil || n < 1 || n > MaxPieces || i < 0 || i >= n {
		return Piece{}, fmt.Errorf("part %q: give I/N, with I from 0 to N-1, such as 0/16", s)
	}
	return Piece{Part: i, Parts: n}, nil
}

func (p Piece) some() bool { return p.Whole || p.Parts > 0 }

func (p Piece) number() int {
	if p.Whole {
		return p.Base + p.Number
	}
	return p.Base + p.Part
}

// first reports whether the piece lists the inputs that were skipped from the start.
func (p Piece) first() bool { return p.number() == p.Base }

// span returns the range of the n inputs that belong to the piece.
func (p Piece) span(n int64) (from, to int64) {
	if p.Parts == 0 {
		return 0, n
	}
	at := func(i int) int64 { // i*n/parts without overflow
		parts := int64(p.Parts)
		return n/parts*int64(i) + n%parts*int64(i)/parts
	}
	return at(p.Part), at(p.Part + 1)
}

// The names of the files of a piece, or of a pack that is written in one go.

func (p Piece) infix() string {
	if !p.some() {
		return ""
	}
	return fmt.Sprintf("%05d-", p.number())
}

func (p Piece) shard(i int) string { return fmt.Sprintf("shard-%s%05d%s", p.infix(), i, shardSuffix) }

// isShard reports whether name is that of a shard of the piece, or of the pack.
func (p Piece) isShard(name string) bool {
	return isShard(name) && strings.HasPrefix(name, "shard-"+p.infix()) && strings.Count(name, "-") == strings.Count(p.shard(0), "-")
}

func (p Piece) journal() string {
	if !p.some() {
		return JournalName
	}
	return fmt.Sprintf("unfinished-%05d.journal", p.number())
}

func (p Piece) manifest() string {
	if !p.some() {
		return ManifestName
	}
	return pieceName(p.number())
}

func pieceName(i int) string { return fmt.Sprintf("piece-%05d.json", i) }

// pieceNumber is the inverse of pieceName, -1 for other names.
func pieceNumber(name string) int {
	i := -1
	if _, err := fmt.Sscanf(name, "piece-%d.json", &i); err != nil || i < 0 || i >= MaxPieces || pieceName(i) != name {
		return -1
	}
	return i
}

// others reports whether a name is that of a file of any piece.
func others(name string) bool {
	name = strings.TrimSuffix(name, store.PartialSuffix)
	return pieceNumber(name) >= 0 || isShard(name) || strings.HasPrefix(name, "unfinished-") && strings.HasSuffix(name, ".journal")
}

// Commit makes a pack of the pieces in the folder dir. It can be repeated after an interruption. If parts is not 0,
// the folder must have that many pieces.
func Commit(ctx context.Context, dir string, parts int) (*Manifest, error) {
	st, err := stores.OpenWrite(ctx, dir)
	if err != nil {
		return nil, err
	}
	return CommitTo(ctx, st, parts)
}

// CommitTo is Commit for any store.
func CommitTo(ctx context.Context, st store.WriteStore, parts int) (*Manifest, error) {
	m, err := commit(ctx, st, parts)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, ErrInterrupted) {
		return nil, fmt.Errorf("%w before it was known that %s is written: nothing is lost, run the same command again", ErrInterrupted, st.Path(ManifestName))
	}
	return m, err
}

func commit(ctx context.Context, st store.WriteStore, parts int) (*Manifest, error) {
	f, err := pieces(ctx, st)
	if err != nil {
		return nil, err
	}
	names := f.names
	done, _ := readManifest(ctx, st)
	switch {
	case done != nil && len(names) == 0:
		return done, nil
	case done == nil && len(names) == 0:
		return nil, fmt.Errorf("%s has no finished pieces: write them first, with stoker pack SRC %s --part 0/16, 1/16 ...", st, units.Shell(st.String()))
	case done != nil:
		return commitAppended(ctx, st, f, parts)
	case len(f.unfinished) > 0:
		return nil, fmt.Errorf("%s: %s is not finished: the command that wrote it goes on with it", st, f.unfinished[0])
	}
	var all Manifest
	hash := xxh3.New()
	same := true
	for i, name := range names {
		m, err := readPiece(ctx, st, name)
		if err != nil {
			return nil, err
		}
		if number := pieceNumber(name); number != i {
			return nil, fmt.Errorf("%s: piece %d is missing, there are %d others up to number %d: write it, then commit", st, i, len(names), pieceNumber(names[len(names)-1]))
		}
		if i == 0 {
			all = *m
			all.Shards, all.Records, all.Bytes, all.Skipped = nil, 0, 0, nil
			all.Fields = slices.Clone(m.Fields)
			for k := range all.Fields {
				all.Fields[k].Stats = driver.FieldStats{}
			}
			if parts == 0 {
				parts = m.Parts
			}
		}
		if err := fits(&all, m); err != nil {
			return nil, fmt.Errorf("%s does not belong to %s: %w", st.Path(name), pieceName(0), err)
		}
		same = same && m.Source == all.Source
		if i > 0 && !same {
			all.Source.Files += m.Source.Files
			all.Source.Bytes += m.Source.Bytes
		}
		_, _ = hash.WriteString(m.Source.Fingerprint + "\n")
		all.Shards = append(all.Shards, m.Shards...)
		all.Records += m.Records
		all.Bytes += m.Bytes
		all.Skipped = append(all.Skipped, m.Skipped...)
		if i > 0 {
			all.Beside = append(all.Beside, m.Beside...)
		}
		for k := range all.Fields {
			MergeStats(&all.Fields[k].Stats, &m.Fields[k].Stats, all.Fields[k].Classes != nil)
		}
	}
	if parts > 0 && len(names) != parts {
		return nil, fmt.Errorf("%s has %d of %d pieces: write the others, from piece %d on, then commit", st, len(names), parts, len(names))
	}
	if !same {
		all.Source.Fingerprint = fmt.Sprintf("%016x", hash.Sum64())
	}
	if all.Records == 0 {
		return nil, fmt.Errorf("%s: no piece has a record", st)
	}
	all.Parts, all.Fingerprint = 0, ""
	if all.Skipped == nil {
		all.Skipped = []Skipped{}
	}
	b, err := all.finish()
	if err != nil {
		return nil, err
	}
	if err := checkShards(ctx, st, all.Shards); err != nil {
		return nil, err
	}
	if err := store.WriteFile(ctx, st, ManifestName, b); err != nil {
		return nil, writeError(err)
	}
	return committed(ctx, st, &all, f)
}

// checkShards compares the size of each shard, and the checksum of its header and footer. The footer has the positions
// of all chunks, so a shard of another run is recognised without reading its data.
func checkShards(ctx context.Context, st store.Store, shards []Shard) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(commitReads)
	for i := range shards {
		g.Go(func() error {
			s := &shards[i]
			again := "write the piece again with --restart"
			o, err := st.Open(gctx, s.File)
			switch {
			case errors.Is(err, store.ErrNotExist):
				return fmt.Errorf("%s is missing: %s", st.Path(s.File), again)
			case err != nil:
				return fmt.Errorf("cannot open %s: %w", st.Path(s.File), store.Cause(err))
			}
			defer o.Close()
			if o.Size() != s.Bytes {
				return fmt.Errorf("%s is not the shard that its piece wrote (%d bytes, not %d): %s", st.Path(s.File), o.Size(), s.Bytes, again)
			}
			if err := checkFrame(gctx, o, s); err != nil {
				return fmt.Errorf("%s is not the shard that its piece wrote (%w): %s", st.Path(s.File), err, again)
			}
			return nil
		})
	}
	return g.Wait()
}

// commitReads is the number of shards that Commit reads at the same time.
const commitReads = 16

// committed removes the manifests of the pieces that the written manifest m contains. If that fails, the pack is
// still complete, and the error lists the files that remain.
func committed(ctx context.Context, st store.WriteStore, m *Manifest, f found) (*Manifest, error) {
	err := removePieces(ctx, st, f)
	left := fmt.Sprintf("the pack is whole and can be read; manifests of its pieces are still there, stoker pack --commit %s removes them", units.Shell(st.String()))
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w after writing %s: %s", ErrInterrupted, st.Path(ManifestName), left)
	}
	return nil, fmt.Errorf("%s is written, and %s: %w", st.Path(ManifestName), left, err)
}

// found lists the files of pieces in a folder.
type found struct {
	names      []string // manifests of finished ones, by their numbers
	unfinished []string // journals of others
	// left are journals of finished pieces. Their writers exited, or are about to exit, after writing the manifest
	// and before removing the journal. They do no harm.
	left []string
}

// pieces lists the pieces in a store.
func pieces(ctx context.Context, st store.Store) (found, error) {
	var f found
	var journals []string
	err := st.List(ctx, "", &store.ListOptions{Shallow: true, Hidden: true}, func(e store.Entry) error {
		switch whole := strings.TrimSuffix(e.Name, store.PartialSuffix); {
		case e.Dir:
		case pieceNumber(e.Name) >= 0:
			f.names = append(f.names, e.Name)
		case strings.HasPrefix(whole, "unfinished-") && others(whole):
			journals = append(journals, e.Name)
		}
		return nil
	})
	if errors.Is(err, store.ErrNotExist) {
		return f, fmt.Errorf("cannot open %s: %w", st, store.Cause(err))
	}
	slices.Sort(f.names)
	for _, name := range journals {
		i := -1
		_, _ = fmt.Sscanf(name, "unfinished-%d.journal", &i)
		if slices.Contains(f.names, pieceName(i)) {
			f.left = append(f.left, name)
		} else {
			f.unfinished = append(f.unfinished, name)
		}
	}
	return f, err
}

// readPiece reads and checks the manifest of a piece.
func readPiece(ctx context.Context, st store.Store, name string) (*Manifest, error) {
	b, err := store.ReadFile(ctx, st, name, maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", st.Path(name), store.Cause(err))
	}
	m, err := parseManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(name), err)
	}
	return m, nil
}

// fits returns an error with the differences between a piece and the others.
func fits(all, m *Manifest) error {
	switch {
	case m.Options != all.Options:
		return errors.New("it was written with other options")
	case m.Parts != all.Parts:
		return fmt.Errorf("it is one of %d parts, not of %d", m.Parts, all.Parts)
	case m.Parts > 0 && m.Source.Fingerprint != all.Source.Fingerprint:
		return fmt.Errorf("%s was not the same when it was written", m.Source.Path)
	case m.Paths != all.Paths:
		return errors.New("one of them has paths")
	}
	return sameFields(all.Fields, m.Fields)
}

// sameFields returns an error with the differences between the fields of two packs, except for statistics.
func sameFields(a, b []Field) error {
	if len(a) != len(b) {
		return fmt.Errorf("it has %d fields, not %d", len(b), len(a))
	}
	for i := range a {
		x, y := a[i], b[i]
		x.Stats, y.Stats = driver.FieldStats{}, driver.FieldStats{}
		one, err := marshalLine(x)
		two, err2 := marshalLine(y)
		if err != nil || err2 != nil || string(one) != string(two) {
			return fmt.Errorf("its field %q (%s) is not the field %q (%s) of the others", y.Name, y.Kind, x.Name, x.Kind)
		}
	}
	return nil
}

func removePieces(ctx context.Context, st store.WriteStore, f found) error {
	for _, n := range f.left {
		err := removeWritten(ctx, st, n)
		if err != nil && !errors.Is(err, store.ErrNotExist) && !errors.Is(err, store.ErrLocked) { // its writer is about to
			return writeError(err)
		}
	}
	return removeAll(ctx, st, f.names)
}

// removeAll removes objects that may already be missing.
func removeAll(ctx context.Context, st store.WriteStore, names []string) error {
	for _, n := range names {
		if err := st.Remove(ctx, n); err != nil && !errors.Is(err, store.ErrNotExist) {
			return writeError(err)
		}
	}
	return nil
}
