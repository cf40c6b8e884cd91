package format

import (
	"strings"
	"testing"
)

var video = &Format{Name: "video", Params: []Param{
	{Name: "frames", Type: Int, Min: 1, Max: 100},
	{Name: "fps", Type: Number, Max: 1000},
	{Name: "start", Type: Choice, Choices: []string{"step", "random"}},
	{Name: "images", Type: Text},
	{Name: "from", Type: Int},
	PatchParam, StrideParam,
}}

func TestParse(t *testing.T) {
	v, err := video.Parse("frames=8&fps=12.5&start=random&images=a%26b/%25&patch=4x5x6&stride=3&from=0")
	if err != nil {
		t.Fatal(err)
	}
	if v.Int("frames") != 8 || v.Number("fps") != 12.5 || v.Text("start") != "random" || v.Text("images") != "a&b/%" || !v.Has("from") || v.Int("from") != 0 {
		t.Errorf("%+v", v)
	}
	if patch, stride, err := v.Patches(); patch != [3]int{4, 5, 6} || stride != [3]int{3, 3, 3} || err != nil {
		t.Error(patch, stride, err)
	}
	if v, err := video.Parse(""); err != nil || v.Has("frames") || v.Int("frames") != 0 || v.Text("images") != "" || v.Size("patch") != [3]int{} {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for query, want := range map[string]string{
		"frames=0":          "frames=0: expected a whole number from 1 to 100",
		"frames=x":          "frames=x: expected a whole number",
		"frames=":           `parameter "frames" has no value`,
		"frames":            `parameter "frames" has no value`,
		"frames=%zz":        `parameter "frames" has no value`,
		"frames=1&frames=":  `parameter "frames" has no value`,
		"frames=1&frames=2": `parameter "frames" is given twice`,
		"from=-1":           "from=-1: expected a whole number, 0 or more",
		"fps=0":             "fps=0: expected a number above 0, at most 1000",
		"fps=nan":           "fps=nan: expected",
		"start=end":         "start=end: expected step or random",
		"patch=1x2":         "patch=1x2: expected a size",
		"patch=1x2x40000":   "patch=1x2x40000: expected a size",
		"frame=8":           `unknown parameter "frame": the parameters of video are frames, fps, start, images, from, patch and stride; did you mean "frames"?`,
		"quality=8":         "patch and stride",
	} {
		if _, err := video.Parse(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
	if _, err := (&Format{Name: "zip"}).Parse("x=1"); err == nil || err.Error() != `unknown parameter "x": the format zip has no parameters` {
		t.Error(err)
	}
	// Parameters for a server may be secret.
	for _, query := range []string{"sig=s3cret", "frames=8&token=s3cret", strings.Repeat("s3cret", 10), "a%zz=s3cret"} {
		if _, err := video.Parse(query); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", query, err)
		}
	}
	v, err := video.Parse("stride=3")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Patches(); err == nil || !strings.Contains(err.Error(), "give their size too") {
		t.Error(err)
	}
}

func TestParseFields(t *testing.T) {
	table := &Format{Name: "table", Params: []Param{SplitParam, ColumnParam}}
	v, err := table.Parse("label:label=class&split=train&x")
	if err != nil || v.Text("split") != "train" || len(v.Columns) != 2 || v.Columns[0].From != "class" || v.Columns[1].Name != "x" {
		t.Errorf("%+v, %v", v, err)
	}
	pairs := &Format{Name: "pairs", Params: []Param{PatchParam, FileParam}}
	v, err = pairs.Parse("image=a%20b/*.jpg&patch=8")
	if err != nil || len(v.Files) != 1 || v.Files[0] != "image=a b/*.jpg" || v.Size("patch") != [3]int{8, 8, 8} {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := pairs.Parse("image=%zz"); err == nil {
		t.Error("a pattern that cannot be read")
	}
}

// The parameters of a URL come before those of options.
func TestSet(t *testing.T) {
	v, _ := video.Parse("frames=8")
	if ok, err := video.Set(&v, "frames", "9"); !ok || err != nil || v.Int("frames") != 8 {
		t.Error(ok, err, v)
	}
	if ok, err := video.Set(&v, "from", "9"); !ok || err != nil || v.Int("from") != 9 {
		t.Error(ok, err, v)
	}
	if ok, err := video.Set(&v, "fps", "-1"); !ok || err == nil {
		t.Error(ok, err)
	}
	if ok, _ := video.Set(&v, "split", "train"); ok {
		t.Error("video has no split")
	}
}
