package foldersink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	// The folder's own order is that of names.
	sinktest.Run(t, &sinktest.Suite{Target: "folder:out", Kinds: []driver.Kind{driver.KindImage, driver.KindLabel}, Read: "-"})
}
