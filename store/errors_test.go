package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/store"
)

type requestError struct{ of error }

func (requestError) Error() string   { return "a server says no" }
func (requestError) Transient() bool { return false }
func (e requestError) Unwrap() error { return e.of }

func TestIsObjectError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{store.ErrNotExist, true},
		{store.ErrPermission, true},
		{syscall.EACCES, true},
		{syscall.ENOENT, true},
		{syscall.ELOOP, true},
		{syscall.EIO, true},
		{store.ErrChanged, true},
		{store.ErrShort, true},
		{store.ErrName, true},
		{store.ErrIrregular, true},
		{errors.New("its header is damaged"), true},
		{requestError{store.ErrNotExist}, true},
		{requestError{store.ErrPermission}, true},
		{requestError{store.ErrArchived}, true},
		{requestError{store.ErrDamaged}, true},
		{requestError{store.ErrCredentials}, false},
		{requestError{store.ErrThrottled}, false},
		{requestError{store.ErrUnavailable}, false},
		{errors.Join(store.ErrPermission, store.ErrCredentials), false},
		{syscall.ENOMEM, false},
		{syscall.EMFILE, false},
		{syscall.ENFILE, false},
		{syscall.ENOSPC, false},
		{syscall.ESTALE, false},
		{syscall.ECONNRESET, false},
		{requestError{}, false},
		{&net.DNSError{}, false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{os.ErrDeadlineExceeded, false},
	} {
		if got := store.IsObjectError(fmt.Errorf("file: %w", &store.Error{Op: "open", Path: "x", Err: c.err})); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
