package pipeline

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/transform"
)

func TestParseConfig(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"source":"train/","batch_size":256,"shuffle":true,"seed":18446744073709551615,"drop_last":false,"rank":1,"world_size":2,
		"threads":0,"memory":0,"prefetch":0,"on_error":"raise",
		"outputs":[{"name":"image","field":"image","ops":[{"op":"RandomResizedCrop","size":[224,224]}],"layout":"NHWC"}]}`))
	if err != nil || cfg.BatchSize != 256 || cfg.Seed != 1<<64-1 || cfg.Rank != 1 || len(cfg.Outputs) != 1 || len(cfg.Outputs[0].Ops) != 1 {
		t.Fatalf("%+v %v", cfg, err)
	}
	for text, want := range map[string]string{
		`{"bach_size":3}`:                    `did you mean "batch_size"?`,
		`{"batch_size":"3"}`:                 "batch_size",
		`{"outputs":[{"nme":"x"}]}`:          `did you mean "name"?`,
		`{"batch_size":3} {}`:                "after",
		`[1]`:                                "configuration",
		``:                                   "configuration",
		`{"batch_size":1e30}`:                "batch_size",
		strings.Repeat(" ", maxConfigJSON+1): "more than the limit",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: error is %v, want %q", text, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"source":"x","batch_size":2,"outputs":[{"name":"a","ops":[{"op":"Resize","size":3},{"op":"MixUp"}]}]}`))
	f.Add([]byte(`{"layout":"NCHW","memory":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := ParseConfig(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of more than one line: %q", err)
			}
			return
		}
		_, _ = cfg.withDefaults()
	})
}

func TestLayoutOfOutputsThatSayNone(t *testing.T) {
	shape := func(cfg Config, name string) []int {
		t.Helper()
		cfg.OpenSource, cfg.BatchSize = use(sourcetest.Raw(20, 6, 4, 3, 2)), 2
		for _, a := range mustOpen(t, cfg).Info().Arrays {
			if a.Name == name {
				return a.Shape
			}
		}
		return nil
	}
	nhwc, nchw := []int{4, 6, 3}, []int{3, 4, 6}
	outputs := []transform.Output{{Name: "a", Field: "image"}, {Name: "b", Field: "image", Layout: "NHWC"}}
	for i, got := range [][2][]int{
		{shape(Config{}, "image"), nhwc},
		{shape(Config{Layout: "NCHW"}, "image"), nchw},
		{shape(Config{Layout: "NCHW", Fields: []string{"image"}}, "image"), nchw},
		{shape(Config{Layout: "NCHW", Outputs: outputs}, "a"), nchw},
		{shape(Config{Layout: "NCHW", Outputs: outputs}, "b"), nhwc},
	} {
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("case %d: %v, want %v", i, got[0], got[1])
		}
	}
	if _, err := Open(context.Background(), Config{OpenSource: use(sourcetest.Raw(20, 6, 4, 3, 2)), BatchSize: 2, Layout: "CHW"}); err == nil ||
		!strings.Contains(err.Error(), `layout must be "NHWC" or "NCHW", not "CHW"`) {
		t.Error(err)
	}
}
