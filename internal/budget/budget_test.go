package budget

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

func TestSlotStride(t *testing.T) {
	for n, want := range map[int64]int64{
		1: page, page: page, page + 1: 2 * page, HugePage / 2: HugePage / 2,
		HugePage/2 + 1: HugePage, HugePage: HugePage, HugePage + 1: 2 * HugePage,
	} {
		if got := SlotStride(n); got != want {
			t.Errorf("slots of %d bytes are %d apart, want %d", n, got, want)
		}
	}
}

// photos returns a request for training on photographs: 256 crops of 224 pixels.
func photos(memory int64) *Request {
	return &Request{
		Memory: memory, BatchSize: 256, SlotBytes: 256*(224*224*3+16) + 128, Threads: 4,
		Images: []Image{{MaxBytes: 600 << 10, MaxWidth: 2000, MaxHeight: 1500}},
	}
}

func TestMakeWithEnough(t *testing.T) {
	p, err := Make(photos(4 << 30))
	if err != nil {
		t.Fatal(err)
	}
	if p.Slots != DefaultSlots || p.SlotStride != 38<<20 || p.Ring != 6*38<<20 || p.GroupRows != GroupRows {
		t.Errorf("%+v", p)
	}
	if p.Read != p.read(photos(0)) || p.Fetch != minRead || p.Urgent != minRead || p.WorkerParse < GroupRows*600<<10 || p.Alone < 600<<10 || p.Lookahead != maxLookahead || p.WorkerScratch != fewScratch || p.Large < 29*2000*1500 || p.WorkerDecode < 16<<20 {
		t.Errorf("%+v", p)
	}
	r := photos(4 << 30)
	r.Substitutes, r.Images[0].Kept, r.Threads = true, true, 32
	if p, err = Make(r); err != nil {
		t.Fatal(err)
	}
	if p.Substitute != minRead || p.Read != p.read(r) || p.WorkerScratch != r.Memory/16/32 {
		t.Errorf("%+v", p)
	}
	// Images of 470 x 400 that are coloured and then put on a background of 640 x 640: each block of scratch has
	// space to grow.
	r.Threads, r.Images[0] = 2, Image{MaxBytes: 600 << 10, MaxWidth: 470, MaxHeight: 400, Kept: true, RowWidth: 640, RowHeight: 640}
	if p, err = Make(r); err != nil {
		t.Fatal(err)
	}
	if row := int64(640 * 640 * 3); p.WorkerScratch < 4<<20+3*(row+row/8+64<<10) {
		t.Errorf("%d KiB of scratch for rows of 640 x 640", p.WorkerScratch>>10)
	}
}

// For any request, the shares fit the budget, or the error names a sufficient budget, which then works.
func TestSharesFitTheBudget(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20_000 {
		r := &Request{
			Memory: rng.Int64N(2 << 30), BatchSize: 1 + rng.IntN(1000), SlotBytes: 1 + rng.Int64N(1<<(1+rng.IntN(28))), Threads: 1 + rng.IntN(64),
			Substitutes: rng.IntN(2) == 0,
		}
		if rng.IntN(2) == 0 {
			r.Prefetch = 1 + rng.IntN(MaxPrefetch)
		}
		if rng.IntN(2) == 0 {
			r.Lookahead = 1 + rng.Int64N(1<<30)
		}
		for range rng.IntN(3) {
			r.Images = append(r.Images, Image{
				MaxBytes: rng.Int64N(1 << 26), MaxWidth: rng.Int64N(20_000), MaxHeight: rng.Int64N(20_000), Kept: rng.IntN(2) == 0,
			})
		}
		if rng.IntN(4) == 0 {
			r.Held = rng.Int64N(1 << 30)
		}
		if rng.IntN(3) == 0 {
			r.ValueBytes = rng.Int64N(1 << 22)
			r.UnplacedBytes = rng.Int64N(1 << 26)
		}
		p, err := Make(r)
		if err != nil {
			refused++
			_, tail, _ := strings.Cut(err.Error(), " need ")
			enough := *r
			mib, scan := strconv.ParseInt(tail[:strings.Index(tail, " MiB")], 10, 64)
			if scan != nil {
				t.Fatal(err, scan)
			}
			enough.Memory = mib << 20
			if strings.Contains(err.Error(), "not enough") {
				enough.Prefetch = 0
			}
			if p, err = Make(&enough); err != nil {
				t.Fatalf("%+v: %v", enough, err)
			}
			r = &enough
		}
		if sum := p.Ring + p.Read + p.Lookahead + p.Scratch + r.Held; sum > r.Memory || p.Budget != r.Memory {
			t.Fatalf("%+v: shares of %d: %+v", r, sum, p)
		}
		if p.Slots < minSlots || r.Prefetch > 0 && p.Slots != max(r.Prefetch+2, minSlots) || r.Lookahead > 0 && p.Lookahead != r.Lookahead {
			t.Fatalf("%+v: %+v", r, p)
		}
		if p.Read-p.Substitute < leastRead(r) || r.Substitutes && p.Substitute < leastRead(r) || p.Large < minLarge || p.GroupRows < 1 || p.GroupRows > r.BatchSize {
			t.Fatalf("%+v: %+v", r, p)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

func TestTooLittle(t *testing.T) {
	for _, c := range []struct {
		change func(*Request)
		want   string
	}{
		{func(*Request) {}, "the memory budget is 64 MiB, which is not enough: 3 batches of 38 MiB, 12 MiB to read into and 13 MiB of scratch need 139 MiB; set memory to that or more, or lower batch_size"},
		{func(r *Request) { r.Automatic = true }, "the default part of the free memory is 64 MiB, which is not enough: "},
		{func(r *Request) { r.Automatic, r.Engines = true, 8 }, "the default part of the free memory, shared by the engines of 8 processes, is 64 MiB, which is not enough: "},
		{func(r *Request) { r.Lookahead = 1 << 20 }, "1 MiB to read ahead, 12 MiB to read into and 13 MiB of scratch need 140 MiB; set memory to that or more, or lower lookahead or batch_size"},
		{func(r *Request) { r.Prefetch = 1000 }, "the memory budget is 64 MiB, which is not enough: 3 batches of 38 MiB"},
		{func(r *Request) { r.Prefetch, r.Memory = 1000, 256<<20 }, "1000 batches (prefetch) do not fit the memory budget of 256 MiB: 1002 batches of 38 MiB, " +
			"12 MiB to read into and 13 MiB of scratch need 38101 MiB; set memory to that or more, or prefetch to 4 or less"},
	} {
		r := photos(64 << 20)
		c.change(r)
		if _, err := Make(r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestGroups(t *testing.T) {
	small := Request{BatchSize: 1024, Threads: 2, Images: []Image{{Width: 32, Height: 32}}}
	if n := groupRows(&small, 8); n != maxSmallGroupRows {
		t.Errorf("groups of %d small raw records", n)
	}
	values := Request{BatchSize: 1024, Threads: 2, ValueBytes: 3 << 20}
	if n := groupRows(&values, 8); n != 1 {
		t.Errorf("groups of %d large values", n)
	}
	few := Request{BatchSize: 4, Threads: 16, Images: []Image{{}}}
	if n := groupRows(&few, 6); n != 1 {
		t.Errorf("groups of %d for many threads", n)
	}
}

// Sizes that no image has do not overflow.
func TestHugeSides(t *testing.T) {
	im := []Image{{Width: 1 << 62, Height: 1 << 62, MaxWidth: 1 << 62}}
	if largeImage(im) != maxLarge || pixelBytes(im) <= 0 {
		t.Errorf("%d, %d", largeImage(im), pixelBytes(im))
	}
}

// With the memory that the error suggests, an image is decoded. With a MiB less it is not.
func TestForImage(t *testing.T) {
	for _, memory := range []int64{150 << 20, 4 << 30} {
		for _, n := range []int64{1, 3 << 20, 50 << 20, 486 << 20, 5 << 30} {
			r := photos(memory)
			at := ForImage(*r, n)
			fits := func(memory int64) bool {
				r.Memory = memory
				p, err := Make(r)
				return err == nil && max(p.Large, p.WorkerDecode) >= n
			}
			if !fits(at) || fits(at-1<<20) && n > minLarge {
				t.Errorf("%d MiB for an image of %d MiB: %v, with a MiB less %v", at>>20, n>>20, fits(at), fits(at-1<<20))
			}
		}
	}
}
