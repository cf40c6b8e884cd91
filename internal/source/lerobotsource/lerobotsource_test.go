package lerobotsource

import (
	"encoding/binary"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripts/fixtures/lerobot.py wrote the files in testdata in LeRobot's layout: episodes of 7, 5 and 9 frames, 10
// per second.
var deltas = []string{"", "action=0:3;observation.images.top=-0.1,0;next.reward=-2:1;next.done=0,0.1"}

func TestValues(t *testing.T) {
	for _, dir := range []string{"v2", "v3"} {
		src, err := Open(t.Context(), dir, localstore.New("testdata/"+dir), &Options{Deltas: deltas[1]})
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, f := range src.Info().Fields {
			at[f.Name] = i
		}
		obj := recordread.NewObjects(src, nil)
		r := recordread.NewDirect(src, obj)
		ends := []int64{7, 12, 21}
		for id := range src.Info().Len {
			recs, err := r.Read(t.Context(), []int64{id})
			if err != nil || recs[0].Err != nil {
				t.Fatal(err, recs[0].Err)
			}
			values := func(name string) driver.Value { return recs[0].Values[at[name]] }
			episode := slices.IndexFunc(ends, func(end int64) bool { return id < end })
			first, last := int64(0), ends[episode]-1
			if episode > 0 {
				first = ends[episode-1]
			}
			var action, reward []float32
			var pads []byte
			for k := range int64(3) {
				row := min(id+k, last)
				action = append(action, float32(row), -float32(row))
				pads = append(pads, map[bool]byte{true: 1}[id+k > last])
				reward = append(reward, float32(max(id+k-2, first))/4)
			}
			if got := floats(values("action").Bytes); !slices.Equal(got, action) {
				t.Errorf("%s, record %d: actions %v, want %v", dir, id, got, action)
			}
			if got := values("action_is_pad").Bytes; !slices.Equal(got, pads) {
				t.Errorf("%s, record %d: pad %v, want %v", dir, id, got, pads)
			}
			if got := floats(values("next.reward").Bytes); !slices.Equal(got, reward) {
				t.Errorf("%s, record %d: rewards %v, want %v", dir, id, got, reward)
			}
			done := []byte{0, 0}
			for k := range done {
				done[k] = map[bool]byte{true: 1}[min(id+int64(k), last) == last]
			}
			if got := values("next.done").Bytes; !slices.Equal(got, done) {
				t.Errorf("%s, record %d: done %v, want %v", dir, id, got, done)
			}
			if got, want := string(values("task").Bytes), []string{"push the block", "lift the cup"}[episode%2]; got != want {
				t.Errorf("%s, record %d: task %q, want %q", dir, id, got, want)
			}
			if got := values("frame_index").Int; got != id-first {
				t.Errorf("%s, record %d: frame %d", dir, id, got)
			}
			var clip video.Clip
			for name, frames := range map[string]int{"observation.images.top": 2, "observation.images.wrist": 1} {
				if err := clip.Parse(values(name).Bytes); err != nil || len(clip.Frames) != frames {
					t.Errorf("%s, record %d: %s has %d frames: %v", dir, id, name, len(clip.Frames), err)
				}
			}
		}
		obj.Close()
		src.Close()
	}
}

func floats(b []byte) (out []float32) {
	for ; len(b) > 0; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

func TestDeltas(t *testing.T) {
	got, err := ParseDeltas("a=-1:2;b=0.1,-0.2;c.d=0", 10)
	want := Deltas{"a": {-0.1, 0, 0.1}, "b": {0.1, -0.2}, "c.d": {0}}
	if err != nil || !maps.EqualFunc(got, want, func(a, b []float64) bool { return slices.Equal(a, b) }) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for text, says := range map[string]string{
		"":          "give each feature once with its times",
		"a":         "give each feature once with its times",
		"a=0;a=1":   "give each feature once with its times",
		"a=0.05":    "0.05 s is not a whole number of frames at 10 frames per second",
		"a=x":       "is not a number of seconds",
		"a=nan":     "is not a number of seconds",
		"a=3:1":     "a range needs two frame numbers in ascending order",
		"a=0:99999": "at most 4096 frames",
	} {
		if _, err := ParseDeltas(text, 10); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// edited returns a copy of a data set with one edited file.
func edited(t *testing.T, from, name string, edit func(string) string) string {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(edit(string(b))), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func replace(old, by string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, by, 1) }
}

// The frames of a video that cannot be read are bad records.
func TestBadVideo(t *testing.T) {
	const name = "videos/chunk-000/observation.images.top/episode_000001.mp4"
	for why, change := range map[string]func(path string) error{
		"it is cut off":    func(p string) error { return os.Truncate(p, 100) },
		"it is not an MP4": func(p string) error { return os.WriteFile(p, []byte("not a video at all"), 0o644) },
		"no such file":     os.Remove,
	} {
		dir := drivertest.Copied(t, "testdata/v2")
		if err := change(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), dir, localstore.New(dir), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		info := s.Info()
		if info.BadFiles != 1 || info.Bad[0].Path != name {
			t.Errorf("%s: %d bad files: %v", why, info.BadFiles, info.Bad)
		}
		for id := range info.Len {
			r := drivertest.Records(t, s, id)[0]
			if bad := strings.Contains(s.Name(id), "episode 1,"); bad != (r.Err != nil) || bad && (!strings.Contains(r.Err.Error(), filepath.Join(dir, name)) || !strings.Contains(r.Err.Error(), why)) {
				t.Errorf("%s: %v", s.Name(id), r.Err)
			}
		}
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct {
		from, name string
		edit       func(string) string
		says       string
	}{
		{"v3", InfoName, replace("v3.0", "v9.0"), `unsupported version "v9.0"`},
		{"v3", InfoName, replace(`"fps": 10`, `"fps": 0`), "invalid frame rate 0"},
		{"v3", InfoName, replace("videos/{video_key}", "../{video_key}"), "leads out of the folder"},
		{"v3", InfoName, replace("{video_key}", "{other}"), "unknown placeholder {other}"},
		{"v3", InfoName, replace(`"timestamp"`, `"time"`), "no column"},
		{"v3", InfoName, func(s string) string { return s[:len(s)/2] }, "info.json, byte 1222: not LeRobot metadata"},
		{"v2", "meta/episodes.jsonl", replace(`"length": 7`, `"length": 8`), "its episodes have 22 rows, but its data 21"},
		{"v2", "meta/episodes.jsonl", replace(`"length": 7`, `"length": -7`), "episodes.jsonl, line 1: expected an episode"},
	} {
		dir := edited(t, "testdata/"+c.from, c.name, c.edit)
		src, err := Open(t.Context(), dir, localstore.New(dir), nil)
		if err == nil {
			src.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	if _, err := Open(t.Context(), "", localstore.New("testdata/v3"), &Options{Deltas: "actions=0:3"}); err == nil || !strings.Contains(err.Error(), `no such feature; it has "observation.state"`) {
		t.Error(err)
	}
}

// A video that ends before its episode has no frame for the last records.
func TestVideoIsTooShort(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/v2")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "videos/chunk-000/observation.images.top/episode_000001.mp4"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "videos/chunk-001/observation.images.top/episode_000002.mp4"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, err := Open(t.Context(), dir, localstore.New(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	recs, err := recordread.NewDirect(src, obj).Read(t.Context(), []int64{16, 20})
	if err != nil || recs[0].Err != nil {
		t.Fatal(err, recs[0].Err)
	}
	if err := recs[1].Err; err == nil || !strings.Contains(err.Error(), "episode_000002.mp4: record 20: no frame at 0.8000 s: the nearest frame is at 0.4000 s") {
		t.Error(err)
	}
}

func FuzzMeta(f *testing.F) {
	b, err := os.ReadFile("testdata/v3/" + InfoName)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "action=0:3;x=0.1")
	f.Add([]byte(`{"codebase_version":"v2.1","fps":1,"data_path":"x","features":{}}`), "a=0")
	f.Fuzz(func(t *testing.T, info []byte, deltas string) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "meta"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, InfoName), info, 0o644); err != nil {
			t.Fatal(err)
		}
		st := localstore.New(dir)
		Is(t.Context(), st)
		a, err := readAbout(t.Context(), st)
		if err != nil {
			return
		}
		for _, template := range []string{a.Data, a.Video} {
			n := numbers{chunk: 1, file: 2, episode: 3, video: "camera"}
			if name, err := n.expand(template); err == nil && (filepath.IsAbs(name) || strings.HasPrefix(name, "..")) {
				t.Errorf("%q", name)
			}
		}
		one, err1 := ParseDeltas(deltas, a.FPS)
		two, err2 := ParseDeltas(deltas, a.FPS)
		if (err1 == nil) != (err2 == nil) || !reflect.DeepEqual(one, two) {
			t.Error("it is read in two ways")
		}
	})
}

// Times are those of the file: where its first frame comes a frame late, a record has the frame before, and the first
// record has none.
func TestFirstFrameIsLate(t *testing.T) {
	src, err := Open(t.Context(), "v2", localstore.New("testdata/v2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	s := src.(*source)
	before := s.frame(0, 0, 2)
	for _, x := range s.videos {
		for i := range x.Frames {
			x.Frames[i].PTS += int64(float64(x.Timescale) / s.fps)
		}
	}
	if got := s.frame(0, 0, 2); got != before-1 {
		t.Errorf("frame %d, want %d", got, before-1)
	}
	obj := recordread.NewObjects(src, nil)
	defer obj.Close()
	recs, err := recordread.NewDirect(src, obj).Read(t.Context(), []int64{0, 1})
	if err != nil || recs[1].Err != nil || recs[0].Err == nil || !strings.Contains(recs[0].Err.Error(), "no frame at 0.0000 s") {
		t.Errorf("%v, %v, %v", err, recs[0].Err, recs[1].Err)
	}
}
