package disk_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

const size, each = 200_500, 10_000

// data returns an object and its pieces.
func data() (store.Store, []byte, []disk.Piece) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	s := storetest.NewMemory(map[string][]byte{"x": b})
	var list []disk.Piece
	for off := 0; off < size; off += each {
		list = append(list, disk.Piece{Path: s.Path("x"), Off: int64(off), Size: int64(min(each, size-off))})
	}
	return s, b, list
}

func open(t testing.TB, s store.Store, root string, limit int64, opt disk.Options) (*disk.Disk, *cache.Chunks, store.Object) {
	t.Helper()
	dir, err := cache.At(root, limit)
	if err != nil {
		t.Fatal(err)
	}
	chunks, err := cache.OpenChunks(dir, s.String(), func(why string) { t.Error(why) })
	if err != nil {
		t.Fatal(err)
	}
	opt.Shelf = chunks
	d, err := disk.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Store(s).Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		d.Close()
		if err := chunks.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, chunks, o
}

// Reads return the bytes of the object whatever is cached. Each piece is read once, as many are kept as there is
// space for, and the next Disk finds them.
func TestReads(t *testing.T) {
	s, b, list := data()
	for _, limit := range []int64{1, 30_000, 100_000, 1 << 20} {
		root := t.TempDir()
		bytesKept := int64(0)
		for run := range 2 {
			counted := counttest.New(s, nil)
			d, chunks, o := open(t, counted, root, limit, disk.Options{Cut: disk.NewCut(list, false, nil)})
			for epoch := range 3 {
				before := counted.Stats().Bytes
				for _, i := range rand.New(rand.NewPCG(uint64(run), uint64(epoch))).Perm(size / 700) {
					off := i * 700 // across the borders of pieces
					p := make([]byte, min(700, size-off))
					if err := o.ReadAt(t.Context(), p, int64(off)); err != nil || !bytes.Equal(p, b[off:off+len(p)]) {
						t.Fatalf("limit %d: bytes from %d on are others, %v", limit, off, err)
					}
				}
				got, kept := counted.Stats().Bytes-before, chunks.Stats().Bytes
				if epoch > 0 || run > 0 {
					if kept != bytesKept {
						t.Errorf("limit %d, run %d, epoch %d: %d bytes are kept, before %d", limit, run, epoch, kept, bytesKept)
					}
					if want := size/700*700 - kept; got < want-each || got > want+each {
						t.Errorf("limit %d, run %d, epoch %d: %d bytes were read, %d are not kept", limit, run, epoch, got, want)
					}
				}
				bytesKept = kept
			}
			if st := d.Stats(); st.MissBytes != counted.Stats().Bytes || run == 1 && chunks.Stats().Kept != 0 || st.HitBytes == 0 && bytesKept > 0 {
				t.Errorf("limit %d: %+v", limit, st)
			}
		}
		if limit >= 1<<20 && bytesKept != size || limit == 1 && bytesKept != 0 {
			t.Errorf("limit %d: %d bytes are kept", limit, bytesKept)
		}
	}
}

// Concurrent readers of one piece cause one read, even with different caches in the same folder. A reader that is
// cancelled does not stop the others.
func TestOneReads(t *testing.T) {
	s, b, list := data()
	counted := counttest.New(s, nil)
	root := t.TempDir()
	var objects []store.Object
	for range 2 {
		_, _, o := open(t, counted, root, 1<<20, disk.Options{Cut: disk.NewCut(list, false, nil)})
		objects = append(objects, o)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%4 == 0 {
				cancel()
			}
			p := make([]byte, 30_000)
			if err := objects[i%2].ReadAt(ctx, p, 15_000); i%4 != 0 && (err != nil || !bytes.Equal(p, b[15_000:45_000])) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	if n := counted.Stats().Bytes; n != 40_000 {
		t.Errorf("%d bytes were read", n)
	}
}

// A piece that failed is read again by the next reader and never counts as complete. Damaged or missing chunks on
// the disk are read from the store again.
func TestFaults(t *testing.T) {
	s, b, list := data()
	broken := errors.New("it is broken")
	counted := counttest.New(s, nil)
	root := t.TempDir()
	_, chunks, o := open(t, faulttest.New(counted, 1, faulttest.Error(broken).On(faulttest.Read).Chance(0.3), faulttest.Short().On(faulttest.Read).Chance(0.2)), root, 1<<20, disk.Options{Cut: disk.NewCut(list, false, nil)})
	rng := rand.New(rand.NewPCG(7, 8))
	failed := 0
	for range 300 {
		off := rng.IntN(size - 5000)
		p := make([]byte, 5000)
		if err := o.ReadAt(t.Context(), p, int64(off)); err != nil {
			failed++
		} else if !bytes.Equal(p, b[off:off+5000]) {
			t.Fatal("other bytes are given")
		}
		if rng.IntN(10) > 0 {
			continue
		}
		files, err := filepath.Glob(filepath.Join(chunks.Path(), "chunks", "*", "*"))
		if err != nil || len(files) == 0 {
			continue
		}
		switch name := files[rng.IntN(len(files))]; rng.IntN(3) {
		case 0:
			err = os.Remove(name)
		case 1:
			err = os.Truncate(name, rng.Int64N(each))
		case 2:
			var f *os.File
			if f, err = os.OpenFile(name, os.O_RDWR, 0); err == nil {
				_, err = f.WriteAt([]byte{byte(rng.Uint32())}, rng.Int64N(each))
				_ = f.Close()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if failed < 10 || chunks.Stats().Damaged == 0 {
		t.Errorf("%d reads failed, %+v", failed, chunks.Stats())
	}
}

// Pieces with Not are read directly and large pieces are cut. Objects without given pieces are cut every
// PieceBytes.
func TestPieces(t *testing.T) {
	large := make([]byte, 2*disk.MaxPiece+100_000)
	for i := range large {
		large[i] = byte(i * i >> 8)
	}
	for name, list := range map[string][]disk.Piece{
		"one":  {{Path: "x", Off: 1000, Size: int64(len(large)) - 1000}},
		"none": nil,
	} {
		s := storetest.NewMemory(map[string][]byte{"x": large})
		for i := range list {
			list[i].Path = s.Path("x")
		}
		counted := counttest.New(s, nil)
		not := func(p disk.Piece) bool { return p.Off > disk.MaxPiece }
		_, chunks, o := open(t, counted, t.TempDir(), 1<<30, disk.Options{Cut: disk.NewCut(list, false, nil), Not: not})
		for range 2 {
			p := make([]byte, len(large))
			if err := o.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, large) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		kept := chunks.Stats().Bytes
		if got := counted.Stats().Bytes; kept < disk.MaxPiece || kept > disk.MaxPiece+disk.PieceBytes || got != 2*int64(len(large))-kept {
			t.Errorf("%s: %d bytes are kept, %d were read", name, kept, got)
		}
	}
}

// With whole, the pieces cover all of an object.
func TestWholeCut(t *testing.T) {
	list := []disk.Piece{{Path: "x", Off: 5000, Size: 2000}, {Path: "x", Off: 100, Size: 50}, {Path: "y", Off: 0, Size: 9}}
	size := map[string]int64{"x": 3*disk.MaxPiece + 7, "y": 9, "z": disk.PieceBytes + 1}
	c := disk.NewCut(list, true, func(path string) int64 { return size[path] })
	for path, n := range size {
		end := int64(0)
		for _, k := range c.Keys(path, "1", n) {
			if k.Off != end || k.Size <= 0 || k.Size > disk.MaxPiece {
				t.Errorf("%s: %d bytes at %d, the last piece ends at %d", path, k.Size, k.Off, end)
			}
			end = k.Off + k.Size
		}
		if end != n {
			t.Errorf("%s: pieces end at %d of %d", path, end, n)
		}
	}
}

// A piece that was stored with damaged bytes, which its own checksums do not show, is read from the store after Drop.
func TestDrop(t *testing.T) {
	s, b, list := data()
	faulty := faulttest.New(s, 1, faulttest.Flip(45_000).Bytes(45_000, 45_001).Times(1))
	d, _, o := open(t, faulty, t.TempDir(), 1<<30, disk.Options{Cut: disk.NewCut(list, false, nil)})
	e, err := s.Stat(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, size)
	for i, damaged := range []bool{true, true, false, false} {
		if i == 2 {
			d.Drop(s.Path("x"), e.Version, e.Size, 44_990, 20)
		}
		before := d.Stats().MissBytes
		if err := o.ReadAt(t.Context(), p, 0); err != nil || bytes.Equal(p, b) == damaged {
			t.Errorf("the bytes are damaged: %t, expected %t; %v", !bytes.Equal(p, b), damaged, err)
		}
		if n := d.Stats().MissBytes - before; i == 2 && n != each {
			t.Errorf("%d bytes are read from the store, expected one piece", n)
		}
	}
}
