package invariants

import "testing"

func TestMangle(t *testing.T) {
	b := []byte{1, 2, 3, 4}
	Mangle(b[1:3])
	if IsMangled(b[1:3]) != Enabled || IsMangled(b) || IsMangled(nil) || b[0] != 1 || b[3] != 4 {
		t.Errorf("%v", b)
	}
	if n := testing.AllocsPerRun(100, func() { Mangle(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
