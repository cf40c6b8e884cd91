package foldersink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	// Folders are read in the order of names, so the records cannot be compared.
	sinktest.Run(t, &sinktest.Suite{Target: "folder:out", Kinds: []driver.Kind{driver.KindImage, driver.KindLabel}, Read: "-"})
}
