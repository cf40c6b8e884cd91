package chart

import "strings"

// ShareBar draws a share as a bar of at most cells characters, in eighths of one. A share above zero is always
// visible.
func ShareBar(share float64, cells int) string {
	eighths := int(clamp(share) * float64(8*cells))
	if share > 0 && eighths == 0 {
		eighths = 1
	}
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s
}

// Sparkline draws the last shares as a row of blocks, the newest at the end.
func Sparkline(shares []float64, cells int) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, x := range shares[max(0, len(shares)-max(cells, 0)):] {
		out.WriteRune(blocks[min(int(clamp(x)*float64(len(blocks))), len(blocks)-1)])
	}
	return out.String()
}

// clamp limits a share to the range from 0 to 1 and turns NaN into 0.
func clamp(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}
