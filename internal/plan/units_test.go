package plan

import (
	"math"
	"strings"
	"testing"
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
			"87ms": 0.087, "0.087": 0.087, "0.087s": 0.087, "2 s": 2, "2": 2, "10": 10, "350us": 350e-6, "350µs": 350e-6, "1.5min": 90, "1h": 3600, "12s": 12,
		}, map[string]string{
			"87": "87 seconds? the unit seems to be missing: write 87s if so, or 87ms", "87 m": "not a time", "-1s": "below zero", "0": "zero", "9e9h": "could be meant",
			"1m30s": "not a time",
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

func TestParseCountRangeAndArray(t *testing.T) {
	if n, err := ParseCount("1,281,167", MaxRecords); n != 1281167 || err != nil {
		t.Error(n, err)
	}
	for _, text := range []string{"", "0", "-1", "1.5", "128 images", "1e30", "x"} {
		if n, err := ParseCount(text, MaxRecords); err == nil {
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
	a, err := ParseArray("image:512x512x3:f32")
	if err != nil || a.Bytes() != 3145728 || a.String() != "image:512x512x3:f32" {
		t.Errorf("%v %v", a, err)
	}
	for _, text := range []string{"", "image", "image:512:", "image:0x5:u8", "image:5x:u8", "image:5:u9", ":5:u8", "image:99999999999x99999:f64", "i:1x1x1x1x1x1x1x1x1:u8"} {
		if a, err := ParseArray(text); err == nil {
			t.Errorf("%q is %v", text, a)
		}
	}
	w, err := ParseWorkload("n=256 t=200ms es=64KB accelerators=4 dataset=1.2TB")
	if err != nil || w != (Workload{Batch: 256, Step: 0.2, RecordBytes: 64e3, Accelerators: 4, DatasetBytes: 1.2e12}) {
		t.Errorf("%+v %v", w, err)
	}
	for _, text := range []string{"", "n=256", "n=256 t=200 es=64KB", "n=256 t=2s es=64", "x=1", "n"} {
		if w, err := ParseWorkload(text); err == nil {
			t.Errorf("%q is %+v", text, w)
		}
	}
}

// Whatever is typed, a parser returns a finite number above zero or one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"64KB", "87ms", "4GFLOP", "7TFLOP/s", "5-10", "99%", "image:512x512x3:u8", "1,457 img/s", "10Gbit/s", "1e308", "n=256 t=200ms es=64KB", "5e", "+e5", "1e+", "µ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (float64, error){ParseBytes, ParseSeconds, ParseFLOPs, ParseFLOPRate, ParseRate, ParseShare, ParseBandwidth} {
			v, err := parse(s)
			if err == nil && !(v > 0 && v < math.MaxFloat64) {
				t.Errorf("%q is %v", s, v)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("%q: a message of %d bytes", s, len(err.Error()))
			}
		}
		if n, err := ParseCount(s, 1000); err == nil && (n < 1 || n > 1000) {
			t.Errorf("%q is %d", s, n)
		}
		if low, high, err := ParseRange(s, 1000); err == nil && (low < 1 || high < low || high > 1000) {
			t.Errorf("%q is %d-%d", s, low, high)
		}
		if a, err := ParseArray(s); err == nil {
			if b, err := ParseArray(a.String()); err != nil || b.String() != a.String() || !(a.Bytes() >= 1) {
				t.Errorf("%q is %v, again %v, %v", s, a, b, err)
			}
		}
		if w, err := ParseWorkload(s); err == nil && (w.Batch < 1 || w.Step <= 0 || w.RecordBytes < 1) {
			t.Errorf("%q is %+v", s, w)
		}
	})
}

func TestText(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Bytes(64e3), "64.0 kB"}, {Bytes(999), "999 B"}, {Bytes(13.282e9), "13.3 GB"}, {Bandwidth(376.6e6), "377 MB/s"},
		{Count(5885.06), "5,885"}, {Count(0.64), "0.6"}, {Count(3), "3"}, {Count(1e18), "1e+18"},
		{Seconds(0.087), "87.0 ms"}, {Seconds(2), "2.00 s"}, {Seconds(53e-6), "53.0 us"}, {Seconds(1e-7), "100 ns"}, {Seconds(880), "15 min"}, {Seconds(7200 + 1200), "2 h 20 min"},
		{Percent(0.99), "99%"}, {Percent(0.999), "99.9%"}, {Times(1.49), "1.5x"}, {Times(16.7), "17x"}, {Times(0.42), "0.42x"}, {Times(math.Inf(1)), "over 9,999x"},
		{plural(1, "disk"), "1 disk"}, {plural(59, "disk"), "59 disks"}, {plural(2, "prefix"), "2 prefixes"}, {plural(3, "worker process"), "3 worker processes"},
		{list([]string{"a", "b", "c"}, "and"), "a, b and c"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}
