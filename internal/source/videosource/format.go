package videosource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is video files and folders of them.
var Format = &format.Format{
	Name:      "video",
	Reads:     "clips from folders of video, one per class, and from single files: MP4, MOV, Matroska, WebM, AVI of JPEGs",
	Checksums: "not compared: CRC-32 of Matroska",
	Example:   "videos/?frames=16&stride=2",
	Guide:     "reference/video.md",
	Params: []format.Param{
		format.SplitParam,
		{Name: "frames", Type: format.Int, Min: 1, Max: video.MaxClipFrames, Default: "16", Help: "The number of frames in a clip."},
		{Name: "stride", Type: format.Int, Min: 1, Max: video.MaxFrames, Default: "1", Help: "The distance between the frames of a clip, in frames."},
		{Name: "step", Type: format.Int, Min: 1, Max: video.MaxFrames, Default: "the length of a clip", Help: "The distance between the beginnings of clips, in frames."},
		{Name: "fps", Type: format.Number, Max: 1000, Default: "that of the video", Help: "The frames per second that are counted for the other parameters."},
		{Name: "start", Type: format.Choice, Choices: []string{"step", "random"}, Default: "step", Help: "Begin clips at each step, or at a random frame in it that differs per epoch."},
		{Name: "as", Type: format.Choice, Choices: []string{"clips", "images"}, Default: "clips", Help: "Make clips the records, or each frame an image."},
		{Name: "quality", Type: format.Int, Min: 1, Max: 100, Help: "The JPEG quality of frames with as=images; without it they are raw pixels."},
	},
	Match: format.MatchMedia(selection.Video, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		folder, file := r.Folder()
		return Open(ctx, r.URL, folder, &Options{
			Frames: int(r.Int("frames")), Stride: int(r.Int("stride")), Step: int(r.Int("step")), FPS: r.Number("fps"),
			Random: r.Text("start") == "random", Images: r.Text("as") == "images", Quality: int(r.Int("quality")),
			Threads: r.Threads, File: file, Split: r.Text("split"),
		})
	},
}
