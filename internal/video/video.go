// Package video finds the frames in video files without decoding them. For each frame it finds the location, the
// display time, and whether decoding can start with it. It reads MP4 and MOV, AVI, Matroska and WebM, all in Go.
//
// Open reads a file's index (from an Input: a file, or an object of a bucket) and returns an Index. Index.Shown are
// the frames in the order of display, and Index.At is the frame at a time. Index.Spans are the data to read and
// decode for some frames. Each span begins with a key frame, and its Pieces are the locations of its bytes. Frames
// and the data for their decoder are passed on as a Clip, the value of a field of driver.KindFrames. Append makes a
// Clip, Clip.Parse reads it, and package videodec decodes it.
//
// A source that lists frames in another way (for example a table of episodes and times) works like package
// internal/source/videosource. It opens each file once and converts times into frames with At. Its Locate asks for
// the Pieces, and its Parse calls Append.
package video

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Input is the source of a video file, such as a store.Object.
type Input interface {
	Size() int64
	// ReadAt fills p from offset off, or fails.
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// Limits for the values in a file.
const (
	// MaxFrames is the largest number of frames: 155 hours at 30 frames a second.
	MaxFrames = 1 << 24
	// MaxFrameBytes is the largest encoded frame.
	MaxFrameBytes = 1 << 28
	// MaxSide is the largest side of a frame.
	MaxSide = 1 << 15
	// maxIndexBytes is the size of the largest index of a file, maxConfigBytes that of the largest decoder
	// configuration.
	maxIndexBytes  = 1 << 29
	maxConfigBytes = 1 << 20
)

// Extensions are the file extensions of video, lower case. Those of the last line are read through FFmpeg.
var Extensions = []string{
	".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".3gp", ".3g2", ".qt",
	".flv", ".f4v", ".wmv", ".asf", ".mpg", ".mpeg", ".mpe", ".m1v", ".m2v", ".vob", ".ogv", ".rm", ".rmvb", ".m2ts", ".mts", ".mxf", ".divx", ".dv", ".nut", ".y4m",
}

// The codecs, by libavcodec's names.
const (
	MJPEG = "mjpeg"
	H264  = "h264"
	HEVC  = "hevc"
	AV1   = "av1"
	VP8   = "vp8"
	VP9   = "vp9"
	MPEG4 = "mpeg4"
	// In these codecs, as in MJPEG, each frame is a separate image: RGB pixels, row by row, or JPEGs without their
	// entropy code (docs/reference/pack-format.md). Packs use them.
	Raw = "raw"
	DCT = "dct"
)

// Stills reports whether each frame is an image that needs no other frame.
func (s *Stream) Stills() bool { return s.Codec == MJPEG || s.Codec == Raw || s.Codec == DCT }

// Matrix is the storage format of colours, by the numbers of ITU-T H.273; 2 is unknown.
type Matrix uint8

// Range is the value range of colours.
type Range uint8

// The ranges, by libavcodec's numbers.
const (
	RangeUnknown Range = 0
	RangeLimited Range = 1
	RangeFull    Range = 2
)

// MatrixUnknown means that a file does not specify the matrix.
const MatrixUnknown Matrix = 2

// Frame is the location and the display time of a frame.
type Frame struct {
	Offset int64
	// PTS is the time at which it is shown, in 1/Timescale of a second.
	PTS  int64
	Size uint32
	// Key is true if decoding can start with it.
	Key bool
	// hidden is true if it is decoded only for other frames, because an edit list leaves it out.
	hidden bool
}

// Stream has the properties of a video that a decoder needs.
type Stream struct {
	// Codec is one of those above, or libavcodec's name of another one.
	Codec string
	// Config is the container's data for the decoder, such as an avcC box.
	Config        []byte
	Width, Height int
	// Rotation is the rotation that makes frames upright: 0, 90, 180 or 270 degrees clockwise. Width and Height are
	// the sizes before it.
	Rotation int
	// Mirror is true if frames are mirrored horizontally after the rotation.
	Mirror bool
	// Matrix and Range are the container's description of colours.
	Matrix Matrix
	Range  Range
}

// ErrTurned is the error for frames that are separate images and would have to be rotated.
var ErrTurned = errors.New("its frames are turned or mirrored, which is not done for MJPEG; ffmpeg -i IN OUT.mp4 turns them")

// Turned reports whether frames are stored in another way than they are shown.
func (s *Stream) Turned() bool { return s.Rotation != 0 || s.Mirror }

// Upright returns the size of displayed frames.
func (s *Stream) Upright() (width, height int) {
	if s.Rotation%180 != 0 {
		return s.Height, s.Width
	}
	return s.Width, s.Height
}

// Index is the video of a file: the first track of it.
type Index struct {
	Stream
	// Format is the container: mp4, avi or matroska.
	Format    string
	Timescale int64
	// Frames are in the order in which they are decoded.
	Frames []Frame
	// Shown are the positions in Frames of the visible frames, in the order of display.
	Shown []int32

	keys []int32
	// before[i] is the size of the frames before i.
	before []int64
	// parts are the parts of frames that are not in one piece. It is nil if all are.
	parts [][]Parts
	held  map[int32][]byte // bytes of frames that the file does not have as they are
	// reorder is the most by which a frame is decoded later than it is shown.
	reorder int32
}

// ErrNotVideo is the error of a file in none of the formats.
var ErrNotVideo error = unsupported{errors.New("it is not an MP4, MOV, AVI, Matroska or WebM file")}

// Open reads the index of a file.
func Open(ctx context.Context, in Input) (*Index, error) {
	head := make([]byte, min(in.Size(), 16))
	if err := in.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	f := &file{ctx: ctx, in: in, size: in.Size()}
	var x *Index
	var err error
	switch {
	case len(head) < 12:
		return nil, fmt.Errorf("it has %d bytes: %w", in.Size(), ErrNotVideo)
	case isMP4(head):
		x, err = f.mp4()
	case isAVI(head):
		x, err = f.avi()
	case isMatroska(head):
		x, err = f.matroska()
	default:
		return nil, ErrNotVideo
	}
	if err != nil {
		return nil, err
	}
	return x, x.finish(f.size)
}

// finish checks the frames and puts them in order.
func (x *Index) finish(size int64) error {
	switch {
	case len(x.Frames) == 0:
		return errors.New("its video has no frames")
	case x.Width < 1 || x.Height < 1 || x.Width > MaxSide || x.Height > MaxSide:
		return fmt.Errorf("its video has %d x %d pixels", x.Width, x.Height)
	case x.Timescale < 1 || x.Timescale > math.MaxInt32:
		return fmt.Errorf("its video counts time in 1/%d of a second", x.Timescale)
	case len(x.Config) > maxConfigBytes:
		return fmt.Errorf("its decoder is configured by %d bytes, more than the limit of %d", len(x.Config), maxConfigBytes)
	}
	x.before = make([]int64, len(x.Frames)+1)
	for i := range x.Frames {
		f := &x.Frames[i]
		if f.Size > MaxFrameBytes {
			return fmt.Errorf("frame %d has %d bytes, more than the limit of %d", i, f.Size, int64(MaxFrameBytes))
		}
		if f.Offset < 0 || f.Offset > size-int64(f.Size) {
			return fmt.Errorf("frame %d has %d bytes at byte %d, the file has %d bytes: it is cut off", i, f.Size, f.Offset, size)
		}
		if f.Key {
			x.keys = append(x.keys, int32(i))
		}
		if !f.hidden {
			x.Shown = append(x.Shown, int32(i))
		}
		x.before[i+1] = x.before[i] + int64(f.Size)
	}
	if len(x.Shown) == 0 {
		return errors.New("its edit list shows none of its frames")
	}
	sort.SliceStable(x.Shown, func(a, b int) bool { return x.Frames[x.Shown[a]].PTS < x.Frames[x.Shown[b]].PTS })
	for i, d := range x.Shown {
		x.reorder = max(x.reorder, d-int32(i))
	}
	return nil
}

// Seconds returns the time at which visible frame i is shown, relative to the first one.
func (x *Index) Seconds(i int) float64 {
	return float64(x.Frames[x.Shown[i]].PTS-x.Frames[x.Shown[0]].PTS) / float64(x.Timescale)
}

// Begin returns the time of the first frame in the file, which corresponds to Seconds of 0.
func (x *Index) Begin() float64 { return float64(x.Frames[x.Shown[0]].PTS) / float64(x.Timescale) }

// Duration returns the time at which the last frame ends. The last frame is assumed to be as long as the average of
// the others.
func (x *Index) Duration() float64 {
	n := len(x.Shown)
	if n < 2 {
		return 1 / x.Rate()
	}
	return x.Seconds(n-1) * float64(n) / float64(n-1)
}

// Rate returns the average number of frames per second, 1 if there is only one frame.
func (x *Index) Rate() float64 {
	if last := x.Seconds(len(x.Shown) - 1); last > 0 {
		return float64(len(x.Shown)-1) / last
	}
	return 1
}

// At returns the frame, of Shown, that is displayed some seconds after the first one. It is the last frame that
// begins by then, with a tolerance of a twentieth of a frame, because containers round times.
func (x *Index) At(seconds float64) int {
	at := (seconds+0.05/x.Rate())*float64(x.Timescale) + float64(x.Frames[x.Shown[0]].PTS)
	return max(sort.Search(len(x.Shown), func(i int) bool { return float64(x.Frames[x.Shown[i]].PTS) > at })-1, 0)
}

// Start returns the frame at which decoding must start in order to decode frame d.
func (x *Index) Start(d int32) int32 {
	i := sort.Search(len(x.keys), func(i int) bool { return x.keys[i] > d }) - 1
	// A frame that is shown before its preceding key frame needs the key frame before that one.
	for ; i >= 0; i-- {
		if k := x.keys[i]; x.Frames[k].PTS <= x.Frames[d].PTS {
			return k
		}
	}
	return 0
}

// Span is some frames, in the order of decoding, from a key frame on.
type Span struct{ First, Last int32 }

// Spans appends the data to decode for some frames, which are positions in Frames.
func (x *Index) Spans(spans []Span, frames []int32) []Span {
	from := len(spans)
	for _, d := range frames {
		if n := len(spans); n > from && spans[n-1].First <= d && d <= spans[n-1].Last {
			continue
		}
		spans = append(spans, Span{x.Start(d), d})
	}
	mine := spans[from:]
	slices.SortFunc(mine, func(a, b Span) int { return int(a.First) - int(b.First) })
	n := 0
	for _, s := range mine {
		if n > 0 && s.First <= mine[n-1].Last+1 {
			mine[n-1].Last = max(mine[n-1].Last, s.Last)
		} else {
			mine[n] = s
			n++
		}
	}
	return spans[:from+n]
}

// MostClip returns an upper bound for the size of a clip of n of the visible frames a to b.
func (x *Index) MostClip(a, b, n int) int64 {
	first, last := x.Start(x.Shown[a]), min(int(x.Shown[b])+int(x.reorder)+1, len(x.Frames))
	return x.ClipBytes(last-int(first), n) + x.before[last] - x.before[first]
}

// Piece is a range of bytes of a file with frames First to Last in it.
type Piece struct {
	Offset, Size int64
	First, Last  int32
}

// gap is the maximum number of bytes between two frames, for example of sound, that are read with them.
const gap = 16 << 10

// Pieces appends the locations of the frames of a span.
func (x *Index) Pieces(pieces []Piece, s Span) []Piece {
	from := len(pieces)
	for d := s.First; d <= s.Last; d++ {
		f := &x.Frames[d]
		if n := len(pieces); n > from {
			p := &pieces[n-1]
			end := p.Offset + p.Size
			if f.Offset >= end && f.Offset-end <= gap {
				p.Size, p.Last = x.end(d)-p.Offset, d
				continue
			}
		}
		pieces = append(pieces, Piece{Offset: f.Offset, Size: x.end(d) - f.Offset, First: d, Last: d})
	}
	return pieces
}

// Held returns the number of bytes of memory that it uses.
func (x *Index) Held() int64 {
	const frame = 24 // bytes of a Frame
	parts := int64(0)
	for _, p := range x.parts {
		parts += 24 * int64(len(p)+1)
	}
	for _, b := range x.held {
		parts += int64(len(b))
	}
	return parts + frame*int64(len(x.Frames)) + 4*int64(len(x.Shown)+len(x.keys)) + 8*int64(len(x.before)) + int64(len(x.Config))
}

// Keys returns the number of key frames.
func (x *Index) Keys() int { return len(x.keys) }
