package bench

import (
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
)

// TestMain is also the engine: the test program started as one serves its client.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(serve(os.Args[2:]))
	}
	cachetest.Main(m)
}

func serve(args []string) int {
	opt := handoff.Options{Log: slog.New(slog.DiscardHandler), Open: func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
		cfg, err := pipeline.ParseConfig(config)
		if err != nil {
			return nil, err
		}
		p, err := pipeline.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return p, nil
	}}
	if args[0] == "--socket" {
		s, err := handoff.Listen(args[1], opt)
		if err != nil {
			return 1
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if s.Serve(ctx) != nil {
			return 1
		}
		return 0
	}
	fd, _ := strconv.Atoi(strings.TrimPrefix(args[0], "--fd="))
	conn, err := handoff.FromFD(fd)
	if err != nil || handoff.NewSession(conn, opt).Run(context.Background()) != nil {
		return 1
	}
	return 0
}

func photos(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	img := image.NewRGBA(image.Rect(0, 0, 64, 48))
	for i := range n {
		img.Set(i%64, 3, color.RGBA{200, uint8(i), 0, 255})
		f, err := os.Create(filepath.Join(dir, strconv.Itoa(i)+".jpg"))
		if err != nil {
			t.Fatal(err)
		}
		if err := jpeg.Encode(f, img, nil); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func options(t *testing.T, n int) (*Subject, Options) {
	t.Helper()
	s, err := Look(context.Background(), photos(t, n))
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := s.Config("RandomResizedCrop(32),RandomHorizontalFlip", 8)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Memory = 64 << 20
	return s, Options{Config: cfg, Steps: 12, Cached: -1}
}

func TestRun(t *testing.T) {
	s, o := options(t, 40)
	o.Step, o.Spin, o.Copy, o.Cores = 2*time.Millisecond, true, true, 1
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Steps != 11 || r.Examples != 88 || r.Records != 40 || r.Batch != 8 || r.Cores != 1 {
		t.Errorf("%+v", r)
	}
	if r.AU <= 0 || r.AU > 1 || r.AUMin > r.AU || r.StepTime.Max < r.StepTime.P50 || r.StepTime.P50 <= 0 || r.PSS <= 0 || r.Limit == "" {
		t.Errorf("%+v", r)
	}
	if r.LogicalBytes <= 0 || len(r.Stages) < 5 {
		t.Errorf("%+v", r.Stages)
	}
	if len(proc.AllowedCPUs()) > 1 && len(o.cpus) != 0 {
		t.Error("Run has changed its caller's options")
	}
	m, err := Costs(context.Background(), s, o.Config)
	if err != nil {
		t.Error(err)
	}
	if len(m.Codecs) != 2 || m.Scaling <= 0 {
		t.Errorf("%+v", m)
	}
	for _, sc := range WhatIf(s, r, m, FastDisk) {
		if sc.PerSecond < 0 || math.IsNaN(sc.PerSecond) || sc.Limit == "" {
			t.Errorf("%+v", sc)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestRunOfSeveralAccelerators(t *testing.T) {
	_, o := options(t, 48)
	o.Accelerators, o.Steps, o.OneEpoch, o.Step = 2, 100, true, time.Millisecond
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	// 48 records are three global batches of 2 x 8; the first is not counted.
	if r.Steps != 4 || r.Examples != 32 {
		t.Errorf("%d steps, %d examples", r.Steps, r.Examples)
	}
}

func TestRunFails(t *testing.T) {
	_, o := options(t, 10)
	bad := o
	bad.Config.Source = "/nowhere/at/all"
	if _, err := Run(context.Background(), bad); err == nil || !strings.Contains(err.Error(), "/nowhere/at/all") {
		t.Errorf("a source that is not there: %v", err)
	}
	bad = o
	bad.Engine = []string{"/bin/false"}
	if _, err := Run(context.Background(), bad); err == nil || !strings.Contains(err.Error(), "the engine has ended") {
		t.Errorf("an engine that ends: %v", err)
	}
	bad = o
	bad.Cores = 1 << 20
	if _, err := Run(context.Background(), bad); err == nil {
		t.Error("a million cores are no error")
	}
	bad = o
	bad.Steps, bad.For = 0, time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, bad); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a run that was called off: %v", err)
	}
}

func TestCopyAndCache(t *testing.T) {
	s, o := options(t, 12)
	raw, remove, err := s.Copy(context.Background(), "raw", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if raw.Codec != "raw" || !raw.Fixed || raw.Len != 12 {
		t.Errorf("%+v", raw)
	}
	files, err := SourceFiles(raw.Source)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, share := range []float64{0, 0.5, 1} {
		if err := setCached(context.Background(), files, share); err != nil {
			t.Errorf("share %v: %v", share, err)
		}
	}
	o.Config, _, err = raw.Config("", 4)
	if err != nil {
		t.Fatal(err)
	}
	o.Config.Memory, o.Files, o.Cached, o.OneEpoch, o.Steps = 64<<20, files, 0, true, 100
	r, err := Run(context.Background(), o)
	if err != nil || r.Steps != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	remove()
	if _, err := os.Stat(raw.Source); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy is still there: %v", err)
	}
	if _, err := SourceFiles("s3://bucket/x"); err == nil {
		t.Error("the page cache of an object store is no error")
	}
}

func TestKneeOf(t *testing.T) {
	for _, c := range []struct {
		speeds []float64
		want   int
	}{
		{[]float64{100}, 0},
		{[]float64{100, 190, 270, 290}, 2},
		{[]float64{100, 105, 112}, 2}, // slow growth adds up
		{[]float64{100, 80, 100, 104}, 0},
		{[]float64{0, 5}, 1},
	} {
		if got := KneeOf(c.speeds); got != c.want {
			t.Errorf("knee of %v at %d, want %d", c.speeds, got, c.want)
		}
	}
}

// The study of the seeds: Caltech-256 from 1 to 7 workers, 260 to 96 s.
func study(t *testing.T) *Study {
	t.Helper()
	epoch := map[string]float64{"1": 260, "2": 150, "4": 100, "7": 96}
	s, err := RunStudy(context.Background(), "caltech", "seconds per epoch",
		[]Axis{{AxisWorkers, []string{"7", "1", "2", "4"}}, {AxisDecode, []string{"on", "off"}}}, 3,
		func(v map[string]string) (Outcome, error) {
			e := epoch[v[AxisWorkers]]
			if v[AxisDecode] == "off" {
				e = 40
			}
			return Outcome{Seconds: e, PerSecond: 30607 / e, Limit: LimitCPU, Why: "all cores work"}, nil
		}, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStudy(t *testing.T) {
	s := study(t)
	if s.X != AxisWorkers || len(s.Series) != 2 || len(s.Cells) != 8 || s.Cells[0].Repeats != 3 {
		t.Fatalf("%+v", s)
	}
	on := s.Series[0]
	if !slices.Equal(on.X, []float64{1, 2, 4, 7}) || on.Knee != 2 {
		t.Errorf("%+v", on)
	}
	if want := "decode on: knee at 4 workers: more adds 4% at most; the limit there is cpu: all cores work"; on.Verdict != want {
		t.Errorf("%q, want %q", on.Verdict, want)
	}
	failed := errors.New("no")
	if _, err := RunStudy(context.Background(), "", "", []Axis{{AxisCores, []string{"1"}}}, 1, func(map[string]string) (Outcome, error) {
		return Outcome{}, failed
	}, nil); !errors.Is(err, failed) || !strings.Contains(err.Error(), "1 core:") {
		t.Errorf("a run that fails: %v", err)
	}
}

func TestTold(t *testing.T) {
	told, err := ParseTold([]byte(`{"axis": "threads", "unit": "seconds per step", "runs": [
		{"x": 4, "seconds": 1.1, "limit": "cpu"}, {"x": 1, "seconds": 4, "examples_per_second": 8, "au": 0.5, "cpu": 2, "pss": 7}, {"x": 1, "seconds": 5},
		{"x": 2, "seconds": 2}, {"x": 4, "seconds": 1.3, "limit": "cpu"}, {"x": 8, "seconds": 1.15}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := told.Curve()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Cells) != 4 || c.Cells[0] != (ToldCell{ToldRun{1, 4.5, 4, 0.25, 1, 3, ""}, 4, 5}) || c.Cells[2].Limit != "cpu" || c.Knee != 4 {
		t.Errorf("%+v", c)
	}
	if want := "knee at 4 threads: more adds 4% at most; the limit there is cpu"; c.Verdict != want {
		t.Errorf("%q, want %q", c.Verdict, want)
	}
	told.Runs = told.Runs[:4]
	if c, err = told.Curve(); err != nil || c.Verdict != "still 1.82 times faster at 4 threads than at 2: the knee lies beyond; the limit there is cpu" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{`{}`, `{"axis": "x", "runs": []}`, `{"axis": "", "runs": [{"x": 1}]}`, `{"axis": "x", "runs": [{"x": -1}]}`, `{"axis": "x", "runs": [{"x": 1, "seconds": 1e99}]}`} {
		if _, err := ParseTold([]byte(bad)); err == nil {
			t.Errorf("%s is no error", bad)
		}
	}
}

func TestChartOfAStudy(t *testing.T) {
	c := study(t).Chart()
	if c.XLabel != "workers" || c.YLabel != "seconds per epoch" || len(c.Curves) != 2 {
		t.Fatalf("%+v", c)
	}
	on := c.Curves[0]
	if on.Name != "decode on" || on.Mark != 2 || !slices.Equal(on.Y, []float64{260, 150, 100, 96}) {
		t.Errorf("%+v", on)
	}
}

func TestParseTransforms(t *testing.T) {
	ops, err := ParseTransforms("RandomResizedCrop(224, scale=(0.25, 1)), RandomHorizontalFlip,Resize(256),Resize((3, 4)),ColorJitter(brightness=0.4,p=None)")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"op":"RandomResizedCrop","scale":[0.25,1],"size":[224,224]}`, `{"op":"RandomHorizontalFlip"}`,
		`{"op":"Resize","size":256}`, `{"op":"Resize","size":[3,4]}`, `{"brightness":0.4,"op":"ColorJitter","p":null}`,
	}
	for i, op := range ops {
		if string(op) != want[i] {
			t.Errorf("%s, want %s", op, want[i])
		}
	}
	for _, s := range []string{"Crop(", "A(1)B", "(3)", "A,", "A(x)", "A(1,2,3)"} {
		if _, err := ParseTransforms(s); err == nil {
			t.Errorf("%q is no error", s)
		}
	}
}

func FuzzParseTransforms(f *testing.F) {
	f.Add("RandomResizedCrop(224,scale=(0.2,1)),Flip")
	f.Add("A(b=[1,2],c='x'),")
	f.Fuzz(func(t *testing.T, s string) {
		ops, err := ParseTransforms(s)
		if err == nil {
			if _, err := json.Marshal(ops); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"x":"workers","unit":"s","cells":[{"values":{"workers":"1"},"seconds":3,"low":2,"high":4},{"values":{"workers":"2"},"seconds":2}]}`))
	f.Add([]byte(`{"x":"decode","cells":[{"values":{"decode":"on"},"seconds":1e300}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Study
		if json.Unmarshal(data, &s) != nil || s.Restore() != nil {
			return
		}
		s.Chart().Terminal(30, 6)
		if err := s.Chart().SVG(io.Discard); err != nil {
			t.Fatal(err)
		}
	})
}
