package binsink_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/sink"
	"github.com/stokerdata/stoker/sink/sinktest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, &sinktest.Suite{Target: "bin:out", Kinds: []driver.Kind{driver.KindTokens}, Read: "-"})
}

func TestTokens(t *testing.T) {
	src := sinktest.Source(t, driver.KindTokens)
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	var want []byte
	for id := range int64(sinktest.Rows) {
		recs, err := recordread.NewReader(src, obj).Read(t.Context(), []int64{id})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, recs[0].Values[0].Bytes...)
	}
	path := filepath.Join(t.TempDir(), "train.bin")
	to, err := sink.ParseTarget(path, "")
	if err == nil {
		_, err = sink.Write(t.Context(), src, to, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes, want %d, %v", len(got), len(want), err)
	}
}
