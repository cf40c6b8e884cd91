package videosource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/internal/video"
)

// Videos is implemented by sources of clips. Its method Videos returns the indexes of the good
// files.
type Videos interface{ Videos() []*video.Index }

// Videos implements Videos.
func (s *source) Videos() []*video.Index {
	return slices.DeleteFunc(slices.Clone(s.videos), func(x *video.Index) bool { return x == nil })
}

// Describe describes videos in one line: codecs, containers, frame rates, durations and the
// distance between key frames.
func Describe(all []*video.Index) string {
	var kinds []string
	slow, fast, seconds, frames, keys := 0.0, 0.0, 0.0, 0, 0
	for i, x := range all {
		codec, _, _ := x.Coding()
		if kind := codec + " in " + x.Format; !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		r := x.Rate()
		if i == 0 {
			slow = r
		}
		slow, fast = min(slow, r), max(fast, r)
		seconds += x.Duration()
		frames += len(x.Shown)
		keys += x.Keys()
	}
	rate := fmt.Sprintf("%.4g", slow)
	if fast-slow > 0.01 {
		rate = fmt.Sprintf("%.4g to %.4g", slow, fast)
	}
	return fmt.Sprintf("%s of %s frames in %.4g s, %s a second, a key frame in %.3g", strings.Join(kinds, ", "),
		units.Int(int64(frames)), seconds, rate, float64(frames)/float64(max(keys, 1)))
}
