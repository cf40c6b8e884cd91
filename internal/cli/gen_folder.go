package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/store"
)

// writeFolder makes the folder out, which other programs never see half full. fill writes into work, a new folder in
// the same parent, and returns the folder in it that becomes out. The previous contents of out are removed.
func writeFolder(out string, fill func(work string) (finished string, err error)) (err error) {
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return &Error{Msg: "cannot create the folder of " + out, Err: store.Cause(err)}
	}
	work, remove, err := leftover.MkdirTemp(parent, "."+filepath.Base(out)+".*")
	if err != nil {
		return &Error{Msg: "cannot write next to " + out, Err: store.Cause(err)}
	}
	defer func() { err = errors.Join(err, remove()) }()
	finished, err := fill(work)
	if err != nil {
		return err
	}
	old := filepath.Join(work, "old")
	err = os.Rename(out, old)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		moved := err == nil
		if err = os.Rename(finished, out); err != nil && moved {
			err = errors.Join(err, os.Rename(old, out))
		}
	}
	if err != nil {
		return &Error{Msg: "cannot move what is finished to " + out, Err: store.Cause(err)}
	}
	return nil
}
