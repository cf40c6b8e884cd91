package videosource

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/video/videotest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

func opener(dir string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return Open(ctx, dir, localstore.New(dir), opt) })
}

func TestConformance(t *testing.T) {
	dir := videotest.Folder(t, 12)
	t.Run("clips", func(t *testing.T) { drivertest.Run(t, opener(dir, &Options{Frames: 3, Step: 2})) })
	t.Run("images", func(t *testing.T) { drivertest.Run(t, opener(dir, &Options{Images: true, FPS: 7})) })
	t.Run("random", func(t *testing.T) { drivertest.Run(t, opener(dir, &Options{Frames: 3, Step: 2, Random: true})) })
	t.Run("random view", func(t *testing.T) {
		drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
			return view.Open(ctx, opener(dir, &Options{Frames: 3, Step: 2, Random: true})(t), &view.Spec{Where: "label == 1"}, nil)
		}))
	})
	t.Run("times", func(t *testing.T) { drivertest.Run(t, opener(dir, &Options{Frames: 2, FPS: 7})) })
}

func TestFaults(t *testing.T) {
	drivertest.Faults(t, localstore.New(videotest.Folder(t, 6)), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", st, &Options{Frames: 4})
	})
}

// The options select the clips, in the order of the files.
func TestClips(t *testing.T) {
	dir := videotest.Folder(t, 2) // 10 and 11 frames
	for _, c := range []struct {
		opt  Options
		want [][]int
	}{
		{Options{Frames: 4}, [][]int{{0, 10, 20, 30}, {40, 50, 60, 70}, {1, 11, 21, 31}, {41, 51, 61, 71}}},
		{Options{Frames: 3, Stride: 3, Step: 2}, [][]int{{0, 30, 60}, {20, 50, 80}, {1, 31, 61}, {21, 51, 81}, {41, 71, 101}}},
		{Options{Frames: 12}, [][]int{{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 90, 90}, {1, 11, 21, 31, 41, 51, 61, 71, 81, 91, 101, 101}}},
		{Options{Frames: 2, FPS: 5}, [][]int{{0, 20}, {40, 60}, {1, 21}, {41, 61}}},
		{Options{Frames: 3, FPS: 20, Step: 100}, [][]int{{0, 0, 10}, {1, 1, 11}}},
	} {
		s := opener(dir, &c.opt)(t)
		if s.Info().Len != int64(len(c.want)) {
			t.Errorf("%+v: %d clips, not %d", c.opt, s.Info().Len, len(c.want))
			continue
		}
		for i, rec := range drivertest.Records(t, s, upTo(len(c.want))...) {
			if got := videotest.Grays(t, rec.Values[frames].Bytes); !videotest.Near(got, c.want[i]) {
				t.Errorf("%+v: clip %d is %v, not %v", c.opt, i, got, c.want[i])
			}
			if n := int64(len(rec.Values[frames].Bytes)); n > s.Info().Fields[frames].MaxBytes {
				t.Errorf("%+v: a clip of %d bytes, where %d are the most", c.opt, n, s.Info().Fields[frames].MaxBytes)
			}
		}
		s.Close()
	}
}

// The random start of a clip is between its regular start and that of the next clip. It differs
// per epoch and is a function of seed, epoch and number.
func TestRandomStarts(t *testing.T) {
	dir := videotest.Folder(t, 2)                                // 10 and 11 frames
	opt := &Options{Frames: 3, Stride: 2, Step: 4, Random: true} // clips begin at 0 to 3 and 4 to 5 or 6
	starts := func(seed uint64, spec *view.Spec) (all [][]int) {
		s, err := view.Open(t.Context(), opener(dir, opt)(t), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if !driver.EpochsOf(s) {
			t.Fatal("its records are the same in each epoch")
		}
		driver.SeedOf(s, seed)
		for epoch := range int64(40) {
			var ids []int64
			for id := range s.Info().Len {
				ids = append(ids, driver.InEpoch(epoch, id))
			}
			var of []int
			for k, rec := range drivertest.Records(t, s, ids...) {
				if rec.Err != nil {
					t.Fatal(rec.Err)
				}
				got := videotest.Grays(t, rec.Values[frames].Bytes)
				if !videotest.Near(got, []int{got[0], got[0] + 20, got[0] + 40}) {
					t.Fatalf("a clip of frames %v", got)
				}
				of = append(of, (got[0]+2)/10)
				if name := s.Name(ids[k]); !strings.Contains(name, fmt.Sprintf("at %.2f s", float64(of[k])/10)) {
					t.Errorf("a clip from frame %d on is called %q", of[k], name)
				}
			}
			all = append(all, of)
		}
		return all
	}
	all := starts(1, nil)
	for id, want := range [][]int{{0, 1, 2, 3}, {4, 5}, {0, 1, 2, 3}, {4, 5, 6}} {
		var seen []int
		for _, of := range all {
			if !slices.Contains(seen, of[id]) {
				seen = append(seen, of[id])
			}
		}
		if slices.Sort(seen); !slices.Equal(seen, want) {
			t.Errorf("clip %d begins at %v, not %v", id, seen, want)
		}
	}
	if !slices.EqualFunc(all, starts(1, nil), slices.Equal) {
		t.Error("the same seed gives other clips")
	}
	if slices.EqualFunc(all, starts(2, nil), slices.Equal) {
		t.Error("another seed gives the same clips")
	}
	// A view has the same starts as its source.
	for epoch, of := range starts(1, &view.Spec{Where: "label == 1"}) {
		if !slices.Equal(of, all[epoch][2:]) {
			t.Fatalf("of a view they begin at %v, not at %v", of, all[epoch][2:])
		}
	}
}

func upTo(n int) (ids []int64) {
	for i := range n {
		ids = append(ids, int64(i))
	}
	return ids
}

func TestOptions(t *testing.T) {
	for name, bad := range map[string][]string{"frames": {"0", "x", "70000"}, "stride": {"-1"}, "step": {""}, "fps": {"0", "nan", "-3", "1e9"}, "start": {"", "middle"}} {
		for _, text := range bad {
			if _, err := Format.Parse(name + "=" + text); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v", name, text, err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.mp4"), []byte("no video at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, localstore.New(dir), nil); err == nil || !strings.Contains(err.Error(), "x.mp4: it is not an MP4") {
		t.Error(err)
	}
}

func TestBadFiles(t *testing.T) {
	dir := videotest.Folder(t, 4)
	b, err := os.ReadFile("../lerobotsource/testdata/v2/videos/chunk-000/observation.images.top/episode_000001.mp4")
	if err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]*Options{
		"clips": {Frames: 3, Step: 2}, "random": {Frames: 3, Step: 2, Random: true}, "times": {Frames: 2, FPS: 7}, "images": {Images: true, FPS: 7}, "all images": {Images: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"a/000.mp4", "b/bad.mp4"} {
				drivertest.BadFiles{
					Folder: dir, Name: name, Content: b,
					Strip: func(v *driver.Value) {
						switch {
						case opt.Random: // the bytes depend on the number of the record
							v.Bytes = nil
						case !opt.Images && len(v.Bytes) > 0:
							clear(v.Bytes[40:48]) // the number of the video
						}
					},
					Open: func(ctx context.Context, st store.Store) (driver.Source, error) { return Open(ctx, "test", st, opt) },
				}.Run(t)
			}
		})
	}
}

// Videos of a format that is not read are bad records. TypeScript is not a video, and one
// GIF does not make images of the folder.
func TestOtherFiles(t *testing.T) {
	dir := videotest.Folder(t, 2)
	stream := strings.Repeat("G"+strings.Repeat("\x00", 187), 4)
	for name, content := range map[string]string{"a/x.ts": stream, "a/y.ts": "export {}", "b/z.flv": "FLV\x01", "b/still.gif": "GIF89a", "readme.md": "text"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := opener(dir, &Options{Frames: 100})(t) // one clip per file
	if s.Info().Len != 4 {
		t.Fatalf("%d records, want 4", s.Info().Len)
	}
	var bad []string
	for _, rec := range drivertest.Records(t, s, 0, 1, 2, 3) {
		if rec.Err != nil {
			bad = append(bad, rec.Err.Error())
		}
	}
	if len(bad) != 2 || !strings.Contains(bad[0], "a/x.ts: it is not an MP4") || !strings.Contains(bad[1], "b/z.flv: it has 4 bytes: it is not an MP4") {
		t.Errorf("bad records: %q", bad)
	}
	var left []string
	for _, g := range driver.GroupSkipped(s) {
		left = append(left, strings.Join(g.Examples, " "))
		if g.Bad {
			t.Errorf("%+v is bad", g)
		}
	}
	if want := []string{"a/y.ts", "b/still.gif", "readme.md"}; !slices.Equal(left, want) {
		t.Errorf("not taken: %q, want %q", left, want)
	}
}
