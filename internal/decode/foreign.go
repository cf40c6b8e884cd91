package decode

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/imagelib"
	"github.com/stokerdata/stoker/internal/item"
)

// loadForeign loads an image with an optional library.
func (d *Decoder) loadForeign(r *Request, info *imagefile.Info) (*picture, error) {
	if err := imagelib.Ready(info.Codec); err != nil {
		return nil, &cdec.Error{Kind: cdec.ErrUnsupported, Msg: err.Error()}
	}
	p := &picture{w: info.Width, h: info.Height, t: item.PixelType{DType: item.U8, Channels: info.Channels}}
	if info.Precision > 8 && !r.simple(info.Codec) {
		p.t.DType = item.U16
	}
	var err error
	if p.pix, err = d.pixels.Bytes(int(p.h) * p.stride()); err != nil {
		return nil, err
	}
	// Bytes of a mapped file may disappear while C reads them; a copy stays.
	err = imagelib.Decode(info.Codec, bytes.Clone(r.Value.Bytes), int(p.w), int(p.h), int(p.t.Channels), p.t.DType.Size(), p.pix)
	switch {
	case errors.Is(err, imagelib.ErrMemory):
		return nil, &cdec.Error{Kind: cdec.ErrNoMemory, Msg: err.Error()}
	case err != nil:
		return nil, &cdec.Error{Kind: cdec.ErrCorrupt, Msg: err.Error()}
	case r.Mask && p.t.Channels > 1:
		return p, p.oneChannel()
	}
	return p, nil
}

// oneChannel converts colours that are gray everywhere to gray: masks have no other colours.
func (p *picture) oneChannel() error {
	if p.t.DType != item.U8 {
		return &cdec.Error{Kind: cdec.ErrUnsupported, Msg: "masks of more than 8 bits have no colours"}
	}
	n := int(p.t.Channels)
	for i := range int(p.w) * int(p.h) {
		px := p.pix[n*i : n*i+n]
		if px[0] != px[1] || px[1] != px[2] {
			return &cdec.Error{Kind: cdec.ErrUnsupported, Msg: fmt.Sprintf("it has colours (at %d, %d) and not class numbers: save it as gray", i%int(p.w), i/int(p.w))}
		}
		p.pix[i] = px[0]
	}
	p.pix, p.t.Channels = p.pix[:int(p.w)*int(p.h)], 1
	return nil
}
