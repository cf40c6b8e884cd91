package decode

import (
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// Memory returns the most memory that decoding an image takes, in addition to its bytes and its row. That includes all
// allocations of libjpeg and the Go libraries, since the garbage collector may run late. Only the headers are read.
func Memory(v driver.Value) (int64, error) {
	codec := v.Codec
	if codec == driver.CodecUnknown {
		codec = imagefile.Detect(v.Bytes)
	}
	switch codec {
	case driver.CodecRaw, driver.CodecDCT, driver.CodecRuns:
		return rowsMemory(int64(v.Width)), nil
	}
	info, err := probe(v.Bytes)
	if err != nil {
		return 0, err
	}
	if info.Codec == driver.CodecFlo { // which only becomes what it is
		flow := item.PixelType{DType: item.F32, Channels: item.MaxChannels}
		return fileMemory(&info, len(v.Bytes), 2*int64(flow.Size())), nil
	}
	return fileMemory(&info, len(v.Bytes), 3), nil
}

// SetMemory makes the decoder refuse images that take more than n bytes to decode, with a *MemoryError. With 0, the
// default, nothing is refused. Buffers larger than n are not kept for the next image.
func (d *Decoder) SetMemory(n int64) {
	d.memory = n
	d.c.SetMaxMemory(n)
	if n > 0 {
		d.trim(n)
	}
}

// keep returns the size limit of a buffer that is kept for the next image.
func (d *Decoder) keep() int64 {
	if d.memory > 0 {
		return min(d.memory, keepBytes)
	}
	return keepBytes
}

// trim frees buffers of more than n bytes.
func (d *Decoder) trim(n int64) {
	for _, b := range []*cdec.Buffer{&d.pixels, &d.converted, &d.mirrored, &d.turned} {
		if int64(b.Cap()) > n {
			b.Free()
		}
	}
}

// admit reports whether an image that C code decodes may take the memory that it needs, and more bytes for the
// processing of its pixels.
func (d *Decoder) admit(r *Request, more int64) error {
	if d.memory == 0 {
		return nil
	}
	// If the source knows the size, the bytes need not be read. If that size is wrong, libjpeg detects it.
	if w, h := int64(r.Value.Width), int64(r.Value.Height); w > 0 && h > 0 && bound(w, h)+more <= d.memory {
		return nil
	}
	need, err := Memory(r.Value)
	if err != nil {
		return err
	}
	return d.allow(need+more, false)
}

// pictureMemory returns the memory of runPicture for the pixels of a request's box, in addition to that of the codec's
// decoder.
func (r *Request) pictureMemory(codec driver.Codec, orientation int32) int64 {
	box := int64(r.Geom.Box.W) * int64(r.Geom.Box.H)
	simple := r.simple(codec)
	size := int64(r.Pixels.OrRGB().Size())
	if simple {
		size = int64(item.RGB.Size())
	}
	n := int64(0)
	switch codec {
	case driver.CodecJPEG, driver.CodecDCT:
		n = int64(item.RGB.Size()) * box
	case driver.CodecRaw:
		n = size * box // converted
	case driver.CodecRuns:
		return size * box
	}
	if !simple {
		n += size * box // converted
	}
	if orientation > 1 {
		n += 2 * size * box
	}
	return n
}

// allow refuses needs above the memory limit.
func (d *Decoder) allow(need int64, heap bool) error {
	if d.memory > 0 && need > d.memory {
		return &MemoryError{Need: need, Limit: d.memory, Heap: heap}
	}
	return nil
}

// tooLarge turns libjpeg's refusal into an error with the memory that would be needed.
func (d *Decoder) tooLarge(r *Request, err error) error {
	if d.memory == 0 || !errors.Is(err, cdec.ErrMemory) || errors.Is(err, cdec.ErrNoMemory) {
		return err
	}
	need, merr := Memory(r.Value)
	if merr != nil {
		return err
	}
	return &MemoryError{Need: max(need, d.memory+1), Limit: d.memory}
}

// bound returns at least the Memory of an image of that size in any format except lossless WebP and TIFF.
func bound(width, height int64) int64 { return rowsMemory(width) + 20*(width+16)*(height+16) }

// rowsMemory is the memory of decoders that process an image by rows: bands of rows of all components.
func rowsMemory(width int64) int64 { return 256*width + 256<<10 }

const (
	// For lossless WebP: the memory of Huffman trees per byte of the file that describes them, and the library's limit.
	webpTrees    = 400
	webpTreesMax = 210 << 20
	// libraryMemory is the memory that a library takes for any image: buffers of its decompressor.
	libraryMemory = 256 << 10
)

// fileMemory is Memory of an image in a file of n bytes, with pixel bytes for each
// pixel that it is decoded to.
func fileMemory(info *imagefile.Info, n int, pixel int64) int64 {
	w, h := int64(info.Width), int64(info.Height)
	pixels := w * h
	out := pixel * pixels // the converted image
	wide := int64(1)      // bytes of a sample
	if info.Precision > 8 {
		wide = 2
	}
	if info.Precision > 16 {
		wide = 4
	}
	switch info.Codec {
	case driver.CodecJPEG:
		if !info.Buffered {
			return rowsMemory(w)
		}
		return rowsMemory(w) + jpegCoefficients(info)
	case driver.CodecPNG:
		image := 4 * wide * pixels
		if info.Color == imagefile.Palette {
			image = pixels
		}
		if info.Buffered {
			image *= 2
		}
		return out + image + 16*wide*w + libraryMemory
	case driver.CodecBMP:
		return out + 4*pixels + libraryMemory
	case driver.CodecGIF:
		return out + 2*pixels + libraryMemory
	case driver.CodecWebP:
		// Y, U and V, alpha as a possible image of its own, and the library's copies of the file.
		whole := (w + 16) * (h + 16)
		if !info.Lossless {
			return out + whole*5/2 + int64(n) + libraryMemory
		}
		return out + whole*9 + int64(n) + min(webpTrees*int64(n), webpTreesMax) + libraryMemory
	case driver.CodecPNM, driver.CodecPFM, driver.CodecFlo:
		// The values, if they are copied.
		return out + wide*int64(info.Channels)*pixels + libraryMemory
	case driver.CodecJXL:
		// libjxl decodes all channels to floats and keeps the file.
		return out + 2*int64(n) + (4*3+4*wide+4*int64(max(info.Channels, 3)))*pixels + 4<<20
	case driver.CodecAVIF:
		// Frames of AV1, of up to 12 bits, and their conversion.
		return out + 2*int64(n) + 24*(w+128)*(h+128) + 4*(wide-1)*pixels + 4<<20
	case driver.CodecTIFF:
		if info.Turn > 1 {
			out += 4 * wide * pixels
		}
		// Samples as stored, blocks as read and unpacked, and the coefficients of an embedded JPEG.
		block := min(info.Block, (w+1024)*(h+1024))
		samples := wide * int64(min(max(info.Channels, 1), 64))
		n := 2*samples*pixels + (3*samples+8)*block
		if info.JPEGInside {
			n += 8 * block
		}
		return out + n + libraryMemory
	}
	return out + 8*pixels + libraryMemory
}

// CoefficientMemory returns the most memory that libjpeg takes to read or write the coefficients of a JPEG instead of
// pixels.
func CoefficientMemory(info *imagefile.Info) int64 {
	return rowsMemory(int64(info.Width)) + jpegCoefficients(info)
}

// jpegCoefficients is the size of all coefficients, two bytes each, of components
// whose sides are rounded up to whole blocks.
func jpegCoefficients(info *imagefile.Info) int64 {
	const block = 32
	w, h := int64(info.Width)+block, int64(info.Height)+block
	all := 2 * w * h
	switch {
	case info.Channels != 3:
	case info.Sampling == "4:2:0" || info.Sampling == "4:1:1":
		return all * 3 / 2
	case info.Sampling == "4:2:2" || info.Sampling == "4:4:0":
		return all * 2
	}
	return all * int64(info.Channels)
}

// MemoryError is the error if decoding an image takes more memory than allowed.
type MemoryError struct {
	// Need and Limit are bytes.
	Need, Limit int64
	// Heap reports that most of the memory is taken from the Go heap.
	Heap bool
}

// Error returns a message with the memory that is needed.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("decoding it takes %d MiB of memory, more than the %d MiB that there are for it", units.MiB(e.Need), e.Limit>>20)
}
