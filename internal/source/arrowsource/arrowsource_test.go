package arrowsource

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/formattest/arrowtest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

var (
	fields, huggingface = arrowtest.Fields, arrowtest.HuggingFace
	rows, table, saved  = arrowtest.Rows, arrowtest.Table, arrowtest.Saved
)

func write(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func one(t testing.TB, b []byte) string {
	name := filepath.Join(t.TempDir(), "x.arrow")
	write(t, name, b)
	return name
}

func open(ctx context.Context, path string, columns ...string) (driver.Source, error) {
	opt := &Options{Outside: localstore.New("/")}
	for _, text := range columns {
		c, err := column.Parse(text)
		if err != nil {
			return nil, err
		}
		opt.Columns = append(opt.Columns, c)
	}
	if opt.Folder = path; strings.HasSuffix(path, ".arrow") {
		opt.Folder = filepath.Dir(path)
	}
	opt.Files = localstore.New(opt.Folder)
	return Open(ctx, path, localstore.New(path), opt)
}

func opener(path string, columns ...string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return open(ctx, path, columns...)
	})
}

// show prints the fields and the values of all records.
func show(t testing.TB, s driver.Source) string {
	t.Helper()
	var out strings.Builder
	for i, f := range s.Info().Fields {
		if i > 0 {
			out.WriteByte(' ')
		}
		fmt.Fprintf(&out, "%s:%s", f.Name, f.Kind)
		if f.DType != "" {
			fmt.Fprintf(&out, "/%s%v", f.DType, f.Shape)
		}
		if f.Classes != nil {
			fmt.Fprintf(&out, "%q", f.Classes)
		}
	}
	ids := make([]int64, s.Info().Len)
	for i := range ids {
		ids[i] = int64(i)
	}
	for _, r := range drivertest.Records(t, s, ids...) {
		out.WriteByte('\n')
		if r.Err != nil {
			fmt.Fprintf(&out, "error%s", r.Err.Error()[strings.Index(r.Err.Error(), ", row"):])
			continue
		}
		for i, f := range s.Info().Fields {
			v := r.Values[i]
			if i > 0 {
				out.WriteByte('|')
			}
			switch f.Kind {
			case driver.KindInt, driver.KindLabel:
				fmt.Fprint(&out, v.Int)
			case driver.KindFloat:
				fmt.Fprint(&out, v.Float)
			case driver.KindText, driver.KindJSON, driver.KindBytes, driver.KindImage, driver.KindAudio, driver.KindMask:
				fmt.Fprintf(&out, "%.12q", v.Bytes)
			default:
				d := f.DType
				if d == "" {
					d = driver.Int64
				}
				for b := v.Bytes; len(b) > 0; b = b[d.Size():] {
					fmt.Fprintf(&out, "%v;", d.Type().Float(b))
				}
			}
		}
	}
	return out.String()
}

func TestValues(t *testing.T) {
	f := func(name string, typ arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: typ} }
	ints := arrow.ListOf(arrow.PrimitiveTypes.Int32)
	for name, c := range map[string]struct {
		fields  []arrow.Field
		meta    string
		columns []string
		batches []string
		want    string
	}{
		"as datasets writes them": {fields, huggingface, nil, []string{rows(0, 1), rows(6, 8)},
			`image:image label:label["cat" "dog" "eel"] caption:text small:int score:float ok:array/bool[] blob:bytes box:array/float32[4] ids:ragged/int32[] grid:array/uint16[3 2] boxes:ragged/float64[2] in.x:int in.tags:multilabel["p" "q"]` +
				"\n" + `"\x89PNG\r\n\x1a\n\x00\x00\x00\r"|0|""|0|0.25|1;|"\x00\x01\x02"|0;1;2;3;||0;1;2;3;4;5;||0|1;0;` +
				"\n" + `"\x89PNG\r\n\x1a\n\x00\x00\x00\r"|0|"é"|6|6.25|1;|"\x00\x01\x02"|6;1;2;3;|6;6;|6;1;2;3;4;5;||-6|1;0;` +
				"\n" + `"\x89PNG\r\n\x1a\n\x00\x00\x00\r"|1|"éé"|7|7.25|0;|"\x00\x01\x02"|7;1;2;3;|7;7;7;|7;1;2;3;4;5;|7.5;1;|-7|1;0;`},
		"missing numbers": {[]arrow.Field{f("a", arrow.PrimitiveTypes.Int32), f("b", arrow.PrimitiveTypes.Float64), f("c", arrow.BinaryTypes.String)}, "", nil,
			[]string{`[{"a": 1, "b": 2}, {"c": "x"}]`}, "a:float b:float c:text\n1|2|\"\"\nNaN|NaN|\"x\""},
		"missing as asked": {[]arrow.Field{f("a", arrow.PrimitiveTypes.Int32), f("j", arrow.BinaryTypes.String)}, "", []string{"a:int", "j:json"},
			[]string{`[{"a": 1, "j": "[1]"}, {"j": "{}"}, {"a": 3}, {"a": 4, "j": "{"}]`},
			"a:int j:json\n1|\"[1]\"\nerror, row 1 (record batch 0, row 1): column \"a\": it has no value\n3|\"null\"\nerror, row 3 (record batch 0, row 3): column \"j\": \"{\" is not JSON"},
		"missing lists": {[]arrow.Field{f("a", ints), f("b", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32)), f("c", arrow.FixedWidthTypes.Boolean)}, "", nil,
			[]string{`[{"a": [1], "b": [1, null], "c": true}]`, `[{"b": [1, 2], "c": false}, {"a": [2], "c": false}, {"a": [2], "b": [3, 4]}, {"a": [1, null], "b": [3, 4], "c": true}]`},
			"a:ragged/int32[] b:array/float32[2] c:array/bool[]\n1;|1;NaN;|1;\n|1;2;|0;" +
				"\nerror, row 2 (record batch 1, row 1): column \"b\": it has no value\nerror, row 3 (record batch 1, row 2): column \"c\": it has no value" +
				"\nerror, row 4 (record batch 1, row 3): column \"a\": element 1 has no value"},
		"missing structs": {[]arrow.Field{f("s", arrow.StructOf(f("x", arrow.PrimitiveTypes.Float32)))}, "", nil, []string{`[{"s": {"x": 1}}, {"s": null}, {"s": {"x": null}}]`}, "s.x:float\n1\nNaN\nNaN"},
		"no class":        {[]arrow.Field{f("label", arrow.PrimitiveTypes.Int64)}, huggingface, nil, []string{`[{"label": 2}, {"label": -1}, {"label": 3}]`}, "label:label[\"cat\" \"dog\" \"eel\"]\n2\nerror, row 1 (record batch 0, row 1): column \"label\": class -1: class numbers begin at 0; write ?label:int to read the column as numbers\nerror, row 2 (record batch 0, row 2): column \"label\": class 3 of 3"},
		"large numbers":   {[]arrow.Field{f("a", arrow.PrimitiveTypes.Uint64)}, "", nil, []string{`[{"a": 7}, {"a": 9223372036854775808}]`}, "a:int\n7\nerror, row 1 (record batch 0, row 1): column \"a\": 9223372036854775808 does not fit 64 bits with a sign"},
		"tokens":          {[]arrow.Field{f("a", ints)}, "", []string{"a:tokens", "m:multilabel=a", "r:ragged=a"}, []string{`[{"a": [7, 8]}, {"a": []}, {"a": [-1]}]`}, "a:tokens/uint32[] m:multilabel r:ragged/int32[]\n7;8;|7;8;|7;8;\n||\nerror, row 2 (record batch 0, row 2): column \"a\": element 0 is -1, which is not a token"},
		"lists in lists": {[]arrow.Field{f("a", arrow.ListOf(arrow.ListOf(ints)))}, "", nil,
			[]string{`[{"a": []}]`, `[{"a": [[[1, 2], [3, 4], [5, 6]]]}, {"a": []}, {"a": [[[7, 8], [9, 10], [11, 12]], [[13, 14], [15, 16], [17, 18]]]}]`},
			"a:ragged/int32[3 2]\n\n1;2;3;4;5;6;\n\n7;8;9;10;11;12;13;14;15;16;17;18;"},
		"bytes of images": {[]arrow.Field{f("jpg", arrow.BinaryTypes.Binary), f("mask", arrow.BinaryTypes.Binary), f("wav", arrow.BinaryTypes.Binary)}, "", nil,
			[]string{fmt.Sprintf(`[{"jpg": "%s", "mask": "%s", "wav": "%s"}, {"jpg": "%s", "mask": "%s"}]`, arrowtest.PNG, arrowtest.PNG, base64.StdEncoding.EncodeToString([]byte("RIFF....WAVE")), arrowtest.PNG, arrowtest.PNG)},
			"jpg:image mask:mask/uint8[] wav:audio\n\"\\x89PNG\\r\\n\\x1a\\n\\x00\\x00\\x00\\r\"|\"\\x89PNG\\r\\n\\x1a\\n\\x00\\x00\\x00\\r\"|\"RIFF....WAVE\"" +
				"\nerror, row 1 (record batch 0, row 1): column \"wav\": it has no value"},
		"dates": {[]arrow.Field{f("a", arrow.FixedWidthTypes.Date32), f("b", arrow.FixedWidthTypes.Timestamp_us)}, "", nil, []string{`[{"a": "1970-01-03", "b": "1970-01-01T00:00:01Z"}]`}, "a:int b:int\n2|1000000"},
	} {
		for i, how := range [][]ipc.Option{nil, nil, {ipc.WithZstd()}, {ipc.WithLZ4()}} {
			stream := i%2 == 1
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				s := opener(one(t, table(t, stream, c.fields, c.meta, c.batches, how...)), c.columns...)(t)
				defer s.Close()
				if got := show(t, s); got != c.want {
					t.Errorf("got\n%s\nwant\n%s", got, c.want)
				}
			})
		}
	}
}

// Two columns of images whose null rows are in files.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	text := fmt.Sprintf(`[{"image": {"bytes": "%s", "path": "x.png"}, "p": "a.png"}, {"image": {"path": "a.png"}, "p": "b/a.png"}, {"image": {"path": "%s/b/a.png"}},
		{"image": {"path": "c.png"}, "p": "a.png"}, {"image": null, "p": "a.png"}, {"image": {"path": "../far.png"}, "p": "a.png"}]`, arrowtest.PNG, dir)
	write(t, filepath.Join(dir, "in", "x.arrow"), table(t, true, []arrow.Field{{Name: "image", Type: arrowtest.File}, {Name: "p", Type: arrow.BinaryTypes.String}}, "", []string{text}))
	for _, name := range []string{"in/a.png", "in/b/a.png", "b/a.png", "far.png"} {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	s := opener(filepath.Join(dir, "in", "x.arrow"), "image", "p:image")(t)
	defer s.Close()
	want := "image:image p:image\n\"\\x89PNG\\r\\n\\x1a\\n\\x00\\x00\\x00\\r\"|\"in/a.png\"\n\"in/a.png\"|\"in/b/a.png\"" +
		"\nerror, row 2 (record batch 0, row 2): column \"p\": it has no value" +
		"\nerror, row 3 (record batch 0, row 3): column \"image\": DIR/in/c.png: no such file or directory" +
		"\nerror, row 4 (record batch 0, row 4): column \"image\": it has no value\n\"far.png\"|\"in/a.png\""
	if got := strings.ReplaceAll(show(t, s), dir, "DIR"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s = opener(filepath.Join(dir, "in", "x.arrow"), "image")(t)
	defer s.Close()
	if r := drivertest.Records(t, s, 2)[0]; r.Err != nil || string(r.Values[0].Bytes) != "b/a.png" {
		t.Error(r)
	}
}

// Columns that cannot be read are left out, and the others are read.
func TestLeft(t *testing.T) {
	lists := arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int8))
	in := []arrow.Field{{Name: "s", Type: arrow.ListOf(arrow.BinaryTypes.String)}, {Name: "u", Type: lists}, {Name: "n", Type: arrow.PrimitiveTypes.Int8}, {Name: "t", Type: arrow.BinaryTypes.String}}
	s := opener(one(t, table(t, true, in, "", []string{`[{"s": ["x"], "u": [[1], [1, 2]], "n": 5, "t": "z"}]`, `[{"n": 6, "t": "y"}]`})))(t)
	defer s.Close()
	if got := show(t, s); got != "n:int t:text\n5|\"z\"\n6|\"y\"" {
		t.Error(got)
	}
	left := s.(driver.Leaver).Left()
	if len(left) != 2 || left[0].Path != "s" || left[1].Path != "u" || !strings.Contains(left[1].Reason, "different lengths") {
		t.Error(left)
	}
}

func TestOpeningFails(t *testing.T) {
	good := table(t, false, fields, "", []string{rows(0, 30), rows(30, 44)})
	stream := table(t, true, fields, "", []string{rows(0, 30), rows(30, 44)})
	patched := func(b []byte, at int, with ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], with)
		return b
	}
	strs := []arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int8}, {Name: "s", Type: arrow.ListOf(arrow.BinaryTypes.String)}}
	for name, c := range map[string]struct {
		b       []byte
		columns []string
		want    string
	}{
		"empty":           {nil, nil, "x.arrow: damaged: it is not an Arrow file"},
		"no Arrow":        {[]byte("PAR1xxxxxxxxxx"), nil, "x.arrow: damaged: it is not an Arrow file"},
		"feather 1":       {[]byte("FEA1xxxxxxxxxx"), nil, "x.arrow: it is a Feather file of version 1"},
		"file cut":        {good[:len(good)-20], nil, "x.arrow: damaged: it has no Arrow footer at its end: the file is cut off"},
		"stream cut":      {stream[:len(stream)-100], nil, "x.arrow, record batch 1 (byte "},
		"large metadata":  {patched(stream, 4, 0xFF, 0xFF, 0xFF, 0x7F), nil, "x.arrow: damaged: metadata of 2147483647 bytes"},
		"metadata behind": {patched(stream, 4, 0, 0, 0xF0, 0), nil, "x.arrow: damaged: metadata of 15728648 bytes, the file ends after"},
		"large footer":    {patched(good, len(good)-10, 0xFF, 0xFF, 0xFF, 0x7F), nil, "x.arrow: damaged: a footer of 2147483647 bytes"},
		"no rows":         {table(t, true, fields, "", nil), nil, "x.arrow has no rows"},
		"lists of text":   {table(t, true, strs, "", []string{`[{"s": ["x"]}]`}), []string{"s"}, "column \"s\" of the type list<utf8> is not read: numbers, truth values, text, bytes, lists of numbers, and structs of these are; choose others, such as ?n"},
		"uneven":          {table(t, true, []arrow.Field{{Name: "a", Type: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int8))}}, "", []string{`[{"a": [[1], [1, 2]]}]`}), nil, "column \"a\" of the type list<list<int8>> is not read: the lists within its lists have different lengths"},
		"views":           {table(t, true, []arrow.Field{{Name: "a", Type: arrow.BinaryTypes.StringView}}, "", []string{`[{"a": "x"}]`}), nil, "column \"a\" has the type utf8_view, which is not read"},
		"no column":       {good, []string{"y"}, "x.arrow: there is no column \"y\": the columns are \"image\", \"label\""},
		"no tokens":       {good, []string{"score:tokens"}, "column \"score\" (float) cannot be tokens: it has no lists of whole numbers; without :tokens it is read as float"},
	} {
		var before, after runtime.MemStats
		path := one(t, c.b)
		runtime.ReadMemStats(&before)
		s, err := open(t.Context(), path, c.columns...)
		runtime.ReadMemStats(&after)
		if err == nil {
			s.Close()
			t.Errorf("%s: it opens", name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
			t.Errorf("%s: %d bytes of memory were taken", name, n)
		}
	}
}

func TestFolders(t *testing.T) {
	dir := saved(t)
	two := table(t, true, fields[1:2:2], "", []string{`[{"label": 1}]`})
	write(t, filepath.Join(dir, "dict", "dataset_dict.json"), []byte(`{"splits": ["train", "test"]}`))
	write(t, filepath.Join(dir, "cache", "dataset_info.json"), []byte("{}"))
	write(t, filepath.Join(dir, "cache", "x-train-00000-of-00002.arrow"), two)
	write(t, filepath.Join(dir, "cache", "x-train-00001-of-00002.arrow"), two)
	s := opener(filepath.Join(dir, "cache"))(t)
	if s.Close(); s.Info().Len != 2 {
		t.Errorf("%d records", s.Info().Len)
	}
	write(t, filepath.Join(dir, "cache", "x-test.arrow"), two)
	write(t, filepath.Join(dir, "other", "a.arrow"), two)
	write(t, filepath.Join(dir, "other", "b.arrow"), table(t, true, []arrow.Field{{Name: "label", Type: arrow.PrimitiveTypes.Int8}}, "", []string{`[{"label": 1}]`}))
	write(t, filepath.Join(dir, "state", "state.json"), []byte(`{"_data_files": [{"filename": "../x.arrow"}]}`))
	write(t, filepath.Join(dir, "none", "state.json"), []byte(`{"_data_files": [{"filename": "x.arrow"}]}`))
	write(t, filepath.Join(dir, "damaged", "state.json"), []byte(`{"_data_files"`))
	for name, want := range map[string]string{
		"dict":    `dict has the splits "train", "test": choose one, such as ` + dir + "/dict/train",
		"cache":   `cache has several data sets, "x-test", "x-train": choose one, such as ` + dir + "/cache/x-test*.arrow",
		"other":   `b.arrow has different columns, "label": int8, than ` + dir + `/other/a.arrow: "label": int64`,
		"state":   `state.json: invalid file name "../x.arrow"`,
		"none":    "none/x.arrow: no such file",
		"damaged": "state.json, byte 14: not a file of datasets",
	} {
		if _, err := open(t.Context(), filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// fuzzed opens and reads a possibly damaged file.
func fuzzed(t *testing.T, b []byte) {
	path := filepath.Join(t.TempDir(), "x.arrow")
	write(t, path, b)
	s, err := open(t.Context(), path)
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Fatalf("the error names no file: %v", err)
		}
		return
	}
	defer s.Close()
	n := s.Info().Len
	for _, r := range drivertest.Records(t, s, 0, n/2, n-1) {
		if r.Err != nil && !strings.Contains(r.Err.Error(), path) {
			t.Fatalf("the error names no file: %v", r.Err)
		}
	}
}

// No file makes the reader panic, hang or allocate more than its size justifies.
func FuzzFile(f *testing.F) {
	f.Add(table(f, false, fields, huggingface, []string{rows(0, 3), rows(3, 4)}))
	f.Add(table(f, false, fields, huggingface, []string{rows(0, 3), rows(3, 4)}, ipc.WithLZ4()))
	f.Add(table(f, false, fields, huggingface, []string{rows(0, 3), rows(3, 4)}, ipc.WithZstd()))
	f.Fuzz(func(t *testing.T, b []byte) { fuzzed(t, b) })
}

// FuzzStream is the same for streams, whose messages are consecutive.
func FuzzStream(f *testing.F) {
	f.Add(table(f, true, fields, huggingface, []string{rows(0, 3), rows(3, 4)}))
	f.Add(table(f, true, []arrow.Field{{Name: "a", Type: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int8))}}, "", []string{`[{"a": [[1], [1]]}, {"a": null}]`}))
	f.Fuzz(func(t *testing.T, b []byte) { fuzzed(t, b) })
}

func BenchmarkRows(b *testing.B) {
	drivertest.Bench(b, opener(one(b, table(b, false, fields, huggingface, []string{rows(0, 1000)}))))
}
