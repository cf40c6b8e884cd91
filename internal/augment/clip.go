package augment

import (
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Clips of video are packed as clips of pixels.

// clipOf returns a clip of the frames of a row.
func clipOf(f *driver.Field, row []byte, number uint64) *video.Clip {
	c := &video.Clip{Stream: video.Stream{Codec: video.Raw, Width: int(f.Width), Height: int(f.Height), Matrix: video.MatrixUnknown}, Video: number}
	size := 3 * c.Width * c.Height
	for i := range f.Shape[0] {
		p := video.Packet{N: int32(i)}
		if row != nil {
			p.Data = row[i*size : (i+1)*size]
		}
		c.Packets, c.Frames = append(c.Packets, p), append(c.Frames, int32(i))
	}
	return c
}

// clipBytes returns the size of a clip for a row of n bytes.
func clipBytes(f *driver.Field, n int64) int64 { return clipOf(f, nil, 0).Bytes() + n }

// putClip writes the clip of a row into dst, which has clipBytes.
func putClip(dst []byte, f *driver.Field, row []byte, number uint64) {
	clipOf(f, row, number).AppendTo(dst[:0])
}
