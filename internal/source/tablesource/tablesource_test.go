package tablesource

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func opener(path, format string, columns ...string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return open(ctx, path, format, columns...)
	})
}

func open(ctx context.Context, path, format string, columns ...string) (driver.Source, error) {
	opt := &Options{Files: localstore.New(path), Folder: path, Outside: localstore.New("/")}
	if e, err := os.Stat(path); err == nil && !e.IsDir() {
		opt.Folder = filepath.Dir(path)
		opt.Files = localstore.New(opt.Folder)
	}
	for _, text := range columns {
		c, err := column.Parse(text)
		if err != nil {
			return nil, err
		}
		opt.Columns = append(opt.Columns, c)
	}
	return Open(ctx, path, format, localstore.New(path), opt)
}

// packed compresses the tables of a folder in different ways, except the first table.
func packed(t testing.TB, dir, format string) string {
	t.Helper()
	for f := 1; f < 3; f++ {
		name := filepath.Join(dir, fmt.Sprintf("part-%d.%s", f, format))
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		write(t, name+[]string{"", ".gz", ".zst"}[f], compress(t, b, f == 1))
	}
	return dir
}

func compress(t testing.TB, b []byte, gz bool) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if !gz {
		var err error
		if w, err = zstd.NewWriter(&out); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Compressed tables, next to uncompressed ones, have the same rows as before.
func TestCompressed(t *testing.T) {
	for _, format := range []string{CSV, TSV, JSONL} {
		dir := formattest.Tables(t, format)
		plain := opener(dir, format)(t)
		ids := make([]int64, plain.Info().Len)
		for i := range ids {
			ids[i] = int64(i)
		}
		want := drivertest.Records(t, plain, ids...)
		s := opener(packed(t, dir, format), format)(t)
		got := drivertest.Records(t, s, ids...)
		if a, b := plain.Info().Fields, s.Info().Fields; !reflect.DeepEqual(a, b) {
			t.Errorf("fields %v, want %v", b, a)
		}
		for i := range want {
			if got[i].Err != nil || fmt.Sprint(got[i].Values) != fmt.Sprint(want[i].Values) {
				t.Errorf("%s, row %d: %v, %v, want %v", format, i, got[i].Err, got[i].Values, want[i].Values)
			}
		}
		if s.(driver.Holder).Held() == 0 || plain.(driver.Holder).Held() != 0 {
			t.Error("what is held is not counted")
		}
		if want := format + ".gz, row 3 (byte "; !strings.Contains(s.Name(23), want) || !strings.HasSuffix(s.Name(23), ", decompressed)") {
			t.Errorf("%s, want %s", s.Name(23), want)
		}
		plain.Close()
		s.Close()
		t.Run(format, func(t *testing.T) { drivertest.Run(t, opener(dir, format)) })
	}
	dir := packed(t, formattest.Tables(t, CSV), CSV)
	for name, change := range map[string]func(b []byte) []byte{
		"cut":     func(b []byte) []byte { return b[:len(b)-20] },
		"damaged": func(b []byte) []byte { b[len(b)-5] ^= 1; return b },
		"behind":  func(b []byte) []byte { return append(b, "more"...) },
	} {
		for _, file := range []string{"part-1.csv.gz", "part-2.csv.zst"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), file)
			write(t, path, change(b))
			if _, err := open(t.Context(), path, CSV); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "at byte ") {
				t.Errorf("%s, %s: %v", name, file, err)
			}
		}
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, format := range []string{CSV, JSONL} {
		var out bytes.Buffer
		text := strings.Repeat("some text ", 20)
		if format == CSV {
			out.WriteString("id,x,text\n")
		}
		for i := range 20000 {
			if format == CSV {
				fmt.Fprintf(&out, "%d,%g,%s\n", i, float64(i)/7, text)
			} else {
				fmt.Fprintf(&out, `{"id": %d, "x": %g, "text": "%s"}`+"\n", i, float64(i)/7, text)
			}
		}
		name := filepath.Join(b.TempDir(), "x."+format)
		write(b, name, out.Bytes())
		b.Run(format, func(b *testing.B) { drivertest.Bench(b, opener(name, format)) })
		b.Run(format+"/open", func(b *testing.B) {
			b.SetBytes(int64(out.Len()))
			for range b.N {
				opener(name, format)(b).Close()
			}
		})
	}
}

// show returns fields and records as text.
func show(t testing.TB, s driver.Source) string {
	var out strings.Builder
	info := s.Info()
	for i, f := range info.Fields {
		if i > 0 {
			out.WriteString(" ")
		}
		fmt.Fprintf(&out, "%s:%s", f.Name, f.Kind)
		if f.DType != "" {
			fmt.Fprintf(&out, "/%s%v", f.DType, f.Shape)
		}
		if f.Classes != nil {
			fmt.Fprintf(&out, "%q", f.Classes)
		}
	}
	for id := range info.Len {
		rec := drivertest.Records(t, s, id)[0]
		out.WriteString("\n")
		if rec.Err != nil {
			text := rec.Err.Error()
			fmt.Fprintf(&out, "error%s", text[strings.Index(text, ", row"):])
			continue
		}
		for i, f := range info.Fields {
			if i > 0 {
				out.WriteString("|")
			}
			switch v := rec.Values[i]; f.Kind {
			case driver.KindInt, driver.KindLabel:
				fmt.Fprint(&out, v.Int)
			case driver.KindFloat:
				fmt.Fprint(&out, v.Float)
			case driver.KindArray, driver.KindRagged, driver.KindTokens, driver.KindMultiLabel:
				for b := v.Bytes; len(b) > 0; {
					switch f.DType {
					case driver.Bool:
						fmt.Fprint(&out, b[0], ";")
						b = b[1:]
					case driver.Uint16:
						fmt.Fprint(&out, binary.LittleEndian.Uint16(b), ";")
						b = b[2:]
					case driver.Float64:
						fmt.Fprint(&out, math.Float64frombits(binary.LittleEndian.Uint64(b)), ";")
						b = b[8:]
					default:
						fmt.Fprint(&out, int64(binary.LittleEndian.Uint64(b)), ";")
						b = b[8:]
					}
				}
			default:
				fmt.Fprintf(&out, "%q", v.Bytes)
			}
		}
	}
	return out.String()
}

func TestTables(t *testing.T) {
	for name, c := range map[string]struct {
		format  string
		text    string
		columns []string
		want    string
	}{
		"types": {CSV, "a,b,c,d,e\n1,2.5,true,x,007\n-3,1e3,False,\"y,\"\"z\"\"\n2\",8\n", nil,
			"a:int b:float c:array/bool[] d:text e:text\n1|2.5|1;|\"x\"|\"007\"\n-3|1000|0;|\"y,\\\"z\\\"\\n2\"|\"8\""},
		"missing numbers": {CSV, "a,b,c\n1,,x\nNA,2,\n3,nan,NA\n", nil,
			"a:float b:float c:text\n1|NaN|\"x\"\nNaN|2|\"\"\n3|NaN|\"NA\""},
		"missing codes": {CSV, "a,b\n9007199254740993,1\n,2\n", nil,
			"a:int b:int\n9007199254740993|1\nerror, row 1 (byte 23): column \"a\": it has no value"},
		"out of range is text":       {CSV, "a\n18446744073709551615\n1\n", nil, "a:text\n\"18446744073709551615\"\n\"1\""},
		"CR LF, BOM and blank lines": {CSV, "\uFEFFa,b\r\n\r\n1,x\r\n\r\n\r\n2,y\r\n\r\n", nil, "a:int b:text\n1|\"x\"\n2|\"y\""},
		"no end of line":             {CSV, "a,b\n1,x\n2,y", nil, "a:int b:text\n1|\"x\"\n2|\"y\""},
		"no names":                   {CSV, "x.jpg,3\ny.jpg,4\n", nil, "column_0:text column_1:int\n\"x.jpg\"|3\n\"y.jpg\"|4"},
		"names of pandas":            {CSV, ",0,1\n0,5,6\n", nil, "column_0:int 0:int 1:int\n0|5|6"},
		"semicolons":                 {CSV, "a;b\n1;x\n", nil, "a:int b:text\n1|\"x\""},
		"index":                      {CSV, "index,a,a\n1,2,3\n", nil, "index_column:int a:int a_2:int\n1|2|3"},
		"a quote in a cell":          {CSV, "a,b\n5\" disk,1\n\"x\"y,2\n", nil, "a:text b:int\n\"5\\\" disk\"|1\nerror, row 1 (byte 14): cell 0 has text after its closing quote: double the quotes inside a quoted cell"},
		"too few cells":              {CSV, "a,b\n1,2\n3\n4,5,6\n", nil, "a:int b:int\n1|2\nerror, row 1 (byte 8): the row has 1 cells, the first row has 2\nerror, row 2 (byte 10): the row has 3 cells, the first row has 2"},
		"lists": {CSV, "a,b,c\n\"[1, 2]\",[],\"[[1,2],[3,4.5]]\"\n\"[3,4]\",[7],\"[[5,6]]\"\n", nil,
			"a:array/int64[2] b:ragged/int64[] c:ragged/float64[2]\n1;2;||1;2;3;4.5;\n3;4;|7;|5;6;"},
		"chosen": {CSV, "a,b,c\n1,cat,x\n2,dog,y\n", []string{"label:label=b", "*"},
			"label:label[\"cat\" \"dog\"] a:int c:text\n0|1|\"x\"\n1|2|\"y\""},
		"class numbers":   {CSV, "a,b\n3,x\n1,y\n", []string{"a:label", "b:text"}, "a:label b:text\n3|\"x\"\n1|\"y\""},
		"numbers as text": {CSV, "a\n1\n2\n", []string{"a:text"}, "a:text\n\"1\"\n\"2\""},
		"twice":           {CSV, "a\nx\ny\n", []string{"a", "b:label=a"}, "a:text b:label[\"x\" \"y\"]\n\"x\"|0\n\"y\"|1"},

		"json": {JSONL, `{"a": 1, "b": "x\u00e9\n\"", "c": [1, 2], "d": {"x": [1]}, "e": true, "f": 1.5, "g": null}` + "\n" +
			`{"b": "", "a": 2, "c": [3], "d": null, "e": false, "f": 2, "h": "late"}` + "\n", nil,
			`a:int b:text c:ragged/int64[] d:json e:array/bool[] f:float g:json h:text` + "\n" +
				`1|"xé\n\""|1;2;|"{\"x\": [1]}"|1;|1.5|"null"|""` + "\n" + `2|""|3;|"null"|0;|2|"null"|"late"`},
		"json, mixed": {JSONL, `{"a": "x"}` + "\n" + `{"a": 3}` + "\n" + `{"a": ["y"]}` + "\n", nil, "a:json\n\"\\\"x\\\"\"\n\"3\"\n\"[\\\"y\\\"]\""},
		"json, damaged": {JSONL, `{"a": "x"}` + "\n" + `{"a": ` + "\n" + `{"a": "y"} 7` + "\n" + `3` + "\n", nil,
			"a:text\n\"x\"\nerror, row 1 (byte 11): the row ends inside its object: write each record on one line" +
				"\nerror, row 2 (byte 18): unexpected text after the object, at byte 11 of the row\nerror, row 3 (byte 31): expected an object, got \"3\\n\""},
		"several labels": {JSONL, `{"a": ["y", "x"], "t": [1, 70]}` + "\n" + `{"a": [], "t": []}` + "\n" + `{"t": [65535]}`, []string{"a:multilabel", "t:tokens"},
			"a:multilabel[\"x\" \"y\"] t:tokens/uint16[]\n1;0;|1;70;\n|\n|65535;"},
		"surrogates": {JSONL, `{"a\u0062": "\ud83d\ude00 \ud83d \\u"}`, nil, "ab:text\n\"😀 \uFFFD \\\\u\""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x."+c.format)
			write(t, file, []byte(c.text))
			s := opener(file, c.format, c.columns...)(t)
			defer s.Close()
			if got := show(t, s); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestOpeningFails(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		format  string
		text    string
		columns []string
		want    string
	}{
		"empty":          {CSV, "", nil, "x.csv has no rows"},
		"only names":     {CSV, "a,b\n", nil, "x.csv has no rows"},
		"no quote":       {CSV, "a,b\n1,\"x\n2,y\n", nil, "x.csv, row 0 (byte 4): a quoted cell has no closing quote"},
		"bzip2":          {CSV, "BZhxxxxxxxx", nil, "x.csv: its compression is not supported"},
		"UTF-16":         {JSONL, "\xFF\xFE{\x00}\x00", nil, "x.jsonl: it is UTF-16"},
		"an array":       {JSONL, "[{\"a\": 1}]\n", nil, "x.jsonl, row 0 (byte 0): expected an object, got"},
		"no column":      {CSV, "a,b\n1,2\n", []string{"c"}, `there is no column "c": the columns are "a", "b"`},
		"no label":       {CSV, "a,b\n1,2\n", []string{"a:tokens"}, `column "a" cannot be tokens`},
		"no image":       {CSV, "a,b\nx.jpg,2\n", []string{"a:image"}, `column "a" leads to no file`},
		"no such kind":   {CSV, "a,b\nx.jpg,2\n", []string{"a:picture"}, `the kind "picture"`},
		"class names":    {CSV, "a,b\nk\xff,1\nk\xfe,2\n", []string{"a:label"}, `its value "k\xfe" is not UTF-8`},
		"named index":    {CSV, "a,b\nx.jpg,2\n", []string{"index=a"}, "give the field another name"},
		"no rows at all": {JSONL, "\n\n", nil, "has no rows"},
	} {
		file := filepath.Join(dir, "x."+c.format)
		write(t, file, []byte(c.text))
		if _, err := open(t.Context(), file, c.format, c.columns...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	write(t, filepath.Join(dir, "two", "a.csv"), []byte("a,b\n1,2\n"))
	write(t, filepath.Join(dir, "two", "b.csv"), []byte("b,a\n1,2\n"))
	if _, err := open(t.Context(), filepath.Join(dir, "two"), CSV); err == nil || !strings.Contains(err.Error(), `b.csv has the columns "b", "a", `) {
		t.Errorf("other columns: %v", err)
	}
}

// Decompressed tables and the offsets of their rows stay within the memory.
func TestCompressedWithinMemory(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte("a,b\n"))
	_, _ = w.Write(bytes.Repeat([]byte("1,2\n"), 1<<20))
	_ = w.Close()
	file := filepath.Join(t.TempDir(), "x.csv.gz")
	write(t, file, zipped.Bytes())
	for limit, want := range map[int64]string{1 << 20: "needs more memory", 8 << 20: "needs 1"} {
		_, err := open(fixedrecords.WithLimit(t.Context(), limit), file, CSV)
		if err == nil || !strings.Contains(err.Error(), "x.csv.gz: decompressed it "+want) || !strings.Contains(err.Error(), "larger memory") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	s, err := open(fixedrecords.WithLimit(t.Context(), 64<<20), file, CSV)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// One row is larger than the read window, and there are more rows than a block has.
func TestLongRows(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("n,text\n")
	long := strings.Repeat("long \"\"text\"\"\n", window/10)
	for i := range 40000 {
		fmt.Fprintf(&text, "%d,\"%s\"\n", i, strings.Repeat("x", i%100))
		if i%20000 == 7 {
			fmt.Fprintf(&text, "%d,\"%s\"\n", -i, long)
		}
	}
	file := filepath.Join(t.TempDir(), "x.csv")
	write(t, file, text.Bytes())
	s := opener(file, CSV)(t)
	defer s.Close()
	want := strings.ReplaceAll(long, `""`, `"`)
	f := s.Info().Fields[1]
	if s.Info().Len != 40002 || f.MaxBytes != int64(len(want)) || f.Stats.Sizes[driver.SizeBound(int64(len(want)))] != 2 || f.Stats.Count != 40002 {
		t.Fatalf("%+v, %+v", s.Info(), f.Stats)
	}
	recs := drivertest.Records(t, s, 8, 9, 40001)
	if string(recs[0].Values[1].Bytes) != want || recs[1].Values[0].Int != 8 || recs[2].Values[0].Int != 39999 {
		t.Errorf("%d, %d, %d", len(recs[0].Values[1].Bytes), recs[1].Values[0].Int, recs[2].Values[0].Int)
	}
}

// A file without a line break, or with an unclosed quote, is refused before all of it is in memory.
func TestRowsWithoutEnd(t *testing.T) {
	for format, text := range map[string]string{CSV: "a,b\n1,2\n3,\"x", JSONL: `{"a": "`} {
		for _, first := range []bool{false, true} {
			file := filepath.Join(t.TempDir(), "x."+format)
			if first && format == CSV {
				text = "\"a"
			}
			write(t, file, []byte(text))
			if err := os.Truncate(file, 1<<30); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := open(t.Context(), file, format)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), "the row that starts here has more than 67108864 bytes") {
				t.Errorf("%s: %v", format, err)
			}
			// The file has 1 GiB. The limit allows for a buffer that doubles up to 64 MiB, plus the
			// race detector.
			if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
				t.Errorf("%s: %d bytes of memory were taken", format, n)
			}
		}
	}
}

// Paths are relative to the folder of the table, or absolute.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "lists", "x.csv"), fmt.Appendf(nil, "image,n\na.jpg,1\nsub/../b.jpg,2\nmissing.jpg,3\n,4\n../far.jpg,5\n%s/lists/a.jpg,6\n", dir))
	for _, name := range []string{"lists/a.jpg", "lists/b.jpg", "far.jpg"} {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	s := opener(filepath.Join(dir, "lists", "x.csv"), CSV)(t)
	defer s.Close()
	want := "image:image n:int\n\"lists/a.jpg\"|1\n\"lists/b.jpg\"|2\n" +
		"error, row 2 (byte 31): column \"image\": DIR/lists/missing.jpg: no such file or directory\n" +
		"error, row 3 (byte 45): column \"image\": it has no value\n\"far.jpg\"|5\n\"lists/a.jpg\"|6"
	if got := strings.ReplaceAll(show(t, s), dir, "DIR"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Without a store for absolute paths they are refused, and relative ones still work.
	in := localstore.New(filepath.Join(dir, "lists"))
	inside, err := Open(t.Context(), "x", CSV, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if p := inside.(driver.Pather).Path(1, 1); p != "b.jpg" {
		t.Errorf("its path is %q", p)
	}
	if r := drivertest.Records(t, inside, 4)[0]; r.Err == nil || !strings.Contains(r.Err.Error(), "outside the folder") {
		t.Errorf("%v", r.Err)
	}
}

// FuzzCSV compares the reader with encoding/csv.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n1,\"x\"\"y\n\"\n\n2,z\r\n"))
	f.Add([]byte("\"a\"b,c\n\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var rows [][]string
		var bad error
		for at := 0; at < len(b) && bad == nil; {
			r := &csvReader{comma: ','}
			n := r.next(b[at:], true)
			if n <= 0 && n != -1 || n > len(b)-at {
				t.Fatalf("a row of %d bytes at %d of %d", n, at, len(b))
			}
			if n < 0 {
				bad = errors.New("no end")
				break
			}
			row := b[at : at+n]
			at += n
			if r.blank(row) {
				continue
			}
			var cells []string
			bad = r.cells(row, nil, func(_ []byte, c cell) { cells = append(cells, string(c.appendText(nil))) })
			rows = append(rows, cells)
		}
		std := csv.NewReader(bytes.NewReader(b))
		std.FieldsPerRecord = -1
		want, err := std.ReadAll()
		if err != nil {
			return
		}
		if bad != nil {
			t.Fatalf("%v", bad)
		}
		for i := range want {
			for k := range want[i] {
				// encoding/csv turns \r\n in quotes into \n.
				if i >= len(rows) || k >= len(rows[i]) || strings.ReplaceAll(rows[i][k], "\r\n", "\n") != want[i][k] {
					t.Fatalf("row %d is %q, want %q", i, rows[min(i, len(rows)-1)], want[i])
				}
			}
		}
		if len(rows) != len(want) {
			t.Fatalf("%d rows, want %d", len(rows), len(want))
		}
	})
}

// FuzzJSON compares the reader with encoding/json.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"x": "]"}], "b\u00e9": "\ud83d\ude00\n", "c": -1.5e3, "d": null}`))
	f.Add([]byte(`{"a": [[1, 2], [3, 4]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]cell{}
		err := (&jsonReader{}).cells(b, nil, func(name []byte, c cell) { got[string(name)] = c })
		var n numbers
		for _, c := range got {
			_ = c.appendText(nil)
			if c.form == list && n.read(c.b) == nil {
				want := n.rows
				for _, side := range n.shape {
					want *= side
				}
				if want != len(n.text) {
					t.Fatalf("%s has %d numbers, of shape %d x %v", c.b, len(n.text), n.rows, n.shape)
				}
			}
		}
		var want map[string]json.RawMessage
		if bytes.IndexByte(b, '\n') >= 0 || !utf8.Valid(b) || json.Unmarshal(b, &want) != nil || want == nil {
			return
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d members, want %d", len(got), len(want))
		}
		for name, raw := range want {
			c, ok := got[name]
			var text string
			switch {
			case !ok:
				t.Fatalf("%q is missing", name)
			case json.Unmarshal(raw, &text) == nil && c.form != absent:
				if string(c.appendText(nil)) != text {
					t.Fatalf("%q is %q, want %q", name, c.appendText(nil), text)
				}
			case c.form != absent && !bytes.Equal(c.b, raw):
				t.Fatalf("%q is %s, want %s", name, c.b, raw)
			}
		}
	})
}
