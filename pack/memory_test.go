package pack

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/copyall"
	"github.com/stokerdata/stoker/internal/hugeimagetest"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/zipsource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
)

// through takes n inputs through a memoryBudget like packing: admitted and written in order, made by workers. each
// returns the memory that an input takes.
func through(ctx context.Context, r *memoryBudget, n int64, workers int, each func(i int64) (read, work, out int64)) (refused int, err error) {
	err = (&copyall.Copy[job]{
		Threads: workers, Ahead: budget.PackJobs * workers,
		Feed: func(ctx context.Context, q *copyall.Queue[job]) error {
			for i := range n {
				read, _, _ := each(i)
				share, err := r.admit(ctx, i, read)
				if err != nil {
					return err
				}
				j := q.Begin()
				*j = job{i: i, share: share}
				if err := q.Send(j); err != nil {
					return err
				}
			}
			return nil
		},
		Worker: func() (func(context.Context, *job) error, func(), error) {
			return func(ctx context.Context, j *job) error {
				defer j.share.pass()
				read, work, out := each(j.i)
				err := j.share.toRead(ctx, read)
				if err == nil {
					err = j.share.toMake(ctx, &needs{work: work, out: out, heap: j.i%2 == 0})
				}
				if err == nil {
					j.share.made(out / 2)
				}
				if errors.As(err, &j.bad) {
					return nil
				}
				return err
			}, func() {}, nil
		},
		Take: func(_ context.Context, j *job) error {
			if j.bad != nil {
				refused++
			}
			j.share.done()
			return nil
		},
	}).Run(ctx)
	return refused, err
}

func roomOf(t *testing.T, memory, free int64, threads int) *memoryBudget {
	t.Helper()
	o, err := (&Options{Memory: memory, Threads: threads}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r, err := newMemoryBudget(o, 0)
	if err != nil {
		t.Fatal(err)
	}
	if free > 0 {
		r.request.Free = free
		if r.plan, err = budget.MakePacking(&r.request); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// All inputs finish, whatever they need. None takes more than the total, and everything is released.
func TestRoomLetsAllThrough(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		r := roomOf(t, 96<<20+rng.Int64N(400<<20), rng.Int64N(2)*(4<<30), 1+rng.IntN(6))
		const n = 300
		var need [n][3]int64
		want := 0
		for i := range need {
			most := r.plan.One >> rng.IntN(12)
			need[i] = [3]int64{1 + rng.Int64N(4*r.plan.Ahead>>rng.IntN(10)), rng.Int64N(most), rng.Int64N(most/4 + 1)}
			more := max(need[i][0]-min(need[i][0], r.plan.Ahead), 0)
			if sum := need[i][1] + need[i][2]; more+sum > r.plan.One && (more > 0 || sum > r.plan.Quick) {
				want++
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		refused, err := through(ctx, r, n, r.request.Threads, func(i int64) (int64, int64, int64) { return need[i][0], need[i][1], need[i][2] })
		cancel()
		if err != nil || refused != want {
			t.Fatalf("seed %d: %d refused, want %d: %v", seed, refused, want, err)
		}
		if r.large.Used() != 0 || r.quick.Used() != 0 || r.large.Peak() > r.plan.Large || r.quick.Peak() > r.plan.Quick || !r.ahead.TryAcquire(r.plan.Ahead) {
			t.Fatalf("seed %d: large %d, peak %d of %d; quick %d, peak %d of %d", seed, r.large.Used(), r.large.Peak(), r.plan.Large, r.quick.Used(), r.quick.Peak(), r.plan.Quick)
		}
		if len(r.waiting) != 0 || len(r.passed) != 0 || r.turn != n {
			t.Fatalf("seed %d: turn %d, %d wait", seed, r.turn, len(r.waiting))
		}
	}
}

// Inputs that each need nearly all of the memory run one after another. Taking memory in any order would deadlock
// here.
func TestRoomGoesInTurn(t *testing.T) {
	r := roomOf(t, 64<<20, 0, 4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := through(ctx, r, 50, 4, func(i int64) (int64, int64, int64) {
		return 1, r.plan.Large / 2, r.plan.Large/2 - i
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Inputs that wait for memory or for a turn stop when the run stops.
func TestRoomIsLeft(t *testing.T) {
	r := roomOf(t, 64<<20, 0, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	first, err := r.admit(ctx, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.admit(ctx, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	third, err := r.admit(ctx, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.toMake(ctx, &needs{work: r.plan.Large}); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	go func() { errs <- second.toMake(ctx, &needs{work: r.plan.Large}) }() // for memory
	go func() { errs <- third.toMake(ctx, &needs{work: r.plan.Large}) }()  // for its turn
	stop := errors.New("enough")
	cancel(stop)
	for range 2 {
		if err := <-errs; !errors.Is(err, stop) {
			t.Error(err)
		}
	}
}

var packedWith = regexp.MustCompile(`memory of (\d+) MiB or more`)

// An image that needs more memory than the limit is left out, by name. With the memory in the message it is packed.
func TestLargeImagesAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes images of 6 megapixels apart, one after another")
	}
	src := t.TempDir()
	for name, format := range map[string]string{"a.jpg": "jpeg-progressive", "b.png": "png-16", "c.jpg": "jpeg"} {
		b, err := hugeimagetest.Make(format, 2500, 2500)
		if err == nil && name == "c.jpg" {
			b, err = hugeimagetest.Make(format, 60, 50)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(src, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	opt := &Options{Memory: 40 << 20, Threads: 2, Check: CheckDecode}
	sum, err := Write(t.Context(), src, filepath.Join(t.TempDir(), "little"), opt)
	if err != nil {
		t.Fatal(err)
	}
	enough := int64(0)
	for i, name := range []string{"a.jpg", "b.png"} {
		if len(sum.Manifest.Skipped) != 2 {
			t.Fatalf("left out: %v", sum.Manifest.Skipped)
		}
		s := sum.Manifest.Skipped[i]
		found := packedWith.FindStringSubmatch(s.Reason)
		if s.Path != name || found == nil || !strings.HasPrefix(s.Reason, "packing it takes ") {
			t.Fatal(s)
		}
		mib, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		enough = max(enough, mib<<20)
	}
	opt.Memory = enough
	if sum, err = Write(t.Context(), src, filepath.Join(t.TempDir(), "enough"), opt); err != nil || len(sum.Manifest.Skipped) != 0 || sum.Manifest.Records != 3 {
		t.Errorf("with %d MiB: %+v, %v", enough>>20, sum, err)
	}
	opt.Memory = 1 << 20
	if err := opt.Validate(); err == nil || !strings.Contains(err.Error(), "chunks of 8 MiB and the images need 32 MiB") {
		t.Error(err)
	}
}

// A file may use the memory that its header announces and no more. A file whose pixels take more than that is
// refused.
func TestDecodingIsBound(t *testing.T) {
	w, err := newWorker(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	src, err := hugeimagetest.Make("png-16", 600, 600)
	if err != nil {
		t.Fatal(err)
	}
	w.enc.allow(1 << 20)
	var v value
	var buf []byte
	w.enc.opt.Check = CheckDecode
	if err := w.enc.encodeFile(src, &picture{how: ImagesKeep}, &v, &buf); err == nil || !strings.Contains(err.Error(), "decoding it takes") {
		t.Error(err)
	}
	w.enc.allow(0)
	if err := w.enc.encodeFile(src, &picture{how: ImagesKeep}, &v, &buf); err != nil {
		t.Error(err)
	}
}

// heldSource is a source that holds records in memory.
type heldSource struct{ driver.Source }

func (heldSource) Held() int64 { return 50 << 20 }

// The memory that a source holds for its records counts as part of the total.
func TestWhatASourceHoldsIsCounted(t *testing.T) {
	write := func(memory int64) error {
		_, err := WriteSource(t.Context(), heldSource{sourcetest.Raw(10, 16, 16, 3, 5)}, t.TempDir(), &Options{Memory: memory})
		return err
	}
	if err := write(64 << 20); err == nil || !strings.Contains(err.Error(), "50 MiB of records that are held because their files are compressed, chunks of 8 MiB and the images need 82 MiB") {
		t.Error(err)
	}
	if err := write(82 << 20); err != nil {
		t.Error(err)
	}
}

// A member whose decompressed size is too large is left out before it is decompressed.
func TestLargeMembersAreLeftOut(t *testing.T) {
	const size = 96 << 20
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, body := range map[string][]byte{"a.bin": []byte("small"), "b.bin": make([]byte, size)} {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write(body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.zip")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := zipsource.Open(t.Context(), path, localstore.New(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	opt := &Options{Memory: 96 << 20, Threads: 2}
	sum, err := WriteSource(t.Context(), src, filepath.Join(t.TempDir(), "out"), opt)
	if err != nil || sum.Manifest.Records != 1 || len(sum.Manifest.Skipped) != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	// Decompressed data is counted once, because nothing has been made from it.
	if s := sum.Manifest.Skipped[0]; s.Path != "b.bin" || !strings.HasPrefix(s.Reason, "packing it takes 97 MiB of memory") || packedWith.FindString(s.Reason) == "" {
		t.Error(s)
	}
}

// childPack is the variable with the task of a child process of the test.
const childPack = "STOKER_TEST_PACK"

type packing struct {
	Src, Dst, Images, Check string
	Memory                  int64
	// Verify is true if Dst exists and should be verified.
	Verify bool
}

// TestChildPacks is not a test, but the child process of the test below.
func TestChildPacks(t *testing.T) {
	config := os.Getenv(childPack)
	if config == "" {
		t.Skip("of a child process")
	}
	var c packing
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	var records, bad int
	if c.Verify {
		rep, err := Verify(t.Context(), c.Dst, &VerifyOptions{Decode: true, Memory: c.Memory, Threads: 4, OwnProcess: true})
		if err != nil {
			t.Fatal(err)
		}
		records, bad = int(rep.Records), len(rep.Problems)+len(rep.TooLarge)
	} else {
		sum, err := Write(t.Context(), c.Src, c.Dst, &Options{Images: c.Images, Check: c.Check, Memory: c.Memory, Threads: 4, OwnProcess: true})
		if err != nil {
			t.Fatal(err)
		}
		records, bad = int(sum.Manifest.Records), len(sum.Manifest.Skipped)
	}
	status, err := proc.Live.Status(proc.Self)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("report %d %d %d\n", status.Peak, records, bad)
}

// Images that unpack to hundreds of MiB, in files of every format, and files that claim to, are packed within their
// memory budget or left out. In either case packing takes no more than the budget and a constant.
func TestHostileImagesArePackedWithinTheMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("what race detector and sanitizers take beside is not the decoders'")
	}
	src := t.TempDir()
	if err := hugeimagetest.Folder(src, "jpeg-progressive-420", 6); err != nil {
		t.Fatal(err)
	}
	// One that is truncated: only decoding shows that data is missing.
	b, err := os.ReadFile(filepath.Join(src, "huge-0.jpeg"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "open.jpeg"), b[:len(b)-2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []packing{
		{Images: ImagesAuto, Check: CheckStructure, Memory: 64 << 20},
		{Images: ImagesAuto, Check: CheckDecode, Memory: 900 << 20},
		{Images: ImagesRaw, Check: CheckStructure, Memory: 64 << 20},
		{Images: ImagesRaw, Check: CheckStructure, Memory: 900 << 20},
	} {
		c.Src, c.Dst = src, filepath.Join(t.TempDir(), "pack")
		peak, records, skipped := c.inChild(t)
		t.Logf("%s, %s, %d MiB: peak %d MiB, %d beside; %d packed, %d left out", c.Images, c.Check, c.Memory>>20, peak>>20, (peak-c.Memory)>>20, records, skipped)
		if peak-c.Memory > budget.Beside {
			t.Errorf("%+v took %d MiB", c, peak>>20)
		}
		if err := os.RemoveAll(c.Dst); err != nil {
			t.Fatal(err)
		}
	}
}

// inChild packs or verifies in a separate process.
func (c *packing) inChild(t *testing.T) (peak, records, bad int64) {
	t.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestChildPacks$")
	child.Env = append(os.Environ(), childPack+"="+string(config))
	out, err := child.CombinedOutput()
	_, line, _ := strings.Cut(string(out), "report ")
	if _, scan := fmt.Sscan(line, &peak, &records, &bad); err != nil || scan != nil {
		t.Fatalf("%+v: %v, %s", c, err, out)
	}
	return peak, records, bad
}

// The same images, packed unchanged, are decoded for checking within their memory budget, or reported with the memory
// they would need.
func TestHostileImagesAreVerifiedWithinTheMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("what race detector and sanitizers take beside is not the decoders'")
	}
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "pack")
	if err := hugeimagetest.Folder(src, "jpeg-progressive-420", 6); err != nil {
		t.Fatal(err)
	}
	// Chunks of a few records, so that all threads have some to decode.
	sum, err := Write(t.Context(), src, dst, &Options{Images: ImagesKeep, ChunkBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	refused := map[int64]int64{}
	for _, memory := range []int64{64 << 20, 1200 << 20} {
		c := packing{Dst: dst, Memory: memory, Verify: true}
		peak, records, bad := c.inChild(t)
		t.Logf("%d MiB: peak %d MiB, %d beside; %d records, %d problems", memory>>20, peak>>20, (peak-memory)>>20, records, bad)
		if peak-memory > budget.Beside {
			t.Errorf("with memory of %d MiB verifying took %d MiB", memory>>20, peak>>20)
		}
		if records != sum.Manifest.Records {
			t.Errorf("%d of %d records", records, sum.Manifest.Records)
		}
		refused[memory] = bad
	}
	if small, large := refused[64<<20], refused[1200<<20]; small < large+6 {
		t.Errorf("%d problems with little memory, %d with enough", small, large)
	}
	rep, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true, Threads: 2, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range rep.Problems {
		if strings.Contains(p.Reason, "MiB that there are for it") {
			t.Errorf("%v: it is not damaged", p)
		}
	}
	if len(rep.TooLarge) < 6 {
		t.Errorf("%d records are too large", len(rep.TooLarge))
	}
	for _, p := range rep.TooLarge {
		if !strings.Contains(p.Reason, "MiB that there are for it; verify it with memory of ") {
			t.Error(p)
		}
	}
	if _, err := Verify(t.Context(), dst, &VerifyOptions{Decode: true, Threads: 2, Memory: 1 << 20}); err == nil || !strings.Contains(err.Error(), "needs 18 MiB") {
		t.Error(err)
	}
}
