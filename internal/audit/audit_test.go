package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write appends a part of a log of 10 records: batches of ids, by epoch.
func write(b []byte, time uint64, start place, rank, world int, batches ...[]int64) []byte {
	le := binary.LittleEndian
	head := append([]byte{}, magic...)
	head = le.AppendUint32(le.AppendUint32(head, version), headerSize)
	for _, v := range []uint64{time, 10, uint64(start.epoch), uint64(start.position), uint64(2 * world)} {
		head = le.AppendUint64(head, v)
	}
	head = le.AppendUint32(le.AppendUint32(head, uint32(rank)), uint32(world))
	head = append(head, make([]byte, 16)...)
	head = le.AppendUint64(head, 99)
	sum := sha256.Sum256(head)
	b = append(append(b, head...), sum[:8]...)
	n, epoch := uint64(0), uint64(start.epoch)
	for _, ids := range batches {
		for i, id := range ids {
			v := uint64(id) | epoch<<idBits
			if i == 0 {
				v |= 1 << 51
			}
			b = le.AppendUint64(b, v|mixed(v^99^n*golden)>>52<<52)
			n++
		}
		if ids[0] == endOfEpoch {
			epoch++
		}
	}
	return b
}

func read(t *testing.T, logs ...[]byte) (*Report, error) {
	t.Helper()
	var paths []string
	for i, b := range logs {
		paths = append(paths, filepath.Join(t.TempDir(), string(rune('a'+i))+".log"))
		if err := os.WriteFile(paths[i], b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Read(paths)
}

func TestRead(t *testing.T) {
	end := []int64{endOfEpoch}
	// Two ranks stop at position 8. The run that follows starts at position 4, on one rank.
	a := write(nil, 1, place{}, 0, 2, []int64{0, 1}, []int64{4, 5})
	b := write(nil, 2, place{}, 1, 2, []int64{2, 3}, []int64{6, 7})
	rest := [][]int64{{4, 5}, {6, 7}, {8, 9}, end, {3, 1}}
	rep, err := read(t, write(a, 3, place{0, 4}, 0, 1, rest...), b)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Exact() || rep.Again != 4 || len(rep.Epochs) != 2 || !rep.Epochs[0].Complete || rep.Epochs[0].Once != 10 || rep.Epochs[1].Once != 2 || rep.Epochs[1].Complete {
		t.Errorf("%+v", rep)
	}
	// A record comes twice and another one never.
	rep, err = read(t, write(nil, 1, place{}, 0, 1, []int64{0, 1, 2, 3, 4}, []int64{5, 6, 7, 8, 0}, end))
	if err != nil || rep.Exact() || rep.Epochs[0].Twice != 1 || rep.Epochs[0].TwiceRecords[0] != 0 || rep.Epochs[0].NeverRecords[0] != 9 {
		t.Errorf("%+v %v", rep, err)
	}
	if rep, err = read(t, a); err != nil || rep.Exact() || len(rep.Missing) != 1 {
		t.Errorf("%+v %v", rep, err)
	}
	if _, err = read(t, []byte("something else")); !errors.Is(err, ErrNotLog) {
		t.Error(err)
	}
	if _, err = read(t, write(nil, 1, place{}, 0, 1, []int64{11})); err == nil || !strings.Contains(err.Error(), "record 11 of 10") {
		t.Error(err)
	}
	if rep, err = read(t, nil); err != nil || len(rep.Epochs) != 0 {
		t.Errorf("%+v %v", rep, err)
	}
}

// No bytes make the reader panic or take memory for sizes that they claim.
func FuzzRead(f *testing.F) {
	f.Add(write(nil, 1, place{}, 0, 1, []int64{0, 1, 2, 3, 4}, []int64{endOfEpoch}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = read(t, b)
	})
}
