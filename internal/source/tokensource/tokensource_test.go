package tokensource

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func options(query string) *Options {
	f := Format
	if strings.Contains(query, "records=") {
		f = FormatMegatron
	}
	v, err := f.Parse(query)
	if err != nil {
		panic(err)
	}
	return parse(&v)
}

func opener(dir, query string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), options(query))
	})
}

func megatron(dir, query string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return OpenMegatron(ctx, dir, localstore.New(dir), options(query))
	})
}

func BenchmarkDocuments(b *testing.B) {
	drivertest.Bench(b, opener(formattest.TokenShards(b), "eot=7"))
}

// all returns the values of all records.
func all(t testing.TB, s driver.Source) [][]int {
	t.Helper()
	var ids []int64
	for id := range s.Info().Len {
		ids = append(ids, id)
	}
	unit := s.Info().Fields[0].DType.Size()
	out := [][]int{}
	for _, r := range drivertest.Records(t, s, ids...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		doc := []int{}
		for b := r.Values[0].Bytes; len(b) > 0; b = b[unit:] {
			v := 0
			for i := range unit {
				v |= int(b[i]) << (8 * i)
			}
			doc = append(doc, v)
		}
		out = append(out, doc)
	}
	return out
}

// cut cuts tokens after (or before) each 7.
func cut(t []int, before bool) (docs [][]int) {
	at := 0
	for i, v := range t {
		if end := i + map[bool]int{false: 1}[before]; v == 7 && end > at {
			docs, at = append(docs, t[at:end]), end
		}
	}
	if at < len(t) {
		docs = append(docs, t[at:])
	}
	return docs
}

func equal(a, b [][]int) bool { return slices.EqualFunc(a, b, slices.Equal) }

func TestRecords(t *testing.T) {
	for _, unit := range []int{1, 2, 4, 8} {
		// More than one piece of a file, with ends at all offsets modulo 8.
		x := formattest.Tokens(3*pieceBytes/unit/2 + 5)
		for i := range x {
			x[i] &= 127
		}
		dtype := map[int]driver.DType{1: driver.Uint8, 2: driver.Uint16, 4: driver.Uint32, 8: driver.Int64}[unit]
		dir := drivertest.Folder(t, map[string][]byte{"x.bin": formattest.EncodeTokens(x, unit)})
		s := opener(dir, "eot=7&dtype="+string(dtype))(t).(*source)
		var want []int64
		for at, v := range x {
			if v == 7 || at == len(x)-1 {
				want = append(want, int64(at)+1)
			}
		}
		if !slices.Equal(s.ends, want) {
			t.Errorf("%s: %d documents, want %d", dtype, len(s.ends), len(want))
		}
	}
	x := formattest.Tokens(1000)
	dir := drivertest.Folder(t, map[string][]byte{"x.bin": formattest.EncodeTokens(x, 2)})
	for query, want := range map[string][][]int{
		"":                      {x},
		"eot=7":                 cut(x, false),
		"bos=7":                 cut(x, true),
		"eot=65535":             {x},
		"window=250":            {x[:250], x[250:500], x[500:750], x[750:]},
		"dtype=uint8&window=16": nil,
	} {
		s := opener(dir, query)(t)
		if got := all(t, s); want != nil && !equal(got, want) {
			t.Errorf("%s: %d records, want %d", query, len(got), len(want))
		}
	}
	if f := opener(dir, "eot=7")(t).Info().Fields[0]; f.Kind != driver.KindTokens || f.Stats.Rows.Total != 1000 || f.MaxBytes != 14 {
		t.Errorf("%+v", f)
	}
	dir = drivertest.Folder(t, map[string][]byte{"x.bin": formattest.HeadedTokens(magicLlama, 7, x, 4)})
	if got := all(t, opener(dir, "")(t)); !equal(got, [][]int{x}) {
		t.Error("llama's header")
	}
}

func TestMegatron(t *testing.T) {
	x := formattest.Tokens(30)
	lengths, docs := []int{5, 0, 10, 3, 12}, []int{0, 2, 2, 5}
	for code, unit := range map[byte]int{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2} {
		small := slices.Clone(x)
		for i := range small {
			small[i] &= 127
		}
		dir := drivertest.Folder(t, map[string][]byte{"c.bin": formattest.EncodeTokens(small, unit), "c.idx": formattest.MegatronIndex(code, unit, lengths, docs)})
		for query, want := range map[string][][]int{
			"":                  {small[:5], {}, small[5:]},
			"records=sequences": {small[:5], {}, small[5:15], small[15:18], small[18:]},
			"window=15":         {small[:15], small[15:]},
		} {
			if got := all(t, megatron(dir, query)(t)); !equal(got, want) {
				t.Errorf("type %d, %s: %v, want %v", code, query, got, want)
			}
		}
	}
	// Some indexes have no ends of documents. Others have a byte per sequence.
	dir := drivertest.Folder(t, map[string][]byte{"c.bin": formattest.EncodeTokens(x, 2), "c.idx": formattest.MegatronIndex(8, 2, lengths, []int{0})})
	if n := megatron(dir, "")(t).Info().Len; n != 5 {
		t.Errorf("%d documents", n)
	}
	dir = drivertest.Folder(t, map[string][]byte{"c.bin": formattest.EncodeTokens(x, 2), "c.idx": append(formattest.MegatronIndex(8, 2, lengths, docs), 0, 1, 0, 1, 0)})
	if n := megatron(dir, "")(t).Info().Len; n != 3 {
		t.Errorf("%d documents", n)
	}
}

func TestRefused(t *testing.T) {
	x := formattest.EncodeTokens(formattest.Tokens(30), 2)
	good := formattest.MegatronIndex(8, 2, []int{10, 20}, []int{0, 1, 2})
	change := func(at int, b ...byte) []byte {
		c := slices.Clone(good)
		copy(c[at:], b)
		return c
	}
	for want, c := range map[string]struct {
		files map[string][]byte
		query string
	}{
		"a.bin: it has 5 bytes, which is not a multiple of the token size 2": {map[string][]byte{"a.bin": x[:5]}, ""},
		"a.bin: its header has 30 tokens of 2 bytes, but":                    {map[string][]byte{"a.bin": formattest.HeadedTokens(magicGPT2, 1, formattest.Tokens(30), 2)[:1060]}, ""},
		"a.bin: its header says uint16":                                      {map[string][]byte{"a.bin": formattest.HeadedTokens(magicGPT2, 1, formattest.Tokens(30), 2)}, "dtype=int32"},
		"a.npy: it is an array of float32":                                   {map[string][]byte{"a.npy": append(npy.AppendHeader(nil, driver.Float32, []int64{1}), 0, 0, 0, 0)}, ""},
		"has tokens of type uint32, but ":                                    {map[string][]byte{"a.bin": x, "b.bin": formattest.HeadedTokens(magicLlama, 7, formattest.Tokens(3), 4)}, ""},
		"fewer tokens than a window of 31":                                   {map[string][]byte{"a.bin": x}, "window=31"},
		"no .bin or .npy file":                                               {map[string][]byte{"a.txt": x}, ""},
		"no documents":                                                       {map[string][]byte{"a.bin": nil}, ""},
		"a.bin: a token of type uint16 cannot have the number 65536":         {map[string][]byte{"a.bin": x}, "eot=65536"},
		"not both":             {map[string][]byte{"a.bin": x}, "eot=1&bos=1"},
		"remove eot= and bos=": {map[string][]byte{"a.bin": x}, "eot=1&window=3"},

		"c.idx: it has 20 bytes":                                   {map[string][]byte{"c.bin": x, "c.idx": good[:20]}, "m"},
		"c.idx: not an index of Megatron":                          {map[string][]byte{"c.bin": x, "c.idx": change(0, 'x')}, "m"},
		"c.idx: byte 9: unsupported version 2":                     {map[string][]byte{"c.bin": x, "c.idx": change(9, 2)}, "m"},
		"c.idx: byte 17: unknown token type 9":                     {map[string][]byte{"c.bin": x, "c.idx": change(17, 9)}, "m"},
		"c.idx: its header has 4294967298 sequences":               {map[string][]byte{"c.bin": x, "c.idx": change(22, 1)}, "m"},
		"c.idx: its header has 2 sequences and 3 document entries": {map[string][]byte{"c.bin": x, "c.idx": good[:len(good)-1]}, "m"},
		"c.idx: byte 38: sequence 1 has 120 tokens, but ":          {map[string][]byte{"c.bin": x, "c.idx": change(38, 120)}, "m"},
		"c.idx: its sequences have 29 tokens of 2 bytes in total":  {map[string][]byte{"c.bin": x, "c.idx": change(38, 19)}, "m"},
		"c.idx: byte 50: sequence 1 begins at byte 22":             {map[string][]byte{"c.bin": x, "c.idx": change(50, 22)}, "m"},
		"c.idx: byte 66: document 1 begins with sequence 3 of":     {map[string][]byte{"c.bin": x, "c.idx": change(66, 3)}, "m"},
		"c.idx: byte 74: document 2 begins with sequence 1 of":     {map[string][]byte{"c.bin": x, "c.idx": change(74, 1)}, "m"},
		"c.bin": {map[string][]byte{"c.idx": good}, "m"},
	} {
		dir := drivertest.Folder(t, c.files)
		open, query := Open, c.query
		if c.query == "m" {
			open, query = OpenMegatron, ""
		}
		_, err := open(t.Context(), "DIR", localstore.New(dir), options(query))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, query := range []string{"window=0", "window=x", "dtype=float32", "eot=-1", "records=sequences", "what=1", "%zz"} {
		if _, err := Format.Parse(query); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func FuzzMegatron(f *testing.F) {
	files := formattest.Megatron(8, 2)
	f.Add(files["c.idx"], files["c.bin"])
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		for name, b := range map[string][]byte{"c.bin": bin, "c.idx": idx} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := OpenMegatron(t.Context(), "DIR", localstore.New(dir), nil)
		if err != nil {
			return
		}
		defer s.Close()
		n := 0
		for _, doc := range all(t, s) {
			n += len(doc)
		}
		if n*s.Info().Fields[0].DType.Size() > len(bin) {
			t.Fatalf("%d tokens of %d bytes", n, len(bin))
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add(formattest.HeadedTokens(magicGPT2, 1, formattest.Tokens(30), 2), uint16(7))
	f.Add(append(npy.AppendHeader(nil, driver.Uint16, []int64{9}), formattest.EncodeTokens(formattest.Tokens(9), 2)...), uint16(8))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, token uint16) {
		if err := os.WriteFile(filepath.Join(dir, "x.bin"), b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), "DIR", localstore.New(dir), options(fmt.Sprintf("eot=%d", token)))
		if err != nil {
			return
		}
		defer s.Close()
		for _, doc := range all(t, s) {
			if i := slices.Index(doc, int(token)); i >= 0 && i != len(doc)-1 {
				t.Fatalf("a document goes on behind its end at %d of %d", i, len(doc))
			}
		}
	})
}
