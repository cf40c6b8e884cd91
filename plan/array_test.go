package plan

import "testing"

func TestParseArray(t *testing.T) {
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

// For any input, a parser returns a valid result or an error of one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"image:512x512x3:u8", "n=256 t=200ms es=64KB", "a:1:f32", "n=1 t=1s es=1MB dataset=5GB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
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
