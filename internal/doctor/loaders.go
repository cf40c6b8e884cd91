package doctor

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

// loadersName is the memory file with a trainer's notes on its DataLoaders, written by python/src/stoker/_loaders.py.
const loadersName = "stoker-loaders"

// maxNotes limits the size of that file.
const maxNotes = 1 << 20

// A loaderNote is a process's note on one of its DataLoaders.
type loaderNote struct {
	Dataset string `json:"dataset"` // its class
	Workers int    `json:"num_workers"`
	Batches int    `json:"batches"` // per epoch; 0 if unknown
	Epochs  int    `json:"epochs"`  // that were begun
	// Taken reports that the engine or Stoker's own workers make its batches already.
	Taken bool `json:"taken"`
	// Engine is the answer of the loader recognition of stoker run, nil if it was not asked. Why is the reason for a
	// refusal, and Rest are the parts that Python would still do. Later is the engine's work from the second epoch on,
	// for a dataset that it learns in the first.
	Engine *bool    `json:"engine"`
	Why    string   `json:"why"`
	Rest   []string `json:"rest"`
	Later  string   `json:"later"`
}

// noteState has the trainers' notes on their loaders.
type noteState struct {
	files map[int]*os.File
	tried map[int]time.Time
	main  *loaderNote // the loader with most batches; nil if unknown
}

// read takes the present notes of the trainers.
func (n *noteState) read(c *collector, now time.Time) {
	if n.files == nil {
		n.files, n.tried = map[int]*os.File{}, map[int]time.Time{}
	}
	for pid, p := range c.tree.members {
		// Searching the descriptors costs time, so it happens less and less often.
		if p.role != roleTrainer || n.files[pid] != nil || now.Sub(n.tried[pid]) < max(time.Second, now.Sub(p.since)/4) {
			continue
		}
		n.tried[pid] = now
		_ = proc.Live.MemoryFiles(pid, loadersName, func(f *os.File) bool {
			if !ownNotes(f, pid) {
				f.Close()
				return true
			}
			n.files[pid] = f
			return false
		})
	}
	most := -1
	for _, pid := range sortedKeys(n.files) {
		if c.tree.members[pid] == nil {
			n.files[pid].Close()
			delete(n.files, pid)
			continue
		}
		_, loaders := readNotes(n.files[pid])
		for i := range loaders {
			// A loader with a recorded result is worth more than those of other ranks.
			weight := 2 * loaders[i].Epochs * max(1, loaders[i].Batches)
			if loaders[i].Engine != nil || loaders[i].Taken {
				weight++
			}
			if weight > most {
				most, n.main = weight, &loaders[i]
			}
		}
	}
}

// ownNotes reports whether a file was written by a process itself, and not by the parent
// that it has the file from.
func ownNotes(f *os.File, pid int) bool {
	own := pid
	if s, err := proc.Live.Status(pid); err == nil && s.Inner > 0 {
		own = s.Inner
	}
	writer, _ := readNotes(f)
	return writer == own
}

// readNotes returns the writer of a file and the loaders. It returns 0 while the file is being written.
func readNotes(f *os.File) (writer int, loaders []loaderNote) {
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxNotes))
	if err != nil {
		return 0, nil
	}
	var notes struct {
		PID     int          `json:"pid"`
		Loaders []loaderNote `json:"loaders"`
	}
	if json.Unmarshal(data, &notes) != nil {
		return 0, nil
	}
	return notes.PID, notes.Loaders
}

func (n *noteState) close() {
	for _, f := range n.files {
		f.Close()
	}
}
