package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/source/foldersource"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// interrupt packs src and cancels after n inputs.
func interrupt(t testing.TB, src, dst string, opt *Options, n int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in, o := folderInput(t, src, opt)
	_, err := run(ctx, &cancelInput{input: in, after: n, cancel: cancel}, localstore.New(dst), o)
	if !errors.Is(err, ErrInterrupted) || !strings.Contains(err.Error(), "run the same command again") {
		t.Fatalf("interrupted run: %v", err)
	}
}

// folderInput returns the input that Write creates for a folder.
func folderInput(t testing.TB, src string, opt *Options) (input, *Options) {
	t.Helper()
	o, err := opt.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := foldersource.Open(t.Context(), src, localstore.New(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, err := newSourceInput(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.obj.Close() })
	return in, o
}

// cancelInput cancels the run when input number after is loaded.
type cancelInput struct {
	input
	after  int64
	cancel context.CancelFunc
	loaded atomic.Int64
}

func (c *cancelInput) load(ctx context.Context, i int64, w *worker, j *job) error {
	c.loaded.Add(1)
	if i == c.after {
		c.cancel()
	}
	return c.input.load(ctx, i, w, j)
}

// However often a run is interrupted, and wherever, the result is the same,
// and nothing that was written is made again.
func TestResume(t *testing.T) {
	src := testFolder(t, 120)
	writeFile(t, []byte("x"), src, "cat", "0003.txt")
	writeFile(t, []byte("x"), src, "zebra", "9999.txt")
	for _, images := range []string{ImagesKeep, ImagesRaw} {
		straight := filepath.Join(t.TempDir(), "p")
		mustWrite(t, src, straight, small(images))
		rng := rand.New(rand.NewPCG(1, uint64(len(images))))
		rounds := 6
		if testing.Short() {
			rounds = 2
		}
		for round := range rounds {
			dst := filepath.Join(t.TempDir(), "p")
			at := int64(0)
			for at += 5 + rng.Int64N(40); at < 120; at += 5 + rng.Int64N(40) {
				o := small(images)
				o.Threads = 1 + rng.IntN(4)
				interrupt(t, src, dst, o, at)
				if round%2 == 1 {
					damage(t, rng, dst)
				}
			}
			s := mustWrite(t, src, dst, small(images))
			if round%2 == 0 && s.Resumed == 0 {
				t.Errorf("nothing was gone on with")
			}
			sameFiles(t, fmt.Sprintf("%s, round %d", images, round), straight, dst)
		}
	}
}

// damage damages an interrupted pack like a crash or a full disk.
func damage(t testing.TB, rng *rand.Rand, dst string) {
	t.Helper()
	partial, _ := filepath.Glob(filepath.Join(dst, "shard-*"+store.PartialSuffix))
	journal := filepath.Join(dst, JournalName+store.PartialSuffix)
	cut := func(name string) {
		if st, err := os.Stat(name); err == nil && st.Size() > 0 {
			if err := os.Truncate(name, rng.Int64N(st.Size())); err != nil {
				t.Fatal(err)
			}
		}
	}
	switch rng.IntN(4) {
	case 0: // the last writes did not reach the disk
		for _, p := range partial {
			cut(p)
		}
	case 1: // the journal is older than the data
		cut(journal)
	case 2: // a block of zeros
		for _, p := range partial {
			if st, err := os.Stat(p); err == nil && st.Size() > 200 {
				flip(t, p, st.Size()-100)
			}
		}
	case 3: // a shard is gone
		shards, _ := filepath.Glob(filepath.Join(dst, "shard-*"))
		if len(shards) > 0 {
			_ = os.Remove(shards[rng.IntN(len(shards))])
		}
	}
	// A journal without its header is not a journal: shards then need --restart.
	if b, err := os.ReadFile(journal); err == nil && !bytes.Contains(b, []byte("\n")) {
		if err := os.Remove(journal); err != nil {
			t.Fatal(err)
		}
		shards, _ := filepath.Glob(filepath.Join(dst, "shard-*"))
		for _, s := range shards {
			_ = os.Remove(s)
		}
	}
}

func TestNothingIsDoneTwice(t *testing.T) {
	src, dst := testFolder(t, 120), filepath.Join(t.TempDir(), "p")
	o := small(ImagesKeep)
	o.Threads = 1
	interrupt(t, src, dst, o, 100)
	in, od := folderInput(t, src, o)
	c := &cancelInput{input: in, after: -1}
	s, err := run(t.Context(), c, localstore.New(dst), od)
	if err != nil {
		t.Fatal(err)
	}
	if s.Resumed < 60 || c.loaded.Load() != 120-s.Resumed {
		t.Errorf("%d inputs were taken over and %d loaded, of 120", s.Resumed, c.loaded.Load())
	}
}

func TestResumeRefusals(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	interrupt(t, src, dst, small(ImagesKeep), 40)
	if _, err := Write(t.Context(), src, dst, small(ImagesRaw)); err == nil || !strings.Contains(err.Error(), "begun with other arguments: it has other options (images: keep then, raw now); finish it with: stoker pack") {
		t.Errorf("other options: %v", err)
	}
	writeFile(t, testJPEG(t, 5, 20, 20), src, "cat", "new.jpg")
	if _, err := Write(t.Context(), src, dst, small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("other source: %v", err)
	}
	o := small(ImagesKeep)
	o.Restart = true
	if s := mustWrite(t, src, dst, o); s.Resumed != 0 || s.Manifest.Records != 61 {
		t.Errorf("restart: %d resumed, %d records", s.Resumed, s.Manifest.Records)
	}
}

func TestTwoWriters(t *testing.T) {
	src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	in, o := folderInput(t, src, small(ImagesKeep))
	hold, held := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := run(context.Background(), &hookInput{input: in, hook: func(i int64) error {
			if i == 30 {
				close(held)
				<-hold
			}
			return nil
		}}, localstore.New(dst), o)
		done <- err
	}()
	<-held
	if _, err := Write(t.Context(), src, dst, small(ImagesKeep)); err == nil || !strings.Contains(err.Error(), "is being packed by another process") {
		t.Errorf("second writer: %v", err)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), dst, nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("%v, %v", rep, err)
	}
}

// hookInput calls hook before each load.
type hookInput struct {
	input
	hook func(i int64) error
}

func (h *hookInput) load(ctx context.Context, i int64, w *worker, j *job) error {
	if err := h.hook(i); err != nil {
		return err
	}
	return h.input.load(ctx, i, w, j)
}

// A source that changes ends the run with the name of the file.
func TestSourceChanges(t *testing.T) {
	for what, change := range map[string]func(name string) error{
		"shorter":   func(name string) error { return os.Truncate(name, 100) },
		"longer":    func(name string) error { return appendTo(name, "more") },
		"rewritten": func(name string) error { return os.WriteFile(name, bytes.Repeat([]byte{1}, 3000), 0o644) },
		"gone":      os.Remove,
	} {
		src, dst := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
		opt := small(ImagesKeep)
		opt.Threads = 2
		in, o := folderInput(t, src, opt)
		name := in.(*sourceInput).s.Name(40)
		_, err := run(t.Context(), &hookInput{input: in, hook: func(i int64) error {
			if i == 40 {
				return change(name)
			}
			return nil
		}}, localstore.New(dst), o)
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "changed since") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := Open(t.Context(), dst, nil); !errors.Is(err, ErrUnfinished) {
			t.Errorf("%s: what is left opens: %v", what, err)
		}
	}
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return err
}

// If any creation, write, sync or commit fails, the error is clear, the result never looks like a complete pack, and
// the next run finishes it.
func TestEveryWriteFails(t *testing.T) {
	src := testFolder(t, 60)
	straight := filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, straight, small(ImagesKeep))
	source := func() driver.Source {
		s, err := foldersource.Open(t.Context(), src, localstore.New(src), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, test := range []struct {
		fault func() *faulttest.Fault
		want  string
	}{
		{func() *faulttest.Fault { return faulttest.Error(syscall.ENOSPC) }, "no space left on device; make room and run the same command again"},
		{func() *faulttest.Fault { return faulttest.Error(syscall.EIO) }, "input/output error"},
		{faulttest.Short, ""},
	} {
		each := int64(1)
		if testing.Short() {
			each = 4
		}
		for good := int64(0); ; good += each {
			dst := filepath.Join(t.TempDir(), "p")
			f := test.fault().After(good)
			if test.want != "" {
				f = f.On(faulttest.Create, faulttest.Resume, faulttest.Write, faulttest.Cut, faulttest.Sync, faulttest.Commit, faulttest.Remove)
			} else {
				f = f.On(faulttest.Write)
			}
			st, _ := store.As[store.WriteStore](faulttest.New(localstore.New(dst), 1, f))
			_, err := WriteTo(t.Context(), source(), st, small(ImagesKeep))
			if err == nil {
				if good < 10 {
					t.Errorf("only %d operations", good)
				}
				break // more operations than there are
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), dst) {
				t.Errorf("operation %d: %v", good, err)
			}
			if _, err := Open(t.Context(), dst, nil); err == nil {
				if rep, err := Verify(t.Context(), dst, nil); err != nil || len(rep.Problems) > 0 {
					t.Errorf("operation %d: what is left opens and is not whole", good)
				}
			}
			mustWrite(t, src, dst, small(ImagesKeep))
			_ = os.Remove(filepath.Join(dst, JournalName+store.PartialSuffix))
			sameFiles(t, fmt.Sprintf("after a failure of operation %d", good), straight, dst)
		}
	}
}

// A store whose uploads do not outlive the process receives the same pack.
func TestStoreThatCannotResume(t *testing.T) {
	src, straight := testFolder(t, 60), filepath.Join(t.TempDir(), "p")
	mustWrite(t, src, straight, small(ImagesKeep))
	dst := filepath.Join(t.TempDir(), "p")
	s, err := foldersource.Open(t.Context(), src, localstore.New(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteTo(t.Context(), s, forgetful{localstore.New(dst)}, small(ImagesKeep)); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "without resuming", straight, dst)
}

// forgetful hides that a store can resume uploads.
type forgetful struct{ store.WriteStore }

func TestReadOnlyTarget(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root writes everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := Write(t.Context(), testFolder(t, 3), filepath.Join(dir, "p"), nil)
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("error %v", err)
	}
}

func FuzzParseJournal(f *testing.F) {
	h, _ := encodeJournalLine(journalHeader{Format: journalFormat, Version: Version})
	e, _ := encodeJournalLine(journalEntry{Chunk: &Chunk{Rows: 1, Bytes: 64, Head: 64}, Next: 1, Stats: []driver.FieldStats{{Count: 1}}})
	f.Add(append(append([]byte{}, h...), e...))
	f.Add(append(append(append([]byte{}, h...), e...), e[:10]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, entries, err := parseJournal(bytes.NewReader(b))
		if err == nil && h == nil {
			t.Fatal("no header and no error")
		}
		for _, e := range entries {
			if e.end > int64(len(b)) {
				t.Fatalf("entry ends at %d of %d", e.end, len(b))
			}
		}
	})
}
