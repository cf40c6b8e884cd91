package probe

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// ErrNone is in the error of Load when nothing was saved for a path here.
var ErrNone = errors.New("not probed yet")

// cacheVersion changes when old files would be misread.
const cacheVersion = 1

// maxCache bounds the size of a saved probe.
const maxCache = 4 << 20

// saved is the content of a cache file.
type saved struct {
	Version int           `json:"version"`
	Host    string        `json:"host"`
	Path    string        `json:"path"`
	Machine *plan.Machine `json:"machine"`
}

// Save keeps the result of Run for path, for Load. It returns the file:
// stoker/probe/ in the user's cache folder (XDG_CACHE_HOME, or ~/.cache).
func Save(path string, m *plan.Machine) (string, error) {
	name, s, err := cacheFile(path)
	if err != nil {
		return "", err
	}
	s.Machine = m
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", fmt.Errorf("cannot keep the result in %s: %w", filepath.Dir(name), store.Cause(err))
	}
	err = localstore.WritePrivate(name, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot keep the result in %s: %w", filepath.Dir(name), store.Cause(err))
	}
	return name, nil
}

// Load returns what was saved for path on this machine, and how old it is. The
// error is ErrNone when there is nothing.
func Load(path string) (*plan.Machine, time.Duration, error) {
	name, want, err := cacheFile(path)
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNone)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the probe of %s: %w", path, store.Cause(err))
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if st.Size() > maxCache {
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNone)
	}
	data := make([]byte, st.Size())
	n, err := f.ReadAt(data, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the probe of %s: %w", path, store.Cause(err))
	}
	got, ok := parse(data[:n])
	if !ok || got.Host != want.Host || got.Path != want.Path {
		return nil, 0, fmt.Errorf("%s: %w", path, ErrNone) // of another version, or damaged
	}
	at, err := time.Parse(time.RFC3339, got.Machine.Measured)
	if err != nil {
		at = st.ModTime()
	}
	return got.Machine, max(time.Since(at), 0), nil
}

// parse reads a cache file. What it cannot read counts as not there.
func parse(data []byte) (*saved, bool) {
	var s saved
	if json.Unmarshal(data, &s) != nil || s.Version != cacheVersion || s.Machine == nil {
		return nil, false
	}
	return &s, true
}

// cacheFile is the name of the file for a path on this machine: home folders are
// shared between machines.
func cacheFile(path string) (string, *saved, error) {
	dir := stores.Public(path)
	if !stores.IsURL(path) {
		var err error
		if dir, err = folder(path); err != nil {
			return "", nil, err
		}
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", nil, fmt.Errorf("there is no cache folder: %w", err)
	}
	host, _ := os.Hostname()
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) > 0 {
		host += " " + strings.TrimSpace(string(id))
	}
	// Another number of cores is another machine to plan for.
	s := &saved{Version: cacheVersion, Path: dir, Host: fmt.Sprintf("%s, %s, %.2f cores, %s", host, proc.Live.ModelName(), proc.Live.UsableCores(), runtime.GOARCH)}
	h := fnv.New128a()
	fmt.Fprintf(h, "%s\n%s", s.Host, s.Path)
	return filepath.Join(base, "stoker", "probe", hex.EncodeToString(h.Sum(nil))+".json"), s, nil
}
