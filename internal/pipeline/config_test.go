package pipeline

import (
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"source":"train/","batch_size":256,"shuffle":true,"seed":18446744073709551615,"drop_last":false,"rank":1,"world_size":2,
		"threads":0,"memory":0,"prefetch":0,"on_error":"raise","fields":["image","label"],
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
	f.Add([]byte(`{"source":"x","batch_size":2,"outputs":[{"name":"a","ops":[{"op":"Resize","size":3}]}],"batch_ops":[{"op":"MixUp"}]}`))
	f.Add([]byte(`{"fields":["image"],"memory":-1}`))
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
