package cache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// order returns when a job uses which chunk: a permutation for each epoch.
type order struct {
	n    int
	seed uint64
}

func (o order) epoch(e int) []int { return rand.New(rand.NewPCG(o.seed, uint64(e))).Perm(o.n) }

func (o order) at(i int) int { return o.epoch(i / o.n)[i%o.n] }

// belady returns the misses of an optimal cache of room chunks that knows all accesses and need not store every chunk.
// Only the accesses before end are counted.
func belady(accesses []int, room, end int) (misses int) {
	next := make([]int, len(accesses))
	last := map[int]int{}
	for i := len(accesses) - 1; i >= 0; i-- {
		next[i] = len(accesses)
		if n, ok := last[accesses[i]]; ok {
			next[i] = n
		}
		last[accesses[i]] = i
	}
	has := map[int]int{} // the next use of each cached chunk
	for i, c := range accesses[:end] {
		if _, ok := has[c]; !ok {
			misses++
		}
		has[c] = next[i]
		if len(has) > room {
			worst, far := -1, -1
			for c, n := range has {
				if n > far {
					worst, far = c, n
				}
			}
			delete(has, worst)
		}
	}
	return misses
}

// Two jobs at different places of their orders, at any speeds, read no more from the store than an optimal cache that
// knows all future reads.
func TestTwoJobs(t *testing.T) {
	const n, size, epochs = 96, 4000, 4
	for _, c := range []struct{ percent, speed, ahead int }{{25, 1, n / 2}, {50, 1, n / 3}, {75, 1, 0}, {50, 3, 10}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			room := n * c.percent / 100
			dir, err := At(t.TempDir(), int64(room)*fileSize(size))
			if err != nil {
				t.Fatal(err)
			}
			jobs := []*Chunks{openChunks(t, dir), openChunks(t, dir)}
			orders := []order{{n, 7}, {n, 8}}
			rates := []int{c.speed, 1}
			at, begun := []int{0, 0}, []bool{false, false}
			misses, alone := 0, 0
			var accesses []int
			kept := map[int]bool{} // in a cache that never removes a chunk
			step := func(j int, real bool) {
				i := at[j]
				at[j]++
				chunk := orders[j].at(i)
				accesses = append(accesses, chunk)
				if !real {
					return
				}
				if i%n == 0 || !begun[j] { // the first access may come before the other job has published
					begun[j] = true
					now, next := orders[j].epoch(i/n), orders[j].epoch(i/n+1)
					uses := make([]Use, n)
					for pos := range n {
						k := chunkOf(now[pos], size)
						uses[pos] = Use{Key: k, Now: int64(pos), Next: int64(slices.Index(next, now[pos]))}
					}
					if err := jobs[j].Epoch(0, n, uses); err != nil {
						t.Fatal(err)
					}
				}
				jobs[j].At(int64(i%n), float64(rates[j]))
				if what := useChunk(jobs[j], chunkOf(chunk, size), make([]byte, size)); what != "hit" {
					misses++
				}
				if !kept[chunk] {
					alone++
					if len(kept) < room {
						kept[chunk] = true
					}
				}
			}
			run := func(steps int, real bool) {
				for range steps {
					for range c.speed {
						step(0, real)
					}
					step(1, real)
				}
			}
			at[0] = c.ahead // it has been resumed there
			run(epochs*n, true)
			end := len(accesses)
			run(n, false) // what comes then
			best := belady(accesses, room, end)
			t.Logf("%d accesses: %d misses, %d at best, %d where nothing makes room", end, misses, best, alone)
			if float64(misses) > 1.02*float64(best) {
				t.Errorf("%d misses, %d at best", misses, best)
			}
			if got := sizeOfFiles(t, dir); got > int64(room)*fileSize(size) || dir.used(false) != got {
				t.Errorf("%d bytes, %d are counted", got, dir.used(false))
			}
		})
	}
}

// No chunk is replaced if there is one job, however many ranks it has, or if a job does not publish its uses. The same
// holds once the other job has ended.
func TestOneJob(t *testing.T) {
	const size, room = 4000, 10
	dir, err := At(t.TempDir(), room*fileSize(size))
	if err != nil {
		t.Fatal(err)
	}
	var uses []Use
	for i := range 4 * room {
		uses = append(uses, Use{Key: chunkOf(i, size), Now: int64(i), Next: int64(4*room - i)})
	}
	c := openChunks(t, dir)
	full := func(why string, want string) {
		t.Helper()
		c.until.Store(0)
		c.At(30, 0)
		if what := useChunk(c, chunkOf(30, size), make([]byte, size)); what != want {
			t.Errorf("%s: %s", why, what)
		}
	}
	if err := c.Epoch(0, 4*room, uses); err != nil {
		t.Fatal(err)
	}
	for i := range room {
		useChunk(c, chunkOf(i, size), make([]byte, size))
	}
	full("one job", "full")
	other, err := OpenChunks(dir, "far", func(why string) { t.Error(why) })
	if err != nil {
		t.Fatal(err)
	}
	full("another one that says nothing", "full")
	if err := other.Epoch(1, 4*room, uses); err != nil {
		t.Fatal(err)
	}
	full("another rank", "full")
	// A job that was killed leaves its file.
	b, err := os.ReadFile(other.job.f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(c.path, jobsName, "job-gone")
	if err := os.WriteFile(gone, b, 0o600); err != nil {
		t.Fatal(err)
	}
	full("one that is gone", "full")
	if _, err := os.Stat(gone); err == nil {
		t.Error("its file is still there")
	}
	other = openChunks(t, dir)
	if err := other.Epoch(0, 4*room, uses[:1]); err != nil { // needs the chunk that the first job has used
		t.Fatal(err)
	}
	full("another job", "kept")
	if st := c.Stats(); st.Gone != 1 || st.Chunks != room {
		t.Errorf("%+v", st)
	}
	if !c.Has(chunkOf(0, size)) {
		t.Error("what the other job needs has made room")
	}
}

// A job file with any content is read or refused.
func FuzzJob(f *testing.F) {
	dir, err := At(f.TempDir(), 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	c := openChunks(f, dir)
	if err := c.Epoch(3, 100, []Use{{chunkOf(1, 10), 5, 7}, {chunkOf(2, 10), -1, 7}, {disk.Key{}, 9, -1}}); err != nil {
		f.Fatal(err)
	}
	c.At(7, 1.5)
	b, err := os.ReadFile(c.job.f.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:70])
	f.Add(b[:jobHead])
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := readJob(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			return
		}
		if n := binary.LittleEndian.Uint64(b[40:]); v.uses != nil && uint64(len(v.uses)) > n {
			t.Errorf("%d uses of %d", len(v.uses), n)
		}
		if at := v.next(1); at < 0 {
			t.Errorf("it is used at %f", at)
		}
	})
}
