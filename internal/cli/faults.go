package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/store"
)

// faultsVariable makes the reads of an engine slow, late or bad, for tests and benchmarks of the whole path of a
// record. It has faults separated by semicolons, each a word with conditions, such as
//
//	delay=20ms; delay=2s,chance=0.01; error,name=*.jpg,times=3; stuck,name=class-1/*
//
// delay and hang end when the read is cancelled. stuck never ends, like a disk that does not answer.
const faultsVariable = "STOKER_TEST_FAULTS"

// crashVariable makes an engine crash when it decodes the record of this number, as a decoder in C would, for tests.
const crashVariable = "STOKER_TEST_CRASH"

// crashAt returns the function for pipeline.Config.Decoding that a value of crashVariable asks for.
func crashAt(value string) (func(id int64), error) {
	record, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", crashVariable, err)
	}
	return func(id int64) {
		if id == record {
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGSEGV)
			select {} // the signal may reach another thread
		}
	}, nil
}

// parseFaults returns the decorator that a value of faultsVariable describes.
func parseFaults(spec string) (func(store.Store) store.Store, error) {
	var faults []func() *faulttest.Fault
	stuck := ""
	for _, part := range strings.Split(spec, ";") {
		words := strings.Split(strings.TrimSpace(part), ",")
		what, value, _ := strings.Cut(words[0], "=")
		var begin func() *faulttest.Fault
		var err error
		switch what {
		case "delay":
			var d time.Duration
			d, err = time.ParseDuration(value)
			begin = func() *faulttest.Fault { return faulttest.Delay(d).On(faulttest.Read) }
		case "hang":
			begin = func() *faulttest.Fault { return faulttest.Hang().On(faulttest.Read) }
		case "error":
			begin = func() *faulttest.Fault { return faulttest.Error(syscall.EIO).On(faulttest.Read) }
		case "stuck":
			stuck = "*"
		default:
			err = fmt.Errorf("there is no %q", what)
		}
		var narrow []func(*faulttest.Fault)
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			var f float64
			if key != "name" {
				if f, err = strconv.ParseFloat(value, 64); err != nil {
					break
				}
			}
			switch key {
			case "name":
				if what == "stuck" {
					stuck = value
				}
				narrow = append(narrow, func(x *faulttest.Fault) { x.Named(value) })
			case "chance":
				narrow = append(narrow, func(x *faulttest.Fault) { x.Chance(f) })
			case "times":
				narrow = append(narrow, func(x *faulttest.Fault) { x.Times(int64(f)) })
			case "after":
				narrow = append(narrow, func(x *faulttest.Fault) { x.After(int64(f)) })
			default:
				err = fmt.Errorf("there is no %q", key)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", faultsVariable, part, err)
		}
		if begin != nil {
			faults = append(faults, func() *faulttest.Fault {
				x := begin()
				for _, n := range narrow {
					n(x)
				}
				return x
			})
		}
	}
	return func(s store.Store) store.Store {
		all := make([]*faulttest.Fault, len(faults))
		for i := range faults {
			all[i] = faults[i]()
		}
		s = faulttest.New(s, 1, all...)
		if stuck != "" {
			s = &stuckStore{s, faulttest.Error(nil).Named(stuck)}
		}
		return s
	}, nil
}

// stuckStore has objects whose reads never return.
type stuckStore struct {
	store.Store
	which *faulttest.Fault
}

func (s *stuckStore) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil || !s.which.Matches(faulttest.Read, name) {
		return o, err
	}
	return store.Intercept(o, true, func(context.Context, store.Next, []byte, int64) error { select {} }), nil
}
