package pack

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

// faulty is a folder whose calls fail after a number of them.
type faulty struct {
	*localstore.Store
	creates, removes int // that still work
	fault            func() error
}

func (s *faulty) Create(ctx context.Context, name string) (store.Upload, error) {
	if s.creates--; s.creates < 0 {
		if err := s.fault(); err != nil {
			return nil, err
		}
	}
	return s.Store.Create(ctx, name)
}

func (s *faulty) Remove(ctx context.Context, name string) error {
	if s.removes--; s.removes < 0 && pieceNumber(name) >= 0 {
		if err := s.fault(); err != nil {
			return err
		}
	}
	return s.Store.Remove(ctx, name)
}

// A commit that stops early leaves the pieces or a whole pack and reports which. The next commit continues from
// there.
func TestCommitInterrupted(t *testing.T) {
	const parts = 5 // of which two have nothing
	src := testFolder(t, 3)
	straight := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, straight, small(ImagesKeep))
	for _, interrupted := range []bool{false, true} {
		for left := -1; left < parts; left++ { // -1: the manifest is not written either
			dst := filepath.Join(t.TempDir(), "p")
			for i := range parts {
				mustWrite(t, src, dst, partOf(i, parts, small(ImagesKeep)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			st := &faulty{Store: localstore.New(dst), creates: min(left+1, 1), removes: left, fault: func() error { return syscall.EIO }}
			if interrupted {
				st.fault = func() error { cancel(); return ctx.Err() }
			}
			m, err := CommitTo(ctx, st, parts)
			cancel()
			if m != nil || err == nil {
				t.Fatalf("%d: it went well", left)
			}
			if errors.Is(err, ErrInterrupted) != interrupted || errors.Is(err, syscall.EIO) == interrupted {
				t.Errorf("%d: %v", left, err)
			}
			pieces := must(filepath.Glob(filepath.Join(dst, "piece-*")))
			switch _, unread := ReadManifest(dst); {
			case left < 0:
				if unread == nil || len(pieces) != parts || strings.Contains(err.Error(), "is whole") {
					t.Errorf("without a manifest: %d pieces, %v, %v", len(pieces), unread, err)
				}
			case !strings.Contains(err.Error(), "is whole") || !strings.Contains(err.Error(), "stoker pack --commit"):
				t.Errorf("%d: what is there is not said: %v", left, err)
			default:
				sameRecords(t, straight, dst)
				if len(pieces) != parts-left {
					t.Errorf("%d pieces are left, not %d", len(pieces), parts-left)
				}
			}
			must(Commit(t.Context(), dst, parts))
			sameRecords(t, straight, dst)
			if pieces := must(filepath.Glob(filepath.Join(dst, "piece-*"))); len(pieces) > 0 {
				t.Errorf("%d: left: %v", left, pieces)
			}
		}
	}
}
