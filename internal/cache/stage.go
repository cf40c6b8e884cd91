package cache

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/units"
)

// A stage is a copy of the objects of a data set that all reading processes fill together. Its files have the names and
// the bytes of the objects. They are in a folder NAME.part until all are complete, and then in NAME.
//
// NAME.state has 16 bytes per chunk, little-endian: the checksum (XXH3) of its bytes, and a checksum of that and the
// chunk's number. Both are zero if the chunk is missing. A process that fills chunk n locks byte n of that file; the
// lock ends with the process. All processes that make the copy share a lock of a later byte (copies.go).
const (
	partEnd    = ".part"
	stateEnd   = ".state"
	stateBytes = 16
)

// StageObject is an object that is to be copied.
type StageObject struct {
	// Name is a path, Size the size of the object.
	Name string
	Size int64
	// Keys are the chunks of the object: all of its bytes, in order.
	Keys []disk.Key
}

// StageName returns the name of the copy of some objects, which begins with base. Other versions of the objects, or
// other chunks, have a different name.
func StageName(base string, objects []StageObject) string {
	h := xxh3.New()
	for _, o := range objects {
		_, _ = fmt.Fprintln(h, o.Name, o.Size)
		for _, k := range o.Keys {
			_, _ = fmt.Fprintln(h, k.String())
		}
	}
	sum := h.Sum128().Bytes()
	return base + "-" + hex.EncodeToString(sum[:6])
}

// Stage is a copy that is being made. Its methods may be called concurrently, except Close, which is called last.
type Stage struct {
	root, name string
	objects    []StageObject
	at         map[disk.Key]stagePlace
	say        func(string)
	state      *os.File
	claims     claims
	open       handles[string, *stageFile]
	done       []atomic.Bool // that are there, and of which it was seen that they are right
	left       atomic.Int64  // that are not known to be there
	bytes      atomic.Int64  // that are there
	dead       atomic.Bool
	said       sync.Once
}

type stagePlace struct{ object, n int }

type stageFile struct{ *os.File }

func (f *stageFile) close() { _ = f.Close() }

// ErrWhole is the error if a copy is already complete.
var ErrWhole = errors.New("it is whole")

// StageIsWhole reports whether a copy is complete, and returns its folder.
func StageIsWhole(root, name string) (folder string, whole bool) {
	folder = filepath.Join(root, name)
	info, err := os.Stat(folder)
	return folder, err == nil && info.IsDir()
}

// OpenStage opens a partial copy or starts a new one. say is called once when copying cannot continue.
func OpenStage(root, name string, objects []StageObject, say func(string)) (*Stage, error) {
	s := &Stage{root: root, name: name, objects: objects, at: map[disk.Key]stagePlace{}, say: say}
	s.open.most = mostOpen()
	need := int64(0)
	for i, o := range objects {
		need += o.Size
		for _, k := range o.Keys {
			s.at[k] = stagePlace{i, len(s.at)}
		}
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.state, err = s.use(); err != nil {
		return nil, err
	}
	part := filepath.Join(root, name+partEnd)
	if err := os.MkdirAll(part, 0o700); err != nil {
		_ = s.state.Close()
		return nil, err
	}
	// Somebody may have finished it meanwhile, before there was a folder again.
	if _, whole := StageIsWhole(root, name); whole {
		_ = s.state.Close()
		_ = os.Remove(part) // only when it is empty
		_ = os.Remove(filepath.Join(root, name+stateEnd))
		return nil, ErrWhole
	}
	s.done = make([]atomic.Bool, len(s.at))
	s.left.Store(int64(len(s.at)))
	var have int64
	for _, o := range objects {
		for _, k := range o.Keys {
			if _, ok := s.entry(s.at[k].n); ok {
				have += k.Size
			}
		}
	}
	s.bytes.Store(have)
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err == nil && int64(st.Bavail)*st.Bsize < need-have {
		_ = s.state.Close()
		return nil, fmt.Errorf("%s more are needed in %s, and %s are free", units.Bytes(need-have), root, units.Bytes(int64(st.Bavail)*st.Bsize))
	}
	return s, nil
}

// use registers that this process makes the copy. It waits briefly for a process that is removing an older part of the
// copy.
func (s *Stage) use() (state *os.File, err error) {
	folder := filepath.Join(s.root, s.name)
	for look := firstLook; look < patience; look *= 2 {
		if state, err = lockStage(folder, unix.F_RDLCK); !errors.Is(err, ErrInUse) {
			return state, err
		}
		time.Sleep(look)
	}
	return nil, fmt.Errorf("%s is being removed", folder+partEnd)
}

// entry returns the checksum of a chunk from the state file, if the chunk is copied.
func (s *Stage) entry(n int) (sum uint64, ok bool) {
	var b [stateBytes]byte
	if _, err := s.state.ReadAt(b[:], int64(n)*stateBytes); err != nil {
		return 0, false
	}
	sum = binary.LittleEndian.Uint64(b[:])
	return sum, b == entryOf(n, sum)
}

func entryOf(n int, sum uint64) (b [stateBytes]byte) {
	var of [stateBytes]byte
	binary.LittleEndian.PutUint64(of[:], sum)
	binary.LittleEndian.PutUint64(of[8:], uint64(n))
	binary.LittleEndian.PutUint64(b[:], sum)
	binary.LittleEndian.PutUint64(b[8:], xxh3.Hash(of[:]))
	return b
}

// file opens the copy of an object in the partial or the complete folder.
func (s *Stage) file(object int) (*handle[string, *stageFile], error) {
	name := filepath.FromSlash(s.objects[object].Name)
	return s.open.take(name, func() (*stageFile, error) {
		part, to := filepath.Join(s.root, s.name+partEnd), filepath.Join(s.root, s.name)
		if f, err := os.Open(filepath.Join(to, name)); err == nil {
			return &stageFile{f}, nil
		}
		f, err := createIn(part, name)
		switch _, whole := StageIsWhole(s.root, s.name); {
		case whole: // meanwhile; the folder of the unfinished copy, if any, is unused
			if err == nil {
				_ = f.Close()
			}
			_ = os.RemoveAll(part)
			f, err = os.Open(filepath.Join(to, name))
		case errors.Is(err, fs.ErrNotExist): // the folder was removed
			if err = os.MkdirAll(part, 0o700); err == nil {
				f, err = createIn(part, name)
			}
		}
		if err != nil {
			return nil, err
		}
		return &stageFile{f}, nil
	})
}

// createIn opens or creates a file in an existing folder.
func createIn(folder, name string) (*os.File, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// Read implements disk.Shelf. A chunk from another process, or from an earlier run, is verified as a whole the first
// time.
func (s *Stage) Read(k disk.Key, p []byte, off int64) bool {
	at, ok := s.at[k]
	if !ok || !s.there(k, at) {
		return false
	}
	f, err := s.file(at.object)
	if err != nil {
		return false
	}
	defer s.open.giveBack(f)
	_, err = f.f.ReadAt(p, k.Off+off)
	return err == nil
}

// there reports whether a chunk is copied and intact.
func (s *Stage) there(k disk.Key, at stagePlace) bool {
	if s.done[at.n].Load() {
		return true
	}
	sum, ok := s.entry(at.n)
	if !ok {
		return false
	}
	f, err := s.file(at.object)
	if err != nil {
		return false
	}
	defer s.open.giveBack(f)
	h := xxh3.New()
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for off := int64(0); off < k.Size; off += bounceBytes {
		b := (*bounce)[:min(bounceBytes, k.Size-off)]
		if _, err := f.f.ReadAt(b, k.Off+off); err != nil {
			return s.bad(at.n)
		}
		_, _ = h.Write(b)
	}
	if h.Sum64() != sum {
		return s.bad(at.n)
	}
	s.known(at.n)
	return true
}

// bad marks a damaged chunk as missing.
func (s *Stage) bad(n int) bool {
	_, _ = s.state.WriteAt(make([]byte, stateBytes), int64(n)*stateBytes)
	return false
}

// Drop implements disk.Shelf.
func (s *Stage) Drop(k disk.Key) {
	if at, ok := s.at[k]; ok {
		s.bad(at.n)
		if s.done[at.n].Swap(false) {
			s.left.Add(1)
		}
	}
}

// known notes that a chunk is there.
func (s *Stage) known(n int) {
	if !s.done[n].Swap(true) {
		s.left.Add(-1)
	}
}

// Has reports whether a chunk is copied, according to the state file.
func (s *Stage) Has(k disk.Key) bool {
	at, ok := s.at[k]
	if !ok {
		return false
	}
	_, ok = s.entry(at.n)
	return ok || s.done[at.n].Load()
}

// Begin implements disk.Shelf.
func (s *Stage) Begin(ctx context.Context, k disk.Key, _ string) (disk.Fill, bool, error) {
	at, ok := s.at[k]
	if !ok || s.dead.Load() {
		return nil, false, nil
	}
	has := func(k disk.Key) bool { return s.there(k, at) }
	if mine, there, err := s.claims.begin(ctx, k, has); !mine {
		return nil, there, err
	}
	look := firstLook
	for waited := time.Duration(0); ; waited += look {
		err := s.lock(at.n, unix.F_WRLCK)
		if err == nil {
			if s.there(k, at) { // by another process
				_ = s.lock(at.n, unix.F_UNLCK)
				s.claims.end(k)
				return nil, true, nil
			}
			return &stageFill{s, k, at}, false, nil
		}
		if err != unix.EAGAIN && err != unix.EACCES || waited > patience {
			s.claims.end(k)
			return nil, false, nil
		}
		look = min(look*2, lastLook)
		t := time.NewTimer(look)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			s.claims.end(k)
			return nil, false, context.Cause(ctx)
		}
	}
}

func (s *Stage) lock(n int, how int16) error {
	l := unix.Flock_t{Type: how, Start: int64(n), Len: 1}
	for {
		if err := unix.FcntlFlock(s.state.Fd(), unix.F_OFD_SETLK, &l); err != unix.EINTR {
			return err
		}
	}
}

type stageFill struct {
	s  *Stage
	k  disk.Key
	at stagePlace
}

// Keep implements disk.Fill: first the bytes, then that they are there.
func (f *stageFill) Keep(b []byte) {
	defer f.Drop()
	err := f.write(b)
	if err == nil {
		e := entryOf(f.at.n, xxh3.Hash(b))
		_, err = f.s.state.WriteAt(e[:], int64(f.at.n)*stateBytes)
	}
	if err != nil {
		f.s.dead.Store(true)
		f.s.said.Do(func() { f.s.say(whyNot(err, f.s.root)) })
		return
	}
	f.s.known(f.at.n)
	f.s.bytes.Add(f.k.Size)
}

func (f *stageFill) write(b []byte) error {
	file, err := f.s.file(f.at.object)
	if err != nil {
		return err
	}
	defer f.s.open.giveBack(file)
	_, err = file.f.WriteAt(b, f.k.Off)
	return err
}

// Drop implements disk.Fill.
func (f *stageFill) Drop() {
	_ = f.s.lock(f.at.n, unix.F_UNLCK)
	f.s.claims.end(f.k)
}

// Dead reports whether copying has failed for good.
func (s *Stage) Dead() bool { return s.dead.Load() }

// Complete reports whether this process knows that all chunks are copied and intact.
func (s *Stage) Complete() bool { return s.left.Load() == 0 }

// Missing calls f for the chunks that are not copied according to the state file.
func (s *Stage) Missing(f func(object int, k disk.Key) error) error {
	for i, o := range s.objects {
		for _, k := range o.Keys {
			if !s.Has(k) {
				if err := f(i, k); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Finish gives the folder its final name if all chunks are copied. It verifies each chunk that was not verified yet.
// more has small files to add. It reports whether the copy is complete.
func (s *Stage) Finish(more map[string][]byte) (whole bool, err error) {
	if _, whole := StageIsWhole(s.root, s.name); whole {
		return true, nil
	}
	for _, o := range s.objects {
		for _, k := range o.Keys {
			if !s.there(k, s.at[k]) {
				return false, nil
			}
		}
	}
	// One process does it. Chunks have locks of bytes, this is one of the file.
	if err := flock(s.state, unix.LOCK_EX); err != nil {
		return false, err
	}
	defer func() { _ = unix.Flock(int(s.state.Fd()), unix.LOCK_UN) }()
	to, whole := StageIsWhole(s.root, s.name)
	if whole {
		return true, nil
	}
	part := filepath.Join(s.root, s.name+partEnd)
	for i, o := range s.objects {
		f, err := s.file(i) // makes those that are empty
		if err != nil {
			return false, err
		}
		err = f.f.Truncate(o.Size)
		s.open.giveBack(f)
		if err != nil {
			return false, err
		}
	}
	for name, b := range more {
		if err := os.WriteFile(filepath.Join(part, filepath.FromSlash(name)), b, 0o600); err != nil {
			return false, err
		}
	}
	if err := unix.Syncfs(int(s.state.Fd())); err != nil { // the copy stays complete after a power failure
		return false, err
	}
	if err := os.Rename(part, to); err != nil {
		return false, err
	}
	_ = os.Remove(filepath.Join(s.root, s.name+stateEnd))
	return true, nil
}

// StageStats describe the progress of a copy.
type StageStats struct {
	// Folder is the present or future folder of the copy. Whole reports that the copy is complete.
	Folder string `json:"folder"`
	Whole  bool   `json:"whole"`
	// Bytes are there, of Of.
	Bytes int64  `json:"bytes"`
	Of    int64  `json:"of"`
	Note  string `json:"note,omitempty"`
}

// Stats returns the progress of the copy as far as this process knows it.
func (s *Stage) Stats() StageStats {
	st := StageStats{Bytes: s.bytes.Load()}
	st.Folder, st.Whole = StageIsWhole(s.root, s.name)
	for _, o := range s.objects {
		st.Of += o.Size
	}
	if st.Whole {
		st.Bytes = st.Of
	}
	return st
}

// Close ends the use of the copy.
func (s *Stage) Close() error {
	s.open.close()
	return s.state.Close()
}

var _ disk.Shelf = (*Stage)(nil)
