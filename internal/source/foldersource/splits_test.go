package foldersource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestSplits(t *testing.T) {
	kaggle := "train/a/1.jpg train/b/1.jpg train/c/1.jpg val/b/1.jpg val/d/1.jpg test/1.jpg test/2.jpg"
	for _, c := range []struct {
		name, files, split string
		want               string // classes and files, or the error
	}{
		{"none asked for", kaggle, "", "it has the splits train, val and test: choose one, such as 'URL?split=train'"},
		{"train", kaggle, "train", "[a b c d]: a/1.jpg=0 b/1.jpg=1 c/1.jpg=2"},
		{"one numbering", kaggle, "val", "[a b c d]: b/1.jpg=1 d/1.jpg=3"},
		{"without classes", kaggle, "test", "[]: 1.jpg=-1 2.jpg=-1"},
		{"another name", kaggle, "validation", "[a b c d]: b/1.jpg=1 d/1.jpg=3"},
		{"unknown", kaggle, "extra", `it has no split "extra", only train, val and test`},
		{"capitals", "Train/a/1.jpg Testing/b/1.jpg", "test", "[a b]: b/1.jpg=1"},
		{"images only", "train/1.jpg test/1.jpg", "train", "[]: 1.jpg=-1"},
		{"only one", "train/a/1.jpg train/b/1.jpg", "", "[a b]: a/1.jpg=0 b/1.jpg=1"},
		{"others beside", "train/a/1.jpg dev/a/1.jpg docs/1.jpg __MACOSX/x.jpg", "dev", "[a]: a/1.jpg=0"},
		{"folders without images", "train/a/1.jpg val/a/1.jpg val/b/notes.txt", "train", "[a]: a/1.jpg=0"},
		{"a class called train", "bus/1.jpg car/1.jpg train/1.jpg", "", "[bus car train]: bus/1.jpg=0 car/1.jpg=1 train/1.jpg=2"},
		{"no splits", "a/1.jpg b/1.jpg", "train", "it has no splits, which are folders called train, val or test"},
		{"a split in a split", "train/train/1.jpg train/b/1.jpg val/b/1.jpg", "train", "[b train]: b/1.jpg=0 train/1.jpg=1"},
	} {
		dir := t.TempDir()
		for _, f := range strings.Fields(c.files) {
			drivertest.Put(t, dir, f, []byte("x"))
		}
		l, err := Scan(t.Context(), localstore.New(dir), ScanOptions{Kind: selection.Image, URL: "URL", Split: c.split})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			continue
		}
		got := fmt.Sprintf("%v:", l.Classes)
		for i := range l.Len() {
			got += fmt.Sprintf(" %s=%d", l.Path(i), l.Label(i))
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
