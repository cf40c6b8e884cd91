package cache

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// stageVariable has this program copy chunks, see copyChunks.
const stageVariable = "STOKER_TEST_STAGE"

// stageObjects are some, with chunks of a size.
func stageObjects(count int, size int64) (objects []StageObject) {
	for i := range count {
		o := StageObject{Name: fmt.Sprintf("d%d/object %d", i%3, i)}
		for j := range i % 5 {
			n := size - int64(j)*7
			o.Keys = append(o.Keys, disk.KeyOf(o.Name, "v", o.Size, n))
			o.Size += n
		}
		objects = append(objects, o)
	}
	return objects
}

// copyChunks copies objects to the folder DIR in an order of SEED and finishes. Its argument is "DIR SEED COUNT SIZE".
// It prints the outcome for each chunk.
func copyChunks(what string) {
	f := strings.Fields(what)
	seed, _ := strconv.ParseUint(f[1], 10, 64)
	count, _ := strconv.Atoi(f[2])
	size, _ := strconv.ParseInt(f[3], 10, 64)
	objects := stageObjects(count, size)
	s, err := OpenStage(f[0], "copy", objects, func(why string) { fmt.Println("said", why) })
	if err != nil {
		fmt.Println("said", err)
		return
	}
	var keys []disk.Key
	for _, o := range objects {
		keys = append(keys, o.Keys...)
	}
	for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(len(keys)) {
		fmt.Println(useChunk(s, keys[i], make([]byte, keys[i].Size)), i)
	}
	whole, err := s.Finish(map[string][]byte{"manifest.json": []byte("{}")})
	fmt.Println("end", whole, err)
	_ = s.Close()
}

// checkCopy holds a copy against the objects.
func checkCopy(t *testing.T, root string, objects []StageObject) {
	t.Helper()
	folder, whole := StageIsWhole(root, "copy")
	if !whole {
		t.Fatal("the copy is not whole")
	}
	for _, o := range objects {
		got, err := os.ReadFile(filepath.Join(folder, o.Name))
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, k := range o.Keys {
			want = append(want, bytesOf(k)...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the copy of %s differs", o.Name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(folder, "manifest.json")); err != nil || string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
	left, err := filepath.Glob(filepath.Join(root, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("there is more: %q, %v", left, err)
	}
}

func copier(t *testing.T, root string, seed, count int, size int64) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d", stageVariable, root, seed, count, size))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// A copy that is killed repeatedly never counts as complete, and continues with its existing chunks.
func TestKilledStage(t *testing.T) {
	const count, size = 40, 50_000
	root := t.TempDir()
	objects := stageObjects(count, size)
	rng := rand.New(rand.NewPCG(1, 9))
	had, again := map[string]bool{}, 0
	for kill := 0; ; kill++ {
		cmd, in := copier(t, root, kill, count, size)
		n, stop, ended := 0, 1+rng.IntN(8), false
		for in.Scan() {
			what, i, _ := strings.Cut(in.Text(), " ")
			switch what {
			case "kept":
				if had[i] {
					t.Errorf("chunk %s was there, and is copied again", i)
				}
				had[i] = true
				if n++; n == stop {
					_ = cmd.Process.Kill()
				}
			case "hit":
				if had[i] {
					again++
				}
				had[i] = true
			case "end":
				if i != "true <nil>" {
					t.Fatal(in.Text())
				}
				ended = true
			default:
				t.Fatal(in.Text())
			}
			if _, whole := StageIsWhole(root, "copy"); whole && len(had) < 80 {
				t.Fatalf("the copy is said to be whole with %d chunks", len(had))
			}
		}
		_ = cmd.Wait()
		if ended {
			break
		}
	}
	if again == 0 {
		t.Error("nothing of what there was is used again")
	}
	checkCopy(t, root, objects)
	if _, err := OpenStage(root, "copy", objects, nil); err != ErrWhole {
		t.Errorf("%v", err)
	}
	checkCopy(t, root, objects)
}

// Several processes copy together: each chunk is read by one of them, and one finishes.
func TestStageOfManyProcesses(t *testing.T) {
	const count, size = 40, 100_000
	root := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	kept := map[string]bool{}
	for seed := range 3 {
		cmd, in := copier(t, root, seed, count, size)
		wg.Go(func() {
			last := ""
			for in.Scan() {
				what, i, _ := strings.Cut(in.Text(), " ")
				mu.Lock()
				if what == "kept" && kept[i] || what == "wrong" || what == "full" {
					t.Error(in.Text())
				}
				kept[i] = kept[i] || what == "kept"
				mu.Unlock()
				last = in.Text()
			}
			if err := cmd.Wait(); err != nil || last != "end true <nil>" && !strings.HasPrefix(last, "said it is whole") {
				t.Errorf("%v, %q", err, last)
			}
		})
	}
	wg.Wait()
	checkCopy(t, root, stageObjects(count, size))
}

// A damaged chunk is copied again before the copy is complete.
func TestDamagedStage(t *testing.T) {
	const count, size = 12, 30_000
	root := t.TempDir()
	objects := stageObjects(count, size)
	open := func() *Stage {
		s, err := OpenStage(root, "copy", objects, func(why string) { t.Error(why) })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for _, o := range objects {
		for _, k := range o.Keys {
			if what := useChunk(s, k, make([]byte, k.Size)); what != "kept" {
				t.Fatal(what)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	victim := objects[4]
	f, err := os.OpenFile(filepath.Join(root, "copy"+partEnd, victim.Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), victim.Keys[1].Off+100); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	if whole, err := s.Finish(nil); whole || err != nil {
		t.Fatalf("%v, %v", whole, err)
	}
	n := 0
	if err := s.Missing(func(object int, k disk.Key) error {
		if object != 4 || k != victim.Keys[1] {
			t.Errorf("%d %+v is missing", object, k)
		}
		n++
		useChunk(s, k, make([]byte, k.Size))
		return nil
	}); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	if whole, err := s.Finish(map[string][]byte{"manifest.json": []byte("{}")}); !whole || err != nil {
		t.Fatalf("%v, %v", whole, err)
	}
	checkCopy(t, root, objects)
	if st := s.Stats(); !st.Whole || st.Bytes != st.Of {
		t.Errorf("%+v", st)
	}
}
