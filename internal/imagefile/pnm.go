package imagefile

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/floatmap"
	"github.com/stokerdata/stoker/internal/netpbm"
	"github.com/stokerdata/stoker/source/driver"
)

// colors are the kinds of colour of 1 to 4 values.
var colors = [...]Color{1: Gray, 2: GrayA, 3: RGB, 4: RGBA}

func probePNM(b []byte, info *Info) error {
	h, err := netpbm.Parse(b)
	if err != nil {
		return pnmError(err)
	}
	info.Width, info.Height, info.Channels, info.Color = h.Width, h.Height, h.Channels, colors[h.Channels]
	switch {
	case h.Bilevel() && h.Channels == 1:
		info.Precision = 1
	case h.Wide():
		info.Precision = 16
	default:
		info.Precision = 8
	}
	info.Text = b[1] <= '3'
	return nil
}

func checkPNM(b []byte) error {
	h, err := netpbm.Parse(b)
	if err != nil {
		return pnmError(err)
	}
	if least := h.Least(); least > int64(len(b)) {
		return truncated(b, fmt.Sprintf("%d bytes of pixels are missing", least-int64(len(b))))
	}
	return nil
}

// pnmError is an error of package netpbm as one of this package.
func pnmError(err error) error {
	if errors.Is(err, netpbm.ErrTruncated) {
		return fmt.Errorf("%w%s", ErrTruncated, err.Error()[len(netpbm.ErrTruncated.Error()):])
	}
	return fmt.Errorf("%w%s", ErrBroken, err.Error()[len(netpbm.ErrBroken.Error()):])
}

// FloatFormat is the format of a codec of float32 pixels, as package floatmap calls
// it.
func FloatFormat(codec driver.Codec) string {
	if codec == driver.CodecFlo {
		return floatmap.Flo
	}
	return floatmap.PFM
}

func probeFloats(b []byte, info *Info) error {
	h, err := floatmap.ParseHeader(FloatFormat(info.Codec), b)
	if err != nil {
		return broken("%v", err)
	}
	info.Height, info.Width = int32(h.Shape[0]), int32(h.Shape[1])
	info.Channels, info.Precision, info.Float = 1, 32, true
	if len(h.Shape) == 3 {
		info.Channels = int32(h.Shape[2])
	}
	if info.Color = colors[info.Channels]; info.Codec == driver.CodecFlo {
		info.Color = Flow
	}
	return nil
}

func checkFloats(b []byte) error {
	if _, err := floatmap.Parse(FloatFormat(Detect(b)), b, int64(len(b))); err != nil {
		return broken("%v", err)
	}
	return nil
}
