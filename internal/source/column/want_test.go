package column

import "testing"

func TestQuery(t *testing.T) {
	for _, q := range []string{"a", "a=b", "a:label=b&*", "x:image=100%25%26"} {
		columns, err := ParseQuery(q)
		if err != nil || Query(columns...) != q {
			t.Errorf("%q: %v, %v", q, columns, err)
		}
	}
	for _, q := range []string{"", "=a", "a=", "a:what", "index", "a&a", "%zz", "*:label"} {
		if _, err := ParseQuery(q); err == nil {
			t.Errorf("%q is taken", q)
		}
	}
}
