package clips

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/source/videosource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/video/videotest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/source/view"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// list writes a table of clips. Video v/0.avi has frames 0, 10, .. 90. Video v/1.avi has frames 1,
// 11, .. 101. Both have 10 frames per second.
func list(t testing.TB, rows ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range 2 {
		videotest.Write(t, filepath.Join(dir, "v", fmt.Sprintf("%d.avi", i)), 10+i, i)
	}
	text := "video,begin,end,label,caption\n" + strings.Join(rows, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "list.csv"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open1(ctx context.Context, st store.Store, query string) (driver.Source, error) {
	columns, err := column.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	rest, wanted, err := Cut(columns)
	if err != nil {
		return nil, err
	}
	folder := st.Path("")
	table, err := tablesource.Open(ctx, "list.csv", tablesource.CSV, st, &tablesource.Options{Columns: rest, Folder: folder})
	if err != nil {
		return nil, err
	}
	return Open(ctx, table, wanted, &Options{Files: st, Folder: folder})
}

func opener(dir, query string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return open1(ctx, localstore.New(dir), query) })
}

func many(n int) (rows []string) {
	for i := range n {
		rows = append(rows, fmt.Sprintf("v/%d.avi,%g,%g,%d,row %d", i%2, float64(i%7)/10, 0.8, i%3, i))
	}
	return rows
}

func TestConformance(t *testing.T) {
	dir := list(t, many(40)...)
	for name, query := range map[string]string{
		"whole":  "clip:frames=video&clip.frames=3&label:label=label&caption",
		"part":   "caption&clip:frames=video&clip.frames=3&clip.from=begin&clip.to=end",
		"random": "clip:frames=video&clip.frames=3&clip.start=random&clip.from=begin&*",
		"two":    "a:frames=video&a.frames=2&caption&b:frames=video&b.frames=4&b.stride=2&b.fps=7&b.start=middle",
	} {
		t.Run(name, func(t *testing.T) { drivertest.Run(t, opener(dir, query)) })
	}
	t.Run("view", func(t *testing.T) {
		drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
			return view.Open(ctx, opener(dir, "clip:frames=video&clip.frames=3&clip.start=random&label:int=label")(t), &view.Spec{Where: "label == 1"}, nil)
		}))
	})
}

func TestFaults(t *testing.T) {
	drivertest.Faults(t, localstore.New(list(t, many(12)...)), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return open1(ctx, st, "clip:frames=video&clip.frames=4&clip.from=begin&clip.to=end&caption")
	})
}

// clipsOf returns the gray values of the clips of all rows in an epoch, nil for errors.
func clipsOf(t *testing.T, s driver.Source, epoch int64) (out [][]int) {
	t.Helper()
	for id := range s.Info().Len {
		rec := drivertest.Records(t, s, driver.InEpoch(epoch, id))[0]
		if rec.Err != nil {
			out = append(out, nil)
			continue
		}
		out = append(out, videotest.Grays(t, rec.Values[0].Bytes))
	}
	return out
}

func TestClips(t *testing.T) {
	dir := list(t, "v/0.avi,0.2,0.6,0,a", "v/1.avi,,,1,b", "v/0.avi,0.7,,0,c")
	frames := func(add int, at ...int) (out []int) {
		for _, n := range at {
			out = append(out, 10*n+add)
		}
		return out
	}
	const from = "&clip.from=begin&clip.to=end"
	for _, c := range []struct {
		query string
		want  [][]int
	}{
		{"clip.frames=3", [][]int{frames(0, 0, 1, 2), frames(1, 0, 1, 2), frames(0, 0, 1, 2)}},
		{"clip.frames=3&clip.stride=2&clip.start=middle", [][]int{frames(0, 2, 4, 6), frames(1, 3, 5, 7), frames(0, 2, 4, 6)}},
		{"clip.frames=3" + from, [][]int{frames(0, 2, 3, 4), frames(1, 0, 1, 2), frames(0, 7, 8, 9)}},
		// A part that is too short repeats its last frame.
		{"clip.frames=5" + from, [][]int{frames(0, 2, 3, 4, 5, 5), frames(1, 0, 1, 2, 3, 4), frames(0, 7, 8, 9, 9, 9)}},
		{"clip.frames=2&clip.start=middle" + from, [][]int{frames(0, 3, 4), frames(1, 4, 5), frames(0, 7, 8)}},
		{"clip.frames=3&clip.fps=5" + from, [][]int{frames(0, 2, 4, 4), frames(1, 0, 2, 4), frames(0, 7, 7, 7)}},
		{"clip.frames=3&clip.fps=20" + from, [][]int{frames(0, 2, 2, 3), frames(1, 0, 0, 1), frames(0, 7, 7, 8)}},
	} {
		s := opener(dir, "clip:frames=video&caption&"+c.query)(t)
		got := clipsOf(t, s, 0)
		if !slices.EqualFunc(got, c.want, videotest.Near) {
			t.Errorf("%s: clips %v, not %v", c.query, got, c.want)
		}
		for _, rec := range drivertest.Records(t, s, 0, 1, 2) {
			if n := int64(len(rec.Values[0].Bytes)); n > s.Info().Fields[0].MaxBytes {
				t.Errorf("%s: a clip of %d bytes, where %d are the most", c.query, n, s.Info().Fields[0].MaxBytes)
			}
		}
		s.Close()
	}
	// From and to as frame numbers.
	dir = list(t, "v/0.avi,2,6,0,a", "v/1.avi,10,,1,b", "v/0.avi,7,99,0,c")
	s := opener(dir, "clip:frames=video&clip.frames=4&clip.unit=frames"+from)(t)
	defer s.Close()
	if got, want := clipsOf(t, s, 0), [][]int{frames(0, 2, 3, 4, 5), frames(1, 10, 10, 10, 10), frames(0, 7, 8, 9, 9)}; !slices.EqualFunc(got, want, videotest.Near) {
		t.Errorf("clips %v, not %v", got, want)
	}
}

// A random clip starts anywhere in its part. The start differs per epoch and depends only on seed,
// epoch and row, also through a view. Two columns get the same start.
func TestRandom(t *testing.T) {
	dir := list(t, "v/0.avi,0.2,0.7,0,a", "v/1.avi,,,1,b", "v/1.avi,0.9,,1,c")
	const query = "clip:frames=video&clip.frames=3&clip.start=random&clip.from=begin&clip.to=end&label:int=label&" +
		"other:frames=video&other.frames=3&other.start=random&other.from=begin&other.to=end"
	starts := func(seed uint64, spec *view.Spec) (all [][]int) {
		s, err := view.Open(t.Context(), opener(dir, query)(t), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if !driver.EpochsOf(s) {
			t.Fatal("its records are the same in each epoch")
		}
		driver.SeedOf(s, seed)
		for epoch := range int64(40) {
			var of []int
			for id, got := range clipsOf(t, s, epoch) {
				of = append(of, (got[0]+2)/10)
				rec := drivertest.Records(t, s, driver.InEpoch(epoch, int64(id)))[0]
				if other := videotest.Grays(t, rec.Values[2].Bytes); !slices.Equal(got, other) {
					t.Fatalf("clips %v and %v", got, other)
				}
			}
			all = append(all, of)
		}
		return all
	}
	all := starts(1, nil)
	for id, want := range [][]int{{2, 3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {9}} {
		var seen []int
		for _, of := range all {
			if !slices.Contains(seen, of[id]) {
				seen = append(seen, of[id])
			}
		}
		if slices.Sort(seen); !slices.Equal(seen, want) {
			t.Errorf("row %d begins at %v, not %v", id, seen, want)
		}
	}
	if !slices.EqualFunc(all, starts(1, nil), slices.Equal) {
		t.Error("the same seed gives other clips")
	}
	if slices.EqualFunc(all, starts(2, nil), slices.Equal) {
		t.Error("another seed gives the same clips")
	}
	for epoch, of := range starts(1, &view.Spec{Where: "label == 1"}) {
		if !slices.Equal(of, all[epoch][1:]) {
			t.Fatalf("of a view they begin at %v, not at %v", of, all[epoch][1:])
		}
	}
}

// A bad row is an error of its record, and the error names the row.
func TestWrongRows(t *testing.T) {
	dir := list(t, "v/0.avi,0.2,0.6,0,a", "v/9.avi,,,1,b", "broken.avi,,,1,c", ",,,1,d", "v/0.avi,0.5,0.5,1,e", "v/0.avi,-1,,1,f", "v/0.avi,1.5,,1,g", "../x.avi,,,1,h")
	if err := os.WriteFile(filepath.Join(dir, "broken.avi"), []byte("no video at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := opener(dir, "clip:frames=video&clip.frames=2&clip.from=begin&clip.to=end&caption")(t)
	defer s.Close()
	for id, want := range []string{"", "no such file", "it is not an MP4", "has no value", "ends at second 0.5, which is not after its start at 0.5", "before the start of the video", "the video ends at 1", "leads out of the folder"} {
		rec := drivertest.Records(t, s, int64(id))[0]
		switch {
		case want == "":
			if rec.Err != nil {
				t.Error(rec.Err)
			}
		case rec.Err == nil || !strings.Contains(rec.Err.Error(), want) || !strings.Contains(rec.Err.Error(), fmt.Sprintf("row %d", id)) || !strings.Contains(rec.Err.Error(), `"video"`):
			t.Errorf("row %d: %v, want %q", id, rec.Err, want)
		}
	}
	lines := s.(Describer).DescribeClips()
	if len(lines) != 1 || !strings.Contains(lines[0], `clip: 2 frames, of the videos in "video" from "begin" to "end"; 7 rows without a clip, first row 1: `) {
		t.Errorf("%q", lines)
	}
	if _, err := open1(t.Context(), localstore.New(list(t, "no.avi,,,0,a")), "clip:frames=video"); err == nil || !strings.Contains(err.Error(), "no row leads to a clip") {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	dir := list(t, many(2)...)
	for query, want := range map[string]string{
		"clip:frames=video&clip.frames=0":                  "clip.frames=0: give a number",
		"clip:frames=video&clip.stride=x":                  "clip.stride=x",
		"clip:frames=video&clip.start=end":                 "clip.start=end",
		"clip:frames=video&clip.fps=-1":                    "clip.fps=-1",
		"clip:frames=video&clip.unit=hours&clip.from=end":  "clip.unit=hours",
		"clip:frames=video&clip.unit=frames":               "clip.unit=frames",
		"clip:frames=video&clip.strid=2":                   `"clip.strid" is not an option`,
		"clip:frames=video&clip.from=caption":              `"caption"`,
		"clip:frames=film":                                 `no column "film"`,
		"clip:frames=video&clip.from=begin&clip.to=nobody": `no column "nobody"`,
	} {
		if s, err := open1(t.Context(), localstore.New(dir), query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
			if err == nil {
				s.Close()
			}
		} else if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add("clip:frames=video&clip.frames=3&clip.start=random&clip.from=begin&*", 0.2, 0.8)
	f.Add("a:frames=v&a.fps=7&a.unit=frames&a.to=b", -1.0, 3.5)
	dir := list(f)
	src, err := videosource.Open(f.Context(), dir, localstore.New(dir), nil)
	if err != nil {
		f.Fatal(err)
	}
	x := src.(videosource.Videos).Videos()[0]
	f.Fuzz(func(t *testing.T, query string, from, to float64) {
		columns, err := column.ParseQuery(query)
		if err != nil {
			return
		}
		_, wanted, err := Cut(columns)
		if err != nil {
			return
		}
		for _, w := range wanted {
			if w.defaults() != nil {
				continue
			}
			begin, n, err := w.part(x, from, to)
			if err == nil && (n < 1 || begin < 0) {
				t.Fatalf("a part of %d frames from %v on", n, begin)
			}
			c := &clipColumn{Clip: w}
			r := &row{n: int32(min(n, 1<<30)), begin: begin}
			if err == nil {
				for _, j := range []int{0, w.Frames - 1} {
					if i := c.frame(r, x, 0, j); i < 0 || i >= len(x.Shown) {
						t.Fatalf("frame %d of %d", i, len(x.Shown))
					}
				}
			}
		}
	})
}

func TestWrapped(t *testing.T) {
	dir := list(t, many(20)...)
	for start, lacks := range map[string]map[string]string{
		"begin": {"Epochs": "only random clips differ per epoch"}, "random": {},
	} {
		lacks["Chunker"] = "the videos are not in the chunks of the table"
		lacks["Varied"] = "tables have no variants"
		lacks["Cutter"] = "tables have no volumes"
		t.Run(start, func(t *testing.T) {
			st := localstore.New(dir)
			drivertest.Wrapped(t, drivertest.Wrapping{
				Open: drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
					return tablesource.Open(ctx, "list.csv", tablesource.CSV, st, &tablesource.Options{Folder: dir})
				}),
				Wrap: func(t testing.TB, base driver.Source) driver.Source {
					s, err := Open(t.Context(), base, []Clip{{Name: "video", Column: "video", Frames: 3, Start: Start(start)}}, &Options{Files: st, Folder: dir})
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				Lacks: lacks,
			})
		})
	}
}
