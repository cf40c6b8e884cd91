package upload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noting notes what is created, and fails at one name.
type noting struct {
	store.WriteStore
	bad string

	mu   sync.Mutex
	made []string
}

func (n *noting) Create(ctx context.Context, name string) (store.Upload, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made = append(n.made, name)
	if name == n.bad {
		return nil, errors.New("no more room")
	}
	return n.WriteStore.Create(ctx, name)
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"a.tar": "aaa", "sub/b.tar": strings.Repeat("b", 3<<20), "index.json": "{}", "z": ""}
	for name, text := range want {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir, bad string) *noting {
		w, ok := store.As[store.WriteStore](localstore.New(dir))
		if !ok {
			t.Fatal("it cannot be written to")
		}
		return &noting{WriteStore: w, bad: bad}
	}
	to := filepath.Join(t.TempDir(), "to")
	st := open(to, "")
	if err := Empty(t.Context(), st, "it"); err != nil {
		t.Error(err)
	}
	files, bytes, err := Tree(t.Context(), dir, st)
	if err != nil || files != 4 || bytes != 3<<20+5 || st.made[3] != "index.json" {
		t.Errorf("%d files, %d bytes, %v, %v", files, bytes, st.made, err)
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := Empty(t.Context(), st, "it"); err == nil || !strings.Contains(err.Error(), "it already exists") {
		t.Errorf("error is %v", err)
	}
	// A failed upload leaves nothing.
	to = filepath.Join(t.TempDir(), "to")
	st = open(to, "index.json")
	if _, _, err := Tree(t.Context(), dir, st); err == nil || !strings.Contains(err.Error(), "no more room") || !slices.Contains(st.made, "a.tar") {
		t.Errorf("error is %v, %v", err, st.made)
	}
	if err := Empty(t.Context(), st, "it"); err != nil {
		t.Error(err)
	}
}
