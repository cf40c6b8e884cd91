package kind

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// MaxRecordAxes is the largest number of axes of a Decoded value.
const MaxRecordAxes = 8

// Decoded is one value of a record without a batch around it. Each value has its own shape.
type Decoded struct {
	// Bytes are the elements of an array, or a text. A number has none.
	Bytes []byte
	Shape []int64
	// Number has the bits of a number, or the samples per second of a recording.
	Number uint64
}

// Element returns the element type of a field after decoding and its shape, with -1 for axes that differ between
// records. A field that is one number or one text has no type.
func Element(f *driver.Field) (t string, shape []int) {
	open := func(n int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = -1
		}
		return all
	}
	side := func(n int32) int {
		if n > 0 {
			return int(n)
		}
		return -1
	}
	switch f.Kind {
	case driver.KindImage:
		p := recordPixels(f)
		shape = []int{side(f.Height), side(f.Width)}
		if f.DType == "" || len(f.Shape) > 0 {
			shape = append(shape, int(p.Channels))
		}
		return p.DType.String(), shape
	case driver.KindMask:
		return string(f.DType), []int{side(f.Height), side(f.Width)}
	case driver.KindMasks:
		return string(driver.Uint8), open(3)
	case driver.KindAudio:
		return string(driver.Float32), open(2)
	case driver.KindFrames:
		return string(driver.Uint8), []int{f.Shape[0], side(f.Height), side(f.Width), 3}
	case driver.KindArray:
		return string(f.DType), append([]int{}, f.Shape...)
	case driver.KindVolume:
		if f.Shape != nil {
			return string(f.DType), append([]int{}, f.Shape...)
		}
		shape = append([]int{}, f.Most...)
		for i := max(len(shape)-3, 0); i < len(shape); i++ {
			if f.Least[i] != f.Most[i] {
				shape[i] = -1
			}
		}
		return string(f.DType), shape
	case driver.KindRagged, driver.KindTokens, driver.KindKeyPoints:
		return string(f.DType), append(open(1), f.Shape...)
	case driver.KindBoxes:
		return string(driver.Float32), []int{-1, 4}
	case driver.KindMultiLabel:
		return string(driver.Int64), open(1)
	}
	return "", nil
}

// recordPixels returns the type of the pixels of an image: RGB of uint8, or that of a map of numbers.
func recordPixels(f *driver.Field) item.PixelType {
	if f.DType == "" {
		return item.RGB
	}
	t := item.PixelType{DType: f.DType.Type(), Channels: 1}
	if len(f.Shape) > 0 {
		t.Channels = int32(f.Shape[0])
	}
	return t
}

// RecordDecoder decodes the values of single records, with the decoders that batches use. It
// belongs to one goroutine.
type RecordDecoder struct {
	images *decode.Decoder
	sound  audio.Decoder
	codec  codecs
	clip   video.Clip
	jpeg   []byte
	masks  [][]byte
	req    [1]decode.Request
}

// NewRecordDecoder returns a decoder. The caller must close it.
func NewRecordDecoder() (*RecordDecoder, error) {
	images, err := decode.New(decode.Options{})
	if err != nil {
		return nil, err
	}
	return &RecordDecoder{images: images}, nil
}

// Close frees the decoders.
func (d *RecordDecoder) Close() {
	d.images.Close()
	d.sound.Close()
	d.codec.close()
}

// Decode decodes a value of a field. alloc returns memory for the result.
func (d *RecordDecoder) Decode(f *driver.Field, v *driver.Value, alloc func(n int64) ([]byte, error)) (out Decoded, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fault("decoding", p)
		}
	}()
	switch f.Kind {
	case driver.KindLabel, driver.KindInt:
		out.Number = uint64(v.Int)
	case driver.KindFloat:
		out.Number = math.Float64bits(v.Float)
	case driver.KindImage:
		err = d.image(f, v, recordPixels(f), alloc, &out)
	case driver.KindMask:
		err = d.image(f, v, item.PixelType{DType: f.DType.Type(), Channels: 1}, alloc, &out)
	case driver.KindMasks:
		err = d.stack(v, alloc, &out)
	case driver.KindAudio:
		err = d.audio(v, alloc, &out)
	case driver.KindFrames:
		err = d.frames(f, v, alloc, &out)
	default:
		err = stored(f, v, alloc, &out)
	}
	return out, err
}

// stored copies a value whose bytes are its elements.
func stored(f *driver.Field, v *driver.Value, alloc func(n int64) ([]byte, error), out *Decoded) (err error) {
	t, shape := Element(f)
	element := int64(1)
	if t != "" {
		element = int64(driver.DType(t).Size())
	}
	if f.Kind == driver.KindVolume && f.Shape == nil {
		n := len(shape)
		shape[n-3], shape[n-2], shape[n-1] = int(v.Depth), int(v.Height), int(v.Width)
	}
	rest := -1
	for i, side := range shape {
		if side < 0 {
			rest = i
			continue
		}
		element *= int64(side)
	}
	size := int64(len(v.Bytes))
	out.Shape = make([]int64, len(shape))
	for i, side := range shape {
		out.Shape[i] = int64(side)
	}
	switch {
	case rest >= 0 && (element == 0 || size%element != 0):
		return fmt.Errorf("%d bytes are not a whole number of elements of %d bytes", size, element)
	case rest >= 0:
		out.Shape[rest] = size / element
	case t != "" && size != element:
		return fmt.Errorf("%d bytes for an array of %v %s, which has %d", size, shape, t, element)
	}
	if out.Bytes, err = alloc(size); err == nil {
		copy(out.Bytes, v.Bytes)
	}
	return err
}

// image decodes a whole image or mask as stored: EXIF orientations are not applied.
func (d *RecordDecoder) image(f *driver.Field, v *driver.Value, t item.PixelType, alloc func(n int64) ([]byte, error), out *Decoded) error {
	value := *v
	class := f.Kind == driver.KindMask
	raw := item.DType(0)
	if class {
		raw = t.DType
		if value.Channels == 0 {
			value.Channels = 1
		}
	}
	info, err := d.images.Info(value)
	if err != nil {
		return err
	}
	w, h := int64(info.Width), int64(info.Height)
	if out.Bytes, err = alloc(w * h * int64(t.Size())); err != nil {
		return err
	}
	out.Shape = []int64{h, w}
	if !class && (f.DType == "" || len(f.Shape) > 0) {
		out.Shape = append(out.Shape, int64(t.Channels))
	}
	return d.whole(value, t, raw, class, info.Width, info.Height, out.Bytes)
}

// whole decodes all pixels of an image to dst.
func (d *RecordDecoder) whole(v driver.Value, t item.PixelType, raw item.DType, class bool, w, h int32, dst []byte) error {
	whole := item.Rect{W: w, H: h}
	geom := item.Geometry{Box: whole, ResizeW: w, ResizeH: h, Window: whole, Filter: item.Bilinear}
	if class {
		geom.Filter = item.Nearest
	}
	d.req[0] = decode.Request{Value: v, Pixels: t, Raw: raw, Mask: class, Geom: geom, Store: t.Plain(), Dst: dst}
	d.images.Run(d.req[:])
	err := d.req[0].Err
	d.req[0] = decode.Request{} // so that no record's bytes stay alive
	return err
}

// stack decodes the masks of the objects of an image.
func (d *RecordDecoder) stack(v *driver.Value, alloc func(n int64) ([]byte, error), out *Decoded) (err error) {
	var w, h int
	if d.masks, w, h, err = mask.Stack(v.Bytes, d.masks); err != nil {
		return err
	}
	n := len(d.masks)
	if out.Bytes, err = alloc(int64(n) * int64(w) * int64(h)); err != nil {
		return err
	}
	out.Shape = []int64{int64(n), int64(h), int64(w)}
	t := item.PixelType{DType: dtype.U8, Channels: 1}
	for i, b := range d.masks {
		one := driver.Value{Bytes: b, Codec: driver.CodecRuns, Width: int32(w), Height: int32(h), Channels: 1, Orientation: 1}
		if err := d.whole(one, t, 0, true, int32(w), int32(h), out.Bytes[i*w*h:(i+1)*w*h]); err != nil {
			return err
		}
	}
	clear(d.masks)
	return nil
}

// audio decodes a recording: float32 of [samples, channels], as the operation Decode does.
func (d *RecordDecoder) audio(v *driver.Value, alloc func(n int64) ([]byte, error), out *Decoded) error {
	defer d.sound.Forget()
	if err := d.sound.Open(v.Bytes); err != nil {
		return err
	}
	channels, n := d.sound.Channels, int(d.sound.Frames)
	var err error
	if out.Bytes, err = alloc(4 * int64(channels) * int64(n)); err != nil {
		return err
	}
	out.Shape, out.Number = []int64{int64(n), int64(channels)}, uint64(d.sound.Rate)
	if n == 0 {
		return nil
	}
	samples := csound.Floats(out.Bytes)
	if channels == 1 {
		return d.sound.Decode(samples, n, 0, int64(n))
	}
	planes := make([]float32, channels*n)
	if err := d.sound.Decode(planes, n, 0, int64(n)); err != nil {
		return err
	}
	for c := range channels {
		for i, x := range planes[c*n : (c+1)*n] {
			samples[i*channels+c] = x
		}
	}
	return nil
}

// frames decodes a clip: uint8 of [frames, height, width, 3].
func (d *RecordDecoder) frames(f *driver.Field, v *driver.Value, alloc func(n int64) ([]byte, error), out *Decoded) error {
	c := &d.clip
	if err := c.Parse(v.Bytes); err != nil {
		return err
	}
	defer c.Forget()
	if t := f.Shape[0]; len(c.Frames) != t {
		return fmt.Errorf("a clip of %d frames, expected %d", len(c.Frames), t)
	}
	rows := &frameRows{out: out, n: len(c.Frames), alloc: alloc}
	if c.Stills() {
		return d.stills(rows)
	}
	return d.moving(rows)
}

// frameRows is the destination of the frames of a clip, which all have the same size.
type frameRows struct {
	out   *Decoded
	n     int
	alloc func(n int64) ([]byte, error)
}

// fit allocates the destination for frames of w x h pixels, and refuses a frame of another size.
func (r *frameRows) fit(w, h int) error {
	out := r.out
	if out.Shape == nil {
		var err error
		if out.Bytes, err = r.alloc(int64(r.n) * int64(w) * int64(h) * 3); err != nil {
			return err
		}
		out.Shape = []int64{int64(r.n), int64(h), int64(w), 3}
	}
	if out.Shape[1] != int64(h) || out.Shape[2] != int64(w) {
		return fmt.Errorf("its frames have different sizes: %d x %d and %d x %d", out.Shape[2], out.Shape[1], w, h)
	}
	return nil
}

// row returns the memory of frame j.
func (r *frameRows) row(j int) []byte {
	n := len(r.out.Bytes) / r.n
	return r.out.Bytes[j*n : (j+1)*n]
}

// stills decodes a clip whose frames are images of their own.
func (d *RecordDecoder) stills(rows *frameRows) error {
	c := &d.clip
	for j, at := range c.Frames {
		one, w, h, err := d.still(c.Packets[at].Data)
		if err == nil {
			err = rows.fit(w, h)
		}
		if err == nil {
			err = d.whole(one, item.RGB, item.U8, false, int32(w), int32(h), rows.row(j))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moving decodes a clip of a video.
func (d *RecordDecoder) moving(rows *frameRows) error {
	c := &d.clip
	dec, err := d.codec.open(&c.Stream)
	if err != nil {
		return err
	}
	defer dec.Flush()
	wanted := map[int64][]int{} // rows by packet
	for j, at := range c.Frames {
		n := int64(c.Packets[at].N)
		wanted[n] = append(wanted[n], j)
	}
	take := func() error {
		for {
			f, ok, err := dec.Receive()
			if err != nil || !ok {
				return err
			}
			places, ok := wanted[f.PTS]
			if !ok {
				continue
			}
			delete(wanted, f.PTS)
			w, h := f.Upright(&c.Stream)
			if err := rows.fit(w, h); err != nil {
				return err
			}
			f.RGB(&c.Stream, 0, 0, w, h, rows.row(places[0]))
			for _, j := range places[1:] {
				copy(rows.row(j), rows.row(places[0]))
			}
		}
	}
	end := func() error {
		if err := dec.End(); err != nil {
			return err
		}
		return take()
	}
	for i := range c.Packets {
		p := &c.Packets[i]
		if i > 0 && p.N != c.Packets[i-1].N+1 { // another part of the video
			if err := end(); err != nil {
				return err
			}
			dec.Flush()
		}
		_, want := wanted[int64(p.N)]
		if err := dec.Send(p.Data, int64(p.N), !want); err != nil {
			return fmt.Errorf("packet %d of the video: %w", p.N, err)
		}
		if err := take(); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	if len(wanted) > 0 {
		return fmt.Errorf("%d frames did not come out of the decoder: the video is damaged", len(wanted))
	}
	return nil
}

// still returns a frame of a video whose frames are images, and its size.
func (d *RecordDecoder) still(b []byte) (v driver.Value, w, h int, err error) {
	c := &d.clip
	if c.Turned() {
		return v, 0, 0, video.ErrTurned
	}
	v = driver.Value{Bytes: b, Orientation: 1}
	switch c.Codec {
	case video.Raw:
		v.Codec, v.Width, v.Height, v.Channels = driver.CodecRaw, int32(c.Width), int32(c.Height), 3
	case video.DCT:
		info, err := cdec.DCTInfo(b)
		if err != nil {
			return v, 0, 0, err
		}
		v.Codec, v.Width, v.Height, v.Channels = driver.CodecDCT, int32(info.Width), int32(info.Height), int32(info.Components)
	default:
		v.Bytes, v.Codec = video.JPEG(&d.jpeg, b), driver.CodecJPEG
	}
	info, err := d.images.Info(v)
	v.Width, v.Height = info.Width, info.Height
	return v, int(info.Width), int(info.Height), err
}
