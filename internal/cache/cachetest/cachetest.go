// Package cachetest keeps tests away from the user's cache.
package cachetest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/cache"
)

// Main is a TestMain: it runs the tests with a separate cache and checks for leaked goroutines.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "stoker-cache-")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv(cache.Variable, dir); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tests{m, dir})
}

type tests struct {
	*testing.M
	dir string
}

// Run runs the tests and removes the cache.
func (t tests) Run() int {
	defer func() { _ = os.RemoveAll(t.dir) }()
	return t.M.Run()
}
