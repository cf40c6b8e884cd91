package filelist_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/drivertest"
)

// A listing of shards ends at one that cannot be listed, and says how to go on. One of records
// goes on, unless the fault is that of the machine.
func TestScan(t *testing.T) {
	dir := drivertest.Folder(t, map[string][]byte{"a.tar": nil, "c.tar": nil, "sub/d.tar": nil})
	if err := os.Symlink("nowhere", dir+"/b.tar"); err != nil {
		t.Fatal(err)
	}
	st := localstore.New(dir)
	if _, err := filelist.Scan(t.Context(), st, nil, 0); err == nil || !strings.Contains(err.Error(), "/b.tar: no such file") || !strings.Contains(err.Error(), "move it out of "+dir) {
		t.Error(err)
	}
	if _, err := filelist.Named(t.Context(), st, []string{"a.tar", "b.tar"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	l, err := filelist.ScanRecords(t.Context(), st, nil, 0)
	if err != nil || l.Len() != 4 || l.Bad.Len() != 1 || l.Name(1) != "b.tar" || !errors.Is(l.Bad.Of(1), os.ErrNotExist) {
		t.Errorf("%+v, %v", l, err)
	}
	closed := func(err error) error {
		_, err = filelist.ScanRecords(t.Context(), faulttest.New(st, 1, faulttest.Error(err).On(faulttest.List).Named("sub")), nil, 0)
		return err
	}
	if err := closed(syscall.EACCES); err != nil {
		t.Error(err)
	}
	if err := closed(syscall.EMFILE); !errors.Is(err, syscall.EMFILE) {
		t.Error(err)
	}
}

func TestProbe(t *testing.T) {
	var bad filelist.Bad
	damaged := errors.New("damaged")
	if err := bad.Note(2, damaged); err != nil {
		t.Fatal(err)
	}
	err := bad.Probe(t.Context(), 5, 2, func(_ context.Context, i int) error {
		if i == 2 {
			t.Error("a file that is bad is probed")
		}
		if i == 4 {
			return damaged
		}
		return nil
	})
	if err != nil || bad.Len() != 2 || bad.Of(4) != damaged || bad.Of(0) != nil {
		t.Errorf("%+v, %v", bad, err)
	}
	if err := bad.Probe(t.Context(), 5, 2, func(_ context.Context, i int) error { return syscall.ENOMEM }); err != syscall.ENOMEM {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped") // which nobody could tell from damage
	cancel(stop)
	if err := bad.Probe(ctx, 5, 2, func(ctx context.Context, i int) error { return context.Cause(ctx) }); err != stop || bad.Len() != 2 {
		t.Errorf("%+v, %v", bad, err)
	}
}
