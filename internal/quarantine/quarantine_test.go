package quarantine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	open := func(source, data string) (*File, []Record) {
		t.Helper()
		var list []Record
		f, err := Open(path, source, data, func(r *Record) { list = append(list, *r) })
		if err != nil {
			t.Fatal(err)
		}
		return f, list
	}
	f, list := open("a:", "1")
	if err := f.Add(Record{Record: 3, Name: "x", Reason: "y\nz", Epoch: -1}); err != nil || len(list) > 0 {
		t.Fatal(list, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Add(Record{Record: 4}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v", err)
	}
	b, _ := os.ReadFile(path)
	if err := os.WriteFile(path, append(b, `{"source":"a:","da`...), 0o600); err != nil { // killed
		t.Fatal(err)
	}
	f, list = open("other:", "1") // the data has moved
	if len(list) != 1 || list[0].Record != 3 || list[0].Reason != "y\nz" {
		t.Errorf("%+v", list)
	}
	if err := f.Add(Record{Record: 5, Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	f, list = open("a:", "2")
	f.Close()
	g, more := open("a:", "1")
	g.Close()
	if len(list) != 0 || len(more) != 2 || more[1].Epoch != 2 {
		t.Errorf("%+v, %+v", list, more)
	}
	for text, want := range map[string]string{"a list\n": "line 1 is not a bad record", "{}\n": "line 1 is not", "\n[1]\n": "line 2"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, "", "", func(*Record) {}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error is %v", err)
		}
	}
	if _, err := Open(filepath.Join(path, "x"), "", "", nil); err == nil || !strings.Contains(err.Error(), "quarantine: cannot open") {
		t.Errorf("error is %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"source":"s","data":"f","record":3,"name":"x","reason":"r","epoch":-1}` + "\n")
	f.Add("\n{\n{}")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := read(strings.NewReader(text), func(r *Record) {
			if r.Record < 0 {
				t.Errorf("record %d", r.Record)
			}
		})
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of more than one line: %q", err)
		}
	})
}
