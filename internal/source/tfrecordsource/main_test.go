package tfrecordsource

import (
	"os"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
)

// Nothing is remembered of files, and nothing of tests is left in anybody's cache, unless a
// test says otherwise.
func TestMain(m *testing.M) {
	if err := os.Setenv(cache.Variable, os.DevNull+"/cache"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
