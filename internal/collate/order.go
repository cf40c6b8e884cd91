package collate

import "slices"

// segment is n bytes of adjacent rows, from row first on.
type segment struct {
	at, n int64
	first int
}

const (
	// From manySegments on, rows are sorted through separate memory of up to maxCopy bytes.
	manySegments = 64
	maxCopy      = 32 << 20
)

// order moves rows into ascending positions. Rows come in groups that are nearly in order, so that few have to move,
// and not far. Rows with a negative at are ignored.
func order(values []byte, at, size []int64) {
	var s []segment
	total := int64(0)
	for k, n := range size {
		if n == 0 || at[k] < 0 {
			continue
		}
		total += n
		if last := len(s) - 1; last >= 0 && s[last].at+s[last].n == at[k] {
			s[last].n += n
			continue
		}
		s = append(s, segment{at[k], n, k})
	}
	if len(s) > manySegments && total <= maxCopy {
		sorted := make([]byte, 0, total)
		for _, seg := range s {
			sorted = append(sorted, values[seg.at:seg.at+seg.n]...)
		}
		copy(values, sorted)
	} else {
		rotateAll(values, s)
	}
	to := int64(0)
	for k, n := range size {
		if n > 0 && at[k] >= 0 {
			at[k] = to
			to += n
		}
	}
}

// rotateAll puts segments into the order of their rows, in place.
func rotateAll(values []byte, s []segment) {
	// First move all segments to the beginning in their present order.
	slices.SortFunc(s, func(a, b segment) int { return int(min(max(a.at-b.at, -1), 1)) })
	to := int64(0)
	for i := range s {
		copy(values[to:to+s[i].n], values[s[i].at:s[i].at+s[i].n])
		s[i].at = to
		to += s[i].n
	}
	// Then each segment is moved before those that occupy its place.
	to = 0
	for done := range s {
		next := done
		for i := done; i < len(s); i++ {
			if s[i].first < s[next].first {
				next = i
			}
		}
		seg := s[next]
		rotate(values[to:seg.at+seg.n], seg.at-to)
		for i := next; i > done; i-- {
			s[i] = s[i-1]
			s[i].at += seg.n
		}
		s[done] = seg
		to += seg.n
	}
}

// rotate moves the first n bytes of b to its end.
func rotate(b []byte, n int64) {
	for n > 0 && n < int64(len(b)) {
		if rest := int64(len(b)) - n; n <= rest {
			swap(b[:n], b[n:2*n])
			b = b[n:]
		} else {
			swap(b[n-rest:n], b[n:])
			b, n = b[:n], n-rest
		}
	}
}

// swap exchanges two pieces of one length.
func swap(a, b []byte) {
	var tmp [4096]byte
	for len(a) > 0 {
		n := copy(tmp[:], a)
		copy(a, b[:n])
		copy(b, tmp[:n])
		a, b = a[n:], b[n:]
	}
}

// closeGaps moves values so that they follow each other from 0 on, without a change of order. Values that move down are
// moved in order, values that move up in reverse. So no value is overwritten before it has moved. Rows with a negative
// at are stored separately and are copied to their positions at the end.
func closeGaps(values []byte, at, size []int64, beside map[int][]byte) {
	to := int64(0)
	for k, n := range size {
		if n > 0 && to < at[k] {
			copy(values[to:to+n], values[at[k]:at[k]+n])
		}
		to += n
	}
	for k := len(size) - 1; k >= 0; k-- {
		n := size[k]
		to -= n
		if n > 0 && at[k] >= 0 && to > at[k] {
			copy(values[to:to+n], values[at[k]:at[k]+n])
		}
	}
	to = 0
	for k, n := range size {
		if n > 0 && at[k] < 0 {
			copy(values[to:to+n], beside[k])
		}
		at[k] = to
		to += n
	}
}
