package pack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
)

// A folder is examined under its literal name, whatever the name means to a shell.
func TestIsPackTakesFolderNamesAsTheyAre(t *testing.T) {
	for _, name := range []string{"plain", "a[b", "a[b]", "what?", "all*", `back\slash`} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if IsPack(dir) {
			t.Errorf("%s is empty and said to be a pack", name)
		}
		if err := os.WriteFile(filepath.Join(dir, Piece{}.shard(0)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if !IsPack(dir) {
			t.Errorf("%s has a shard and is said to be no pack", name)
		}
		if err := missingManifest(t.Context(), localstore.New(dir)); !strings.Contains(err.Error(), "it has shards") {
			t.Error(err)
		}
	}
}
