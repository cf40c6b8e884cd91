package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/stokerdata/stoker/internal/proc"
)

// FuzzTrees reads recorded trees of /proc and /sys with arbitrary content in some files. The report must be consistent
// in any case.
func FuzzTrees(f *testing.F) {
	var trees []*txtar.Archive
	for _, name := range []string{"cgroup1", "cgroup2", "hidepid"} {
		a, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		trees = append(trees, a)
		f.Add(uint8(len(trees)-1), uint8(0), uint8(1), []byte("18446744073709551615 -1 9223372036854775808 1e400\n"))
		for i, file := range a.Files {
			f.Add(uint8(len(trees)-1), uint8(i), uint8(i+1), file.Data)
		}
	}
	inMemory := "/dev/shm" // a disk would take nearly all of the time
	if st, err := os.Stat(inMemory); err != nil || !st.IsDir() {
		inMemory = ""
	}
	f.Fuzz(func(t *testing.T, tree, first, second uint8, data []byte) {
		recorded := trees[int(tree)%len(trees)]
		a := &txtar.Archive{Files: append([]txtar.File(nil), recorded.Files...)}
		for _, i := range []uint8{first, second} {
			a.Files[int(i)%len(a.Files)].Data = data
		}
		dir, err := os.MkdirTemp(inMemory, "stoker-fuzz-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		unpack(t, dir, a, "")
		w, err := newCollector(Options{PID: 100, FS: proc.FS{Proc: dir + "/proc", Sys: dir + "/sys"}})
		if err != nil {
			return // the process itself cannot be read
		}
		defer w.close()
		now := w.start.Add(time.Second)
		w.lastSlow = w.start
		w.flush(now)
		w.seconds = rareEvery - 1 // the next reading takes everything
		unpack(t, dir, a, "later")
		w.updateTree(now)
		w.tick(now)
		w.flush(now.Add(time.Second))
		r := w.report(w.line)
		if r.Verdict == "" || r.Line == "" || !(r.Confidence >= 0 && r.Confidence <= 1) || !(r.Waiting >= 0 && r.Waiting <= 1) {
			t.Errorf("%+v", r)
		}
		if _, err := json.Marshal(r); err != nil { // fails for infinity and NaN
			t.Error(err)
		}
	})
}
