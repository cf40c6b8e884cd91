package energonsource

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// prepared was written by scripts/fixtures/energon.py, with Energon itself.
const prepared = "testdata/prepared"

func open(ctx context.Context, st store.Store, split string) (driver.Source, error) {
	return Open(ctx, "data", st, &format.Options{Split: split})
}

// changed returns a copy of the data with other files in .nv-meta.
func changed(t *testing.T, files map[string]string) store.Store {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(prepared)); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		name = filepath.Join(dir, folder, name)
		if err := os.Remove(name); text == "" && err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return localstore.New(dir)
}

// texts returns the field of texts of all records.
func texts(t *testing.T, s driver.Source, field string) (out []string) {
	t.Helper()
	for f, about := range s.Info().Fields {
		if about.Name != field {
			continue
		}
		for id := range s.Info().Len {
			r := drivertest.Records(t, s, id)[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			out = append(out, string(r.Values[f].Bytes))
		}
	}
	return out
}

// The splits have the tar files that Energon's own reader finds.
func TestSplits(t *testing.T) {
	b, err := os.ReadFile("testdata/shards.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string][]string
	if err := json.Unmarshal(b, &want); err != nil || len(want) != 3 {
		t.Fatal(want, err)
	}
	for split, shards := range want {
		s, err := open(t.Context(), localstore.New(prepared), split)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var texted []string
		for _, name := range shards {
			n := 0
			if _, err := fmt.Sscanf(name, "shard_%d.tar", &n); err != nil {
				t.Fatal(err)
			}
			for i := range 4 {
				texted = append(texted, fmt.Sprintf("picture %d", 4*n+i))
			}
		}
		if got := texts(t, s, "text"); strings.Join(got, ",") != strings.Join(texted, ",") {
			t.Errorf("%s: %q, not %q", split, got, texted)
		}
		if f := s.Info().Format; f != "energon" {
			t.Error(f)
		}
	}
	_, err = open(t.Context(), localstore.New(prepared), "")
	if err == nil || !strings.Contains(err.Error(), "it has the splits train, val and test: choose one") {
		t.Error(err)
	}
}

func TestFieldsAndExcluded(t *testing.T) {
	const exclude = "split_parts:\n  train: ['shard_{0..2}.tar']\nexclude: [shard_1.tar, 'shard_{0,2}.tar/00001', shard_2.tar/00010]\n"
	const fields = "__module__: megatron.energon\n__class__: CaptioningSample\nfield_map:\n  picture: jpg,png\n  caption: txt\n  other: json[x][y]\n"
	s, err := open(t.Context(), changed(t, map[string]string{"split.yaml": exclude, "dataset.yaml": fields}), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := fmt.Sprint(texts(t, s, "caption")); got != "[picture 0 picture 2 picture 3 picture 8 picture 9 picture 11]" {
		t.Error(got)
	}
	var names []string
	for _, f := range s.Info().Fields {
		names = append(names, f.Name+":"+string(f.Kind))
	}
	if got := strings.Join(names, " "); got != "picture:image caption:text label:label" {
		t.Error(got)
	}
	whole, err := open(t.Context(), changed(t, map[string]string{"split.yaml": strings.Split(exclude, "exclude")[0], "dataset.yaml": fields}), "")
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if whole.Info().Len != 12 || whole.Info().Fingerprint == s.Info().Fingerprint {
		t.Error(whole.Info().Len)
	}
}

func TestWrong(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no split":      {map[string]string{"split.yaml": ""}, "split.yaml is missing"},
		"other shard":   {map[string]string{"split.yaml": "split_parts: {train: [x.tar]}"}, `"x.tar" is not in shard_counts of .info.json: run energon prepare again`},
		"no shard":      {map[string]string{"split.yaml": "split_parts: {train: []}"}, "has no split with a tar file"},
		"not YAML":      {map[string]string{"split.yaml": "split_parts: ["}, "split.yaml: "},
		"braces":        {map[string]string{"split.yaml": "split_parts: {train: ['{a']}"}, "a brace that is not closed"},
		"no counts":     {map[string]string{".info.json": "{}"}, "shard_counts lists no tar file"},
		"outside":       {map[string]string{".info.json": `{"shard_counts": {"../x.tar": 1}}`}, "is not a tar file of this folder"},
		"wrong fields":  {map[string]string{"dataset.yaml": "field_map: 3"}, "dataset.yaml: "},
		"missing shard": {map[string]string{".info.json": `{"shard_counts": {"y.tar": 1}}`, "split.yaml": "split_parts: {train: [y.tar]}"}, "y.tar"},
	} {
		s, err := open(t.Context(), changed(t, c.files), "")
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func FuzzMeta(f *testing.F) {
	f.Add([]byte(`{"shard_counts": {"a.tar": 3}}`), []byte("split_parts:\n  train: ['{a,b}.tar']\nexclude: []\n"), []byte("field_map: {image: jpg}"))
	f.Fuzz(func(t *testing.T, info, split, data []byte) {
		var m Meta
		if m.info(info) != nil || m.splits(split) != nil || m.fields(data) != nil {
			return
		}
		for name, shards := range m.Splits {
			for _, s := range shards {
				if _, ok := m.Shards[s]; !ok {
					t.Errorf("split %s has the unknown %s", name, s)
				}
			}
		}
	})
}
