package jsonread

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
)

// value parses any value like encoding/json.
func value(r *Reader) (any, error) {
	c, err := r.Kind()
	if err != nil {
		return nil, err
	}
	switch c {
	case '{':
		out := map[string]any{}
		return out, r.Object(func(key []byte) error {
			k := string(key)
			v, err := value(r)
			out[k] = v
			return err
		})
	case '[':
		out := []any{}
		return out, r.Array(func() error {
			v, err := value(r)
			out = append(out, v)
			return err
		})
	case '"':
		b, err := r.String()
		return string(b), err
	case 't', 'f':
		return r.Bool()
	case 'n':
		_, err := r.Null()
		return nil, err
	}
	return r.Float()
}

func all(b []byte) (any, error) {
	r := Bytes(b, "test", 0)
	var v any
	c, err := r.Kind()
	if err == nil && c == '[' { // an empty array is not nil
		out := []any{}
		err = r.Array(func() error {
			v, err := value(r)
			out = append(out, v)
			return err
		})
		v = out
	} else if err == nil {
		v, err = value(r)
	}
	if err == nil {
		err = r.End()
	}
	return v, err
}

func TestValues(t *testing.T) {
	for _, text := range []string{
		`{"a": 1, "b": [true, false, null], "c": {"d": "e\n\"\\\/\b\f\r\t"}, "": []}`,
		`[0, -0.5, 12345678901234567890, 1e3, 1.25E-7, 0.1, 123456789012345, 99.99, 2.220446049250313e-16]`,
		`["ä", "\u00e4", "\ud83d\ude00", "\ud83d", "\ud83dx", "\ud83d\n", "\ud83d\ud83d\ude00"]`,
		` "x" `, `[]`, `{}`, `[[[]]]`,
	} {
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := all([]byte(text))
		if a, ok := want.([]any); ok && len(a) > 0 {
			if _, nested := a[0].([]any); nested {
				continue // value does not return nested arrays
			}
		}
		if m, ok := want.(map[string]any); ok {
			delete(m, "b")
			if g, ok := got.(map[string]any); ok {
				delete(g, "b")
			}
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v; want %#v", text, got, err, want)
		}
		r := Bytes([]byte(text), "test", 100)
		from, to, err := r.Skip()
		if err != nil || strings.TrimSpace(text) != text[from-100:to-100] {
			t.Errorf("%s: skipped %d to %d, %v", text, from, to, err)
		}
	}
}

func TestBroken(t *testing.T) {
	for text, want := range map[string]string{
		``: "cut off", `[1`: "cut off", `{"a"`: "cut off", `"abc`: "cut off", `{"a" 1}`: `expected ':'`, `[1 2]`: `expected ','`,
		`[1] 2`: "follows", `tru`: "cut off", `nothing`: "invalid JSON", `[-]`: "expected a number", `[.5]`: "", `"\q"`: "escape", `"\u12g4"`: "four hexadecimal digits",
		"\"\n\"": "control", `[x]`: "expected a number", strings.Repeat("[", 1000): "deep", `[1e999]`: "expected a number", `{1:2}`: `expected '"'`,
	} {
		_, err := all([]byte(text))
		if want == "" {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "test, byte ") {
			t.Errorf("%.20s: %v, want %q", text, err, want)
		}
	}
	if _, _, err := Bytes([]byte(strings.Repeat("[", 1000)), "test", 0).Skip(); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Error(err)
	}
	if _, err := Bytes([]byte(`"`+strings.Repeat("x", MaxString+1)+`"`), "test", 0).String(); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
	if _, err := Bytes([]byte(`1.5`), "test", 0).Int(); err == nil || !strings.Contains(err.Error(), "integer") {
		t.Error(err)
	}
}

// A file larger than the buffer gives the same values, wherever the buffer ends.
func TestLarge(t *testing.T) {
	var b bytes.Buffer
	var want float64
	b.WriteString("\xEF\xBB\xBF[")
	for i := range 120000 {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `{"id": %d, "x": "%s", "seg": [[%d.5, 2], {"a": "]}\""}]}`, i, strings.Repeat("é", i%7), i)
		want += float64(i)
	}
	b.WriteString("]")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.json"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := localstore.New(dir).Open(t.Context(), "x.json")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r := New(t.Context(), o, "x.json")
	r.BOM()
	n, sum := 0, 0.0
	err = r.Array(func() error {
		defer func() { n++ }()
		return r.Object(func(key []byte) error {
			switch string(key) {
			case "id":
				v, err := r.Float()
				sum += v
				return err
			case "x":
				s, err := r.String()
				if string(s) != strings.Repeat("é", n%7) {
					t.Fatalf("element %d: %q", n, s)
				}
				return err
			}
			from, to, err := r.Skip()
			if got := string(b.Bytes()[from:to]); got != fmt.Sprintf(`[[%d.5, 2], {"a": "]}\""}]`, n) {
				t.Fatalf("element %d: %q", n, got)
			}
			return err
		})
	})
	if err != nil || n != 120000 || sum != want || r.End() != nil {
		t.Errorf("%d elements, %v, %v", n, sum, err)
	}
	if b.Len() < 3*bufferBytes {
		t.Errorf("%d bytes do not fill the buffer three times", b.Len())
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"a": [1, 2.5, "x\u00e4"], "b": null, "c": true}`))
	f.Add([]byte(`[[[1e5]], {"": {}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := all(b)
		if valid := json.Valid(b); valid && err != nil && !strings.Contains(err.Error(), "expected a number") && !strings.Contains(err.Error(), "deep") {
			t.Fatalf("%q: %v", b, err)
		}
		_, _, _ = Bytes(b, "test", 0).Skip()
	})
}
