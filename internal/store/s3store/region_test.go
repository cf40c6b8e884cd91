package s3store

import (
	"path/filepath"
	"testing"
)

// One process of the machine asks for the region of a bucket, and again when it turned out to be wrong.
func TestRegion(t *testing.T) {
	t.Setenv("STOKER_RUNTIME_DIR", filepath.Join(t.TempDir(), "run"))
	asked, answer := 0, ""
	get := func() string {
		return regionOf(t.Context(), "a-bucket", func() string { asked++; return answer })
	}
	another := func() { // process
		regions.Lock()
		defer regions.Unlock()
		clear(regions.of)
	}
	t.Cleanup(another)
	for _, c := range []struct {
		do     func()
		answer string
		want   string
		asked  int
	}{
		{func() {}, "", "", 1}, // unknown
		{func() {}, "eu-central-1", "eu-central-1", 2},
		{func() {}, "other", "eu-central-1", 2},
		{another, "other", "eu-central-1", 2},
		{func() { forgetRegion("a-bucket") }, "us-west-2", "us-west-2", 3},
		{another, "other", "us-west-2", 3},
		{func() { forgetRegion("none") }, "other", "us-west-2", 3},
	} {
		c.do()
		answer = c.answer
		if got := get(); got != c.want || asked != c.asked {
			t.Errorf("%+v: %q, asked %d times", c, got, asked)
		}
	}
}
