package tokenized

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filesource"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/tablesource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/tokenizer"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// words returns a tokenizer that splits text into words.
func words(t testing.TB, extra string) *tokenizer.Tokenizer {
	t.Helper()
	vocab := []string{`"[UNK]": 0`}
	for i := range 30 {
		vocab = append(vocab, fmt.Sprintf(`"w%d": %d`, i, i+1))
	}
	tok, err := tokenizer.Parse([]byte(`{"model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {`+strings.Join(vocab, ",")+extra+`}}, "pre_tokenizer": {"type": "WhitespaceSplit"}}`), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func text(i int) string {
	var all []string
	for k := range i % 7 {
		all = append(all, fmt.Sprintf("w%d", (i+k)%32))
	}
	return strings.Join(all, " ")
}

func tokens(i int) (all []int) {
	for k := range i % 7 {
		if n := (i + k) % 32; n < 30 {
			all = append(all, n+1)
		} else {
			all = append(all, 0)
		}
	}
	return append(all, 7)
}

func table(t testing.TB) string {
	var rows []string
	for i := range 40 {
		rows = append(rows, fmt.Sprintf(`{"id": %d, "text": %q, "note": "n%d"}`, i, text(i), i))
	}
	name := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(name, []byte(strings.Join(rows, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func openTable(ctx context.Context, t testing.TB, name string, keep bool) (driver.Source, error) {
	columns, err := column.ParseQuery("id:int&text:text&note:text")
	if err != nil {
		return nil, err
	}
	base, err := tablesource.Open(ctx, name, tablesource.JSONL, localstore.New(name), &tablesource.Options{
		Columns: columns, Files: localstore.New(filepath.Dir(name)), Folder: filepath.Dir(name), Outside: localstore.New("/"),
	})
	if err != nil {
		return nil, err
	}
	return Open(base, &Options{Tokenizer: words(t, ""), Hash: "h", Keep: keep, End: 7})
}

func TestConformance(t *testing.T) {
	name := table(t)
	for _, keep := range []bool{false, true} {
		drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) { return openTable(ctx, t, name, keep) }))
	}
}

func folder(t testing.TB) string {
	dir := t.TempDir()
	for i := range 30 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.txt", i)), []byte(text(i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFaults(t *testing.T) {
	drivertest.Faults(t, localstore.New(folder(t)), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		base, err := filesource.Open(ctx, "test", st)
		if err != nil {
			return nil, err
		}
		return Open(base, &Options{Tokenizer: words(t, ""), End: 7})
	})
}

func check(t *testing.T, r *driver.Record, unit int) {
	t.Helper()
	var got []int
	for b := r.Values[0].Bytes; len(b) > 0; b = b[unit:] {
		if unit == 2 {
			got = append(got, int(binary.LittleEndian.Uint16(b)))
		} else {
			got = append(got, int(binary.LittleEndian.Uint32(b)))
		}
	}
	if want := tokens(int(r.ID)); r.Err != nil || !slices.Equal(got, want) {
		t.Fatalf("record %d is %v, want %v (%v)", r.ID, got, want, r.Err)
	}
}

func TestRecords(t *testing.T) {
	dir := folder(t)
	for unit, extra := range map[int]string{2: `, "x": 65535`, 4: `, "x": 65536`} {
		base, err := filesource.Open(t.Context(), "test", localstore.New(dir))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(base, &Options{Tokenizer: words(t, extra), End: 7})
		if err != nil {
			t.Fatal(err)
		}
		if f := s.Info().Fields; len(f) != 1 || f[0].Name != "tokens" || f[0].DType.Size() != unit {
			t.Errorf("%+v", f)
		}
		recs := drivertest.Records(t, s, 0, 5, 29)
		for i := range recs {
			check(t, &recs[i], unit)
		}
	}
}

func TestRefused(t *testing.T) {
	name := table(t)
	for want, field := range map[string]string{`no field "x": its fields are id (int), text (text), note (text)`: "x", `field "id" of`: "id"} {
		s, err := openTable(t.Context(), t, name, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(s.(*source).Base, &Options{Tokenizer: words(t, ""), Text: field, End: -1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source {
			return sourcetest.NewMemory(40, []driver.Field{
				{Name: "n", Kind: driver.KindInt}, {Name: "note", Kind: driver.KindBytes, MaxBytes: 20}, {Name: "text", Kind: driver.KindText, MaxBytes: 20},
			}, func(id int64, v []driver.Value) error {
				v[0], v[1], v[2] = driver.Value{Int: id}, driver.Value{Bytes: fmt.Appendf(nil, "note %d", id)}, driver.Value{Bytes: []byte(text(int(id)))}
				return nil
			}).Copied()
		},
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			s, err := Open(base, &Options{Tokenizer: words(t, ""), Hash: "x", Keep: true, End: 7})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lacks: map[string]string{
			"Pather": "packs of tokens have no paths",
			"Cutter": "packs have whole volumes",
		},
	})
}
