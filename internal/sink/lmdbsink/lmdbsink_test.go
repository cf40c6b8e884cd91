package lmdbsink_test

import (
	"testing"

	"github.com/stokerdata/stoker/sink/sinktest"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{Target: "lmdb:out", Kinds: sinktest.Kinds, Read: "-"})
}
