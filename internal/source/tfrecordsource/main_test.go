package tfrecordsource

import (
	"os"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
)

// Tests use no index cache unless they ask for it, and leave nothing in the user's cache folder.
func TestMain(m *testing.M) {
	if err := os.Setenv(cache.Variable, os.DevNull+"/cache"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
