package pack

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// Begun describes the progress of a pack that may be unfinished.
type Begun struct {
	// Whole is the manifest of a finished one, nil without.
	Whole *Manifest
	// Pieces are the numbers of the pieces that are finished, and not part of it yet.
	Pieces []int
	// Parts is the number of pieces that the pack will have, if a piece has begun that knows it.
	Parts int
	// Some reports whether the folder has any part of a pack.
	Some bool
}

// LookAt examines an unfinished or finished pack in dir, a folder or a URL that can be written to.
func LookAt(ctx context.Context, dir string) (*Begun, error) {
	st, err := stores.OpenWrite(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	b := &Begun{}
	names, err := written(ctx, st)
	if err != nil {
		return nil, err
	}
	b.Some = len(names) > 0
	for _, n := range names {
		if i := pieceNumber(n); i >= 0 {
			b.Pieces = append(b.Pieces, i)
		}
	}
	slices.Sort(b.Pieces)
	if b.Parts, err = partsOf(ctx, st, names); err != nil {
		return nil, err
	}
	if slices.Contains(names, ManifestName) {
		if b.Whole, err = readManifest(ctx, st); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// partsOf returns the number of parts that one of the pieces in the store names.
func partsOf(ctx context.Context, st store.Store, names []string) (int, error) {
	for _, n := range names {
		if pieceNumber(n) >= 0 {
			m, err := readPiece(ctx, st, n)
			if err != nil {
				return 0, err
			}
			return m.Parts, nil
		}
	}
	for _, n := range names {
		whole, partial := strings.CutSuffix(n, store.PartialSuffix)
		if !partial || !strings.HasPrefix(n, "unfinished-") {
			continue
		}
		if h, err := readJournalHeader(ctx, st, whole); err == nil {
			return h.Parts, nil
		}
	}
	return 0, nil
}

// Clear removes all files of a pack in dir, the manifest first. After an interruption, the remaining files are not a
// pack. Other files stay.
func Clear(ctx context.Context, dir string) error {
	st, err := stores.OpenWrite(ctx, dir)
	if err != nil {
		return err
	}
	defer st.Close()
	names, err := written(ctx, st)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := removeWritten(ctx, st, n); err != nil && !errors.Is(err, store.ErrNotExist) {
			return writeError(err)
		}
	}
	return nil
}

// written lists the files that packing writes into a store, in the order of List but with the manifest first.
func written(ctx context.Context, st store.Store) (names []string, err error) {
	err = st.List(ctx, "", &store.ListOptions{Shallow: true, Hidden: true}, func(e store.Entry) error {
		whole := strings.TrimSuffix(e.Name, store.PartialSuffix)
		if !e.Dir && (whole == ManifestName || whole == JournalName || whole == changeName || others(e.Name)) {
			names = append(names, e.Name)
		}
		return nil
	})
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil
	}
	slices.SortFunc(names, func(a, b string) int {
		if (a == ManifestName) != (b == ManifestName) {
			if a == ManifestName {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names, err
}
