package leftover

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestClear(t *testing.T) {
	gone, remove, err := MkdirTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	done := Add("pack", "it can be resumed")
	if left := Clear(time.Minute); !slices.Equal(left, []string{"pack: it can be resumed"}) {
		t.Errorf("left is %q", left)
	}
	if _, err := os.Stat(gone); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	done()
	if err := remove(); err != nil || len(Clear(time.Minute)) != 0 {
		t.Errorf("remove: %v, left: %q", err, Clear(0))
	}
	stuck := filepath.Join(t.TempDir(), "stuck")
	if err := os.Mkdir(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	defer Add(stuck+"/.", "")() // a path that os.RemoveAll refuses
	if left := Clear(time.Minute); !slices.Equal(left, []string{stuck + "/. is left: delete it"}) {
		t.Errorf("left is %q", left)
	}
}
