package handoff

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden messages anew")

const goldenDir = "testdata/golden"

// goldenMessage is an entry of testdata/golden/messages.json, which the tests of the Python client also read.
type goldenMessage struct {
	File   string         `json:"file"`
	Type   string         `json:"type"`
	Fields map[string]any `json:"fields"`
}

func goldenMessages() map[string]Message {
	return map[string]Message{
		"open.bin":      Open{Config: []byte(`{"source":"file:///data/train","batch_size":256}`)},
		"open_file.bin": Open{InFile: true, FileSize: 70000},
		"ready.bin":     Ready{InfoSize: 1234, Slots: 6, SlotStride: 40 << 20, RingSize: 240 << 20},
		"start.bin":     Start{Gen: 7, Epoch: 3, Row: 512},
		"batch.bin": Batch{
			Gen: 7, Slot: 5, Rows: 256, Lease: 0x0102030405060708, Epoch: 3, Step: 2,
			NextEpoch: 3, NextRow: 768,
		},
		"batch_repeated.bin": Batch{
			Gen: 7, Slot: 5, Rows: 63, Repeated: 3, Lease: 0x0102030405060709, Epoch: 3, Step: 9, NextEpoch: 4,
		},
		"epoch_end.bin": EpochEnd{Gen: 7, Epoch: 3, Skipped: 2, Report: "cat/7.jpg: no image; dög/8.jpg: truncated"},
		"release.bin":   Release{Slot: 5, Lease: 0x0102030405060708},
		"error.bin": Error{
			Gen: 7, Code: CodeRecord, Record: 1 << 33, Name: "train/cät/7.jpg",
			Reason: "the file ends after 12 bytes", Hint: `on_error="skip" replaces such records`,
		},
		"error_open.bin":    Error{Code: CodeConfig, Record: -1, Reason: "no such folder: /data/train"},
		"stats_request.bin": Stats{Request: 9},
		"stats.bin":         Stats{Request: 9, JSON: []byte(`{"batches":12}`)},
		"order.bin":         Order{Gen: 7, Whole: true, Records: []int64{5, 0, 1 << 33}},
		"close.bin":         Close{},
		"ring.bin":          Ring{Slots: 6, SlotStride: 40 << 20, RingSize: 240 << 20},
	}
}

// fields returns the exported fields by name, with bytes as text.
func fields(m Message) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		x := v.Field(i).Interface()
		if b, ok := x.([]byte); ok {
			x = string(b)
		}
		out[snake(v.Type().Field(i).Name)] = x
	}
	return out
}

func snake(name string) string {
	if name == strings.ToUpper(name) {
		return strings.ToLower(name)
	}
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestGoldenMessages(t *testing.T) {
	messages := goldenMessages()
	index := filepath.Join(goldenDir, "messages.json")
	if *update {
		var list []goldenMessage
		for _, name := range slices.Sorted(maps.Keys(messages)) {
			m := messages[name]
			if err := os.WriteFile(filepath.Join(goldenDir, name), m.Append(nil), 0o644); err != nil {
				t.Fatal(err)
			}
			list = append(list, goldenMessage{File: name, Type: m.Type().String(), Fields: fields(m)})
		}
		out, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(index, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.bin"))
	if err != nil || len(files) != len(messages) {
		t.Fatalf("%d golden files for %d messages (%v)", len(files), len(messages), err)
	}
	for name, want := range messages {
		raw, err := os.ReadFile(filepath.Join(goldenDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := want.Append(nil); !bytes.Equal(got, raw) {
			t.Errorf("%s: encodes as\n%x, the file has\n%x", name, got, raw)
		}
		got, err := Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: parsed as %+v, want %+v", name, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	start := Start{Gen: 1, Epoch: 1, Row: 1}.Append(nil)
	edit := func(at int, v byte) []byte {
		b := bytes.Clone(start)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		what string
		b    []byte
		want string
	}{
		{"empty", nil, "message of 0 bytes"},
		{"short", start[:7], "message of 7 bytes"},
		{"cut", start[:20], "START of 20 bytes says it has 32"},
		{"newer version", edit(1, 9), "speaks version 9 of the protocol, this engine version 3: upgrade this engine"},
		{"older version", edit(1, 2), "speaks version 2 of the protocol, this engine version 3: upgrade the stoker package of the training process"},
		{"type", edit(0, 77), "unknown message type 77"},
		{"later", edit(0, byte(TypeWork)), "WORK is for functions of the user, which this engine does not run"},
		{"reserved", edit(2, 1), "reserved"},
		{"negative epoch", edit(23, 0x80), "epoch -"},
		{"generation 0", edit(8, 0), "generation 0"},
		{"wrong type for the size", edit(0, byte(TypeBatch)), "BATCH with a body of 24 bytes, it has 56"},
		{"huge config", Open{InFile: true, FileSize: MaxConfig + 1}.Append(nil), "the limit is"},
		{"ring too small", Ready{InfoSize: 1, Slots: 4, SlotStride: 8, RingSize: 31}.Append(nil), "ring of 31"},
		{"many slots", Ready{InfoSize: 1, Slots: MaxSlots + 1, SlotStride: 8, RingSize: 1 << 40}.Append(nil), "slots"},
	} {
		_, err := Parse(c.b)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.what, err, c.want)
		}
	}
}

func TestLongTextsAreClipped(t *testing.T) {
	long := strings.Repeat("ö", maxText)
	m, err := Parse(Error{Code: CodeRecord, Name: long, Reason: long, Hint: long}.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	e := m.(Error)
	for _, s := range []string{e.Name, e.Reason, e.Hint} {
		if len(s) > maxText || !strings.HasSuffix(s, "ö...") {
			t.Errorf("clipped to %d bytes, ends in %q", len(s), s[len(s)-8:])
		}
	}
}

// FuzzParse checks that no input makes the parser fail other than by an
// error, and that what it accepts encodes to the same bytes.
func TestFirst(t *testing.T) {
	a, b := Release{Slot: 1, Lease: 2}.Append(nil), Close{}.Append(nil)
	packet := slices.Concat(a, b, a)
	var got [][]byte
	for m, rest := First(packet); ; m, rest = First(rest) {
		got = append(got, m)
		if len(rest) == 0 {
			break
		}
	}
	if len(got) != 3 || !bytes.Equal(got[0], a) || !bytes.Equal(got[1], b) || !bytes.Equal(got[2], a) {
		t.Errorf("cut into %x", got)
	}
	// Packets that cannot be cut are refused by Parse.
	for _, bad := range [][]byte{{}, a[:7], append([]byte{9, 2, 0, 0, 7, 0, 0, 0}, a...), append(bytes.Clone(a[:4]), 0xff, 0xff, 0xff, 0xff)} {
		m, rest := First(bad)
		if len(rest) != 0 {
			t.Errorf("%x was cut", bad)
		}
		if _, err := Parse(m); err == nil {
			t.Errorf("%x was accepted", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range goldenMessages() {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(m.Append(nil))
		if err != nil {
			t.Fatalf("%+v: its own encoding is refused: %v", m, err)
		}
		if e, ok := m.(Error); ok && len(e.Name)+len(e.Reason)+len(e.Hint) > maxText {
			return // clipped
		}
		if e, ok := m.(EpochEnd); ok && len(e.Report) > maxText {
			return
		}
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}
