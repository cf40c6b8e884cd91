package sharsource

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripts/fixtures/shar.py wrote the folders in testdata with Lhotse itself, and next to them what Lhotse reads. The
// folder parts has other cuts of the same values.
const folder = "testdata/"

// written returns a folder with all of its files.
func written(t *testing.T, name string) store.Store {
	t.Helper()
	if name == "whole" {
		return localstore.New(folder + name)
	}
	dir := drivertest.Copied(t, folder+"whole")
	for n := range 3 {
		file := fmt.Sprintf("cuts.%06d.jsonl.gz", n)
		b, err := os.ReadFile(filepath.Join(folder, name, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return localstore.New(dir)
}

func open(ctx context.Context, st store.Store, query string) (driver.Source, error) {
	var wants []column.Want
	if query != "" {
		var err error
		if wants, err = column.ParseQuery(query); err != nil {
			return nil, err
		}
	}
	return Open(ctx, "data", st, &format.Options{Columns: wants})
}

// as16 decodes a sound as Lhotse's samples are written down.
func as16(t *testing.T, b []byte) (text string, channels int) {
	t.Helper()
	var d audio.Decoder
	defer d.Close()
	if err := d.Open(b); err != nil {
		t.Fatal(err)
	}
	n := int(d.Frames)
	samples := make([]float32, n*d.Channels)
	if err := d.Decode(samples, n, 0, d.Frames); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i := range n {
		for c := range d.Channels {
			out = binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(float64(samples[c*n+i])*32768))))
		}
	}
	return base64.StdEncoding.EncodeToString(out), d.Channels
}

// numbers are the elements of an array.
func numbers(f *driver.Field, b []byte) (out []float64) {
	t := f.DType.Type()
	for ; len(b) > 0; b = b[t.Size():] {
		if t.Floating() {
			out = append(out, t.Float(b))
		} else {
			out = append(out, float64(t.Int(b)))
		}
	}
	return out
}

func flat(rows [][]float64) (out []float64) { return slices.Concat(rows...) }

// The records have the values that Lhotse reads.
func TestValues(t *testing.T) {
	for _, name := range []string{"whole", "parts"} {
		var want []struct {
			ID, Text, Recording, Target string
			Duration, SNR               float64
			Channels                    int
			Quality                     *float64
			Speakers, Languages         []string
			Segments, Features, Codes   [][]float64
			Vector                      []float64
		}
		b, err := os.ReadFile(folder + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		s, err := open(t.Context(), written(t, name), "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var names []string
		for _, f := range s.Info().Fields {
			names = append(names, f.Name+":"+string(f.Kind))
		}
		if got := strings.Join(names, " "); got != "codes:ragged features:ragged recording:audio target:audio vector:array id:text duration:float text:text speaker:text language:text segments:ragged supervisions:json snr:float quality:float" {
			t.Error(got)
		}
		if s.Info().Len != int64(len(want)) {
			t.Fatal(s.Info().Len, len(want))
		}
		for id := range want {
			w := &want[id]
			rec := drivertest.Records(t, s, int64(id))[0]
			if rec.Err != nil {
				t.Fatal(rec.Err)
			}
			at := func(name string) (*driver.Field, driver.Value) {
				i := slices.IndexFunc(s.Info().Fields, func(f driver.Field) bool { return f.Name == name })
				return &s.Info().Fields[i], rec.Values[i]
			}
			text := func(name string) string { _, v := at(name); return string(v.Bytes) }
			array := func(name string) []float64 { f, v := at(name); return numbers(f, v.Bytes) }
			float := func(name string) float64 { _, v := at(name); return v.Float }
			if text("id") != w.ID || text("text") != w.Text || float("duration") != w.Duration || float("snr") != w.SNR {
				t.Errorf("%s %d: %q %q %v %v", name, id, text("id"), text("text"), float("duration"), float("snr"))
			}
			if q := float("quality"); (w.Quality == nil) != math.IsNaN(q) || w.Quality != nil && *w.Quality != q {
				t.Errorf("%s %d: quality %v", name, id, q)
			}
			language := w.Languages[0]
			if len(slices.Compact(w.Languages)) > 1 {
				language = ""
			}
			if text("speaker") != w.Speakers[0] || text("language") != language {
				t.Errorf("%s %d: speaker %q, language %q", name, id, text("speaker"), text("language"))
			}
			var supervisions []supervision
			if err := json.Unmarshal([]byte(text("supervisions")), &supervisions); err != nil || len(supervisions) != len(w.Segments) {
				t.Error(err, text("supervisions"))
			}
			for field, want := range map[string][]float64{"segments": flat(w.Segments), "features": flat(w.Features), "codes": flat(w.Codes), "vector": w.Vector} {
				if got := array(field); !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
					t.Errorf("%s %d: %s %v, not %v", name, id, field, got, want)
				}
			}
			_, v := at("recording")
			if got, channels := as16(t, v.Bytes); got != w.Recording || channels != w.Channels {
				t.Errorf("%s %d: %d channels, not %d, or other samples", name, id, channels, w.Channels)
			}
			_, v = at("target")
			if got, _ := as16(t, v.Bytes); got != w.Target {
				t.Errorf("%s %d: another target", name, id)
			}
		}
		left, _ := driver.As[driver.Leaver](s)
		if l := left.Left(); len(l) != 1 || l[0].Path != "squeezed.*.tar" || !strings.Contains(l[0].Reason, "lilcom") {
			t.Error(l)
		}
	}
}

// changed returns a copy of a folder in which edit has changed a file.
func changed(t *testing.T, name string, edit func(b []byte) []byte) store.Store {
	t.Helper()
	dir := drivertest.Copied(t, folder+"whole")
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	packed := strings.HasSuffix(name, ".gz")
	if packed {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if b = edit(b); b == nil {
		err = os.Remove(path)
	} else {
		var out bytes.Buffer
		if packed {
			w := gzip.NewWriter(&out)
			_, _ = w.Write(b)
			_ = w.Close()
		} else {
			out.Write(b)
		}
		err = os.WriteFile(path, out.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return localstore.New(dir)
}

func replace(old, by string) func(b []byte) []byte {
	return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(by), 1) }
}

// without replaces the members of a value by those of a cut that has none.
func without(b []byte) []byte {
	b = bytes.Replace(b, []byte("spk.1-001.flac\x00\x00"), []byte("spk.1-001.nodata"), 1)
	return sums(bytes.Replace(b, []byte("spk.1-001.json\x00\x00"), []byte("spk.1-001.nometa"), 1))
}

// sums corrects the checksums of the headers.
func sums(b []byte) []byte {
	for at := 0; at+512 <= len(b); at += 512 {
		h := b[at : at+512]
		if string(h[257:262]) != "ustar" {
			continue
		}
		copy(h[148:156], "        ")
		n := 0
		for _, c := range h {
			n += int(c)
		}
		copy(h[148:156], fmt.Sprintf("%06o\x00 ", n))
	}
	return b
}

func TestMissingValues(t *testing.T) {
	s, err := open(t.Context(), changed(t, "recording.000000.tar", without), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	groups := driver.GroupSkipped(s)
	if len(groups) != 1 || groups[0].Reason != "the cut has no recording" || !strings.HasSuffix(groups[0].Examples[0], "cuts.000000.jsonl.gz, cut 1") {
		t.Error(groups)
	}
	if n, name := s.Info().Len, s.Name(1); n != 21 || !strings.HasSuffix(name, "cuts.000000.jsonl.gz, cut 2") {
		t.Error(n, name)
	}
	i := slices.IndexFunc(s.Info().Fields, func(f driver.Field) bool { return f.Name == "id" })
	if got := string(drivertest.Records(t, s, 1)[0].Values[i].Bytes); got != "spk.2-002" {
		t.Error(got)
	}
	// Without the field all cuts are records.
	other, err := open(t.Context(), changed(t, "recording.000000.tar", without), "target&text")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Info().Len != 22 || other.Info().Fingerprint == s.Info().Fingerprint {
		t.Error(other.Info())
	}
	padding, err := open(t.Context(), changed(t, "cuts.000001.jsonl.gz", replace(`"type": "MonoCut"`, `"type": "PaddingCut"`)), "text")
	if err != nil {
		t.Fatal(err)
	}
	defer padding.Close()
	if g := driver.GroupSkipped(padding); padding.Info().Len != 21 || len(g) != 1 || g[0].Reason != "a PaddingCut has no sound of its own" {
		t.Error(g)
	}
}

// A field that the cuts do not describe has its description in the tar file.
func TestAddedField(t *testing.T) {
	dropped := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"target": {`), []byte(`"other": {`)) }
	a, err := open(t.Context(), changed(t, "cuts.000000.jsonl.gz", dropped), "target")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	part := func(b []byte) []byte {
		return replace(`"start": 0, "duration": 0.09`, `"start": 0.05, "duration": 0.02`)(dropped(b))
	}
	b, err := open(t.Context(), changed(t, "cuts.000000.jsonl.gz", part), "target")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	whole, _ := as16(t, drivertest.Records(t, a, 1)[0].Values[0].Bytes)
	cutOff, _ := as16(t, drivertest.Records(t, b, 1)[0].Values[0].Bytes)
	all, _ := base64.StdEncoding.DecodeString(whole)
	some, _ := base64.StdEncoding.DecodeString(cutOff)
	if !bytes.Equal(some, all[2*400:2*560]) {
		t.Errorf("%d bytes of %d", len(some), len(all))
	}
}

func TestWrong(t *testing.T) {
	remove, same := func([]byte) []byte { return nil }, func(b []byte) []byte { return b }
	for what, c := range map[string]struct {
		name  string
		edit  func(b []byte) []byte
		query string
		want  string
	}{
		"no file":    {"recording.000002.tar", remove, "", `there are 2 files of the field "recording", and 3 files of cuts`},
		"not wanted": {"recording.000002.tar", remove, "text", ""},
		"no cuts":    {"cuts.000001.jsonl.gz", remove, "", "and 2 files of cuts"},
		"other id":   {"cuts.000000.jsonl.gz", replace("spk.1-001", "spk.9-009"), "", `it belongs to cut "spk.1-001", but cut 2 of cuts.000000.jsonl.gz is "spk.9-009"`},
		"cut off":    {"target.000000.tar", func(b []byte) []byte { return b[:4096] }, "", "target.000000.tar"},
		"fewer values": {"cuts.000000.jsonl.gz", func(b []byte) []byte {
			return append(b, bytes.Replace(b[:bytes.IndexByte(b, '\n')+1], []byte("spk.0"), []byte("x"), 1)...)
		}, "", "has values of 8 cuts, cuts.000000.jsonl.gz has 9"},
		"more values":   {"cuts.000000.jsonl.gz", func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] }, "", "has only 1 cuts"},
		"not JSON":      {"cuts.000001.jsonl.gz", func(b []byte) []byte { return append(b, "{\n"...) }, "", "cuts.000001.jsonl.gz, line 9: not a cut"},
		"no id":         {"cuts.000001.jsonl.gz", replace(`"id"`, `"name"`), "", "line 1: expected a cut with id"},
		"lilcom":        {"cuts.000000.jsonl.gz", same, "squeezed", `field "squeezed": its arrays are compressed with lilcom`},
		"no column":     {"cuts.000000.jsonl.gz", same, "words", `there is no column "words": the columns are "codes", "duration", "features"`},
		"not a file":    {"cuts.000000.jsonl.gz", same, "text:audio", `column "text" cannot be audio`},
		"starts late":   {"cuts.000000.jsonl.gz", replace(`"start": 0, "duration"`, `"start": 70, "duration"`), "", "the cut begins at sample 560000"},
		"other channel": {"cuts.000000.jsonl.gz", replace(`"channel": 0, "supervisions"`, `"channel": 3, "supervisions"`), "", "the recording has the channels [0], and the cut [3]"},
	} {
		s, err := open(t.Context(), changed(t, c.name, c.edit), c.query)
		if err == nil {
			s.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error is %v, want %q", what, err, c.want)
		}
	}
}

func TestMatch(t *testing.T) {
	many := drivertest.Copied(t, folder+"whole")
	for n := range format.MaxNames {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("recording.%06d.tar.idx", n)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plain := drivertest.Folder(t, map[string][]byte{"cuts.jsonl.gz": nil, "recordings.jsonl.gz": nil})
	for dir, want := range map[string]bool{"testdata/whole": true, "testdata": false, "testdata/parts": false, many: true, plain: false} {
		if got := Format.Match(t.Context(), &format.Probe{Store: localstore.New(dir), Dir: true}); got != want {
			t.Error(dir, got)
		}
	}
	for name, want := range map[string]fileName{
		"cuts.000001.jsonl.gz": {"cuts", "000001", "jsonl.gz"},
		"cuts.jsonl":           {"cuts", "", "jsonl"},
		"target_audio.00.tar":  {"target_audio", "00", "tar"},
		"recording.0.tar.idx":  {},
		"a/recording.0.tar":    {},
		"cuts.000000.tar":      {},
		".hidden.tar":          {},
	} {
		if got, ok := parseName(name); ok != (want != fileName{}) || ok && got != want {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}

func FuzzCuts(f *testing.F) {
	f.Add([]byte(`{"id": "a", "start": 0.5, "duration": 1, "channel": [0], "type": "MonoCut", "supervisions": [{"start": 0, "duration": 1, "text": "x"}], ` +
		`"recording": {"sampling_rate": 8000, "num_samples": 9000, "channel_ids": [0, 1]}, "custom": {"codes": {"array": {"shape": [3, 2]}, "temporal_dim": 0, "frame_shift": 0.01}, "snr": 1}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c := &cut{}
		if json.Unmarshal(line, c) != nil {
			return
		}
		s := &source{named: map[string]bool{"codes": true}}
		sh := &shard{keys: map[string]bool{}}
		if s.row(sh, c) == nil && !json.Valid(sh.rows) {
			t.Errorf("a row is not JSON: %s", sh.rows)
		}
		for _, name := range []string{"recording", "features", "codes"} {
			for _, of := range []class{sound, array} {
				m := c.manifest(name)
				if m == nil {
					continue
				}
				if p, err := m.part(c, of, name == "recording", false); err == nil && p != nil && (p.from < 0 || p.rows < 0 || p.most < 0) {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}
