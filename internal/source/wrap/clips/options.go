package clips

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Clip describes a column of video paths and the frames of a clip.
type Clip struct {
	// Name is the name of the field. Column is the column of paths.
	Name, Column string
	// Frames is the number of frames of a clip, 16 by default. Stride is the distance between them
	// in frames, 1 by default. With FPS, frames are counted at that rate instead of the rate of the
	// video.
	Frames, Stride int
	FPS            float64
	// Start sets where a clip starts.
	Start Start
	// From and To are the columns with the start and the end of the part to use. "" means the start
	// or the end of the video. The part excludes To. Values are seconds, or frame numbers if
	// InFrames is set.
	From, To string
	InFrames bool
}

// Start sets where in its part of the video a clip starts.
type Start string

// The values of Start. A random start differs per epoch.
const (
	Begin  Start = "begin"
	Middle Start = "middle"
	Random Start = "random"
)

const defaultFrames = 16

// params are the options of a clip. A URL has them after the name of the field.
var params = []string{"frames", "stride", "fps", "start", "from", "to", "unit"}

// Cut separates fields of kind frames and their options (clip.stride=2) from the other columns of a
// table. For each clip, rest gets the columns that Open reads instead.
func Cut(columns []column.Want) (rest []column.Want, clips []Clip, err error) {
	for _, c := range columns {
		if c.Kind == driver.KindFrames {
			clips = append(clips, Clip{Name: c.Name, Column: c.From})
		}
	}
	for _, c := range columns {
		if c.Kind == driver.KindFrames {
			rest = append(rest, column.Want{Name: c.Name, Kind: driver.KindText, From: c.From})
			continue
		}
		name, option := c.Name, ""
		if dot := strings.LastIndexByte(name, '.'); dot > 0 {
			name, option = name[:dot], name[dot+1:]
		}
		i := slices.IndexFunc(clips, func(of Clip) bool { return of.Name == name })
		if option == "" || i < 0 {
			rest = append(rest, c)
			continue
		}
		if c.Kind != "" || !slices.Contains(params, option) {
			return nil, nil, fmt.Errorf("%q is not an option of the clips %q: use %s, for example %s.stride=2", c.Name, name, strings.Join(params, ", "), name)
		}
		if err := clips[i].set(option, c.From); err != nil {
			return nil, nil, fmt.Errorf("%s.%w", name, err)
		}
	}
	for _, c := range clips {
		for _, more := range []column.Want{{Name: c.fromName(), From: c.From}, {Name: c.toName(), From: c.To}} {
			if more.From != "" {
				more.Kind = driver.KindFloat
				rest = append(rest, more)
			}
		}
	}
	return rest, clips, nil
}

// fromName and toName return the names of the columns in the table that Open gets.
func (c *Clip) fromName() string { return c.Name + ".from" }
func (c *Clip) toName() string   { return c.Name + ".to" }

// set sets an option by its name.
func (c *Clip) set(name, text string) error {
	switch name {
	case "from":
		c.From = text
		return nil
	case "to":
		c.To = text
		return nil
	case "start":
		if c.Start = Start(text); !slices.Contains([]Start{Begin, Middle, Random}, c.Start) {
			return fmt.Errorf("start=%s: use start=begin, start=middle or start=random", text)
		}
		return nil
	case "unit":
		if c.InFrames = text == "frames"; !c.InFrames && text != "seconds" {
			return fmt.Errorf("unit=%s: use unit=seconds or unit=frames", text)
		}
		return nil
	case "fps":
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v > 0 && v <= 1000) {
			return fmt.Errorf("fps=%s: give the frames per second, such as 8", text)
		}
		c.FPS = v
		return nil
	}
	n, err := strconv.Atoi(text)
	most := video.MaxFrames
	to := &c.Stride
	if name == "frames" {
		to, most = &c.Frames, video.MaxClipFrames
	}
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("%s=%s: give a number of frames, such as 16", name, text)
	}
	*to = n
	return nil
}

func (c *Clip) defaults() error {
	if c.Frames == 0 {
		c.Frames = defaultFrames
	}
	if c.Stride == 0 {
		c.Stride = 1
	}
	if c.Start == "" {
		c.Start = Begin
	}
	if c.InFrames && c.From == "" && c.To == "" {
		return fmt.Errorf("%s.unit=frames: it needs from or to", c.Name)
	}
	return nil
}

// String describes the frames of a clip in words.
func (c *Clip) String() string {
	text := fmt.Sprintf("%d frames", c.Frames)
	if c.Stride > 1 {
		text += fmt.Sprintf(", each %dth", c.Stride)
	}
	if c.FPS > 0 {
		text += fmt.Sprintf(" at %g a second", c.FPS)
	}
	text += fmt.Sprintf(", of the videos in %q", c.Column)
	if c.From != "" {
		text += fmt.Sprintf(" from %q", c.From)
	}
	if c.To != "" {
		text += fmt.Sprintf(" to %q", c.To)
	}
	if c.InFrames {
		text += " (frames)"
	}
	if c.Start != Begin {
		text += ", begun " + map[Start]string{Middle: "in the middle", Random: "anywhere"}[c.Start]
	}
	return text
}

// span returns the number of frames from the first to the last frame of a clip, both included, in
// units of Stride.
func (c *Clip) span() int64 { return int64(c.Frames-1)*int64(c.Stride) + 1 }

// part returns the part of a video that a row selects: its start (seconds if FPS is set, else a
// frame number) and its number of frames. NaN means the start or the end of the video.
func (c *Clip) part(x *video.Index, from, to float64) (begin float64, n int64, err error) {
	end, unit := x.Duration(), "second"
	if c.InFrames {
		end, unit = float64(len(x.Shown)), "frame"
	}
	if math.IsNaN(from) {
		from = 0
	}
	if math.IsNaN(to) {
		to = end
	}
	switch {
	case from < 0:
		return 0, 0, fmt.Errorf("it starts at %s %v, before the start of the video", unit, from)
	case from >= end:
		return 0, 0, fmt.Errorf("it starts at %s %v, and the video ends at %.6g", unit, from, end)
	case to <= from:
		return 0, 0, fmt.Errorf("it ends at %s %v, which is not after its start at %v", unit, to, from)
	case c.InFrames && (from != math.Trunc(from) || to != math.Trunc(to)):
		return 0, 0, fmt.Errorf("it is from frame %v to %v: frame numbers must be whole numbers; for seconds set unit=seconds", from, to)
	}
	to = min(to, end)
	if c.FPS == 0 {
		lo, hi := int64(from), int64(to)
		if !c.InFrames {
			lo, hi = int64(x.At(from)), int64(c.upTo(x, to))
		}
		return float64(lo), max(hi-lo, 1), nil
	}
	if c.InFrames {
		lo, hi := int(from), int(to)
		if from, to = x.Seconds(lo), x.Duration(); hi < len(x.Shown) {
			to = x.Seconds(hi)
		}
	}
	return from, max(int64(math.Floor((to-from)*c.FPS+1e-6)), 1), nil
}

// upTo returns the first frame that is shown at or after a time. Differences below a twentieth of a
// frame are ignored.
func (c *Clip) upTo(x *video.Index, seconds float64) int {
	i := x.At(seconds)
	if x.Seconds(i) < seconds-0.05/x.Rate() {
		i++
	}
	return i
}
