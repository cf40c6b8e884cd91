package units

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParsers(t *testing.T) {
	for _, test := range []struct {
		name  string
		parse func(string) (float64, error)
		good  map[string]float64
		bad   map[string]string // what is in the message
	}{
		{"bytes", ParseBytes, map[string]float64{
			"64KB": 64e3, "64kB": 64e3, "64 KiB": 65536, "500 KB": 500e3, "16GB": 16e9, "1.5MiB": 1.5 * (1 << 20), "64B": 64,
			"110000": 110000, "1,281,167": 1281167, " 98MB ": 98e6, "1e6": 1e6, "4e3 KB": 4e6, "2PB": 2e15,
		}, map[string]string{
			"64": "64 bytes? the unit seems to be missing: write 64B if so, or 64KB", "0.064": "unit seems to be missing",
			"": "empty", "KB": "does not begin with a number", "-5KB": "below zero", "0KB": "zero", "64K": "64KB (decimal) or 64KiB (binary)",
			"64kb": "write 64K", "64 KBit": "that is a rate", "64MB/s": "that is a rate", "1,5GB": "a comma separates thousands",
			"1..5GB": "not a number", "1e400GB": "not a number", "99999PB": "could be meant", "64 apples": "units are B, KB",
			"0.5B": "could be meant", strings.Repeat("9", 100): "too long", "NaN": "does not begin", "Inf": "does not begin",
		}},
		{"seconds", ParseSeconds, map[string]float64{
			"87ms": 0.087, "0.087": 0.087, "0.087s": 0.087, "2 s": 2, "2": 2, "10": 10, "350us": 350e-6, "350µs": 350e-6, "1.5min": 90, "1h": 3600, "12s": 12, "2m": 120, "1m30s": 90, "1h20m": 4800,
		}, map[string]string{
			"87": "87 seconds? the unit seems to be missing: write 87s if so, or 87ms", "87 apples": "not a time", "-1s": "below zero", "0": "zero", "9e9h": "could be meant", "-1m30s": "below zero", "1m30": "not a time",
		}},
		{"flops", ParseFLOPs, map[string]float64{
			"4GFLOP": 4e9, "4 GFLOPs": 4e9, "4e9": 4e9, "0.5 TFLOP": 5e11, "300MFLOPs": 3e8,
		}, map[string]string{"4": "unit seems to be missing", "4G": "write 4GFLOP", "4GB": "write 4GFLOP", "4XFLOP": "write 4GFLOP"}},
		{"flop rate", ParseFLOPRate, map[string]float64{
			"7TFLOP/s": 7e12, "7 TFLOPS": 7e12, "7 TFLOPs": 7e12, "15.7TFLOPS": 15.7e12, "1 PFLOP/s": 1e15, "7e12": 7e12,
		}, map[string]string{"7": "unit seems to be missing", "7T": "write 7TFLOP/s"}},
		{"rate", ParseRate, map[string]float64{"1457": 1457, "1457/s": 1457, "1,457 img/s": 1457, "0.5": 0.5}, map[string]string{"1457 MB/s": "not a rate", "x": "does not begin"}},
		{"share", ParseShare, map[string]float64{"99%": 0.99, "99": 0.99, "0.99": 0.99, "99.9 %": 0.999, "100%": 1, "1%": 0.01}, map[string]string{
			"1": "1% or 100%", "101%": "more than 100%", "99 pct": "not a share", "-1": "below zero",
		}},
		{"bandwidth", ParseBandwidth, map[string]float64{"500MB/s": 500e6, "2 GB/s": 2e9, "10Gbit/s": 1.25e9, "1GiB/s": 1 << 30}, map[string]string{
			"500": "not a bandwidth", "500MB": "not a bandwidth", "10Gb/s": "not a bandwidth",
		}},
	} {
		for text, want := range test.good {
			if got, err := test.parse(text); err != nil || math.Abs(got/want-1) > 1e-12 {
				t.Errorf("%s %q: %v, %v; want %v", test.name, text, got, err, want)
			}
		}
		for text, want := range test.bad {
			got, err := test.parse(text)
			if err == nil {
				t.Errorf("%s %q: accepted as %v", test.name, text, got)
			} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %q: %q, want %q in it", test.name, text, err, want)
			}
		}
	}
}

func TestParseCountAndRange(t *testing.T) {
	if n, err := ParseCount("1,281,167", 1<<40); n != 1281167 || err != nil {
		t.Error(n, err)
	}
	for _, text := range []string{"", "0", "-1", "1.5", "128 images", "1e30", "x"} {
		if n, err := ParseCount(text, 1<<40); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
	for text, want := range map[string][2]int64{"5": {5, 5}, "5-10": {5, 10}} {
		if low, high, err := ParseRange(text, 100); low != want[0] || high != want[1] || err != nil {
			t.Errorf("%q: %d-%d, %v", text, low, high, err)
		}
	}
	for _, text := range []string{"10-5", "-5", "5-", "5-10-15", "5-1000"} {
		if _, _, err := ParseRange(text, 100); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// For any input, a parser returns a finite number above zero or an error of one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"64KB", "87ms", "4GFLOP", "7TFLOP/s", "5-10", "99%", "1,457 img/s", "10Gbit/s", "1e308", "5e", "+e5", "1e+", "µ", "1e308GB/s", "1e-323bit/s", "1e-323%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (float64, error){ParseBytes, ParseSeconds, ParseFLOPs, ParseFLOPRate, ParseRate, ParseShare, ParseBandwidth} {
			v, err := parse(s)
			if err == nil && !(v > 0 && v < math.MaxFloat64) {
				t.Errorf("%q is %v", s, v)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("%q: a message of %d bytes", s, len(err.Error()))
			}
		}
		if n, err := ParseCount(s, 1000); err == nil && (n < 1 || n > 1000) {
			t.Errorf("%q is %d", s, n)
		}
		if low, high, err := ParseRange(s, 1000); err == nil && (low < 1 || high < low || high > 1000) {
			t.Errorf("%q is %d-%d", s, low, high)
		}
		if d, err := ParseSpan(s); err == nil && d < 1 {
			t.Errorf("%q is %v", s, d)
		}
	})
}

func TestText(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Bytes(64e3), "64.0 kB"}, {Bytes(999), "999 B"}, {Bytes(13.282e9), "13.3 GB"}, {Bandwidth(376.6e6), "377 MB/s"},
		{Count(5885.06), "5,885"}, {Count(0.64), "0.6"}, {Count(3), "3"}, {Count(1e18), "1e+18"},
		{Seconds(0.087), "87.0 ms"}, {Seconds(2), "2.00 s"}, {Seconds(53e-6), "53.0 us"}, {Seconds(1e-7), "100 ns"}, {Seconds(880), "15 min"}, {Seconds(7200 + 1200), "2 h 20 min"},
		{Percent(0.99), "99%"}, {Tenths(0.99), "99.0%"}, {Tenths(0.0004), "0.0%"}, {Whole(0.995), "100%"}, {Whole(0.004), "0%"}, {Rough(0), "0%"},
		{Rough(0.005), "0.5%"}, {Rough(0.0994), "9.9%"}, {Rough(0.0996), "10%"}, {Rough(0.432), "43%"}, {Percent(0.999), "99.9%"}, {Times(1.49), "1.5x"}, {Times(16.7), "17x"}, {Times(0.42), "0.42x"}, {Times(math.Inf(1)), "over 9,999x"},
		{Plural(1, "disk"), "1 disk"}, {Plural(59, "disk"), "59 disks"}, {Plural(2, "prefix"), "2 prefixes"}, {Plural(3, "worker process"), "3 worker processes"},
		{Int(0), "0"}, {Int(999), "999"}, {Int(-1234567), "-1,234,567"}, {Plural(3, "batch"), "3 batches"}, {Plural(1200, "index"), "1,200 indexes"}, {Plural(2, "entry"), "2 entries"}, {Plural(2, "day"), "2 days"},
		{Binary(4096), "4 KiB"}, {Binary(3 << 20), "3 MiB"}, {Binary(5000), "5.00 kB"}, {FLOPs(4.09e9), "4.09 GFLOP"}, {Int(MiB(1<<20 + 1)), "2"},
		{Elapsed(850 * time.Millisecond), "850ms"}, {Elapsed(3200 * time.Millisecond), "3.2s"}, {Elapsed(47 * time.Second), "47s"}, {Elapsed(725 * time.Second), "12m05s"}, {Elapsed(200 * time.Minute), "3h20m"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

// The tables in testdata define the reading of sizes for both sides: Python's tests also read them.
func TestTables(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "tables.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tables struct {
		// Sizes are read as so many bytes, Refused not at all.
		Sizes   map[string]int64 `json:"sizes"`
		Refused []string         `json:"refused"`
		// Bytes and Seconds are written so.
		Bytes   []written `json:"bytes"`
		Seconds []written `json:"seconds"`
	}
	if err := json.Unmarshal(data, &tables); err != nil {
		t.Fatal(err)
	}
	if len(tables.Sizes) < 20 || len(tables.Refused) < 20 || len(tables.Bytes) < 10 || len(tables.Seconds) < 20 {
		t.Error("the tables are short")
	}
	for text, want := range tables.Sizes {
		if got, err := ParseBytes(text); err != nil || int64(got) != want {
			t.Errorf("%q is %v, want %d (%v)", text, got, want, err)
		}
	}
	for _, text := range tables.Refused {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	for _, w := range tables.Bytes {
		if got := Bytes(w.Value); got != w.Text {
			t.Errorf("%v bytes are %q, want %q", w.Value, got, w.Text)
		}
	}
	for _, w := range tables.Seconds {
		if got := Seconds(w.Value); got != w.Text {
			t.Errorf("%v seconds are %q, want %q", w.Value, got, w.Text)
		}
	}
}

type written struct {
	Value float64 `json:"value"`
	Text  string  `json:"text"`
}
