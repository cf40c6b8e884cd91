package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/querycache"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/plan"
)

// ErrNone is in the error of Load if nothing was saved for a path on this machine.
var ErrNone = errors.New("not probed yet")

// Save caches the result of Run for path, for Load, and returns the file.
func Save(path string, m *plan.Machine) (string, error) {
	key, err := question(path)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	name, err := querycache.Save(key, data)
	if err != nil {
		return "", fmt.Errorf("cannot keep the result: %w", err)
	}
	return name, nil
}

// Load returns the saved result for path on this machine, and its age. The error is ErrNone if there is none.
func Load(path string) (*plan.Machine, time.Duration, error) {
	key, err := question(path)
	if err != nil {
		return nil, 0, err
	}
	data, _ := querycache.Load(key)
	if m, ok := parse(data); ok {
		at, err := time.Parse(time.RFC3339, m.Measured)
		if err != nil {
			at = time.Now()
		}
		return m, max(time.Since(at), 0), nil
	}
	return nil, 0, fmt.Errorf("%s: %w", path, ErrNone)
}

// parse reads a saved probe. Anything else counts as missing.
func parse(data []byte) (m *plan.Machine, ok bool) {
	return m, json.Unmarshal(data, &m) == nil && m != nil
}

// question returns the cache key for the results of a path. The key names the machine, because machines share home
// folders.
func question(path string) (string, error) {
	dir := stores.Public(path)
	if !stores.IsURL(path) {
		var err error
		if dir, err = folder(path); err != nil {
			return "", err
		}
	}
	host, _ := os.Hostname()
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(id) > 0 {
		host += " " + strings.TrimSpace(string(id))
	}
	// The first word changes if old results would be misread. Another number of cores is
	// another machine to plan for.
	return fmt.Sprintf("probe 1\x01%s, %s, %.2f cores, %s\x01%s", host, proc.Live.ModelName(), proc.Live.UsableCores(), runtime.GOARCH, dir), nil
}
